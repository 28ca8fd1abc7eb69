"""Read the decisions of a finished run, each with the conversation before it."""
# The table `exposure` lists the decisions. The journal holds their messages and replies, and the
# table `provenance` the sources of the texts. From these, the module rebuilds each conversation as
# the speaker knew it, so that another question can continue it.

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import polars as pl

from folkmoot.conversation.answer_types import CHOICE, AnswerType, Missing, ParsedAnswer
from folkmoot.conversation.choices import Choice
from folkmoot.conversation.transcript import Speaker, Transcript, Utterance
from folkmoot.engine.journal.earlier_replies import RESEARCHER
from folkmoot.engine.journal.journal import JournalEntry
from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.engine.session.session import DEFAULT_REASKS
from folkmoot.engine.study.study import find_study_of_run
from folkmoot.errors import InputError, Problem
from folkmoot.json_text import Schema
from folkmoot.kit.controls.forms import JSON, ClosedForm, FormAnswer, choice_in_form, closed_form
from folkmoot.kit.controls.tables import closed_value
from folkmoot.kit.exposure import ExposureRow
from folkmoot.models.catalog import HUMAN_MODEL
from folkmoot.provenance import SourcedText, Span
from folkmoot.randomness import digest
from folkmoot.storage.rows import columns_of_class
from folkmoot.storage.run_folder import RunFolder

FIRST, FINAL = "first", "final"
# Columns for the age of a persona. Study types use one of these names.
_AGES = ("age", "demographic_age")
# Columns for the id of a participant in the tables of study types.
_IDS = ("participant_id", "persona_id", "member_id")
# Columns for the group of a participant. An id may occur once in each group.
_GROUPS = ("group", "group_id")
# Studies with personas from a source have these columns in the table of their participants.
_PREFIX = "demographic_"
# Columns of the table `personas` that identify a participant or the source.
_NO_ATTRIBUTE = (*_GROUPS, *_IDS, "name", "first_name", "source")


class ControlledDecision(NamedTuple):
    """One decision of a participant or a leading role, such as a mediator, in a finished run."""

    # Controls repeat or continue it.

    participant_id: str
    # Who was asked. It differs from the participant if one reply speaks for several participants.
    speaker_id: str
    condition: str
    unit: str
    # `first` for the participant's first decision in the run, `final` for the last decision in this
    # condition, or the word for a decision apart from the treatment (`DecisionDesign.apart`).
    moment: str
    decision: str
    address: str
    role: str
    model: str
    # The kind of the answer type: `choice`, `number`, `text`, `json`, or a kind that the study
    # defines.
    kind: str
    # Empty unless the answer is one of listed options.
    options: tuple[str, ...]
    # The option or the way out that the run has recorded, such as `declined`, otherwise None.
    recorded: str | None
    # Why there is no answer, or None if there is one.
    missing: str | None
    # True for a number. Only the study knows its bounds.
    is_number: bool
    age: int | None

    @property
    def key(self) -> str:
        """The name by which controls identify this decision, unique within the run."""
        return f"{self.moment}-{self.condition}-{self.unit}-{self.participant_id}"

    @property
    def place(self) -> str:
        """The address of the decision, as a key that is different for each participant.

        If one reply speaks for several participants, the participant id follows the address.
        """
        return f"{self.address} {self.participant_id}" if self.is_shared else self.address

    @property
    def is_shared(self) -> bool:
        """True if the reply speaks for several participants."""
        return self.speaker_id != self.participant_id


class DecisionConversation(NamedTuple):
    """One question to a participant, with the conversation that the participant was shown."""

    speaker: Speaker
    # The messages of the first request, with the question at the end.
    asked: Transcript
    # The messages of the last request and its reply. It differs from `asked` only by the reply,
    # unless the question was re-asked.
    heard: Transcript
    # Parses a further reply to the same question. None if the decision is open, or if only the code
    # of the study can read it.
    answer: AnswerType[Any] | None
    # True if the decision is a choice, a number or a form with closed fields.
    is_closed: bool
    # The answer, or None if it is missing. A form with several closed fields has a value for each.
    value: FormAnswer | None
    # Why there is no answer, or None if there is one.
    missing: str | None
    # The maximum number of re-asks.
    reasks: int = DEFAULT_REASKS
    # True if the reply is the one that a researcher gave or dropped in a fork.
    is_given: bool = False

    def answer_with(self, options: tuple[str, ...]) -> AnswerType[Any]:
        """Return the decision's answer type, with its options in the order of `options`."""
        assert self.answer is not None
        return self.answer.with_listed_options(options)

    def with_study_answer(
        self, answer_type: AnswerType[Any], recorded: object, missing: str | None, reasks: int
    ) -> DecisionConversation:
        """Return the conversation with the closed answer type of the study.

        `recorded`, `missing`: the answer as the run has recorded it.
        """
        own = self._replace(answer=answer_type, is_closed=True, missing=missing, reasks=reasks)
        return own._replace(value=None if missing else own.value_of(recorded))

    def value_of(self, answer: Any) -> Any:
        """Return an answer as the value that controls compare, a missing one as it is."""
        if isinstance(answer, Missing) or isinstance(self.answer, ClosedForm):
            return answer
        # An option may be called "4". A study may return an object, such as a number with its
        # validation status, and the run has recorded its text.
        is_option = self.answer is None or self.answer.listed_options
        return str(answer) if is_option else closed_value(answer)


def find_decisions(
    run: RunFolder, apart: Mapping[str, str] = MappingProxyType({})
) -> list[ControlledDecision]:
    """Return the first decision of each participant and the final decision in each condition.

    `apart`: decisions that are neither, as `DecisionDesign.apart` declares them. The last one in
    each condition is returned as well.

    Raises InputError if a run has no decision that controls can ask again.
    """
    # The first decision is the first choice from listed options, without one the first number, and
    # without a number the first decision of any kind. Decisions of humans are left out. A reply for
    # several participants is a decision of each of them.
    if not (run.has_table(ExposureRow.table) and run.has_table("answers")):
        raise InputError(
            Problem(
                f"{run.path}: the run records no decisions",
                hint="its study type declares none; a study type of your own declares them with "
                "an ExposureTable (docs/tutorials/study_type.md)",
            )
        )
    asked = (
        run.scan_table("answers")
        .select(
            *("address", "speaker_id", "role", "kind", "recorded", "missing", "options"),
            "model_asked",
        )
        .with_row_index("at")
    )
    columns = ("participant_id", "condition", "decision", "address", "unit")
    # The table `exposure` has a row per kind of text, so one decision has several rows.
    decided = run.scan_table(ExposureRow.table).select(columns).unique(maintain_order=True)
    rows = (
        decided.join(asked, on="address", maintain_order="left")
        # Humans have left when controls are asked.
        .filter(pl.col("model_asked") != HUMAN_MODEL)
        .sort("at", maintain_order=True)
        .collect()
    )
    ages = read_ages(run)
    first: dict[tuple[str, str], ControlledDecision] = {}
    ranks: dict[tuple[str, str], int] = {}
    last: dict[tuple[str, str, str, str], ControlledDecision] = {}
    for row in rows.iter_rows(named=True):
        who = row["participant_id"]
        options = tuple(json.loads(row["options"] or "[]"))
        moment = apart.get(row["decision"], FINAL)
        decision = ControlledDecision(
            who,
            row["speaker_id"],
            row["condition"],
            row["unit"],
            moment,
            row["decision"],
            row["address"],
            row["role"],
            row["model_asked"],
            row["kind"],
            options,
            row["recorded"] if options else None,
            row["missing"],
            row["recorded"] is not None and not options,
            ages.get((row["unit"], who), ages.get(("", who))),
        )
        last[moment, row["condition"], row["unit"], who] = decision
        if moment != FINAL:
            continue
        # A closed choice can be asked again without the code of its study, so it is preferred.
        # Otherwise prefer a number, because controls can compare it.
        rank = 2 if options else int(decision.is_number)
        if (row["unit"], who) not in first or rank > ranks[row["unit"], who]:
            first[row["unit"], who] = decision._replace(moment=FIRST)
            ranks[row["unit"], who] = rank
    if not last and not decided.head(1).collect().height:
        raise InputError(
            Problem(
                f"{run.path}: the run records no decisions",
                hint="its study type declared none, or an earlier version of Folkmoot left out "
                "decisions without texts",
            )
        )
    if not last:
        raise InputError(
            Problem(
                f"{run.path}: no decision has a conversation that a model could continue",
                hint="controls continue the conversations of models, and humans have left",
            )
        )
    return [*first.values(), *last.values()]


def find_repeated(decisions: Sequence[ControlledDecision]) -> frozenset[str]:
    """Return the places of decisions that are both a first and a final decision."""
    first, final = (
        {decision.place for decision in decisions if decision.moment == moment}
        for moment in (FIRST, FINAL)
    )
    return frozenset(first & final)


def sample_decisions(
    decisions: Sequence[ControlledDecision], most: int, seed: int
) -> list[ControlledDecision]:
    """Return, for each condition and moment, the decisions of at most `most` participants."""
    # The seed gives the participants a random order, and each sample takes the first ones. So first
    # and final decisions have the same participants, and a smaller sample is part of a larger one.
    # Leading roles have samples of their own, so that they take no participant's place.
    groups: dict[tuple[str, str, str], list[ControlledDecision]] = {}
    for decision in decisions:
        group = (decision.moment, decision.condition, decision.role)
        groups.setdefault(group, []).append(decision)

    def draw_order(decision: ControlledDecision) -> bytes:
        return digest(seed, "controls", decision.unit, decision.participant_id)

    return [
        controlled_decision
        for group in groups.values()
        for controlled_decision in sorted(group, key=draw_order)[:most]
    ]


def read_conversations(
    run: RunFolder,
    journal: JournalReader,
    decisions: Collection[ControlledDecision],
    *,
    is_earlier: bool = False,
) -> dict[str, DecisionConversation]:
    """Return the conversation of each decision, keyed by `ControlledDecision.place`.

    Decisions without a reply are left out.

    `is_earlier`: True for controls that an earlier version planned. They read an answer by its
    options and its schema alone, and not as the study does.
    """
    spans = run.read_spans({decision.address for decision in decisions})
    found = {}
    for decision in decisions:
        first, last = journal.entry_at(decision.address), last_entry(journal, decision.address)
        if first is not None and last is not None:
            own = spans.spans_at(decision.address)
            found[decision.place] = _rebuild_conversation(decision, first, last, own, is_earlier)
    return found


def _rebuild_conversation(
    decision: ControlledDecision,
    first: JournalEntry,
    last: JournalEntry,
    spans: Sequence[Span],
    is_earlier: bool,
) -> DecisionConversation:
    # The two entries differ if the question was re-asked. `spans` are those of the first request.
    system, asked = _utterances(decision, first, spans)
    # Ask with the parameters of the original request. Other parameters would be a second treatment.
    speaker = Speaker(
        decision.speaker_id,
        role=decision.role,
        system=system,
        model=first.model_asked,
        temperature=first.request.get("temperature"),
        max_tokens=first.request.get("max_tokens"),
    )
    reply = Utterance(decision.speaker_id, last.reply, id=decision.address)
    heard = Transcript((*_utterances(decision, last, spans)[1], reply))
    # Earlier versions took every listed text for an option.
    offered = None if is_earlier else _offered_options(first, spans)
    answer = _answer_type_of(decision, first.request.get("schema"), last.reply, offered)
    is_closed = answer is not None or (bool(decision.options) and not is_earlier)
    missing = decision.missing
    value: FormAnswer | None = decision.recorded if missing is None else None
    if isinstance(answer, ClosedForm):
        read, value = answer.parse_reply(last.reply), None
        # The closed fields may be valid although the study could not read the whole form.
        if isinstance(read, ParsedAnswer):
            value, missing = read.value, None
        elif isinstance(read, Missing):
            missing = read.reason
    return DecisionConversation(
        speaker,
        Transcript(asked),
        heard,
        answer,
        is_closed,
        value,
        missing,
        is_given=first.model_served == RESEARCHER,
    )


def _answer_type_of(
    decision: ControlledDecision,
    schema: Schema | None,
    reply: str,
    offered: frozenset[str] | None,
) -> AnswerType[Any] | None:
    # The answer type as far as it is known without the code of the study. The journal has the kind,
    # the options and the schema. A kind that the study defines may read a reply in any way: with
    # options it may keep every reply, and its schema may have fields beside the answer.
    is_earlier = offered is None
    if decision.options and (is_earlier or decision.kind == CHOICE):
        if schema is None:
            return Choice(decision.options)
        return choice_in_form(schema, reply, decision.options, decision.recorded)
    if schema is not None and (is_earlier or decision.kind == JSON):
        whose = decision.participant_id if decision.is_shared else ""
        return closed_form(schema, whose, offered)
    return None


def _offered_options(entry: JournalEntry, spans: Sequence[Span]) -> frozenset[str]:
    # The texts that the prompt names as options. Names of members, for example, are other values.
    messages = entry.request["messages"]
    return frozenset(
        messages[span.message]["content"][span.start : span.end]
        for span in spans
        if span.source.kind == "option"
    )


def _utterances(
    decision: ControlledDecision, entry: JournalEntry, spans: Sequence[Span]
) -> tuple[str, tuple[Utterance, ...]]:
    system, said = "", []
    for role, text in messages_of(entry, spans):
        if role == "system":
            system = text
        else:
            own = role == "assistant"
            said.append(Utterance(decision.speaker_id if own else "", text))
    return system, tuple(said)


def messages_of(entry: JournalEntry, spans: Sequence[Span]) -> list[tuple[str, SourcedText]]:
    """Return the messages of a request, each with its role and text."""
    # Each text keeps the record of where its parts come from. `spans` are these records.
    spans_by_message = defaultdict[int, list[Span]](list)
    for span in spans:
        spans_by_message[span.message].append(span.shift_span(0))
    return [
        (message["role"], SourcedText(message["content"], spans_by_message[number]))
        for number, message in enumerate(entry.request["messages"])
    ]


def last_entry(journal: JournalReader, address: str) -> JournalEntry | None:
    """Return the journal entry with the final reply to a question, or None if there is none."""
    # With re-asks, a question has several entries.
    tries = journal.list_ask_addresses(address)
    return journal.entry_at(tries[-1]) if tries else None


def read_ages(run: RunFolder) -> dict[tuple[str, str], int]:
    """Return the ages of participants, or {} if no table has ages.

    Each key is a pair of unit and participant id. The unit can be empty.
    """
    # The unit is empty if the ids of participants are unique in the run.
    for name, who, group in _tables_of_participants(run):
        table = run.scan_table(name)
        age = next((age for age in _AGES if age in table.collect_schema().names()), None)
        if age is None:
            continue
        units = pl.lit("") if group is None else pl.col(group)
        rows = table.select(unit=units, who=who, age=age).drop_nulls().collect()
        if rows.height and rows["age"].dtype.is_integer():
            return {(unit, id): age for unit, id, age in rows.iter_rows()}
    return {}


def may_have_ages(run: RunFolder) -> bool:
    """Return whether a control can ask for ages, in an unfinished run perhaps later."""
    has_ages = bool(read_ages(run))
    if run.is_finished or has_ages:
        return has_ages
    if not run.has_table(ExposureRow.table) or run.read_table(ExposureRow.table).is_empty():
        return True
    # Once a decision is recorded, the tables have the columns of the personas. Other tables may
    # have no rows yet, and the study type declares their columns.
    columns = [run.scan_table(name).collect_schema().names() for name in run.table_names()]
    try:
        columns += map(list, columns_of_class(find_study_of_run(run).tables).values())
    except InputError:
        return True
    return any({*_IDS} & {*names} and {*_AGES} & {*names} for names in columns)


def read_attributes(run: RunFolder) -> pl.DataFrame | None:
    """Return the stated attributes of the participants, with the column `participant_id`.

    Returns None if no table of the run has one row of attributes for each participant.
    """
    # The table also has the column `unit` (the group) if ids are unique only within their group.
    for name, who, group in _tables_of_participants(run):
        table = run.scan_table(name)
        columns = table.collect_schema().names()
        stated = [column for column in columns if column.startswith(_PREFIX)]
        if name == "personas":
            stated = [column for column in columns if column not in _NO_ATTRIBUTE]
        if stated:
            own = {"participant_id": who} | ({} if group is None else {"unit": group})
            attributes = {column.removeprefix(_PREFIX): column for column in stated}
            return table.select(**(own | attributes)).collect()
    return None


def _tables_of_participants(run: RunFolder) -> Iterator[tuple[str, str, str | None]]:
    # (table, id column, group column). The group column is None if the ids alone are unique.
    for name in run.table_names():
        table = run.scan_table(name)
        columns = table.collect_schema().names()
        who = next((column for column in _IDS if column in columns), None)
        if who is None:
            continue
        group = next((column for column in _GROUPS if column in columns), None)
        # Try the id alone first: if it is unique, the pair with the group is unique as well.
        for key in ([who], [group, who] if group is not None else [who]):
            rows = table.select(key).collect()
            if rows.height and rows.is_unique().all():
                yield name, who, group if len(key) == 2 else None
                break
