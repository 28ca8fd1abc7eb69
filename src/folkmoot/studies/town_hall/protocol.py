"""The protocol of a town hall: sets of residents discuss one issue at every level.

Within a set only the level differs. The residents, the order of the statements, the seed and the
topic are the same. Sets run in order as blocks. Rows are recorded when rounds, votes and
discussions end. Files and findings are made from these rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from folkmoot.engine.seats.seats import Seat
from folkmoot.engine.session.session import Scope, Session
from folkmoot.kit.coding import TextToCode
from folkmoot.studies.town_hall.config import TownHallConfig, levels_of
from folkmoot.studies.town_hall.discussion import (
    Call,
    Discussion,
    HallSpeakers,
    Meeting,
    Round,
    make_meeting,
    open_hall,
)
from folkmoot.studies.town_hall.files import keep_log
from folkmoot.studies.town_hall.participants import Resident, ResidentSet, load_profiles, make_set
from folkmoot.studies.town_hall.recording import Recorder, code_concerns, concern_texts, record_set
from folkmoot.studies.town_hall.stages import (
    AFTER,
    BEFORE,
    ask_moderation,
    ask_reflections,
    ask_satisfaction,
    ask_votes,
    draw_up_ballot,
    shared_round,
    take_turns,
    write_consensus,
)


async def run_protocol(session: Session[TownHallConfig]) -> None:
    """Draw residents and seats, hold all discussions and code the residents' concerns."""
    meetings = await draw_residents_and_seats(session)

    async def hold_and_keep(scope: Scope, meeting: Meeting) -> list[TextToCode]:
        return concern_texts(await hold_discussion(scope, meeting), scope.seed)

    # A meeting asks all its residents at once. The session uses this `width` to decide how many
    # meetings keep the model busy.
    residents = max(len(meeting.ids) for meeting in meetings)
    voiced = await session.map(
        meetings, hold_and_keep, block=lambda meeting: meeting.set.number, width=residents
    )
    await code_concerns(session, [text for texts in voiced.values() for text in texts])


def meetings_of(config: TownHallConfig, folder: Path) -> tuple[list[ResidentSet], list[Meeting]]:
    """Return the sets of residents, and their meetings at every level.

    Both depend on the study file and its seed alone, so seats can be listed before a run.
    """
    profiles, seed = load_profiles(config.vulnerable, folder), config.random_seed
    sets = [make_set(config, profiles, seed, n) for n in range(1, config.sets + 1)]
    return sets, [
        make_meeting(config, resident_set, lv, seed)
        for resident_set in sets
        for lv in levels_of(config)
    ]


def available_seats(config: TownHallConfig, folder: Path) -> list[Seat]:
    """Return the seats that humans can take: each resident at each level."""
    _, meetings = meetings_of(config, folder)
    return [_seat(meeting, id) for meeting in meetings for id in meeting.ids]


def _seat(meeting: Meeting, id: str) -> Seat:
    level = meeting.level
    together = f"at level {level.name} one call of a model speaks for all residents"
    closed = together if level.context == "shared" else ""
    return Seat(id, (meeting.id,), condition=level.name, closed_reason=closed)


async def draw_residents_and_seats(session: Session[TownHallConfig]) -> list[Meeting]:
    """Draw the residents, orders and seats of all meetings, and seal and record them."""
    sets, meetings = meetings_of(session.config, session.study_folder)
    meetings = [
        replace(
            meeting,
            oneself=frozenset(id for id in meeting.ids if session.speaks_as_self(id, meeting.id)),
        )
        for meeting in meetings
    ]
    # Seal the plan before the first call, so that the draw cannot depend on an answer.
    await session.seal("discussions", plan_of(sets, meetings))
    for of in sets:
        record_set(session, of, all_residents(of, meetings))
    return meetings


def plan_of(sets: list[ResidentSet], meetings: list[Meeting]) -> dict[str, object]:
    """Return the drawn design: residents, orders, levels and the models of seats."""
    return {
        "residents": {
            f"set{resident_set.number:02d}": [
                resident.to_row() for resident in all_residents(resident_set, meetings)
            ]
            for resident_set in sets
        },
        "orders": {
            f"set{resident_set.number:02d}": [list(order) for order in resident_set.orders]
            for resident_set in sets
        },
        "option_orders": {
            f"set{resident_set.number:02d}": resident_set.options.to_json() for resident_set in sets
        },
        "levels": {meeting.level.name: meeting.level.to_json() for meeting in meetings},
        "seats": {meeting.id: dict(meeting.seats) for meeting in meetings},
    }


def all_residents(of: ResidentSet, meetings: Sequence[Meeting]) -> list[Resident]:
    """Return the residents who take part in any meeting of a set, each once.

    Stand-ins are included only if a level replaces the vulnerable residents.
    """
    known = {
        resident_id for meeting in meetings if meeting.set is of for resident_id in meeting.ids
    }
    return [resident for resident in (*of.residents, *of.stand_ins) if resident.id in known]


async def hold_discussion(scope: Scope, meeting: Meeting) -> Discussion:
    """Hold one discussion and record it (source, section 5.1).

    The order is: survey, rounds, ballot, vote, closing text, survey.
    """
    hall = open_hall(scope, meeting)
    so_far, recorder = Discussion(meeting), Recorder(scope, hall)

    before, calls = await ask_satisfaction(scope.child("before"), hall, so_far, BEFORE)
    so_far = so_far.with_stage(calls, before=before)

    for number in range(1, meeting.round_count + 1):
        round_, calls = await hold_round(scope.child(f"round{number}"), hall, so_far.rounds)
        so_far = so_far.with_stage(calls, rounds=(*so_far.rounds, round_))
        recorder.end_round(so_far.rounds)
        keep_log(scope, so_far)

    planned, calls = await draw_up_ballot(scope.child("plan"), hall, so_far)
    so_far = so_far.with_stage(calls, planned=planned)

    ballots, calls = await ask_votes(scope.child("vote"), hall, so_far)
    so_far = so_far.with_stage(calls, ballots=ballots)
    so_far = so_far.with_stage([], item_outcomes=recorder.end_vote(so_far))

    closing, said, call = await write_consensus(scope.child("consensus"), hall, so_far)
    so_far = so_far.with_stage([call], closing=closing, consensus=said)

    after, calls = await ask_satisfaction(scope.child("after"), hall, so_far, AFTER)
    so_far = so_far.with_stage(calls, after=after)
    recorder.end_discussion(so_far)
    keep_log(scope, so_far)
    return so_far


async def hold_round(
    scope: Scope, hall: HallSpeakers, earlier: tuple[Round, ...]
) -> tuple[Round, list[Call]]:
    """Hold one round and return it with its calls.

    The order is THINK, SPEAK, the moderator if the level has one, and REFLECT except in the last
    round. Residents reflect after the moderator, so they can respond to the moderator's words.
    """
    level, last = hall.meeting.level, len(earlier) + 1 == hall.meeting.round_count
    reflects = level.reflect and not last
    if hall.session is not None:
        # One reply of a shared session also holds the reflections, unless the moderator speaks in
        # between.
        session, at_once = scope.child("session"), reflects and not level.is_moderated
        round_, calls = await shared_round(session, hall, earlier, reflects=at_once)
    else:
        round_, calls = await take_turns(scope.child("turns"), hall, earlier)
    if level.is_moderated:
        round_, call = await ask_moderation(scope.child("moderator"), hall, (*earlier, round_))
        calls = [*calls, call]
    if reflects and not round_.reflections:
        round_, made = await ask_reflections(scope.child("reflect"), hall, (*earlier, round_))
        calls = [*calls, *made]
    return round_, calls
