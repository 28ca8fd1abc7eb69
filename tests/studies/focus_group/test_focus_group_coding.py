"""The second reader of the answers: known agreement is found, and absence of one is said."""

from __future__ import annotations

import polars as pl
import pytest

from folkmoot.studies.focus_group.findings import Concept, coding


def answers(valence: list[float], sentiment: list[float], source: str = "vader") -> Concept:
    said = pl.DataFrame(
        {
            "role": "participant",
            "valence": valence,
            "sentiment": sentiment,
            "sentiment_source": source,
        }
    )
    nothing = pl.DataFrame()
    return Concept(
        "oven", said, nothing, nothing, nothing, nothing, None, single=True, several=False
    )


@pytest.mark.parametrize(
    ("sentiment", "alpha", "same"),
    [
        ([0.8, -0.6, 0.4, -0.2], 1.0, 1.0),
        # By hand: observed (1.6² + 1.2² + .8² + .4²) / 4 = 1.2; the eight values have a mean of 0
        # and squares of 2.4, so expected is 2 · 2.4 / 7; alpha = 1 − 1.2 · 7 / 4.8 = −.75.
        ([-0.8, 0.6, -0.4, 0.2], -0.75, 0.0),
    ],
)
def test_known_agreement(sentiment: list[float], alpha: float, same: float) -> None:
    found = coding(answers([0.8, -0.6, 0.4, -0.2], sentiment))
    assert found is not None
    row = dict(zip(found.grid.columns, found.grid.rows[0], strict=True))
    assert row["same_side_share"] == same
    assert row["krippendorff alpha"] == pytest.approx(alpha)
    assert ("may stand for the other" if same else "too little to trust") in found.says


def test_one_reader_alone_agrees_with_nobody() -> None:
    assert coding(answers([0.5, -0.5], [0.5, -0.5], source="model")) is None
    alike = coding(answers([0.5, 0.5], [0.5, 0.5]))
    assert alike is not None and "cannot be distinguished from chance" in alike.says
