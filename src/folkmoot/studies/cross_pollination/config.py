"""The study file of a cross-pollination study: every key of the source, and a few of our own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)
from pydantic.config import JsonDict
from pydantic_core import InitErrorDetails, PydanticCustomError

from folkmoot.conversation.choices import IGNORED_DIFFERENCES, indistinguishable_pairs
from folkmoot.conversation.reply_forms import normalise_text
from folkmoot.field_notes import field_notes
from folkmoot.hints import did_you_mean
from folkmoot.kit.coding import CodingStudyConfig
from folkmoot.measures.clusters import LARGE, too_large
from folkmoot.measures.inference.claims import Claim
from folkmoot.measures.inference.estimates import FEWEST_UNITS
from folkmoot.people.sources import installed_sources

SIMPLE_VOTING = "simple_voting"
SIMPLE_PASSIVE = "simple_passive"
CLARIFIED_PASSIVE = "clarified_passive"
ACP = "acp"

# Further arms that separate persuasion from being shown or told anything at all.
NAMES_ONLY = "names_only"
EMPTY_ARGUMENT = "empty_argument"

LABELS: Mapping[str, str] = {
    SIMPLE_VOTING: "Simple voting",
    SIMPLE_PASSIVE: "Simple passive",
    CLARIFIED_PASSIVE: "Clarified passive",
    ACP: "Adversarial (ACP)",
    NAMES_ONLY: "Names only",
    EMPTY_ARGUMENT: "Empty argument",
}


def condition_label(condition: str) -> str:
    """The condition's name for readers."""
    return LABELS.get(condition, condition.replace("_", " ").capitalize())


OppositionMethod = Literal[
    "cluster_embedding", "embedding", "llm_judge", "predefined", "highest_voted"
]


def _not_blank(option: str) -> str:
    if option and not normalise_text(option):
        raise ValueError("is blank")
    return option.strip()


Option = Annotated[str, Field(min_length=1, max_length=300), AfterValidator(_not_blank)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ConditionDesign(_Part):
    """What a condition gives its participants before they vote again: three switches."""

    summaries: bool = Field(False, description="participants read the summaries of all interviews")
    interview: bool = Field(False, description="a neutral moderator interviews each participant")
    dialogue: bool = Field(False, description="a moderator puts the opposing view to each")


ConditionName = Annotated[
    Annotated[Literal["source"], Tag("source")]
    | Annotated[dict[str, ConditionDesign], Tag("conditions")],
    Discriminator(lambda given: "source" if isinstance(given, str) else "conditions"),
]

# The source's four, each with one thing more than the one before it.
CONDITIONS: Mapping[str, ConditionDesign] = {
    SIMPLE_VOTING: ConditionDesign(),
    SIMPLE_PASSIVE: ConditionDesign(summaries=True),
    CLARIFIED_PASSIVE: ConditionDesign(summaries=True, interview=True),
    ACP: ConditionDesign(summaries=True, interview=True, dialogue=True),
}
PLACEBOS = (NAMES_ONLY, EMPTY_ARGUMENT)


def condition_switches(settings: Mapping[str, object]) -> dict[str, ConditionDesign]:
    """The conditions that a run's settings know, as they were written down, of any version."""
    further = settings.get("exposure")
    named = further.items() if isinstance(further, Mapping) else ()
    return {**CONDITIONS, **{name: ConditionDesign(**shown) for name, shown in named}}


class Topic(_Part):
    """What is decided: a description and at least two options."""

    description: str = Field(
        min_length=1,
        description="what is decided, as every participant reads it",
        examples=[
            "Your city has $500,000 in discretionary funds to allocate.\n"
            "You must choose which area should receive the funding.\n"
        ],
    )
    options: tuple[Option, ...] = Field(
        min_length=2,
        description="the options of the vote",
        examples=[
            ["Park improvements", "Youth job training programs", "Senior services expansion"]
        ],
    )

    @field_validator("options", mode="wrap")
    @classmethod
    def _told_apart(cls, options: object, handler: ValidatorFunctionWrapHandler) -> tuple[str, ...]:
        """All mistakes of the list at once, so that a blank option hides no other's."""
        given = options if isinstance(options, (list, tuple)) else ()
        faults: list[InitErrorDetails] = []
        try:
            checked: tuple[str, ...] = handler(tuple(given) or options)
        except ValidationError as error:
            faults += [
                {"type": e["type"], "loc": e["loc"], "input": e["input"], "ctx": e.get("ctx") or {}}
                for e in error.errors(include_url=False)
            ]
        texts = [
            (i, option)
            for i, option in enumerate(given)
            if isinstance(option, str) and normalise_text(option)
        ]
        for pair in indistinguishable_pairs([option for _, option in texts]):
            (_, first), (_, second) = twins = [texts[n] for n in pair]
            says = f"{first!r} and {second!r} cannot be told apart: {IGNORED_DIFFERENCES}"
            kind = PydanticCustomError("value_error", "{error}", {"error": says})
            faults += [{"type": kind, "loc": (i,), "input": option} for i, option in twins]
        if faults:
            raise ValidationError.from_exception_data("options", faults)
        return checked


def _known_sources() -> tuple[str, ...]:
    return ("auto", "persona_hub", "table", *installed_sources())


def _list_sources(schema: JsonDict) -> None:
    """Name the sources in the JSON Schema, those of installed packages included."""
    schema |= {"enum": [*_known_sources()], **field_notes(essential=True)}


class Personas(_Part):
    """Where the participants come from (`docs/personas.md`).

    `persona_hub` takes its lines from `file` or the web, and two model calls make a person of each.
    `quota` and `grounded` need neither network nor model; a `file` of people and weights replaces
    the packaged people of `grounded`. Other sources are registered under the entry-point group
    `folkmoot.personas`.
    """

    source: str = Field(
        "auto",
        description="`quota`, `grounded` (drawn from cited statistics), `persona_hub`, or `table` "
        "(real profiles); `auto` is `persona_hub`, or `quota` in a synthetic run without network",
        examples=["quota"],
        json_schema_extra=_list_sources,
    )
    file: str | None = Field(
        None,
        validate_default=True,
        description="file of profiles or of base lines, for `table`, `grounded` and `persona_hub`",
    )
    url: str | None = Field(None, description="address from which `persona_hub` is downloaded")
    pool: str = Field(
        "data/personas.json", description="file that keeps enriched people between runs"
    )

    @field_validator("source")
    @classmethod
    def _check_source(cls, source: str) -> str:
        known = _known_sources()
        if source not in known:
            raise ValueError(f"must be one of {', '.join(known)}")
        return source

    @field_validator("file")
    @classmethod
    def _check_file(cls, file: str | None, info: ValidationInfo) -> str | None:
        folder = (info.context or {}).get("folder")
        if file is None and info.data.get("source") == "table":
            raise ValueError("the source `table` needs a `file` of profiles")
        if file is not None and folder and not (folder / Path(file).expanduser()).is_file():
            raise ValueError(f"there is no file {file}")
        return file

    @property
    def are_generated(self) -> bool:
        """Whether the people are made without a file, a network or a model."""
        return self.source in installed_sources()


class CrossPollinationConfig(CodingStudyConfig):
    """Settings of one pilot."""

    SHOWN: ClassVar[Mapping[str, object]] = {
        "hypotheses": [
            {
                "measure": "position_changed",
                "contrast": [ACP, SIMPLE_VOTING],
                "direction": "greater",
                "smallest": 0.05,
                "expected": 0.2,
            }
        ]
    }

    pilot_id: str = Field(
        description="name of the run; its folder in outputs/",
        examples=["my_pilot"],
    )
    pilot_name: str = Field(
        "",
        description="title for readers",
        examples=["What should the city fund?"],
        json_schema_extra=field_notes(essential=True),
    )
    topic: Topic = Field(description="what is decided")
    participants_per_condition: int = Field(
        ge=1, description="participants in each condition", examples=[30]
    )
    disagreement_threshold: float = Field(
        0.9,
        gt=0,
        le=1,
        description="share of the first votes for one option at which the study stops",
    )
    min_responses_for_threshold: int = Field(
        50, ge=1, description="first votes needed before the threshold is checked"
    )
    max_clarification_exchanges: int = Field(
        5, ge=1, description="maximum number of exchanges in an interview"
    )
    max_socratic_exchanges: int = Field(
        5, ge=1, description="maximum number of exchanges in an adversarial dialogue"
    )
    opposition_method: OppositionMethod = Field(
        "cluster_embedding",
        description="how the opposing view of a dialogue is chosen",
        json_schema_extra=field_notes(essential=True),
    )
    opposition_mapping: dict[str, str] | None = Field(
        None,
        description="for `opposition_method: predefined`: option → the option that opposes it",
        examples=[{"Park improvements": "Senior services expansion"}],
    )
    include_vote_distribution: bool = Field(
        False, description="show the first votes beside the summaries"
    )
    arguments_per_option: int = Field(
        3, ge=1, description="accepted for older files, without effect: one position per cluster"
    )
    clustering_algorithm: Literal["kmeans", "agglomerative"] = Field(
        "kmeans", description="how the interviews of one option are clustered"
    )
    max_clusters_per_option: int = Field(
        6, ge=1, description="maximum number of clusters per option"
    )
    use_persona_storage: bool = Field(
        True, description="draw `persona_hub` people from a pool that is kept between runs"
    )

    # Ours.
    personas: Personas = Field(Personas(), description="where the participants come from")
    revote: bool = Field(
        False,
        description="ask `simple_voting` to vote twice; the share that changes is the noise floor",
        examples=[True],
        json_schema_extra=field_notes(essential=True),
    )
    extra_conditions: tuple[Literal["names_only", "empty_argument"], ...] = Field(
        (),
        description="placebo arms: the options named again, or an argument without content",
        examples=[list(PLACEBOS)],
    )
    option_order: Literal["fixed", "random"] = Field(
        "fixed",
        description="order of the options in prompts and summaries; `random`: each participant has "
        "their own",
        examples=["random"],
        json_schema_extra=field_notes(essential=True),
    )
    exposure: ConditionName = Field(
        {},
        description="further conditions by their switches, or `source`: a final vote has only what "
        "the source's prompts hold in view",
        examples=[{"argued": {"summaries": False, "interview": False, "dialogue": True}}],
    )
    conditions: tuple[str, ...] | None = Field(
        None,
        min_length=1,
        description="conditions that are run; default: all",
        examples=[list(CONDITIONS)],
    )
    summary_draws: int = Field(
        1, ge=1, le=50, description="draws of the summaries, over which readers are divided"
    )
    confidence: bool = Field(
        False, description="ask how sure each is of the choice (0 to 100), before and after"
    )
    ranking: bool = Field(False, description="ask for a ranking of all options, before and after")
    restatement: bool = Field(
        False, description="ask each to state the opposing view in words its holders would accept"
    )
    delayed_vote: bool = Field(
        False, description="ask for a third vote at the end, with only both earlier ones in view"
    )
    judge_sample: int = Field(
        12, ge=1, description="number of positions shown to the judge of `llm_judge`"
    )

    @field_validator("pilot_id")
    @classmethod
    def _names_a_folder(cls, pilot_id: str) -> str:
        if not re.fullmatch(r"[\w.-]{1,100}", pilot_id) or not pilot_id.strip("."):
            raise ValueError("names the run's folder: use letters, digits, `_`, `-` and `.`")
        return pilot_id

    @model_validator(mode="after")
    def _mapping_fits(self) -> CrossPollinationConfig:
        if self.opposition_method != "predefined":
            return self
        mapping = self.opposition_mapping or {}
        options = self.topic.options
        faults = [f"no opposing view for {option!r}" for option in options if option not in mapping]
        faults += [
            f"{option!r} is mapped to itself" for option, to in mapping.items() if option == to
        ]
        faults += [f"{option!r} is not an option" for option in mapping if option not in options]
        faults += [f"{to!r} is not an option" for to in mapping.values() if to not in options]
        if faults:
            raise ValueError("opposition_mapping: " + "; ".join(dict.fromkeys(faults)))
        return self

    @model_validator(mode="after")
    def _arms_fit(self) -> CrossPollinationConfig:
        known = self._all_conditions
        for name, shown in self._added_conditions.items():
            if not re.fullmatch(r"[a-z]\w{0,39}", name) or name in PLACEBOS:
                raise ValueError(
                    f"exposure: {name!r} cannot name a condition; use lower case and `_`"
                )
            if name in CONDITIONS and shown != CONDITIONS[name]:
                raise ValueError(
                    f"exposure: {name} keeps the meaning of the source; give these switches a name "
                    "of your own"
                )
        for name in self.conditions or ():
            if name not in known:
                hint = did_you_mean(name, known, f"known are: {', '.join(known)}")
                raise ValueError(f"conditions: there is no condition {name!r}; {hint}")
        readers = self.conditions_with("summaries")
        if readers and self.summary_draws > self.participants_per_condition:
            raise ValueError(
                f"summary_draws: {self.summary_draws} draws cannot be divided over "
                f"{self.participants_per_condition} readers in each condition"
            )
        interviewed = self.participants_per_condition * len(self.conditions_with("interview"))
        if self.clustering_algorithm == "agglomerative" and interviewed > LARGE:
            raise ValueError(
                f"clustering_algorithm: {too_large(interviewed)} (interviewed participants, "
                "who may all choose one option); set it to kmeans"
            )
        if readers and not self.conditions_with("interview"):
            raise ValueError(
                f"conditions: {', '.join(readers)} would read summaries, and no condition sits the "
                "interviews that they are made of; add one with `interview`"
            )
        return self

    @property
    def _added_conditions(self) -> dict[str, ConditionDesign]:
        """Conditions of the user's own."""
        return {} if self.exposure == "source" else self.exposure

    @property
    def _all_conditions(self) -> dict[str, ConditionDesign]:
        placebos: dict[str, ConditionDesign] = {
            name: ConditionDesign() for name in self.extra_conditions
        }
        return {**CONDITIONS, **placebos, **self._added_conditions}

    @property
    def condition_designs(self) -> dict[str, ConditionDesign]:
        """The conditions of this pilot and what each goes through, the source's four first."""
        chosen = self._all_conditions if self.conditions is None else self.conditions
        return {name: shown for name, shown in self._all_conditions.items() if name in chosen}

    def shown_in_final_vote(self, condition: str) -> ConditionDesign:
        """What stands in the prompt of the final vote. By the source's prompts that is the dialogue
        alone, or the summaries alone."""
        shown = self.condition_designs[condition]
        if self.exposure != "source":
            return shown
        return ConditionDesign(
            summaries=shown.summaries and not shown.dialogue, dialogue=shown.dialogue
        )

    def conditions_with(self, *switches: str) -> tuple[str, ...]:
        """The conditions in which all these switches are on."""
        arms = self.condition_designs.items()
        return tuple(
            name for name, shown in arms if all(getattr(shown, switch) for switch in switches)
        )

    @property
    def uninformed_revote_conditions(self) -> tuple[str, ...]:
        """Conditions that vote again without having read or argued: after an interview at most."""
        return tuple(
            name
            for name, shown in self.condition_designs.items()
            if not (shown.summaries or shown.dialogue) and (name != SIMPLE_VOTING or self.revote)
        )

    @property
    def participant_count(self) -> int:
        """Participants in all."""
        return self.participants_per_condition * len(self.condition_designs)


CHANGED = "participants.position_changed"


def declare_claims(config: CrossPollinationConfig) -> list[Claim]:
    """What a pilot compares: how many change their choice, each condition against each other.

    Primary is whether arguing does anything beyond reading and beyond voting twice: ACP against
    both conditions that read, and against simple voting. All other pairs are exploratory. The
    claims are two-sided, because the source states no direction.
    """
    arms = [name for name in config.condition_designs if name != SIMPLE_VOTING or config.revote]
    found = [_change_claim(config, *pair) for pair in combinations(reversed(arms), 2)]
    return sorted(found, key=lambda claim: claim.family != "primary")


def _change_claim(config: CrossPollinationConfig, first: str, second: str) -> Claim:
    shown = [config.condition_designs[name] for name in (first, second)]
    drawn = config.summary_draws >= FEWEST_UNITS and any(arm.summaries for arm in shown)
    unit = "draw of the summaries" if drawn else "participant"
    names = condition_label(first), condition_label(second)
    primary = first == ACP and second in (CLARIFIED_PASSIVE, SIMPLE_PASSIVE, SIMPLE_VOTING)
    return Claim(
        CHANGED,
        (first, second),
        family="primary" if primary else "exploratory",
        unit=unit,
        estimand=(
            "Among simulated participants like those drawn for this run: the share in "
            f"{names[0]} minus that in {names[1]} of those who change from first to final vote; "
            f"independent unit: {unit}."
        ),
        by="condition",
        outcome="changed their choice",
        names=names,
    )
