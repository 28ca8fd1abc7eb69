"""The vote: one ballot per resident, yes or no with a reason on each item; the majority decides
and a tie fails. The moderator and the planner do not vote.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from folkmoot.conversation.answers import Unreadable
from folkmoot.conversation.transcript import Speaker
from folkmoot.engine.session import Scope
from folkmoot.studies.town_hall.asking import Got, Group, Stage, ask_group, ask_one
from folkmoot.studies.town_hall.planner import history
from folkmoot.studies.town_hall.records import Ballot, Call, Item, Outcome, Round
from folkmoot.studies.town_hall.references import Mend
from folkmoot.studies.town_hall.replies import Mended, One, Reader
from folkmoot.studies.town_hall.room import Room, moderator_words, own_statements, statements
from folkmoot.studies.town_hall.spelling import spelled, text

OPTIONS = ("yes", "no")
STAGE = "vote"
ITEM_TOKENS = 45
_YES_NO = {"true": "yes", "approve": "yes", "for": "yes", "in_favour": "yes", "false": "no"}
_YES_NO |= {"reject": "no", "against": "no"}


async def vote(
    scope: Scope,
    room: Room,
    seats: Mapping[str, Speaker],
    rounds: tuple[Round, ...],
    items: Sequence[Item],
) -> tuple[dict[str, Ballot], list[Call]]:
    """Ballots of separate residents, cast side by side."""

    async def cast(own: Scope, who: Speaker) -> Got[Ballot]:
        said = own_statements(rounds, who.id)
        prompt = own.prompt(
            "vote",
            me=who.id,
            statements=statements(rounds[-1], but=who.id),
            moderator=moderator_words(rounds[-1]),
            own=said,
            items=_listed(items),
        )
        answer = One(schema(items), reader(who.id, items))
        return await ask_one(own, who, prompt, answer, Stage(STAGE, None, len(said)))

    if not items:
        return {i: Ballot(i, {}, {}) for i in room.ids}, []
    got = await scope.each([seats[i] for i in room.ids], cast)
    return (
        {i: g.value or Ballot(i, {}, {}) for i, g in got.items()},
        [g.call for g in got.values()],
    )


async def shared_vote(
    scope: Scope, room: Room, session: Speaker, rounds: tuple[Round, ...], items: Sequence[Item]
) -> tuple[dict[str, Ballot], list[Call]]:
    """All ballots from the one session."""
    empty = {i: Ballot(i, {}, {}) for i in room.ids}
    if not items:
        return empty, []

    def prompt(chunk: list[str], _: Mapping[str, Ballot]) -> str:
        return scope.prompt(
            "shared_vote",
            ids=chunk,
            history=history(rounds),
            moderator=moderator_words(rounds[-1]),
            items=_listed(items),
        )

    group = Group(
        {i: reader(i, items) for i in room.ids},
        dict.fromkeys(room.ids, schema(items)),
        ITEM_TOKENS * len(items),
    )
    longest = room.config.longest_shared_reply
    ballots, calls = await ask_group(
        scope, session, prompt, group, Stage(STAGE, None, len(rounds)), longest=longest
    )
    return {**empty, **ballots}, calls


def outcomes(items: Sequence[Item], ballots: Mapping[str, Ballot]) -> tuple[Outcome, ...]:
    """How each item came out."""
    found = []
    for item in items:
        votes = [b.votes.get(item.id) for b in ballots.values()]
        found.append(Outcome(item.id, votes.count("yes"), votes.count("no"), votes.count(None)))
    return tuple(found)


def schema(items: Sequence[Item]) -> dict[str, Any]:
    """The JSON schema of a ballot: one key per item."""
    one = {
        "title": "Vote",
        "type": "object",
        "properties": {
            "vote": {"type": "string", "enum": list(OPTIONS)},
            "reason": {"type": "string"},
        },
        "required": ["vote", "reason"],
    }
    return {
        "title": "Ballot",
        "type": "object",
        "properties": {i.id: {"$ref": "#/$defs/Vote"} for i in items},
        "required": [i.id for i in items],
        "$defs": {"Vote": one},
    }


def reader(resident: str, items: Sequence[Item]) -> Reader[Ballot]:
    """Reads one resident's ballot. An item without a clear yes or no makes it unreadable."""

    def read(raw: Mapping[str, Any]) -> Mended[Ballot] | Unreadable:
        votes: dict[str, str] = {}
        reasons: dict[str, str] = {}
        mends: list[Mend] = []
        by_key = {str(k).strip().casefold(): v for k, v in raw.items()}
        for item in items:
            entry = by_key.get(item.id.casefold())
            said = entry.get("vote") if isinstance(entry, Mapping) else entry
            found = yes_or_no(said)
            if found is None:
                return Unreadable(f"{item.id} has no vote of yes or no. Vote on every item.")
            if found != said:
                mends.append(Mend(f"{item.id}.vote", "spelling", text(said), found))
            votes[item.id] = found
            reasons[item.id] = text(entry.get("reason")) if isinstance(entry, Mapping) else ""
        return Mended(Ballot(resident, votes, reasons), tuple(mends))

    return read


def yes_or_no(raw: Any) -> str | None:
    """`yes` or `no`, also when written as true, "Yes." or against; None for anything else."""
    folded = str(raw).strip().casefold().replace(" ", "_") if raw is not None else ""
    return spelled(_YES_NO.get(folded.strip("."), raw), OPTIONS)


def _listed(items: Sequence[Item]) -> list[dict[str, str]]:
    return [{"id": i.id, "text": i.text} for i in items]
