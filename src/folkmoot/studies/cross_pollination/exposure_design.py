"""Declare which texts the prompt of each vote should contain, for every condition."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import polars as pl

from folkmoot.engine.seats.utterances import UTTERANCES
from folkmoot.engine.study.decision_design import DecisionDesign, QuestionOf
from folkmoot.kit.exposure import DECISIONS_AT_ONCE, Decision, ExposureTable
from folkmoot.provenance import Source, cell_id
from folkmoot.storage.run_folder import RunFolder
from folkmoot.storage.tables import FEWEST_DRAWS
from folkmoot.studies.cross_pollination.config import ConditionDesign, CrossPollinationConfig

# Maps a stage to the kind of its conversation.
KINDS = {"clarification": "interview", "adversarial_dialogue": "dialogue"}
SUMMARIES, SUMMARY = "summaries", "summaries.description"
# The order in which a participant goes through them.
IN_ORDER = ("interview", SUMMARIES, "dialogue")
FIRST, FINAL, THIRD = "first vote", "final vote", "third vote"
# Maps a stage to the decision that is made in it.
DECISIONS = {
    "initial_vote": FIRST,
    "cross_pollination": FINAL,
    "adversarial_dialogue": FINAL,
    "second_vote": FINAL,
    "delayed_vote": THIRD,
}


def label_source(source: Source) -> str:
    """Return the kind of a text in a prompt, such as "interview" or "page of summaries".

    Returns "" for a text that is neither an utterance nor a summary.
    """
    if source.kind == "utterance":
        return KINDS.get(source.id.partition("/")[0], "other words")
    return SUMMARIES if source.kind == "summary" else ""


def exposure_decisions(run: RunFolder) -> Iterator[Decision]:
    """Yield every vote with the texts that the prompt of the vote should contain."""
    config = run.read_settings(CrossPollinationConfig)
    votes = run.scan_table("answers").filter(
        pl.col("stage").is_in([*DECISIONS]), kind="choice", role="participant"
    )
    people = run.scan_table("participants").select(
        "condition", "summary_draw", speaker_id="participant_id"
    )
    votes = votes.select("address", "stage", "speaker_id")
    asked = votes.join(people, on="speaker_id", maintain_order="left").sort(
        pl.col("stage").replace_strict(DECISIONS).replace_strict({FIRST: 0, FINAL: 1, THIRD: 2}),
        pl.col("condition").replace_strict(
            {condition: position for position, condition in enumerate(config.condition_designs)}
        ),
        maintain_order=True,
    )
    pages, has_draw_units = _summary_page_ids(run), config.summary_draws >= FEWEST_DRAWS
    # Utterances are read for one slice of the votes at a time, to bound memory.
    for batch in asked.collect().iter_slices(DECISIONS_AT_ONCE):
        talks = _conversation_ids(run, batch["speaker_id"])
        for row in batch.iter_rows(named=True):
            participant_id, decision = row["speaker_id"], DECISIONS[row["stage"]]
            design = (
                ConditionDesign()
                if decision != FINAL
                else config.shown_in_final_vote(row["condition"])
            )
            page = row["summary_draw"] or 1
            recorded = {kind: talks[participant_id, kind] for kind in KINDS.values()}
            recorded[SUMMARIES] = pages[page]
            yield Decision(
                row["address"],
                participant_id,
                row["condition"],
                decision,
                {kind: recorded[kind] if getattr(design, kind) else () for kind in IN_ORDER},
                within=(
                    *(f"{stage}/{participant_id}/" for stage in KINDS),
                    f"{cell_id(SUMMARY, page)}/",
                ),
                unit=f"draw {page}" if has_draw_units and row["summary_draw"] else "",
                part=participant_id,
            )


def _conversation_ids(run: RunFolder, people: pl.Series) -> dict[tuple[str, str], list[str]]:
    # By participant id and kind of conversation: the ids of the utterances.
    utterance_ids: dict[tuple[str, str], list[str]] = defaultdict(list)
    filters = pl.col("participant_id").is_in(people.implode()), pl.col("turn").is_not_null()
    utterances = (
        run.scan_table(UTTERANCES)
        .filter(*filters)
        .select("participant_id", "stage", "utterance_id")
    )
    for participant_id, stage, utterance_id in utterances.collect().iter_rows():
        utterance_ids[participant_id, KINDS[stage]].append(utterance_id)
    return utterance_ids


def _summary_page_ids(run: RunFolder) -> dict[int, list[str]]:
    # By version of the summaries: the ids of the cluster descriptions on its page.
    summary_ids: dict[int, list[str]] = defaultdict(list)
    for draw, cluster in run.rows("summaries", "draw", "cluster_id"):
        summary_ids[draw].append(cell_id(SUMMARY, draw, cluster))
    return summary_ids


def _kinds_of_all_conditions(config: CrossPollinationConfig) -> list[str]:
    # Not every page of summaries need be drawn for a participant of each condition. Interviews and
    # dialogues are texts of one participant, and no other condition shows them.
    designs = [config.shown_in_final_vote(name) for name in config.condition_designs]
    return [SUMMARIES] if len(designs) > 1 and all(each.summaries for each in designs) else []


def _questions(_run: RunFolder) -> QuestionOf:
    # All of them are votes.
    return lambda _name, _address: "vote"


EXPOSURE = ExposureTable(exposure_decisions, label_source, own="")
# The prompt of the delayed vote has no text of a treatment.
DECISION_DESIGN = DecisionDesign(
    kind_of_text=EXPOSURE.label,
    apart={THIRD: "delayed"},
    alike=_kinds_of_all_conditions,
    questions=_questions,
)
