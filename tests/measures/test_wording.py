"""Allowed phrases on results, and forbidden ones in texts of findings."""

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
from folkmoot.measures.wording import PHRASES, Kind, Sentence, word
from tests.forbidden_phrases import find_forbidden

SOURCE = Path(folkmoot.__file__).parent
SOURCES_OF_TEXTS = [
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
PHRASES_WITH_ROBUST = {
    ("grid", "robust"),
    ("grid", "too few"),
    ("card", "Wording, passed"),
    ("card", "Wording, failed"),
}


def test_the_phrase_table_is_complete_without_forbidden_phrases() -> None:
    assert set(PHRASES) == set(get_args(Kind))
    for kind, phrases in PHRASES.items():
        for case, phrase in phrases.items():
            allowed = ["robust"] if (kind, case) in PHRASES_WITH_ROBUST else []
            assert find_forbidden(phrase) == allowed, phrase


def test_each_verdict_has_one_phrase() -> None:
    verdicts = [
        f"{verdict}, {direction}"
        for verdict in get_args(ClaimVerdict)
        for direction in get_args(Direction)
    ]
    assert set(verdicts) <= set(PHRASES["comparison"])
    assert set(get_args(Verdict)) <= set(PHRASES["check"])


def test_the_card_has_a_phrase_for_each_threat_and_verdict() -> None:
    """No phrase states a causal effect of the treatment or answers of humans."""
    threats = dict.fromkeys(case.rpartition(", ")[0] for case in PHRASES["card"])
    assert set(PHRASES["card"]) == {
        f"{threat}, {verdict}" for threat in threats for verdict in get_args(Verdict)
    }
    for case, phrase in PHRASES["card"].items():
        assert phrase.endswith(".") and phrase.count(". ") == 0
        assert phrase.endswith(": {advice}.") == case.endswith("not known")
        if case.endswith("passed"):
            assert "cause" not in phrase and "same people" not in phrase


def test_only_the_wording_module_makes_sentences() -> None:
    """Elsewhere, words on a result cannot become a `Sentence`, which checks and cards ask for."""
    makers = {
        path.relative_to(SOURCE)
        for path in SOURCE.rglob("*.py")
        # Only such files are parsed, because parsing takes a hundred times as long as this.
        if "Sentence(" in path.read_text("utf-8")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Sentence"
    }
    assert makers == {Path("measures/wording.py")}
    assert type(word("check", "passed", margin="at most 2 %")) is Sentence


def make_result(first: int, second: int, claim: Claim, n: int = 100) -> Result:
    sides = [
        Side.from_values([i < hits for i in range(n)], [f"{condition}{i}" for i in range(n)])
        for condition, hits in (("a", first), ("b", second))
    ]
    return evaluate(claim, sides[0], sides[1])


@pytest.mark.parametrize(
    ("hits", "direction", "margin", "sentence"),
    [
        ((40, 10), "different", 0.0, "a difference is shown"),
        ((12, 10), "different", 0.0, "a difference is neither shown nor ruled out"),
        ((40, 10), "different", 0.1, "a difference of more than 10 points is shown"),
        # Some difference is shown here, but none of this size.
        (
            (40, 10),
            "different",
            0.3,
            "a difference of more than 30 points is neither shown nor ruled out",
        ),
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
def test_results_have_the_phrases_of_the_table(
    hits: tuple[int, int], direction: Direction, margin: float, sentence: str
) -> None:
    claim = Claim("t.c", ("x", "y"), direction=direction, margin=margin, family="primary")
    assert make_result(*hits, claim).verdict_phrase == sentence


def test_too_few_units_are_not_tested() -> None:
    assert (
        make_result(2, 1, Claim("t.c", ("x", "y"), family="primary"), n=4).verdict_phrase
        == "not tested"
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
def test_forbidden_phrases_are_found(text: str) -> None:
    assert find_forbidden(text)


def list_literals(path: Path) -> Iterator[str]:
    """The strings of a module but for docstrings."""
    tree = ast.parse(path.read_text("utf-8"))
    documented = ast.Module | ast.FunctionDef | ast.ClassDef
    docs = {ast.get_docstring(n, clean=False) for n in ast.walk(tree) if isinstance(n, documented)}
    constants = (n.value for n in ast.walk(tree) if isinstance(n, ast.Constant))
    yield from (text for text in constants if isinstance(text, str) and text not in docs)


@pytest.mark.parametrize(
    "path", SOURCES_OF_TEXTS, ids=lambda path: f"{path.parent.name}/{path.name}"
)
def test_texts_of_findings_have_no_forbidden_phrases(path: Path) -> None:
    assert [text for text in list_literals(path) if find_forbidden(text)] == []
