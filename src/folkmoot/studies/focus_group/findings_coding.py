"""Whether the model that codes positions agrees with a reading that needs no model."""

from __future__ import annotations

import math

import numpy as np
import polars as pl

from folkmoot.measures.agreement import krippendorff_alpha
from folkmoot.measures.estimates import percent
from folkmoot.records.findings import Finding, Grid
from folkmoot.studies.focus_group.sentiment import MODEL

GOOD, FAIR = 0.8, 0.667  # Krippendorff's customary limits: for conclusions, for tentative ones
NEUTRAL = 0.05  # nearer to zero than this is neither for nor against


def coding(said: pl.DataFrame, key: str, tag: str) -> Finding | None:
    """Krippendorff's alpha of the coder's position and the lexicon's sentiment, answer by answer.

    `said`: the utterances of one concept. None if the model rated the sentiment as well: then
    there is no second reader.
    """
    both = said.filter(
        pl.col("valence").is_not_null()
        & pl.col("sentiment").is_not_null()
        & (pl.col("role") == "participant")
        & (pl.col("sentiment_source") != MODEL)
    )
    if both.height < 2:
        return None
    codes = np.array([both["valence"].to_numpy(), both["sentiment"].to_numpy()], float)
    alpha = krippendorff_alpha(codes, "interval")
    sides = np.where(np.abs(codes) < NEUTRAL, 0, np.sign(codes))
    same = float(np.mean(sides[0] == sides[1]))
    return Finding(
        key=f"coding{key}",
        title=f"Do two readers of the answers agree?{tag}",
        says="The coder's position and the tone by lexicon are on the same side in "
        f"{percent(same)} of {both.height} answers; {_verdict(alpha)}",
        grid=Grid.of(
            [
                {
                    "answers": both.height,
                    "same_side_share": same,
                    "krippendorff alpha": alpha if math.isfinite(alpha) else None,
                    "mean position": float(codes[0].mean()),
                    "mean tone": float(codes[1].mean()),
                }
            ],
            "Krippendorff's alpha for interval data: 1 is agreement, 0 is chance",
        ),
        notes=(
            "Tone is not position: people may be friendly about what they would never buy. A low "
            "value says that the coding needs a check by hand, not which of the two is right.",
        ),
        section="Conversation",
    )


def _verdict(alpha: float) -> str:
    if not math.isfinite(alpha):
        return "all were read alike, so agreement cannot be told from chance."
    told = f"Krippendorff's alpha is {alpha:.2f}"
    if alpha >= GOOD:
        return f"{told}: they may stand for each other."
    if alpha >= FAIR:
        return f"{told}: enough for tentative conclusions."
    return f"{told}: too little to trust either without reading the answers."
