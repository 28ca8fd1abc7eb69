"""The exposure of residents: the texts that each of their decisions should have in its prompt.

`exposure_decisions` derives this from the tables alone. `kit.exposure` compares it with the texts
that the stored requests contain.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from folkmoot.kit.exposure import OWN_WORDS, Decision, ExposureTable
from folkmoot.provenance import Source, cell_id
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.town_hall.config import TownHallConfig, known_levels
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
OF_PART = {"before": "satisfaction before", "vote": "vote", "after": "satisfaction after"}


def label_source(source: Source) -> str:
    """Return the study's label for a source of text, or "" if the source is no exposure."""
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
    """The recorded texts of one discussion.

    `portraits`: resident id → id of the portrait. `proposals`: ids of the ballot items. `said`:
    rows of `utterances` with a non-empty text.
    """

    level: str
    portraits: dict[str, str] = field(default_factory=dict)
    proposals: list[str] = field(default_factory=list)
    said: list[dict[str, Any]] = field(default_factory=list)


def exposure_decisions(run: RunFolder) -> Iterator[Decision]:
    """Yield the decisions of a run: statements, reflections, votes and ratings of satisfaction.

    A question to a shared session yields one decision for each of its residents.
    """
    config = TownHallConfig.model_validate(run.config)
    found: dict[str, _Discussion] = {}
    for row in run.read_table("portraits").iter_rows(named=True):
        name, who = row["discussion_id"], row["agent_id"]
        held = found.setdefault(name, _Discussion(row["level"]))
        held.portraits[who] = cell_id("portraits.portrait", name, who)
    for row in run.read_table("utterances").iter_rows(named=True):
        if row["text"] and row["discussion_id"] in found:
            found[row["discussion_id"]].said.append(row)
    for row in run.read_table("items").iter_rows(named=True):
        name = row["discussion_id"]
        found[name].proposals.append(cell_id("items.text", name, row["item_id"]))
    for row in run.read_table("answers").filter(role="participant").iter_rows(named=True):
        if (name := row["address"].partition("/")[0]) in found:
            yield from _question_decisions(config, found[name], row["address"], row["speaker_id"])


def _question_decisions(
    config: TownHallConfig, held: _Discussion, address: str, speaker: str
) -> Iterator[Decision]:
    """Yield the decisions of one question: one, or one per resident of a shared session."""
    discussion, part, *_, ask = address.split("/")
    set_name = discussion.partition("_")[0]
    shared, looks_back = speaker == "session", "/reflect/" in address
    now = int(part.removeprefix("round")) if part.startswith("round") else config.rounds + 1
    name = OF_PART.get(part, "first statement" if now == 1 else "later statement")
    if looks_back:
        name = "reflection"
        # A reflection looks back on the round that has just ended, so this round counts as an
        # earlier one.
        now += 1
    first = now if part == "before" else 1 if config.history == "all" else now - 1
    in_round = part.startswith("round") and not looks_back
    # The first ask of a separate turn is THINK, and the second is SPEAK. Without THINK the first is
    # SPEAK.
    thinks = known_levels(config)[held.level].think
    speaks = in_round and not shared and (ask == "ask1" or not thinks)

    public = [row for row in held.said if row["public"]]
    heard = [row for row in public if (row["round"] or now) in range(first, now)]
    private = [row for row in held.said if not row["public"]]
    # Notes that the prompt repeats to their owner: the last reflection in a turn, the thoughts of
    # the round in a reflection.
    shown = {("reflect", now - 1)} if in_round else {("think", now - 1)} if looks_back else set()
    if speaks or (shared and in_round and ask != "ask0"):
        shown.add(("think", now))
    noted = [
        row for row in private if row["addressee"] is None and (row["stage"], row["round"]) in shown
    ]
    # Questions of the last round, which are recorded as private utterances with an addressee.
    put = [
        row
        for row in private
        if row["addressee"] is not None and row["round"] == now - 1 and part != "before"
    ]
    # True if the prompts of this decision repeat questions to the resident.
    asks = not looks_back and part != "after"
    # If a shared round took several replies, the prompts of later ones show the statements of
    # earlier ones.
    further = [row for row in public if row["round"] == now] if shared and ask != "ask0" else []
    among = [*further, *noted, *put] if shared else further
    for who in held.portraits if shared else (speaker,):
        to = (*held.portraits, "all") if shared else (who, "all")
        own = [row for row in heard if row["speaker_id"] == who]
        own_notes = [row for row in noted if row["speaker_id"] == who]
        if speaks:
            own += [
                own_note
                for own_note in own_notes
                if own_note["round"] == now and own_note["stage"] == "think"
            ]
        others = [
            row for row in heard if row["speaker_id"] != who and row["speaker_role"] == RESIDENT
        ]
        shows = {
            LIFE_STORY: [*held.portraits.values()] if shared else [held.portraits[who]],
            MODERATOR_WORDS: _utterance_ids(
                row for row in heard if row["speaker_role"] == MODERATOR
            ),
            PROPOSALS: held.proposals if part in ("vote", "after") else [],
        }
        # A prompt with statements of its own round is not expected to be free of statements.
        if others or not further:
            shows[STATEMENTS] = _utterance_ids(others)
        # Not every prompt repeats notes. So nothing is expected of own words if there are notes
        # alone.
        if own or not (own_notes or further):
            shows[OWN_WORDS] = _utterance_ids(own)
        if asks and (
            asked := [row for row in put if row["addressee"] in to and row["speaker_id"] != who]
        ):
            shows[QUESTIONS] = _utterance_ids(asked)
        if part == "after" and (
            closing := [row for row in public if row["speaker_role"] == PLANNER]
        ):
            shows[CONSENSUS] = _utterance_ids(closing)
        within = _utterance_ids([*among, *own_notes])
        yield Decision(address, who, held.level, name, shows, within, set_name)


def _utterance_ids(rows: Iterator[dict[str, Any]] | list[dict[str, Any]]) -> list[str]:
    return [row["utterance_id"] for row in rows]


EXPOSURE = ExposureTable(exposure_decisions, label_source)
