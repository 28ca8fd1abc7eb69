"""One discussion from the first survey to the last, at whatever level: the flow of the source's
section 5.1 with the level's switches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from folkmoot.conversation.transcript import Speaker
from folkmoot.engine.session import Scope
from folkmoot.studies.town_hall import moderator, planner, separate_sessions, single_session, voting
from folkmoot.studies.town_hall.consensus import write_consensus
from folkmoot.studies.town_hall.records import (
    Ballot,
    Call,
    Discussion,
    Item,
    Round,
    Satisfaction,
)
from folkmoot.studies.town_hall.room import Room, session_speaker, speakers
from folkmoot.studies.town_hall.satisfaction import Ending, shared_survey, survey

Rounds = tuple[Round, ...]


@dataclass(frozen=True)
class Hall:
    """Who can be asked: residents with seats of their own, or the one shared session."""

    room: Room
    seats: Mapping[str, Speaker]
    session: Speaker | None

    async def survey(
        self, scope: Scope, ending: Ending | None
    ) -> tuple[dict[str, Satisfaction], list[Call]]:
        if self.session is not None:
            return await shared_survey(scope, self.room, self.session, ending)
        return await survey(scope, self.room, self.seats, ending)

    async def vote(
        self, scope: Scope, rounds: Rounds, items: tuple[Item, ...]
    ) -> tuple[dict[str, Ballot], list[Call]]:
        if self.session is not None:
            return await voting.shared_vote(scope, self.room, self.session, rounds, items)
        return await voting.vote(scope, self.room, self.seats, rounds, items)


async def hold_discussion(scope: Scope, room: Room) -> Discussion:
    """All rounds, the ballot, the vote, the closing text and both surveys."""
    shared = session_speaker(scope, room) if room.shared else None
    hall = Hall(room, {} if room.shared else speakers(scope, room), shared)
    before, calls = await hall.survey(scope.at("before"), None)
    rounds: Rounds = ()
    for number in range(1, room.rounds + 1):
        round_, made = await hold_round(scope.at(f"round{number}"), hall, rounds)
        rounds, calls = (*rounds, round_), [*calls, *made]
    author = planner.speaker(scope, room)
    items, call = await planner.plan_items(scope.at("plan"), room, author, rounds)
    ballots, votes = await hall.vote(scope.at("vote"), rounds, items)
    outcomes = voting.outcomes(items, ballots)
    consensus, closing = await write_consensus(
        scope.at("consensus"), room, author, rounds, items, outcomes
    )
    ending = Ending(rounds, items, outcomes, ballots, consensus)
    after, last = await hall.survey(scope.at("after"), ending)
    return Discussion(
        id=room.id,
        set_no=room.set.number,
        level=room.level,
        residents=room.residents,
        seats=room.seats,
        rounds=rounds,
        items=items,
        ballots=ballots,
        outcomes=outcomes,
        consensus=consensus,
        before=before,
        after=after,
        calls=(*calls, call, *votes, closing, *last),
    )


async def hold_round(scope: Scope, hall: Hall, earlier: Rounds) -> tuple[Round, list[Call]]:
    """THINK and SPEAK, then the moderator if there is one, then REFLECT but in the last round."""
    room, last = hall.room, len(earlier) + 1 == hall.room.rounds
    reflects = room.level.reflect and not last
    if hall.session is not None:
        # The one reply of a shared session holds the reflections as well.
        round_, calls = await single_session.run_round(
            scope.at("session"), room, hall.session, earlier, reflects=reflects
        )
    else:
        round_, calls = await separate_sessions.run_round(
            scope.at("turns"), room, hall.seats, earlier
        )
    if room.level.moderated:
        said, call = await moderator.moderate(
            scope.at("moderator"), room, moderator.speaker(scope, room), round_
        )
        round_, calls = replace(round_, moderation=said), [*calls, call]
    if reflects and hall.session is None:
        round_, made = await separate_sessions.reflect(
            scope.at("reflect"), room, hall.seats, round_
        )
        calls = [*calls, *made]
    return round_, calls
