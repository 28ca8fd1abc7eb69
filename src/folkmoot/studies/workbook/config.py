"""The data classes of a workbook study: settings, sheets, study file, and planned comparisons."""

from __future__ import annotations

import itertools
import json
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_serializer

from folkmoot.engine.settings.config import NonNegative, PositiveInt, StudyConfig
from folkmoot.errors import InputError, Problem
from folkmoot.field_notes import Word, field_notes
from folkmoot.hints import number_text
from folkmoot.measures.inference.claims import MOST_PRIMARY, Claim, Family
from folkmoot.models.catalog import HUGGING_FACE_VENDOR, resolve_model

TaskType = Literal["context", "discussion", "public_question", "private_question"]
VarType = Literal["category", "integer", "float"]
TreatmentStrategy = Literal["simple_random", "complete_random", "manual"]
Strategy = Literal["random", "manual"]
ComputedScope = Literal["participant", "session"]
TASK_TYPES: tuple[str, ...] = get_args(TaskType)
VAR_TYPES: tuple[str, ...] = get_args(VarType)
COMPUTED_SCOPES: tuple[str, ...] = get_args(ComputedScope)
ComputedKind = Literal["number", "share", "helper"]
COMPUTED_KINDS: tuple[str, ...] = get_args(ComputedKind)
STRATEGIES: Mapping[str, tuple[str, ...]] = {
    "treatment_assignment_strategy": get_args(TreatmentStrategy),
    "session_assignment_strategy": get_args(Strategy),
    "role_assignment_strategy": get_args(Strategy),
}
Scalar = str | int | float | bool
# A cell of the profiles that holds a number. Whole numbers of at most 15 digits survive as floats.
# Leading zeros mark a code, not a number.
CELL_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,14})(?:\.\d+)?")
# Maximum length of one cell, in characters. Excel itself allows 32,767.
MAX_TEXT = 100_000

FACILITATOR = "Facilitator"
SUMMARIZER = "Summarizer"
SPECIAL_ROLES = (FACILITATOR, SUMMARIZER)
_BRITISH = {"summariser": SUMMARIZER}


def special_role(label: str) -> str | None:
    """Return the special role with this label: Facilitator or Summarizer.

    Returns None if the label belongs to no special role.
    """
    # The letter case does not matter.
    folded = label.strip().casefold()
    matches = (name for name in SPECIAL_ROLES if name.casefold() == folded)
    return next(matches, _BRITISH.get(folded))


def written_label(label: str) -> str:
    """Return a role's label in the spelling that the program uses."""
    # A special role gets its fixed spelling, such as Summarizer.
    return _BRITISH.get(label.strip().casefold(), label)


@dataclass
class Problems:
    """The problems and notes that are collected while a workbook is read."""

    found: list[Problem] = field(default_factory=list)
    # Each tells the researcher how a surprising cell was interpreted. Notes do not prevent a run.
    notes: list[str] = field(default_factory=list)
    # True if a sheet or column is missing.
    structural: bool = False

    def add_problem(self, message: str, where: str = "", hint: str = "") -> None:
        self.found.append(Problem(message, where=where, hint=hint))


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())


Places = Annotated[
    Mapping[str, str], Field(description="cells that contain these values: key → sheet and cell")
]


class Settings(_Part):
    """The settings of a workbook, including settings that only some spreadsheet layouts have.

    The descriptions of the fields are also the cell notes of the blank workbook.
    """

    experiment_id: str = Field(
        description="Names the run folder and its files of results (.json and .csv)."
    )
    model_info: str = Field(
        description="The model that answers, e.g. gpt-4o-mini. With hf-inference fill in "
        "api_endpoint as well. synthetic is a simulated respondent and needs no key."
    )
    api_endpoint: str | None = Field(
        None, description="Only for hf-inference: the URL of the endpoint."
    )
    temperature: float = Field(
        description="A number from 0 to 2.",
        json_schema_extra=field_notes(label="Temperature of the model"),
    )
    num_agents_per_session: int = Field(
        description="Participants in each session, special roles not counted."
    )
    num_sessions: int = Field(description="Number of sessions.")
    max_conversation_length: int | None = Field(
        None,
        # The short layout has `max_rounds` in its place, so the default is None.
        description="Required. Maximum number of messages of a session that a model writes. A "
        "session that reaches it ends there.",
    )
    max_rounds: int | None = Field(
        None, description="Maximum number of tasks in a session (only in the short layout)."
    )
    treatment_assignment_strategy: TreatmentStrategy = Field(
        description="simple_random: each session draws independently. complete_random: as "
        "balanced as possible. manual: by a column of agent_profiles."
    )
    treatment_column: str | None = Field(
        None, description="Only for manual: name of the column (row 1 or row 2)."
    )
    session_assignment_strategy: Strategy = Field(
        description="random, or manual by a column of agent_profiles. A respondent with a blank "
        "cell takes no part."
    )
    session_column: str | None = Field(
        None, description="Only for manual: name of the column (row 1 or row 2)."
    )
    role_assignment_strategy: Strategy = Field(
        description="random, or manual by a column of agent_profiles."
    )
    role_column: str | None = Field(
        None, description="Only for manual: name of the column (row 1 or row 2)."
    )
    random_seed: int = Field(
        42,
        description="The same seed gives the same random draws. Blank: 42.",
        json_schema_extra=field_notes(label="Seed of random draws"),
    )
    show_profile: bool = Field(True, description="Participants are told their profile.")
    include_backstories: bool = Field(
        False, description="A model writes a backstory of each participant from the profile."
    )
    treatment_in_system: bool = Field(
        True, description="The treatment is part of what participants are told at the beginning."
    )
    reveal_private: bool = Field(
        True, description="Answers to a private question are shown to all after the round."
    )
    at: Places = Field(default_factory=dict)


class LabelledPart(_Part):
    """The base class of treatments and roles. Each is a text of the workbook with a label.

    `placeholder_attributes` holds the attributes that placeholders can use.
    """

    label: str = Field(description="A short label; must be unique.")
    description: str = Field(description="What participants are told about it.")
    extra: Mapping[str, str] = Field(
        default_factory=dict,
        description="Further attributes, which the short layout allows: name → text.",
    )
    at: Places = Field(default_factory=dict)

    @property
    def placeholder_attributes(self) -> dict[str, str]:
        return {"label": self.label, "description": self.description, **self.extra}


class Treatment(LabelledPart):
    """A treatment. All participants of a session have the same treatment."""

    description: str = Field(
        description="Shown to all participants of the session, as part of what they are told at "
        "the beginning."
    )


class Role(LabelledPart):
    """A role of participants, or one of the special roles Facilitator and Summarizer."""

    label: str = Field(
        description="Facilitator is required: it asks the questions. Summarizer is optional. All "
        "other roles are roles of participants."
    )
    description: str = Field(description="What the role is told about itself.")

    @property
    def special_name(self) -> str | None:
        return special_role(self.label)


class Task(_Part):
    """One row of the sheet of tasks.

    `llm_text` is one template for all roles, or a mapping of role → template in speaking order.
    `people_text` has the same form and holds the wording for humans. Humans get `llm_text` if their
    role has no `people_text`.
    `response_options` is the unparsed text of the cell. It is parsed after its placeholders are
    filled in.
    """

    task_id: str = Field(description="Must be unique.")
    type: TaskType = Field(
        description="context: told to all at the beginning, must come first. discussion: "
        "participants speak one after another, and all hear it. public_question: participants "
        "answer one after another and see the answers so far. private_question: answers are hidden "
        "until the round ends."
    )
    task_order: int = Field(
        description="Tasks with the same number are shuffled separately in each session."
    )
    is_adapted: bool = Field(
        False, description="1 if the original wording was changed. For documentation only."
    )
    human_text: str = Field("", description="The original wording. For documentation only.")
    llm_text: str | Mapping[str, str] = Field(
        description='What is asked. Plain text for all, or {"Role 1": "…", "Role 2": "…"}: the '
        "order of the dict is the order of speaking, and a role that is not in it "
        "takes no part. {{ name }} inserts a constant or an earlier result, "
        "{response_options} the options."
    )
    var_name: str = Field(
        description="Column of the answer in the CSV file; must be unique. Texts and expressions "
        "can use it if it has letters, digits and _ alone."
    )
    var_type: VarType | None = Field(None, description="category, integer or float. Blank: text.")
    response_options: str | None = Field(
        None,
        description='A text, a list ["yes", "no"], a range (0, 10) with both ends included, or a '
        'dict of these by role {"Role 1": (0, 10)}.',
    )
    randomize_response_order: bool = Field(
        False, description="1: each participant sees the list in their own order."
    )
    validate_response: bool = Field(
        False,
        description="1: after an answer that does not fit, the question is asked again, up to 5 "
        "times.",
    )
    generate_speculation_score: bool = Field(
        False, description="1: asks how speculative the answer is, 0 to 100."
    )
    format_response: bool = Field(False, description="1: the answer is requested as JSON.")
    people_text: str | Mapping[str, str] = Field(
        "",
        description="What people in a seat read in place of llm_text. Text, or a dict by role. "
        "Blank: they read llm_text.",
    )
    measure: str = Field(
        "",
        description="Questions with the same measure are its rounds, and are analysed together. "
        "Blank: questions of one type with the same options are rounds if their names differ in "
        "the number at the end alone.",
    )
    at: Places = Field(default_factory=dict)


def _unpack_rows(value: object) -> object:
    if not isinstance(value, str):
        return value
    return tuple(tuple(row) if isinstance(row, list) else row for row in json.loads(value))


# Write the rows as one JSON text. Large profiles would give some hundred thousand YAML nodes, which
# take minutes to read.
_PACKED = BeforeValidator(_unpack_rows, json_schema_input_type=Word)


class Profiles(_Part):
    """The profiles of all respondents: column names, questions, and one row per respondent.

    All cells are texts. A blank cell is "".
    """

    names: tuple[str, ...] = Field(description="Short names of the columns, row 1.")
    questions: tuple[str, ...] = Field(description="The questions as asked, row 2.")
    rows: Annotated[tuple[tuple[str, ...], ...], _PACKED] = Field(
        description="One person each, from row 3 on."
    )
    lines: Annotated[tuple[int, ...], _PACKED] = Field(description="Row numbers of the persons.")
    columns: tuple[str, ...] = Field(description="Letters of the columns.")
    sheet: str = Field("agent_profiles", description="Name of the sheet.")

    @field_serializer("rows", "lines")
    def _pack_rows(self, value: object) -> str:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))

    def column_index(self, name: str) -> int | None:
        """Return the index of the first column with this short name or question.

        Returns None if there is no such column.
        """
        return next(iter(self.matching_columns(name)), None)

    def matching_columns(self, name: str) -> list[int]:
        """Return the indices of all columns with this short name, or else with this question."""
        # Short names come first, because they are unique and questions need not be. The same name
        # can be written in several ways, for example with a separate accent character.
        wanted = unicodedata.normalize("NFKC", name)
        for titles in (self.names, self.questions):
            normalised = [unicodedata.normalize("NFKC", title) for title in titles]
            if wanted in normalised:
                return [column for column, title in enumerate(normalised) if title == wanted]
        return []

    @property
    def id_column(self) -> int:
        return self.column_titles.index("ID")

    @property
    def column_titles(self) -> tuple[str, ...]:
        """The titles of the columns."""
        # They are the short names if one of them is "ID", otherwise the questions.
        return self.names if "ID" in self.names else self.questions

    def ids(self) -> list[str]:
        return [row[self.id_column] for row in self.rows]

    def cell_address(self, row: int, column: int) -> str:
        """Return the sheet address of a value, for messages."""
        return f"{self.sheet}!{self.columns[column]}{self.lines[row]}"


class Constant(_Part):
    """A constant: a placeholder and its values. Each value gives a separate experiment."""

    name: str = Field(
        description="A placeholder: {{ name }} in the other sheets becomes its value."
    )
    values: tuple[Scalar, ...] = Field(
        description='A list: ["participant", "subject"]. Each combination of values is an '
        "experiment of its own."
    )
    at: Places = Field(default_factory=dict)


class Computed(_Part):
    """A value that is computed from earlier answers, per participant or once per session."""

    name: str = Field(
        description="{{ name }} shows the result in later tasks; a column of the CSV file."
    )
    scope: ComputedScope = Field(
        description="participant: one value each. session: one value for all."
    )
    expression: str = Field(
        description="Arithmetic over variables and constants. give is one's own value; sum(give), "
        "mean(give), min(give), max(give), count(give > 5) go over the session, sum(others(give)) "
        "over the others."
    )
    kind: ComputedKind = Field(
        "number",
        description="share: from 0 to 1, reported in per cent, and differences in points. helper: "
        "for texts and conditions, not compared. Blank: a number.",
    )
    at: Places = Field(default_factory=dict)


class Workbook(_Part):
    """A whole workbook as read from a spreadsheet.

    `notes` are advisories for the researcher. They are part of the pre-registered plan, so an
    earlier run cannot be resumed if the wording of an advisory has changed.
    """

    layout: str = Field(description="Layout of the spreadsheet.")
    settings: Settings = Field(description="The sheet of settings.")
    treatments: tuple[Treatment, ...] = Field(description="The sheet of treatments.")
    roles: tuple[Role, ...] = Field(description="The sheet of roles.")
    tasks: tuple[Task, ...] = Field(description="The sheet of tasks.")
    profiles: Profiles = Field(
        description="Row 1: short names. Row 2: the questions as asked. From row 3 on: one person "
        "a row. The column ID is required, and its values must be unique. It is never shown."
    )
    constants: tuple[Constant, ...] = Field((), description="The sheet of constants.")
    computed: tuple[Computed, ...] = Field((), description="The sheet of calculated values.")
    notes: tuple[str, ...] = Field((), description="Advisories for the researcher.")
    # No part of the plan, so that earlier runs can be resumed.
    sheets_with_drawings: tuple[str, ...] = Field(
        (),
        exclude=True,
        description="Sheets with pictures or text boxes, which participants do not see.",
    )

    @property
    def helper_names(self) -> frozenset[str]:
        """The names of computed values that only help to compute other values."""
        return frozenset(item.name for item in self.computed if item.kind == "helper")


# A default that stops a mistake, such as two long lists of constants, before it costs money.
MOST_PERMUTATIONS = 1_000


class WorkbookConfig(StudyConfig):
    """The study file of a workbook study.

    It holds the complete workbook, so a run can be repeated without the .xlsx file.
    """

    workbook: Workbook = Field(description="the experiment, as read from the spreadsheet")
    source: str = Field("", description="name of the spreadsheet")
    max_permutations: PositiveInt = Field(
        MOST_PERMUTATIONS,
        description="maximum number of experiments that the constants may give",
        json_schema_extra=field_notes(label="Most experiments from constants"),
    )
    reasks: NonNegative = Field(
        5,
        description="how often a question is asked again if the answer does not fit",
        json_schema_extra=field_notes(label="Re-asks"),
    )
    images: Literal["send", "placeholder"] = Field(
        "send",
        description="`send` images to the model, or `placeholder`: send the text [image] in their "
        "place, for models that accept no images",
        json_schema_extra=field_notes(label="Images in prompts"),
    )
    first_sessions: PositiveInt | None = Field(
        None,
        description="play at most this many sessions of each experiment (`--limit`)",
        json_schema_extra=field_notes(label="Most sessions"),
    )


def settings_of(workbook: Workbook) -> tuple[dict[str, object], list[str]]:
    """Return the settings that a workbook states, and notes on the choice of the language model."""
    settings = workbook.settings
    values: dict[str, object] = {
        "temperature": settings.temperature,
        "random_seed": settings.random_seed,
    }
    notes: list[str] = []
    # With this name the endpoint determines the model.
    if settings.model_info == HUGGING_FACE_VENDOR:
        values["model"] = HUGGING_FACE_VENDOR
        if settings.api_endpoint:
            values["endpoints"] = {HUGGING_FACE_VENDOR: settings.api_endpoint}
        return values, notes
    if settings.api_endpoint:
        notes.append(f"api_endpoint is only used with {HUGGING_FACE_VENDOR}; it is ignored here")
    try:
        resolve_model(settings.model_info)
        values["model"] = settings.model_info
    # Workbooks may name any model of a server with an OpenAI-compatible API.
    except InputError:
        values["model"] = f"openai/{settings.model_info}"
        notes.append(
            f"the model {settings.model_info!r} is not in the catalog: it is asked for as "
            f"openai/{settings.model_info}, through the OpenAI-compatible API"
        )
    return values, notes


def count_permutations(workbook: Workbook) -> int:
    """Return the number of experiments."""
    # There is one for each combination of the constants' values.
    return math.prod(len(constant.values) for constant in workbook.constants)


def experiment_ids(workbook: Workbook) -> list[str]:
    """Return the ids of the experiments in order."""
    # A single experiment has the id `<experiment_id>`. Several have `<experiment_id>_1` and so on.
    base, count = workbook.settings.experiment_id, count_permutations(workbook)
    return [base] if count == 1 else [f"{base}_{i}" for i in range(1, count + 1)]


# --- what a workbook compares --------------------------------------------------------------------

# Whether a measure is computed → its table and column in a claim.
NUMBERS = {False: "responses.number", True: "computed.number"}
# Maximum number of experiments, the first one included, between which there are claims.
MAX_COMPARED_EXPERIMENTS = 40
# The names of at most this many variables are all listed.
MAX_LISTED_NAMES = 3
# A name that ends in a number, such as `give_2`: the variable `give` in round 2.
_ROUND = re.compile(r"^(.*?)[ _-]?(\d{1,3})$")


@dataclass(frozen=True)
class Measure:
    """A numeric outcome of participants, in one round or in several."""

    name: str
    # (Round number, variable) pairs.
    rounds: tuple[tuple[int, str], ...]
    # True for a computed value.
    computed: bool
    # True if the sheet declares all its values as shares.
    is_share: bool = False

    @property
    def words(self) -> str:
        """The name of the measure in words, with spaces in place of underscores."""
        return self.name.replace("_", " ")

    @property
    def label(self) -> str:
        """The name with its unit, such as "give per participant and round"."""
        return f"{self.words} per participant{' and round' * (len(self.rounds) > 1)}"

    @property
    def outcome(self) -> str:
        """The label as the result of a planned comparison prints it."""
        # A workbook does not say in which currency or points its amounts are.
        return f"{self.label}{', in units of the workbook' * (self.computed and not self.is_share)}"

    @property
    def variable_names(self) -> tuple[str, ...]:
        return tuple(variable for _, variable in self.rounds)


# Identifies a measure. The first part is its name in the sheet, or that of its variables.
_MeasureKey = tuple[str, ...]


def measures_of(variables: Iterable[tuple[str, bool]], book: Workbook) -> list[Measure]:
    """Group variables into measures, so that all rounds of a variable form one measure.

    - `variables`: names, each with a boolean that says whether the value is computed.
    """
    # The name of a measure must not depend on which of its variables have values in a run.
    declared = [(task.var_name, False) for task in book.tasks]
    declared += [(item.name, True) for item in book.computed if item.scope == "participant"]
    given = list(variables)
    whole = _group_variables([*declared, *given], book)
    # The common part of its names is the name of a measure if it fits no other variable.
    stems = {key: key[0].rstrip(" _-") for key in whole}
    counts = Counter(stems.values())
    labels = {
        key: stems[key] if counts[stems[key]] == 1 < len(names) else _list_rounds(names)
        for key, names in whole.items()
    }
    shares = {item.name for item in book.computed if item.kind == "share"}
    computed_names = {name for name, computed in given if computed}
    return [
        Measure(
            labels[key],
            tuple(part for part in _number_rounds(whole[key]) if part[1] in names),
            computed_names.issuperset(names),
            computed_names.issuperset(names) and shares.issuperset(names),
        )
        for key, names in _group_variables(given, book).items()
    ]


def _group_variables(
    variables: Iterable[tuple[str, bool]], book: Workbook
) -> dict[_MeasureKey, list[str]]:
    # Variables such as `give_1` and `give_2` are the rounds of one measure if their values are
    # alike: asked with one type and the same options, or computed values of one kind. Otherwise a
    # mean over them would mean nothing. The sheet may say by `measure` that others are rounds too.
    tasks = {task.var_name: task for task in book.tasks}
    kinds = {item.name: item.kind for item in book.computed}
    stated = {task.measure for task in book.tasks if task.measure}
    groups: dict[_MeasureKey, list[str]] = {}
    for name, computed in dict.fromkeys(variables):
        match = _ROUND.match(name)
        stem = match[1] if match and match[1] else name
        task = None if computed else tasks.get(name)
        measure = (task and task.measure) or stem
        key: _MeasureKey = (measure, "asked")
        if computed:
            key = (stem, "computed", kinds.get(name, ""), name if stem == name else "")
        elif measure not in stated:
            options = "".join(((task and task.response_options) or "").split())
            kind = str(task and task.var_type)
            key = (stem, "asked", kind, options, name if stem == name else "")
        groups.setdefault(key, []).append(name)
    return groups


def _number_rounds(names: Sequence[str]) -> tuple[tuple[int, str], ...]:
    # The numbers of the names, or those of the rows of the sheet if not all names have one.
    matches = [_ROUND.match(name) for name in names]
    numbers = [int(match[2]) for match in matches if match is not None]
    if len(set(numbers)) < len(names):
        return tuple(enumerate(names, 1))
    return tuple(sorted(zip(numbers, names, strict=True)))


def _list_rounds(variables: Sequence[str]) -> str:
    # The name of a measure of which another measure has the usual name.
    names = [name for _, name in _number_rounds(variables)]
    return ", ".join(names) if len(names) <= MAX_LISTED_NAMES else f"{names[0]} … {names[-1]}"


def declare_claims(config: WorkbookConfig) -> list[Claim]:
    """Return the planned comparisons of a workbook: between treatments and between experiments."""
    # Contrasts with the first treatment are primary, up to a maximum number. If there are computed
    # values, only these can be primary. Otherwise only questions that ask for a number can be.
    # Contrasts between experiments are exploratory.
    book = config.workbook
    tasks = sorted(filter(_may_be_numeric, book.tasks), key=lambda task: not task.var_type)
    asked_names = [(task.var_name, False) for task in tasks]
    typed = [(task.var_name, False) for task in tasks if task.var_type]
    # A session value has no participants, so it is not compared between them.
    computed = [
        (item.name, True)
        for item in book.computed
        if item.scope == "participant" and item.name not in book.helper_names
    ]
    measures = measures_of([*computed, *dict.fromkeys(asked_names)], book)
    main_names = {name for name, _ in computed or typed or asked_names}
    treatments = list(dict.fromkeys(treatment.label for treatment in book.treatments))
    pairs = [(measure, treatment) for measure in measures for treatment in treatments[1:]]
    claims = [
        _between_treatments(
            book, measure, (treatment, treatments[0]), _claim_family(n, measure, main_names)
        )
        for n, (measure, treatment) in enumerate(pairs)
    ]
    first, *others = zip(experiment_ids(book), _describe_combinations(book), strict=True)
    if len(others) >= MAX_COMPARED_EXPERIMENTS:
        return claims
    return claims + [
        _between_experiments(book, measure, other, first)
        for measure in measures
        for other in others
    ]


def name_conditions(config: WorkbookConfig) -> dict[str, dict[str, str]]:
    """Return the treatments of a workbook."""
    return {"treatment": {treatment.label: "" for treatment in config.workbook.treatments}}


def _describe_combinations(book: Workbook) -> list[str]:
    assignments = [
        [f"{constant.name} = {_format_value(value)}" for value in constant.values]
        for constant in book.constants
    ]
    return [", ".join(values) for values in itertools.product(*assignments)]


def _format_value(value: Scalar) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return number_text(value)


def _may_be_numeric(task: Task) -> bool:
    # Without a type only a range of numbers asks for a number. Constants may give the range.
    if not task.type.endswith("_question") or task.var_type == "category":
        return False
    options = task.response_options or ""
    return task.var_type is not None or "(" in options or "{{" in options


def _claim_family(number: int, measure: Measure, main_names: Collection[str]) -> Family:
    is_main = all(name in main_names for name in measure.variable_names)
    return "primary" if number < MOST_PRIMARY and is_main else "secondary"


def _between_treatments(
    book: Workbook, measure: Measure, treatments: tuple[str, str], family: Family
) -> Claim:
    return Claim(
        NUMBERS[measure.computed],
        treatments,
        "mean",
        family=family,
        unit="session",
        estimand=(
            "Among simulated participants like those of the profiles sheet: the mean "
            f"{measure.label} under {treatments[0]} minus that under {treatments[1]}; "
            "independent unit: session."
        ),
        by="treatment",
        where=_counted_rows(book, measure),
        subject=("experiment_id", "session", "participant_id"),
        repeated=("experiment_id", _variable_column(measure)),
        outcome=measure.outcome,
        outcome_says_rows=True,
        is_mean_of_shares=measure.is_share,
    )


def _between_experiments(
    book: Workbook, measure: Measure, first: tuple[str, str], second: tuple[str, str]
) -> Claim:
    names = first[1], second[1]
    return Claim(
        NUMBERS[measure.computed],
        (first[0], second[0]),
        "mean",
        unit="session",
        estimand=(
            "Among simulated participants like those of the profiles sheet: the mean "
            f"{measure.label} with {names[0]} minus that with {names[1]}, within persons; "
            "independent unit: session."
        ),
        by="experiment_id",
        where=_counted_rows(book, measure),
        subject=("session", "participant_id"),
        repeated=(_variable_column(measure),),
        paired=True,
        outcome=measure.outcome,
        outcome_says_rows=True,
        is_mean_of_shares=measure.is_share,
        names=names,
    )


def _variable_column(measure: Measure) -> str:
    return "name" if measure.computed else "var_name"


def _counted_rows(
    book: Workbook, measure: Measure
) -> tuple[tuple[str, tuple[str | None, ...]], ...]:
    # Returns (column, allowed values) pairs. None as an allowed value means an empty cell.
    if measure.computed:
        return ((_variable_column(measure), measure.variable_names),)
    participant_roles = tuple(role.label for role in book.roles if not role.special_name)
    # None is the status of a missing answer, which has no number.
    statuses = ("valid", "unchecked", None)
    return (
        (_variable_column(measure), measure.variable_names),
        ("status", statuses),
        ("role", participant_roles),
    )
