"""Phase 3: one ballot from each member, and what becomes of the round when there are none."""

from __future__ import annotations

from dataclasses import dataclass

from folkmoot.conversation.answers import Json, Missing
from folkmoot.engine.session import Scope
from folkmoot.studies.negotiation.candidates import clean
from folkmoot.studies.negotiation.decision import Line
from folkmoot.studies.negotiation.groups import Member
from folkmoot.studies.negotiation.replies import BallotForm, ballot_for
from folkmoot.studies.negotiation.room import Room, member_speaker
from folkmoot.studies.negotiation.slots import Topic
from folkmoot.studies.negotiation.tally import Ballot, Tally

COLLECTED, PARTIAL, MISSING, NOT_HELD = "collected", "partial", "missing", "not_held"


@dataclass(frozen=True, slots=True)
class Round:
    """A round of ballots: those that could be had, and whether that is all of them."""

    cast: dict[str, Ballot]
    state: str


async def collect_ballots(
    scope: Scope, room: Room, topic: Topic, tally: Tally, proposal: str
) -> Round:
    """Ask every member for a ballot, apart from each other. A member whose ballot cannot be had
    is counted by the preference text alone; with no ballot at all the state is `missing`."""

    async def ask(at: Scope, member: Member) -> Ballot | None:
        who = member_speaker(at, room.group, member, room.config.days)
        prompt = at.prompt(
            "ballot",
            label=topic.label,
            preference=room.texts(topic.id).get(member.id, "none stated"),
            proposal=proposal or "none",
            options=list(tally.options),
        )
        form = await at.ask(who, prompt, answer=Json(ballot_for(tally.options)))
        return None if isinstance(form, Missing) else _ballot(member.id, form)

    replies = await scope.each(room.members, ask)
    cast = {m: b for m, b in replies.items() if b is not None}
    state = COLLECTED if len(cast) == len(replies) else PARTIAL if cast else MISSING
    return Round(cast, state)


def _ballot(member_id: str, form: BallotForm) -> Ballot | None:
    """A ballot without blanks and repeats; None for one that says nothing at all."""
    top = clean(form.top_choice)
    hard_no = tuple(dict.fromkeys(o for e in form.hard_no if (o := clean(e))))
    acceptable = tuple(dict.fromkeys(o for e in form.acceptable if (o := clean(e)) and o != top))
    return Ballot(member_id, top, acceptable, hard_no) if top or acceptable or hard_no else None


def vote_lines(room: Room, topic: Topic, ballots: Round) -> list[Line]:
    """Each ballot as its member says it."""
    return [
        room.line(m.name, "user_vote", spoken(ballots.cast[m.id]), "vote", topic.id)
        for m in room.members
        if m.id in ballots.cast
    ]


def spoken(ballot: Ballot) -> str:
    """`top_choice: …; acceptable: …; hard_no: …`, with "none" for an empty part."""
    parts = {
        "top_choice": ballot.top_choice,
        "acceptable": ", ".join(ballot.acceptable),
        "hard_no": ", ".join(ballot.hard_no),
    }
    return "; ".join(f"{name}: {value or 'none'}" for name, value in parts.items())
