"""The texts that each prompt should contain, for prompts to members and to the mediator."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import polars as pl

from folkmoot.engine.study.decision_design import DecisionDesign, QuestionOf
from folkmoot.kit.exposure import OWN_WORDS, Decision, ExposureTable
from folkmoot.provenance import Source, cell_id
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.negotiation import quotes
from folkmoot.studies.negotiation.decision import theory_words
from folkmoot.studies.negotiation.rules.strategies import CONDITIONS, TOPICS

PREFERENCES, STRATEGY, DIALOGUE = "preferences", "strategy", "dialogue"
# The name of a decision follows from the scope below the topic. Without such a scope it is the
# mediator's proposal.
NAMES = {
    "ballots": "ballot",
    "feedback": "feedback",
    "responses": "response",
    "confirm": "confirmation",
    "own_scores": "own scores",
}


def label_source(source: Source) -> str:
    """Return the kind of a text in a prompt: `PREFERENCES`, `DIALOGUE` or `STRATEGY`.

    Returns "" for every other text.
    """
    if source.kind == "utterance":
        return PREFERENCES if source.id.startswith(quotes.PREFERENCES) else DIALOGUE
    return STRATEGY if source.id.startswith(f"{quotes.RULE}/") else ""


def exposure_decisions(run: RunFolder) -> Iterator[Decision]:
    """Yield the decisions of a run, with the texts that their prompts should contain."""
    # A decision here is each stated preference, proposal, ballot, score, confirmation and feedback
    # round. Each also lists all other sources of the session that could be in the prompt.
    types = dict(run.rows("groups", "group_id", "group_type"))
    conversations = _Conversations(run)
    for row in run.read_table("answers").iter_rows(named=True):
        stage, session_name, *rest = row["address"].split("/")
        if stage in ("preferences", "own_scores"):
            group, condition, topic = session_name, "all", rest[1]
            name = "preference" if stage == "preferences" else "own scores"
        elif stage == "negotiation" and session_name.rpartition("-")[0] in types:
            group, _, condition = session_name.rpartition("-")
            topic, name = rest[0], NAMES.get(rest[1], "proposal")
            # A feedback round also asks the member, if members speak for themselves.
            if name == "feedback" and "reaction" in rest:
                name = "reaction"
        else:
            continue
        speaker_id, has_locked_strategy = (
            row["speaker_id"],
            CONDITIONS.get(condition, CONDITIONS["C1"]).has_locked_strategy,
        )
        statements = conversations.stated.get((group, topic), {})
        own_ids = [statements[speaker_id]] if speaker_id in statements else []
        rules = [cell_id(quotes.RULE, types[group], topic) for topic in TOPICS]
        utterances = conversations.said_in(group, condition, topic)
        # A member's own words and ballot in the dialogue are no exposure for that member.
        others_ids = [id for id, owner in utterances.items() if owner != speaker_id]
        shows: Mapping[str, Mapping[str, Collection[str]]] = {
            "preference": {PREFERENCES: (), STRATEGY: ()},
            "proposal": {
                PREFERENCES: statements.values(),
                STRATEGY: rules if has_locked_strategy else (),
            },
            "feedback": {PREFERENCES: statements.values()},
            "response": {OWN_WORDS: own_ids},
            "reaction": {OWN_WORDS: own_ids},
            "ballot": {OWN_WORDS: own_ids},
            "own scores": {OWN_WORDS: own_ids},
            "confirmation": {DIALOGUE: others_ids},
        }
        allowed_ids = {*statements.values(), *rules, *utterances}
        yield Decision(row["address"], speaker_id, condition, name, shows[name], allowed_ids, group)


class _Conversations:
    def __init__(self, run: RunFolder) -> None:
        # (group, topic) → ids of stated preferences, by member id.
        self.stated: dict[tuple[str, str], dict[str, str]] = {}
        self._said: dict[tuple[str, str, str], dict[str, str]] = {}
        theory = _theory_words(run)
        for row in run.read_table("utterances").iter_rows(named=True):
            group, topic, id = row["group_id"], row["topic"], row["utterance_id"]
            if row["phase"] == "preference":
                self.stated.setdefault((group, topic), {})[row["speaker_id"]] = id
                continue
            condition = row["scope"].split("/")[1].rpartition("-")[2]
            hidden_words = theory.get((group, topic), set()) if condition == "C3" else set()
            if not hidden_words & set(theory_words(row["text"])):
                is_own = row["phase"] == "vote" or row["author"] == row["speaker_id"]
                owner = row["speaker_id"] if is_own else ""
                self._said.setdefault((group, condition, topic), {})[id] = owner

    def said_in(self, group: str, condition: str, topic: str) -> dict[str, str]:
        # The members' first statements of their preferences are left out. The owner is the speaker,
        # or "" if the mediator wrote the utterance for a member.
        # C5 continues C4, so it includes the utterances of C4.
        conditions = ("C4", "C5") if condition == "C5" else (condition,)
        utterances: dict[str, str] = {}
        for held_condition in conditions:
            utterances |= self._said.get((group, held_condition, topic), {})
        return utterances


def _theory_words(run: RunFolder) -> dict[tuple[str, str], set[str]]:
    # The terms that the mediator used although C3 forbids them, by group and topic.
    if not run.has_table("decisions"):
        return {}
    rows = run.read_table("decisions").filter(pl.col("theory_words").fill_null("") != "")
    columns = rows.select("group_id", "topic", "theory_words").iter_rows()
    return {(group, topic): set(words.split("; ")) for group, topic, words in columns}


def _questions(_run: RunFolder) -> QuestionOf:
    # A ballot on another topic is another question. Each topic has its own options.
    return lambda name, address: " ".join([name, *(set(TOPICS) & {*address.split("/")})])


EXPOSURE = ExposureTable(exposure_decisions, label_source)
# Members state their preferences once, before the mediation, and all conditions use them.
DECISION_DESIGN = DecisionDesign(
    kind_of_text=EXPOSURE.label, alike=lambda _config: (PREFERENCES,), questions=_questions
)
