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
    Side,
    evaluate,
)
from folkmoot.measures.wording import CARD_PHRASES, CHECK_PHRASES, PHRASES, find_forbidden

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


def test_each_verdict_in_each_direction_has_a_phrase_that_says_no_more() -> None:
    assert set(PHRASES) == {(v, d) for v in get_args(ClaimVerdict) for d in get_args(Direction)}
    assert not any(find_forbidden(phrase) for phrase in PHRASES.values())


def test_each_verdict_of_a_check_has_one_phrase() -> None:
    assert set(CHECK_PHRASES) == set(get_args(Verdict))
    assert not any(find_forbidden(phrase) for phrase in CHECK_PHRASES.values())


def test_the_card_says_of_each_verdict_what_was_tested() -> None:
    """No phrase says that an effect is one of the treatment, or that people would answer so."""
    for threat, phrases in CARD_PHRASES.items():
        # A specification curve is the test that the word stands for.
        allowed = ["robust"] if threat == "Wording" else []
        for phrase in phrases:
            assert find_forbidden(phrase) in ([], allowed), phrase
        for phrase in (phrases.passed, phrases.failed):
            assert phrase.endswith(".") and phrase.count(". ") == 0
        assert "cause" not in phrases.passed and "same people" not in phrases.passed


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
        ((10, 10), "different", 0.2, "contradicted: they differ by less than 20 points"),
        ((40, 10), "greater", 0.1, "x exceeds y by more than 10 points: supported"),
        ((10, 40), "greater", 0.0, "x exceeds y: contradicted"),
        ((12, 10), "less", 0.0, "x falls below y: neither shown nor ruled out"),
        ((12, 10), "equivalent", 0.15, "equivalent: they differ by less than 15 points"),
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
