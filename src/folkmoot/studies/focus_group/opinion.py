"""Positions over time: after each answer the coder says whether it shows a change, and to where.

Judged against the last position known, not only the first one.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from folkmoot.conversation.answers import Json, Missing
from folkmoot.conversation.transcript import Speaker
from folkmoot.engine.session import Scope
from folkmoot.people.sources.grounded import Profile
from folkmoot.studies.focus_group import personality
from folkmoot.studies.focus_group.config import DiscussionConfig

# Smaller differences than this are wording, not a change of mind.
SMALLEST_SHIFT = 0.1


class OpinionReading(BaseModel):
    """What an answer shows of a position; `sentiment` where the model is asked for it."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    changed: bool
    valence: Annotated[float, Field(ge=-1, le=1)]
    sentiment: Annotated[float | None, Field(ge=-1, le=1)] = None


class Position(BaseModel):
    """Where somebody stands: valence, and whether the last answer moved it."""

    model_config = ConfigDict(frozen=True)

    valence: float
    changed: bool = False
    sentiment: float | None = None
    missing: str | None = None


async def read_position(
    scope: Scope,
    config: DiscussionConfig,
    profile: Profile,
    last: float,
    question: str,
    answer: str,
) -> Position:
    """Ask the coder about one answer. An unreadable reading leaves the position where it was."""
    prompt = scope.prompt(
        "opinion_shift",
        who=profile.first_name,
        concept=config.product_concept,
        first_opinion=profile.opinion.sentence if profile.opinion else "",
        last_position=f"{last:+.2f}",
        last_leaning=personality.leaning(last),
        question=question,
        answer=answer,
        with_sentiment=config.sentiment == "model",
    )
    coder = Speaker("coder", "Coder", role="coder", system=scope.prompt("coder_system"))
    read = await scope.ask(coder, prompt, answer=Json(OpinionReading), temperature=0.0)
    if isinstance(read, Missing):
        return Position(valence=last, missing=read.reason)
    moved = read.changed and abs(read.valence - last) >= SMALLEST_SHIFT
    return Position(
        valence=round(read.valence, 2) if moved else last,
        changed=moved,
        sentiment=None if read.sentiment is None else round(read.sentiment, 3),
    )
