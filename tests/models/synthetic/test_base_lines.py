"""What the respondent makes of base lines as persona-hub writes them, in every grammatical form."""

from __future__ import annotations

import pytest

from folkmoot.models.synthetic.draws import Draws
from folkmoot.models.synthetic.people import article, enriched_persona, occupation

FACTS = (
    "\n\nDemographics:\n- Age: 47\n- Sex: F\n- Education: High school\n- Political leaning: liberal"
)


@pytest.mark.parametrize(
    ("line", "begins", "job"),
    [
        ("A baker who rises early.", "a baker who rises early", "Baker"),
        (
            "I'm an old-time Oakland fan who sings",
            "an old-time Oakland fan",
            "Old-time Oakland fan",
        ),
        ("I am a retired judge. My cat is old.", "a retired judge", "Retired judge"),
        ("As a nurse with long nights", "a nurse with long nights", "Nurse"),
        (
            "Up-and-coming indie artist",
            "an up-and-coming indie artist",
            "Up-and-coming indie artist",
        ),
        ("University lecturer", "a university lecturer", "University lecturer"),
        ("Ann Lee, the CEO of a mill", "Ann Lee, the CEO of a mill", "Ann Lee"),
        ("Dr. Sophia L. Turner, an economist", "Dr. Sophia L. Turner, an economist", "Dr"),
    ],
)
def test_lines_become_the_beginning_of_a_portrait(line: str, begins: str, job: str) -> None:
    for seed in range(6):
        said = enriched_persona(f"Base persona: {line}{FACTS}", Draws(seed, "x", "enrich"))
        assert said.startswith(begins)
        assert "I'm" not in said and "47" in said[: said.index("She ")]
        assert said.count("She ") == 2
    assert occupation(line) == job


def test_articles_go_by_sound() -> None:
    assert [
        article(w) for w in ("uncle", "user", "UK citizen", "European", "one-man band", "oak")
    ] == [*("an", "a", "a", "a", "a", "an")]
