"""The town hall: sets of residents, each discussing one issue at every level.

Everything but the level is held equal inside a set: the residents, the order in which statements
are listed, the seed, the topic. Sets are held in order, no more at once than keep the model busy.
Rows are recorded as rounds, votes and discussions end; files and findings follow from them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from folkmoot.engine.seats.seats import Playable
from folkmoot.engine.session.session import Scope, Session
from folkmoot.kit.coding import Text
from folkmoot.studies.town_hall.config import TownHallConfig, levels_of
from folkmoot.studies.town_hall.discussion import (
    Call,
    Discussion,
    Hall,
    Meeting,
    Round,
    make_meeting,
    open_hall,
)
from folkmoot.studies.town_hall.files import keep_log
from folkmoot.studies.town_hall.participants import Resident, ResidentSet, load_profiles, make_set
from folkmoot.studies.town_hall.recording import Recorder, record_set
from folkmoot.studies.town_hall.stages import (
    AFTER,
    BEFORE,
    code_concerns,
    concerns,
    draw_up_ballot,
    moderate,
    reflect,
    shared_round,
    survey,
    take_turns,
    vote,
    write_consensus,
)


async def protocol(session: Session[TownHallConfig]) -> None:
    """Draw residents and seats, hold all discussions, code the concerns."""
    meetings = await draw(session)

    async def discuss(scope: Scope, meeting: Meeting) -> list[Text]:
        return concerns(await hold_discussion(scope, meeting), scope.seed)

    residents = max(len(meeting.ids) for meeting in meetings)
    voiced = await session.each(meetings, discuss, sets=lambda m: m.set.number, width=residents)
    await code_concerns(session, [text for texts in voiced.values() for text in texts])


def meetings_of(config: TownHallConfig, folder: Path) -> tuple[list[ResidentSet], list[Meeting]]:
    """The sets of residents, and their meetings at every level: functions of the seed."""
    profiles, seed = load_profiles(config.vulnerable, folder), config.random_seed
    sets = [make_set(config, profiles, seed, n) for n in range(1, config.sets + 1)]
    return sets, [make_meeting(config, s, lv, seed) for s in sets for lv in levels_of(config)]


def places(config: TownHallConfig, folder: Path) -> list[Playable]:
    """The residents whom people could play, each at one level."""
    _, meetings = meetings_of(config, folder)
    return [_place(meeting, id) for meeting in meetings for id in meeting.ids]


def _place(meeting: Meeting, id: str) -> Playable:
    level = meeting.level
    together = f"at level {level.name} one call of a model speaks for all residents"
    closed = together if level.context == "shared" else ""
    return Playable(id, (meeting.id,), condition=level.name, closed=closed)


async def draw(session: Session[TownHallConfig]) -> list[Meeting]:
    """Residents, orders of speaking and seats of all discussions, sealed into the plan."""
    sets, meetings = meetings_of(session.config, session.study_dir)
    meetings = [
        replace(m, oneself=frozenset(id for id in m.ids if session.oneself(id, m.id)))
        for m in meetings
    ]
    await session.seal("discussions", plan_of(sets, meetings))
    for of in sets:
        record_set(session, of, present(of, meetings))
    return meetings


def plan_of(sets: list[ResidentSet], meetings: list[Meeting]) -> dict[str, object]:
    """What is fixed before the first call: residents, orders of speaking, switches, dealing."""
    return {
        "residents": {
            f"set{s.number:02d}": [r.to_row() for r in present(s, meetings)] for s in sets
        },
        "orders": {f"set{s.number:02d}": [list(o) for o in s.orders] for s in sets},
        "option_orders": {f"set{s.number:02d}": s.options.to_json() for s in sets},
        "levels": {m.level.name: m.level.to_json() for m in meetings},
        "seats": {m.id: dict(m.seats) for m in meetings},
    }


def present(of: ResidentSet, meetings: Sequence[Meeting]) -> list[Resident]:
    """Everybody who takes part in any meeting of a set, each once."""
    known = {i for m in meetings if m.set is of for i in m.ids}
    return [r for r in (*of.residents, *of.stand_ins) if r.id in known]


async def hold_discussion(scope: Scope, meeting: Meeting) -> Discussion:
    """Survey, rounds, ballot, vote, closing text, survey (source, section 5.1)."""
    hall = open_hall(scope, meeting)
    so_far, recorder = Discussion(meeting), Recorder(scope, hall)

    before, calls = await survey(scope.at("before"), hall, so_far, BEFORE)
    so_far = so_far.plus(calls, before=before)

    for number in range(1, meeting.rounds + 1):
        round_, calls = await hold_round(scope.at(f"round{number}"), hall, so_far.rounds)
        so_far = so_far.plus(calls, rounds=(*so_far.rounds, round_))
        recorder.end_round(so_far.rounds)
        keep_log(scope, so_far)

    planned, calls = await draw_up_ballot(scope.at("plan"), hall, so_far)
    so_far = so_far.plus(calls, planned=planned)

    ballots, calls = await vote(scope.at("vote"), hall, so_far)
    so_far = so_far.plus(calls, ballots=ballots)
    so_far = so_far.plus([], outcomes=recorder.end_vote(so_far))

    closing, said, call = await write_consensus(scope.at("consensus"), hall, so_far)
    so_far = so_far.plus([call], closing=closing, consensus=said)

    after, calls = await survey(scope.at("after"), hall, so_far, AFTER)
    so_far = so_far.plus(calls, after=after)
    recorder.end_discussion(so_far)
    keep_log(scope, so_far)
    return so_far


async def hold_round(
    scope: Scope, hall: Hall, earlier: tuple[Round, ...]
) -> tuple[Round, list[Call]]:
    """THINK and SPEAK, then the moderator if there is one, then REFLECT but in the last round.

    Reflections know what the moderator said of the round.
    """
    level, last = hall.meeting.level, len(earlier) + 1 == hall.meeting.rounds
    reflects = level.reflect and not last
    if hall.session is not None:
        # The one reply of a shared session holds the reflections as well, if nobody speaks before.
        session, at_once = scope.at("session"), reflects and not level.moderated
        round_, calls = await shared_round(session, hall, earlier, reflects=at_once)
    else:
        round_, calls = await take_turns(scope.at("turns"), hall, earlier)
    if level.moderated:
        round_, call = await moderate(scope.at("moderator"), hall, (*earlier, round_))
        calls = [*calls, call]
    if reflects and not round_.reflections:
        round_, made = await reflect(scope.at("reflect"), hall, (*earlier, round_))
        calls = [*calls, *made]
    return round_, calls
