"""Free words as data: objections, needs and themes of the answers, and the stance of what is said
in private, coded by one codebook each over all groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from folkmoot.engine.session import Session
from folkmoot.kit import coding
from folkmoot.studies.focus_group.config import DiscussionConfig, DiscussionPhase
from folkmoot.studies.focus_group.discussion import DiscussionMessage, DiscussionTranscript

CODEBOOKS = Path(__file__).parent / "codebooks"
# Where the codes of the codebook `opinion` stand on the scale of positions.
STANDS = {"keen": 1.0, "favourable": 0.5, "undecided": 0.0, "doubtful": -0.5, "opposed": -1.0}

Codes = Mapping[str, Sequence[coding.Coded]]


def answer_id(t: DiscussionTranscript, message: DiscussionMessage) -> str:
    """The id of an answer as a text to be coded."""
    return f"{t.group}/{t.stimulus}/turn{message.turn_number}"


async def coded(session: Session[DiscussionConfig], talks: Sequence[DiscussionTranscript]) -> Codes:
    """The codes of all answers by their id. The warm-up, where people introduce themselves, is left
    out; what was said in private is coded too, for the report to compare with the positions."""
    answers = [
        coding.Text(answer_id(t, m), m.content, f"{t.group}/{m.speaker_id}")
        for t in talks
        for m in t.by_participants()
        if m.phase is not DiscussionPhase.WARMUP
    ]
    private = [
        coding.Text(
            f"{t.group}/{t.stimulus}/{s.persona_id}/{s.when.value}", s.words,
            f"{t.group}/{s.persona_id}",
        )
        for t in talks
        for s in t.statements
        if s.words and not s.planted
    ]  # fmt: skip
    codes = await coding.code(session, CODEBOOKS / "remarks.yaml", answers)
    await coding.code(session, CODEBOOKS / "opinion.yaml", private)
    return codes


def kind_and_name(code: str) -> tuple[str, str]:
    """("objection", "price") of "objection_price"; a code of a user's own codebook is a theme."""
    kind, mark, name = code.partition("_")
    return (kind, name) if mark and kind in ("objection", "need", "theme") else ("theme", code)
