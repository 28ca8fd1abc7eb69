"""The protocol of a town hall: sets of residents discuss one issue at every level."""

# Within a set only the level differs. Residents, speaking orders, seed and topic are the same. Rows
# are recorded at the end of each round, vote and discussion. Files and findings are made from them.

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from folkmoot.engine.seats.seats import SELF_DESCRIPTION_PLACEHOLDER, Seat
from folkmoot.engine.session.plan import DESIGN, sealed_data
from folkmoot.engine.session.session import Scope, Session
from folkmoot.kit.coding import TextToCode
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.town_hall.answers.calls import Call
from folkmoot.studies.town_hall.config import TownHallConfig, levels_of
from folkmoot.studies.town_hall.discussion import (
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
    """Hold all discussions of a run, and code how each closing text treats residents' concerns."""
    meetings = await draw_residents_and_seats(session)

    async def hold_and_select_texts(scope: Scope, meeting: Meeting) -> list[TextToCode]:
        return concern_texts(await hold_discussion(scope, meeting), scope.seed)

    # A meeting asks all its residents at once. The session uses this `width` to decide how many
    # meetings keep the model busy.
    residents = max(len(meeting.ids) for meeting in meetings)
    texts_by_meeting = await session.map(
        meetings, hold_and_select_texts, block=lambda meeting: meeting.set.number, width=residents
    )
    await code_concerns(session, [text for texts in texts_by_meeting.values() for text in texts])


def meetings_of(config: TownHallConfig, folder: Path) -> tuple[list[ResidentSet], list[Meeting]]:
    """Return the sets of residents, and the meetings of each set at every level."""
    # Sets and meetings depend only on the study file and its seed, so seats can be listed before a
    # run.
    profiles, seed = load_profiles(config.vulnerable, folder), config.random_seed
    sets = [make_set(config, profiles, seed, number) for number in range(1, config.sets + 1)]
    return sets, [
        make_meeting(config, resident_set, level, seed)
        for resident_set in sets
        for level in levels_of(config)
    ]


def available_seats(config: TownHallConfig, folder: Path) -> list[Seat]:
    """Return the seats that humans can take."""
    # Each resident at each level is a seat.
    _, meetings = meetings_of(config, folder)
    return [_seat_of_resident(meeting, id) for meeting in meetings for id in meeting.ids]


def _seat_of_resident(meeting: Meeting, id: str) -> Seat:
    level = meeting.level
    shared_note = f"at level {level.name} one call of a model speaks for all residents"
    closed_reason = shared_note if level.context == "shared" else ""
    part = str(meeting.set.number)
    return Seat(id, (meeting.id,), condition=level.name, closed_reason=closed_reason, part=part)


async def draw_residents_and_seats(session: Session[TownHallConfig]) -> list[Meeting]:
    """Draw and record the residents and their meetings."""
    sets, meetings = meetings_of(session.config, session.study_folder)
    meetings = [
        replace(
            meeting,
            ids_as_self=frozenset(
                id for id in meeting.ids if session.speaks_as_self(id, meeting.id)
            ),
        )
        for meeting in meetings
    ]
    # Seal the plan before the first call, so that the draw cannot depend on an answer.
    await session.seal("discussions", plan_of(sets, meetings))
    for resident_set in sets:
        record_set(session, resident_set, all_residents(resident_set, meetings))
    return meetings


def plan_of(sets: list[ResidentSet], meetings: list[Meeting]) -> dict[str, object]:
    """Return the drawn residents, orders and models as JSON data for the pre-registered plan."""
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


def describe_residents(run: RunFolder) -> dict[tuple[str, ...], str]:
    """Return the persona texts of the residents, by discussion and resident."""
    # The sealed residents lack their life stories, which only the persona texts hold. These texts
    # also depend on the prompt and on the texts of the topic. Residents stay the same if these
    # change, so they are part of the key.
    design = sealed_data(run.plan).get(DESIGN, {})
    topic = design.get("settings", {}).get("topic", {})
    made_from = (
        str(design.get("prompts", {}).get("portrait")),
        str(topic.get("contributions")),
        str(topic.get("stakes")),
    )
    if not run.has_table("portraits"):
        return {}
    rows = run.read_table("portraits").select("discussion_id", "agent_id", "portrait").iter_rows()
    return {
        (*made_from, discussion_id, resident_id): portrait
        for discussion_id, resident_id, portrait in rows
        # A seat that a human takes in one of the runs does not make the others other people.
        if SELF_DESCRIPTION_PLACEHOLDER not in portrait
    }


def all_residents(resident_set: ResidentSet, meetings: Sequence[Meeting]) -> list[Resident]:
    """Return the residents who take part in any meeting of a set, each once."""
    # They include the substitutes if a level replaces the vulnerable residents by them.
    present_ids = {
        resident_id
        for meeting in meetings
        if meeting.set is resident_set
        for resident_id in meeting.ids
    }
    return [
        resident
        for resident in (*resident_set.residents, *resident_set.stand_ins)
        if resident.id in present_ids
    ]


async def hold_discussion(scope: Scope, meeting: Meeting) -> Discussion:
    """Run one discussion, record it, and return the discussion."""
    hall = open_hall(scope, meeting)
    discussion, recorder = Discussion(meeting), Recorder(scope, hall)

    before, calls = await ask_satisfaction(scope.child("before"), hall, discussion, BEFORE)
    discussion = discussion.with_stage(calls, before=before)

    for number in range(1, meeting.config.rounds + 1):
        round_, calls = await hold_round(scope.child(f"round{number}"), hall, discussion.rounds)
        discussion = discussion.with_stage(calls, rounds=(*discussion.rounds, round_))
        recorder.end_round(discussion.rounds)
        keep_log(scope, discussion)

    planned, calls = await draw_up_ballot(scope.child("plan"), hall, discussion)
    discussion = discussion.with_stage(calls, planned=planned)

    ballots, calls = await ask_votes(scope.child("vote"), hall, discussion)
    discussion = discussion.with_stage(calls, ballots=ballots)
    discussion = discussion.with_stage([], item_outcomes=recorder.end_vote(discussion))

    closing, consensus, call = await write_consensus(scope.child("consensus"), hall, discussion)
    discussion = discussion.with_stage([call], closing=closing, consensus=consensus)

    after, calls = await ask_satisfaction(scope.child("after"), hall, discussion, AFTER)
    discussion = discussion.with_stage(calls, after=after)
    recorder.end_discussion(discussion)
    keep_log(scope, discussion)
    return discussion


async def hold_round(
    scope: Scope, hall: HallSpeakers, earlier: tuple[Round, ...]
) -> tuple[Round, list[Call]]:
    """Run one round. Return the round and the records of the answers in the round."""
    # Residents think and speak, then the moderator speaks if the level has one. Residents reflect
    # after the moderator, except in the last round.
    level, is_last = hall.meeting.level, len(earlier) + 1 == hall.meeting.config.rounds
    should_reflect = level.reflect and not is_last
    if hall.session is not None:
        # One reply of a shared session also holds the reflections, unless the moderator speaks in
        # between.
        session_scope, reflects_at_once = (
            scope.child("session"),
            should_reflect and not level.is_moderated,
        )
        round_, calls = await shared_round(session_scope, hall, earlier, reflects=reflects_at_once)
    else:
        round_, calls = await take_turns(scope.child("turns"), hall, earlier)
    if level.is_moderated:
        round_, call = await ask_moderation(scope.child("moderator"), hall, (*earlier, round_))
        calls = [*calls, call]
    if should_reflect and not round_.reflections:
        round_, reflection_calls = await ask_reflections(
            scope.child("reflect"), hall, (*earlier, round_)
        )
        calls = [*calls, *reflection_calls]
    return round_, calls
