"""The texts that the prompt of each decision should contain."""

# They are derived from the tables alone. `kit.exposure` then compares them with the texts in the
# stored requests.

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from folkmoot.engine.study.decision_design import DecisionDesign, QuestionOf
from folkmoot.kit.exposure import OWN_WORDS, Decision, ExposureTable
from folkmoot.provenance import Source, cell_id
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.town_hall.config import TownHallConfig, find_level
from folkmoot.studies.town_hall.recording import (
    MODERATOR,
    PLANNER,
    QUESTION,
    REFLECTION,
    RESIDENT,
    THOUGHTS,
    part_of,
)

STATEMENTS, MODERATOR_WORDS = "others' statements", "moderator's words"
PROPOSALS, LIFE_STORY = "proposals", "life story"
QUESTIONS, CONSENSUS = "questions put to them", "final consensus"
# A shared session holds the notes of all its residents.
NOTES = "others' private notes"
# Part of the address → name of the decision.
DECISION_OF_PART = {"before": "satisfaction before", "vote": "vote", "after": "satisfaction after"}


def label_source(source: Source) -> str:
    """Return the kind of a text in a prompt, such as `STATEMENTS`.

    Returns "" for a text that the exposure analysis ignores.
    """
    if source.kind == "persona":
        return LIFE_STORY
    if source.kind == "proposal":
        return PROPOSALS
    if source.kind != "utterance":
        return ""
    part = part_of(source.id)
    if part in (THOUGHTS, REFLECTION):
        return NOTES
    if part == QUESTION:
        return QUESTIONS
    return {MODERATOR: MODERATOR_WORDS, PLANNER: CONSENSUS}.get(source.speaker, STATEMENTS)


@dataclass
class _Discussion:
    level: str
    # The number of the set, as in the column `set`.
    set: str
    # Resident id → id of the persona text.
    portraits: dict[str, str] = field(default_factory=dict)
    # Ids of the ballot items.
    proposals: list[str] = field(default_factory=list)
    # Rows of the table `utterances` with a text.
    utterances: list[dict[str, Any]] = field(default_factory=list)


def exposure_decisions(run: RunFolder) -> Iterator[Decision]:
    """Yield the decisions of a run: statements, reflections, votes and satisfaction ratings."""
    # A reply for all residents yields one decision for each of them.
    config = run.read_settings(TownHallConfig)
    discussions: dict[str, _Discussion] = {}
    for row in run.read_table("portraits").iter_rows(named=True):
        discussion_id, resident_id = row["discussion_id"], row["agent_id"]
        discussion = discussions.setdefault(
            discussion_id, _Discussion(row["level"], str(row["set"]))
        )
        discussion.portraits[resident_id] = cell_id(
            "portraits.portrait", discussion_id, resident_id
        )
    for row in run.read_table("utterances").iter_rows(named=True):
        if row["text"] and row["discussion_id"] in discussions:
            discussions[row["discussion_id"]].utterances.append(row)
    for row in run.read_table("items").iter_rows(named=True):
        discussion_id = row["discussion_id"]
        discussions[discussion_id].proposals.append(
            cell_id("items.text", discussion_id, row["item_id"])
        )
    for row in run.read_table("answers").filter(role="participant").iter_rows(named=True):
        if (discussion_id := row["address"].partition("/")[0]) in discussions:
            yield from _question_decisions(
                config, discussions[discussion_id], row["address"], row["speaker_id"]
            )


def _question_decisions(
    config: TownHallConfig, discussion: _Discussion, address: str, speaker: str
) -> Iterator[Decision]:
    # In a shared session one call answers for all residents, so it yields a decision for each.
    discussion_id, part, *_, ask = address.split("/")
    set_name = discussion_id.partition("_")[0]
    is_shared, is_reflection = speaker == "session", "/reflect/" in address
    round_number = (
        int(part.removeprefix("round")) if part.startswith("round") else config.rounds + 1
    )
    name = DECISION_OF_PART.get(part, "first statement" if round_number == 1 else "later statement")
    if is_reflection:
        name = "reflection"
        # A reflection looks back on the round that has just ended, so this round counts as an
        # earlier one.
        round_number += 1
    first_round = (
        round_number if part == "before" else 1 if config.history == "all" else round_number - 1
    )
    is_in_round = part.startswith("round") and not is_reflection
    # The first ask of a separate turn is THINK, and the second is SPEAK. Without THINK the first is
    # SPEAK.
    level = find_level(config, discussion.level)
    has_thinking = level is not None and level.think
    is_statement = is_in_round and not is_shared and (ask == "ask1" or not has_thinking)

    public = [row for row in discussion.utterances if row["public"]]
    history = [
        row for row in public if (row["round"] or round_number) in range(first_round, round_number)
    ]
    private = [row for row in discussion.utterances if not row["public"]]
    # Notes that the prompt repeats to their owner: the last reflection in a turn, the thoughts of
    # the round in a reflection.
    shown_notes = (
        {("reflect", round_number - 1)}
        if is_in_round
        else {("think", round_number - 1)}
        if is_reflection
        else set()
    )
    if is_statement or (is_shared and is_in_round and ask != "ask0"):
        shown_notes.add(("think", round_number))
    notes = [
        row
        for row in private
        if row["addressee"] is None and (row["stage"], row["round"]) in shown_notes
    ]
    # Questions of the last round, which are recorded as private utterances with an addressee.
    questions = [
        row
        for row in private
        if row["addressee"] is not None and row["round"] == round_number - 1 and part != "before"
    ]
    # True if the prompts of this decision repeat questions to the resident.
    shows_questions = not is_reflection and part != "after"
    # If a shared round took several replies, the prompts of later ones show the statements of
    # earlier ones.
    same_round = (
        [row for row in public if row["round"] == round_number]
        if is_shared and ask != "ask0"
        else []
    )
    shared_rows = [*same_round, *notes, *questions] if is_shared else same_round
    for resident_id in discussion.portraits if is_shared else (speaker,):
        addressees = (*discussion.portraits, "all") if is_shared else (resident_id, "all")
        own_rows = [row for row in history if row["speaker_id"] == resident_id]
        own_notes = [row for row in notes if row["speaker_id"] == resident_id]
        if is_statement:
            own_rows += [
                own_note
                for own_note in own_notes
                if own_note["round"] == round_number and own_note["stage"] == "think"
            ]
        others_rows = [
            row
            for row in history
            if row["speaker_id"] != resident_id and row["speaker_role"] == RESIDENT
        ]
        shows = {
            LIFE_STORY: [*discussion.portraits.values()]
            if is_shared
            else [discussion.portraits[resident_id]],
            MODERATOR_WORDS: _utterance_ids(
                row for row in history if row["speaker_role"] == MODERATOR
            ),
            PROPOSALS: discussion.proposals if part in ("vote", "after") else [],
        }
        # A prompt with statements of its own round is not expected to be free of statements.
        if others_rows or not same_round:
            shows[STATEMENTS] = _utterance_ids(others_rows)
        # Not every prompt repeats notes. So nothing is expected of own words if there are notes
        # alone.
        if own_rows or not (own_notes or same_round):
            shows[OWN_WORDS] = _utterance_ids(own_rows)
        if shows_questions and (
            asked_rows := [
                row
                for row in questions
                if row["addressee"] in addressees and row["speaker_id"] != resident_id
            ]
        ):
            shows[QUESTIONS] = _utterance_ids(asked_rows)
        if part == "after" and (
            closing := [row for row in public if row["speaker_role"] == PLANNER]
        ):
            shows[CONSENSUS] = _utterance_ids(closing)
        allowed_ids = _utterance_ids([*shared_rows, *own_notes])
        yield Decision(
            address,
            resident_id,
            discussion.level,
            name,
            shows,
            allowed_ids,
            unit=set_name,
            part=discussion.set,
        )


def _utterance_ids(rows: Iterator[dict[str, Any]] | list[dict[str, Any]]) -> list[str]:
    return [row["utterance_id"] for row in rows]


def _questions(_run: RunFolder) -> QuestionOf:
    # Satisfaction is asked twice.
    return lambda name, _address: name.removesuffix(" before").removesuffix(" after")


EXPOSURE = ExposureTable(exposure_decisions, label_source)
DECISION_DESIGN = DecisionDesign(kind_of_text=EXPOSURE.label, questions=_questions)
