"""Settings of a workbook study: what all study types share, and the whole experiment as read."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, field_serializer, field_validator

from folkmoot.engine.config import NonNegative, Positive, StudyConfig
from folkmoot.errors import InputError, Problem
from folkmoot.measures.claims import MOST_PRIMARY, Claim, Family
from folkmoot.models.catalog import HOSTED, resolve

TaskType = Literal["context", "discussion", "public_question", "private_question"]
VarType = Literal["category", "integer", "float"]
TreatmentStrategy = Literal["simple_random", "complete_random", "manual"]
Strategy = Literal["random", "manual"]
ComputedScope = Literal["participant", "session"]
TASK_TYPES: tuple[str, ...] = get_args(TaskType)
VAR_TYPES: tuple[str, ...] = get_args(VarType)
COMPUTED_SCOPES: tuple[str, ...] = get_args(ComputedScope)
STRATEGIES: Mapping[str, tuple[str, ...]] = {
    "treatment_assignment_strategy": get_args(TreatmentStrategy),
    "session_assignment_strategy": get_args(Strategy),
    "role_assignment_strategy": get_args(Strategy),
}
Scalar = str | int | float | bool
MAX_TEXT = 100_000  # characters in one cell; Excel itself stops at 32,767

FACILITATOR = "Facilitator"
SUMMARIZER = "Summarizer"
SPECIAL_ROLES = (FACILITATOR, SUMMARIZER)
_BRITISH = {"summariser": SUMMARIZER}


def special_role(label: str) -> str | None:
    """The special role that a label names (case does not matter), or None for a user's own."""
    folded = label.strip().casefold()
    named = (s for s in SPECIAL_ROLES if s.casefold() == folded)
    return next(named, _BRITISH.get(folded))


def written_label(label: str) -> str:
    """A role's label with the British spelling of a special role as the format writes it."""
    return _BRITISH.get(label.strip().casefold(), label)


def number_text(value: float) -> str:
    """A number as a person writes it: 4.0 is `4`, .1 + .2 is `0.3`."""
    if isinstance(value, int) or (value.is_integer() and abs(value) < 1e15):
        return str(int(value))
    return f"{value:.12g}"


@dataclass
class Problems:
    """Collects mistakes while a workbook is read; `structural` means that a part is not there.

    `notes`: not mistakes, but what was read otherwise than it may look.
    """

    found: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    structural: bool = False

    def add(self, message: str, where: str = "", hint: str = "") -> None:
        self.found.append(Problem(message, where=where, hint=hint))


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())


class Settings(_Part):
    """The canonical settings, and what the other layouts add to them.

    `max_conversation_length` counts messages of a session that a model wrote; `max_rounds` counts
    tasks (the short layout's own limit).
    """

    experiment_id: str
    model_info: str
    api_endpoint: str | None = None
    temperature: float
    num_agents_per_session: int
    num_sessions: int
    max_conversation_length: int | None = None
    max_rounds: int | None = None
    treatment_assignment_strategy: TreatmentStrategy
    treatment_column: str | None = None
    session_assignment_strategy: Strategy
    session_column: str | None = None
    role_assignment_strategy: Strategy
    role_column: str | None = None
    random_seed: int = 42
    show_profile: bool = True
    include_backstories: bool = False
    treatment_in_system: bool = True
    reveal_private: bool = True
    at: Mapping[str, str] = Field(default_factory=dict)


class Described(_Part):
    """A label and a description. `extra` are the further attributes that the short layout allows;
    `attributes` is what a placeholder can name."""

    label: str
    description: str
    extra: Mapping[str, str] = Field(default_factory=dict)
    at: Mapping[str, str] = Field(default_factory=dict)

    @property
    def attributes(self) -> dict[str, str]:
        return {"label": self.label, "description": self.description, **self.extra}


class Treatment(Described):
    """A treatment arm."""


class Role(Described):
    """A role, a user's own or one of the two special ones."""

    @property
    def special(self) -> str | None:
        return special_role(self.label)


class Task(_Part):
    """A row of the prompts sheet. `llm_text` is one template for all, or one per role in order.

    `response_options` is the cell's text: it may hold placeholders and is read after they are
    filled in.
    """

    task_id: str
    type: TaskType
    task_order: int
    is_adapted: bool = False
    human_text: str = ""
    llm_text: str | Mapping[str, str]
    var_name: str
    var_type: VarType | None = None
    response_options: str | None = None
    randomize_response_order: bool = False
    validate_response: bool = False
    generate_speculation_score: bool = False
    format_response: bool = False
    at: Mapping[str, str] = Field(default_factory=dict)


class Profiles(_Part):
    """The respondents: short names, questions, and one row of texts each ("" where blank)."""

    names: tuple[str, ...]
    questions: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    lines: tuple[int, ...]
    columns: tuple[str, ...]
    sheet: str = "agent_profiles"

    @field_serializer("rows", "lines")
    def _packed(self, value: object) -> str:
        # One text instead of a hundred thousand YAML nodes, which take minutes to read back.
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))

    @field_validator("rows", "lines", mode="before")
    @classmethod
    def _unpacked(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        return tuple(tuple(v) if isinstance(v, list) else v for v in json.loads(value))

    def column(self, name: str) -> int | None:
        """Index of the column with that short name, or with that question."""
        for titles in (self.names, self.questions):
            if name in titles:
                return titles.index(name)
        return None

    @property
    def id_column(self) -> int:
        return self.titles.index("ID")

    @property
    def titles(self) -> tuple[str, ...]:
        """The row that says which column is the ID: the short names, or else the questions."""
        return self.names if "ID" in self.names else self.questions

    def ids(self) -> list[str]:
        return [row[self.id_column] for row in self.rows]

    def cell(self, row: int, column: int) -> str:
        """The address of a value, for messages."""
        return f"{self.sheet}!{self.columns[column]}{self.lines[row]}"


class Constant(_Part):
    """A placeholder and the values that it takes, one experiment each."""

    name: str
    values: tuple[Scalar, ...]
    at: Mapping[str, str] = Field(default_factory=dict)


class Computed(_Part):
    """A value that is calculated from earlier answers, per participant or once per session."""

    name: str
    scope: ComputedScope
    expression: str
    at: Mapping[str, str] = Field(default_factory=dict)


class Workbook(_Part):
    """A whole experiment file.

    `notes`: what the user should know. They are sealed with the rest of the design, so new wording
    keeps older runs from resuming.
    """

    layout: str
    settings: Settings
    treatments: tuple[Treatment, ...]
    roles: tuple[Role, ...]
    tasks: tuple[Task, ...]
    profiles: Profiles
    constants: tuple[Constant, ...] = ()
    computed: tuple[Computed, ...] = ()
    notes: tuple[str, ...] = ()


MOST_PERMUTATIONS = 1_000


class WorkbookConfig(StudyConfig):
    """A workbook as a study file. It is complete: a run can be repeated without the .xlsx."""

    workbook: Workbook = Field(description="the experiment, as read from the spreadsheet")
    source: str = Field("", description="name of the spreadsheet")
    max_permutations: Positive = Field(
        MOST_PERMUTATIONS,
        description="largest number of experiments that the constants may make",
    )
    reasks: NonNegative = Field(
        5, description="how many times to ask again when an answer fails validation"
    )
    images: Literal["send", "placeholder"] = Field(
        "send",
        description="placeholder: models read [image] where an image stands, and none is sent, so "
        "that a workbook with images can be tried with a model that takes none",
    )
    first_sessions: Positive | None = Field(
        None, description="play at most this many sessions of each experiment (`--limit`)"
    )


def settings_of(workbook: Workbook) -> tuple[dict[str, object], list[str]]:
    """The common settings that a workbook's own give, and notes about its model."""
    ours = workbook.settings
    values: dict[str, object] = {"temperature": ours.temperature, "random_seed": ours.random_seed}
    notes: list[str] = []
    if ours.model_info == HOSTED:
        values["model"] = HOSTED
        if ours.api_endpoint:
            values["endpoints"] = {HOSTED: ours.api_endpoint}
        return values, notes
    if ours.api_endpoint:
        notes.append(f"api_endpoint is only used with {HOSTED}; it is ignored here")
    try:
        resolve(ours.model_info)
        values["model"] = ours.model_info
    except InputError:
        values["model"] = f"openai/{ours.model_info}"
        notes.append(
            f"the model {ours.model_info!r} is not in the catalog: it is asked for as "
            f"openai/{ours.model_info}, through the OpenAI-compatible API"
        )
    return values, notes


def count_permutations(workbook: Workbook) -> int:
    """How many experiments the constants make."""
    return math.prod(len(c.values) for c in workbook.constants)


def experiment_ids(workbook: Workbook) -> list[str]:
    """`<experiment_id>`, or `<experiment_id>_1`, `_2`, … when there is more than one."""
    base, n = workbook.settings.experiment_id, count_permutations(workbook)
    return [base] if n == 1 else [f"{base}_{i}" for i in range(1, n + 1)]


# --- what a workbook compares --------------------------------------------------------------------

NUMBERS = {False: "responses.number", True: "computed.number"}
_ROUND = re.compile(r"^(.*?)[ _-]?(\d{1,3})$")


@dataclass(frozen=True)
class Measure:
    """Something numeric that participants have: one variable, or one variable in rounds."""

    name: str
    rounds: tuple[tuple[int, str], ...]  # (round, variable)
    computed: bool

    @property
    def variables(self) -> tuple[str, ...]:
        return tuple(variable for _, variable in self.rounds)


def measures_of(variables: Iterable[tuple[str, bool]]) -> list[Measure]:
    """The measures of variables (name, computed). Those that differ by a number at the end are one
    measure in rounds."""
    stems: dict[tuple[str, bool], list[tuple[int, str]]] = {}
    for name, computed in variables:
        match = _ROUND.match(name)
        stem, number = (match[1], int(match[2])) if match and match[1] else (name, 0)
        stems.setdefault((stem, computed), []).append((number, name))
    return [
        Measure(stem.rstrip(" _-") if len(of) > 1 else of[0][1], tuple(sorted(of)), computed)
        for (stem, computed), of in stems.items()
    ]


def claims(config: WorkbookConfig) -> list[Claim]:
    """What a workbook compares: each numeric measure between treatments, and between experiments.

    A measure is a variable that is not a category, or a value computed for each participant; rounds
    of one are averaged. Primary are the first contrasts in the order of the sheets, each treatment
    against the first one, of computed values where there are some. The contrasts of all other
    measures are secondary, and those between experiments (constants) exploratory.
    """
    book = config.workbook
    asked = [(t.var_name, False) for t in book.tasks if _may_be_numeric(t)]
    computed = [(c.name, True) for c in book.computed if c.scope == "participant"]
    measures = measures_of([*computed, *dict.fromkeys(asked)])
    arms = list(dict.fromkeys(t.label for t in book.treatments))
    pairs = [(measure, arm) for measure in measures for arm in arms[1:]]
    found = [
        _between_treatments(book, measure, (arm, arms[0]), _family(n, measure, bool(computed)))
        for n, (measure, arm) in enumerate(pairs)
    ]
    first, *others = experiment_ids(book)
    return found + [
        _between_experiments(book, measure, (other, first))
        for measure in measures
        for other in others
    ]


def _may_be_numeric(task: Task) -> bool:
    return task.type.endswith("_question") and task.var_type != "category"


def _family(number: int, measure: Measure, some_computed: bool) -> Family:
    return "primary" if number < MOST_PRIMARY and measure.computed == some_computed else "secondary"


def _between_treatments(
    book: Workbook, measure: Measure, arms: tuple[str, str], family: Family
) -> Claim:
    return Claim(
        NUMBERS[measure.computed],
        arms,
        "mean",
        family=family,
        unit="session",
        estimand=(
            "Among simulated participants like those of the profiles sheet: the mean "
            f"{measure.name} under {arms[0]} minus that under {arms[1]}; independent unit: session."
        ),
        by="treatment",
        where=_counted(book, measure),
        subject=("experiment_id", "session", "participant_id"),
        outcome=measure.name,
    )


def _between_experiments(book: Workbook, measure: Measure, ids: tuple[str, str]) -> Claim:
    return Claim(
        NUMBERS[measure.computed],
        ids,
        "mean",
        unit="session",
        estimand=(
            "Among simulated participants like those of the profiles sheet: the mean "
            f"{measure.name} in {ids[0]} minus that in {ids[1]}, within persons; independent "
            "unit: session."
        ),
        by="experiment_id",
        where=_counted(book, measure),
        subject=("session", "participant_id"),
        paired=True,
        outcome=measure.name,
    )


def _counted(book: Workbook, measure: Measure) -> tuple[tuple[str, tuple[str | None, ...]], ...]:
    """The rows of a measure. Invalid answers and those of the special roles do not count."""
    if measure.computed:
        return (("name", measure.variables),)
    own = tuple(role.label for role in book.roles if not role.special)
    statuses = ("valid", "unchecked", None)
    return (("var_name", measure.variables), ("status", statuses), ("role", own))
