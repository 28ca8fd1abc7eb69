"""What may be said of results, and what no text of a finding says."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

import folkmoot
from folkmoot.measures.diagnostics import Verdict
from folkmoot.measures.inference.claims import (
    Claim,
    ClaimVerdict,
    Direction,
    Result,
    evaluate,
)
from folkmoot.measures.inference.differences import Side
from folkmoot.measures.wording import PHRASES, Kind, Sentence, find_forbidden, word

SOURCE = Path(folkmoot.__file__).parent
TEXTS = [
    *sorted(SOURCE.glob("studies/*/findings.py")),
    *sorted(SOURCE.glob("studies/*/findings/*.py")),
    *(SOURCE / "kit" / name for name in ("claims.py", "findings.py")),
    *(SOURCE / "engine" / "settings" / name for name in ("claims.py", "hypotheses.py")),
    *(SOURCE / "report" / "document" / name for name in ("front.py", "trust.py")),
    *sorted(SOURCE.glob("kit/controls/*.py")),
    SOURCE / "report" / "comparison" / "mixed.py",
    SOURCE / "measures" / "diagnostics.py",
    SOURCE / "studies" / "focus_group" / "sycophancy.py",
    SOURCE / "engine" / "study" / "strict_answers.py",
    *(SOURCE / "report" / "comparison" / name for name in ("compare.py", "between_runs.py")),
    *(SOURCE / "report" / "comparison" / name for name in ("people.py", "power.py")),
]


# A specification curve is the test behind the word "robust".
ROBUST = {
    ("grid", "robust"),
    ("grid", "too few"),
    ("card", "Wording, passed"),
    ("card", "Wording, failed"),
}


def test_the_table_has_a_part_for_each_kind_of_result_and_no_forbidden_phrase() -> None:
    assert set(PHRASES) == set(get_args(Kind))
    for kind, phrases in PHRASES.items():
        for case, phrase in phrases.items():
            allowed = ["robust"] if (kind, case) in ROBUST else []
            assert find_forbidden(phrase) == allowed, phrase


def test_each_verdict_has_one_phrase() -> None:
    verdicts = [f"{v}, {d}" for v in get_args(ClaimVerdict) for d in get_args(Direction)]
    assert set(verdicts) <= set(PHRASES["comparison"])
    assert set(get_args(Verdict)) <= set(PHRASES["check"])


def test_the_card_says_of_each_verdict_what_was_tested() -> None:
    """No phrase says that an effect is one of the treatment, or that people would answer so."""
    threats = dict.fromkeys(case.rpartition(", ")[0] for case in PHRASES["card"])
    assert set(PHRASES["card"]) == {f"{t}, {v}" for t in threats for v in get_args(Verdict)}
    for case, phrase in PHRASES["card"].items():
        assert phrase.endswith(".") and phrase.count(". ") == 0
        assert phrase.endswith(": {advice}.") == case.endswith("not known")
        if case.endswith("passed"):
            assert "cause" not in phrase and "same people" not in phrase


def test_only_the_module_of_the_table_makes_sentences() -> None:
    """Elsewhere, words on a result cannot become a `Sentence`, which checks and cards ask for."""
    makers = {
        path.relative_to(SOURCE)
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Sentence"
    }
    assert makers == {Path("measures/wording.py")}
    assert type(word("check", "passed", margin="at most 2 %")) is Sentence


def result(first: int, second: int, claim: Claim, n: int = 100) -> Result:
    sides = [
        Side.from_values([i < hits for i in range(n)], [f"{arm}{i}" for i in range(n)])
        for arm, hits in (("a", first), ("b", second))
    ]
    return evaluate(claim, sides[0], sides[1])


@pytest.mark.parametrize(
    ("hits", "direction", "margin", "says"),
    [
        ((40, 10), "different", 0.0, "a difference is shown"),
        ((12, 10), "different", 0.0, "a difference is neither shown nor ruled out"),
        ((10, 10), "different", 0.2, "contradicted, because they differ by less than 20 points"),
        ((40, 10), "greater", 0.1, "it is supported that x exceeds y by more than 10 points"),
        ((10, 40), "greater", 0.0, "it is contradicted that x exceeds y"),
        ((12, 10), "less", 0.0, "it is neither shown nor ruled out that x falls below y"),
        ((12, 10), "equivalent", 0.15, "equivalent, because they differ by less than 15 points"),
        (
            (12, 10),
            "equivalent",
            0.05,
            "a difference of less than 5 points is neither shown nor ruled out",
        ),
    ],
)
def test_phrases(hits: tuple[int, int], direction: Direction, margin: float, says: str) -> None:
    claim = Claim("t.c", ("x", "y"), direction=direction, margin=margin, family="primary")
    assert result(*hits, claim).verdict_phrase == says


def test_too_few_units_are_called_not_tested() -> None:
    assert (
        result(2, 1, Claim("t.c", ("x", "y"), family="primary"), n=4).verdict_phrase == "not tested"
    )


@pytest.mark.parametrize(
    "text",
    [
        "The difference is significant.",
        "No difference is statistically significant.",
        "There was no change in C4.",
        "Opinions were unchanged.",
        "The arms had no effect.",
        "No collapse of variance.",
        "As many as before agreed.",
        "This holds robustly.",
        "It is valid however wrong the model is.",
        "That proves it.",
        "The share rose by +12 %.",
    ],
)
def test_what_no_single_run_shows_is_found(text: str) -> None:
    assert find_forbidden(text)


def literals(path: Path) -> Iterator[str]:
    """The strings of a module but for docstrings."""
    tree = ast.parse(path.read_text("utf-8"))
    documented = ast.Module | ast.FunctionDef | ast.ClassDef
    docs = {ast.get_docstring(n, clean=False) for n in ast.walk(tree) if isinstance(n, documented)}
    constants = (n.value for n in ast.walk(tree) if isinstance(n, ast.Constant))
    yield from (text for text in constants if isinstance(text, str) and text not in docs)


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_no_text_of_a_finding_says_more_than_a_run_can_show(path: Path) -> None:
    assert [text for text in literals(path) if find_forbidden(text)] == []
