"""The keys of a cross-pollination study file, the conditions, and the planned claims.

The keys of the source study come first. The keys that Folkmoot adds follow.
"""

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
from folkmoot.kit.findings import condition_name
from folkmoot.measures.clusters import LARGE, too_large
from folkmoot.measures.inference.claims import Claim
from folkmoot.measures.inference.estimates import FEWEST_UNITS
from folkmoot.people.sources import installed_sources
from folkmoot.storage.tables import DRAWS, DRAWS_OR_OWN

# The conditions of the source study, followed by two placebo conditions of Folkmoot. The names are
# data, because tables and study files hold them.
SIMPLE_VOTING = "simple_voting"
SIMPLE_PASSIVE = "simple_passive"
CLARIFIED_PASSIVE = "clarified_passive"
ACP = "acp"
NAMES_ONLY = "names_only"
EMPTY_ARGUMENT = "empty_argument"

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
    """The switches of a condition, which decide what participants get between the two votes."""

    summaries: bool = Field(False, description="participants read the summaries of all interviews")
    interview: bool = Field(False, description="a neutral moderator interviews each participant")
    dialogue: bool = Field(
        False, description="a moderator puts the opposing view to each participant"
    )


ExposureSetting = Annotated[
    Annotated[Literal["source"], Tag("source")]
    | Annotated[dict[str, ConditionDesign], Tag("conditions")],
    Discriminator(lambda value: "source" if isinstance(value, str) else "conditions"),
]

# The four conditions of the source. Each adds one switch to the condition before it, so a
# difference between neighbours has one cause. Findings rely on this
# (`Votes.neighbours_differ_in_one_switch`).
CONDITIONS: Mapping[str, ConditionDesign] = {
    SIMPLE_VOTING: ConditionDesign(),
    SIMPLE_PASSIVE: ConditionDesign(summaries=True),
    CLARIFIED_PASSIVE: ConditionDesign(summaries=True, interview=True),
    ACP: ConditionDesign(summaries=True, interview=True, dialogue=True),
}
PLACEBOS = (NAMES_ONLY, EMPTY_ARGUMENT)
# The lowest and the highest answer to the question of confidence.
CONFIDENCE_SCALE = (0, 100)


def condition_switches(settings: Mapping[str, object]) -> dict[str, ConditionDesign]:
    """Return the switches of each condition: does it have summaries, an interview, a dialogue?

    - `settings`: the settings in the run folder.
    """
    # Only the switches are validated, because settings of an earlier version may fail other checks.
    exposure = settings.get("exposure")
    added = exposure.items() if isinstance(exposure, Mapping) else ()
    return {**CONDITIONS, **{name: ConditionDesign(**switches) for name, switches in added}}


class Topic(_Part):
    """The decision that participants make: a description and at least two options."""

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
    def _check_distinguishable(
        cls, options: object, handler: ValidatorFunctionWrapHandler
    ) -> tuple[str, ...]:
        # Validation by pydantic alone would stop at a blank option. Then two options that differ
        # only in case or punctuation would not be reported.
        candidates = options if isinstance(options, (list, tuple)) else ()
        faults: list[InitErrorDetails] = []
        try:
            checked: tuple[str, ...] = handler(tuple(candidates) or options)
        except ValidationError as error:
            faults += [
                {
                    "type": detail["type"],
                    "loc": detail["loc"],
                    "input": detail["input"],
                    "ctx": detail.get("ctx") or {},
                }
                for detail in error.errors(include_url=False)
            ]
        texts = [
            (i, option)
            for i, option in enumerate(candidates)
            if isinstance(option, str) and normalise_text(option)
        ]
        # `texts` keeps the index of each option in the file, so that a problem names the right line
        # even when blank options come before it.
        for pair in indistinguishable_pairs([option for _, option in texts]):
            (_, first), (_, second) = twins = [texts[index] for index in pair]
            message = f"{first!r} and {second!r} cannot be distinguished: {IGNORED_DIFFERENCES}"
            kind = PydanticCustomError("value_error", "{error}", {"error": message})
            # Both options of a pair get the problem, because either of them may be the one to
            # change.
            faults += [{"type": kind, "loc": (i,), "input": option} for i, option in twins]
        if faults:
            raise ValidationError.from_exception_data("options", faults)
        return checked


def _known_sources() -> tuple[str, ...]:
    return ("auto", "persona_hub", "table", *installed_sources())


def _list_sources(schema: JsonDict) -> None:
    # The enum lets editors complete the sources that are installed on this machine.
    schema |= {"enum": [*_known_sources()], **field_notes(essential=True)}


class Personas(_Part):
    """The source of the participants' personas (`docs/personas.md`).

    `persona_hub` reads base lines from `file`, or downloads the lines. Two model calls turn each
    line into a persona. `quota` and `grounded` need neither network nor model. With `grounded`, a
    `file` of people and weights replaces the packaged panel. Installed packages add sources through
    the entry-point group `folkmoot.personas`.
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
    first_answers: bool = Field(
        False,
        description="with a table of human answers: tell each participant what the person answered "
        "first",
        json_schema_extra=field_notes(label="Tell the first answers"),
    )
    url: str | None = Field(
        None,
        description="address from which `persona_hub` is downloaded",
        json_schema_extra=field_notes(label="Address of the download"),
    )
    pool: str = Field(
        "data/personas.json",
        description="file that keeps enriched personas between runs",
        json_schema_extra=field_notes(label="File of kept personas"),
    )

    @field_validator("source")
    @classmethod
    def _check_source(cls, source: str) -> str:
        # The sources are looked up here and not in a `Literal`, because installed packages may add
        # some.
        known = _known_sources()
        if source not in known:
            raise ValueError(f"must be one of {', '.join(known)}")
        return source

    @field_validator("file")
    @classmethod
    def _check_file(cls, file: str | None, info: ValidationInfo) -> str | None:
        # The folder of the study file is in the validation context only if there is a file.
        # Settings that were built in memory are accepted without this check.
        folder = (info.context or {}).get("folder")
        if file is None and info.data.get("source") == "table":
            raise ValueError("the source `table` needs a `file` of profiles")
        if file is not None and folder and not (folder / Path(file).expanduser()).is_file():
            raise ValueError(f"there is no file {file}")
        return file

    @property
    def are_generated(self) -> bool:
        """Return whether the source makes personas without a file, a network or a model."""
        return self.source in installed_sources()


class CrossPollinationConfig(CodingStudyConfig):
    """The settings of one cross-pollination run, as the study file gives them."""

    TEMPLATE_VALUES: ClassVar[Mapping[str, object]] = {
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
        description="name of the run and of its folder in outputs/",
        examples=["my_pilot"],
        json_schema_extra=field_notes(label="Name of the run"),
    )
    pilot_name: str = Field(
        "",
        description="title of the study",
        examples=["What should the city fund?"],
        json_schema_extra=field_notes(essential=True, label="Title of the study"),
    )
    topic: Topic = Field(description="what is decided")
    participants_per_condition: int = Field(
        ge=1, le=100_000, description="participants in each condition", examples=[30]
    )
    disagreement_threshold: float = Field(
        0.9,
        gt=0,
        le=1,
        description="the study stops if one option has this share of the first votes or more",
        json_schema_extra=field_notes(label="Agreement that stops the study"),
    )
    min_responses_for_threshold: int = Field(
        50,
        ge=1,
        description="minimum number of first votes for a check of the threshold",
        json_schema_extra=field_notes(label="First votes needed to stop"),
    )
    max_clarification_exchanges: int = Field(
        5,
        ge=1,
        description="maximum number of exchanges in an interview",
        json_schema_extra=field_notes(label="Most exchanges in an interview"),
    )
    max_socratic_exchanges: int = Field(
        5,
        ge=1,
        description="maximum number of exchanges in an adversarial dialogue",
        json_schema_extra=field_notes(label="Most exchanges in a dialogue"),
    )
    opposition_method: OppositionMethod = Field(
        "cluster_embedding",
        description="how the opposing view of a dialogue is chosen: the most distant groups of "
        "summaries "
        "(`cluster_embedding`) or single summaries (`embedding`), a model (`llm_judge`), your list "
        "(`predefined`), or the first votes (`highest_voted`)",
        json_schema_extra=field_notes(essential=True, label="Choice of the opposing view"),
    )
    opposition_mapping: dict[str, str] | None = Field(
        None,
        description="for `opposition_method: predefined`: option → the option that opposes it",
        examples=[{"Park improvements": "Senior services expansion"}],
        json_schema_extra=field_notes(label="Opposing options"),
    )
    include_vote_distribution: bool = Field(
        False,
        description="show the numbers of first votes next to the summaries",
        json_schema_extra=field_notes(label="Show the first votes"),
    )
    arguments_per_option: int = Field(
        3,
        ge=1,
        description="without effect; older study files may still contain it",
        json_schema_extra=field_notes(label="Arguments per option (no effect)"),
    )
    clustering_algorithm: Literal["kmeans", "agglomerative"] = Field(
        "kmeans",
        description="how the interviews of one option are clustered",
        json_schema_extra=field_notes(label="Grouping of interviews"),
    )
    max_clusters_per_option: int = Field(
        6,
        ge=1,
        description="maximum number of clusters per option",
        json_schema_extra=field_notes(label="Most groups per option"),
    )
    use_persona_storage: bool = Field(
        True,
        description="draw `persona_hub` personas from a pool that is kept between runs",
        json_schema_extra=field_notes(label="Keep a pool of personas"),
    )

    # The keys below are additions of Folkmoot. The source study has no counterpart for them.
    personas: Personas = Field(
        Personas(),
        description="where the participants come from",
        json_schema_extra=field_notes(label="Source of participants"),
    )
    revote: bool = Field(
        False,
        description="ask the condition `simple_voting` to vote twice; the share that changes is "
        "the noise floor",
        examples=[True],
        json_schema_extra=field_notes(essential=True, label="Vote twice without treatment"),
    )
    extra_conditions: tuple[Literal["names_only", "empty_argument"], ...] = Field(
        (),
        description="placebo conditions: the options named again, or an argument without content",
        examples=[list(PLACEBOS)],
        json_schema_extra=field_notes(label="Placebo conditions"),
    )
    option_order: Literal["fixed", "random"] = Field(
        "fixed",
        description="order of the options in prompts and summaries; `random`: each participant has "
        "their own",
        examples=["random"],
        json_schema_extra=field_notes(essential=True, label="Order of options"),
    )
    exposure: ExposureSetting = Field(
        {},
        description="further conditions by their switches; `source`: prompts of final votes have "
        "only the texts that the source's prompts have",
        examples=[{"argued": {"summaries": False, "interview": False, "dialogue": True}}],
        json_schema_extra=field_notes(label="Conditions by switches"),
    )
    conditions: tuple[str, ...] | None = Field(
        None,
        min_length=1,
        description="conditions to run; default: all",
        examples=[list(CONDITIONS)],
    )
    summary_draws: int = Field(
        1,
        ge=1,
        le=50,
        description="draws of the summaries, among which the readers are divided",
        json_schema_extra=field_notes(label="Draws of summaries"),
    )
    confidence: bool = Field(
        False,
        description="ask how sure each participant is of the choice (0 to 100), before and after; "
        "about 26 % more calls",
        json_schema_extra=field_notes(label="Ask for confidence"),
    )
    ranking: bool = Field(
        False,
        description="ask for a ranking of all options, before and after; about 26 % more calls",
        json_schema_extra=field_notes(label="Ask for a ranking"),
    )
    restatement: bool = Field(
        False,
        description="ask each participant to state the opposing view in words that its holders "
        "would accept; about 26 % more calls",
        json_schema_extra=field_notes(label="Restate the opposing view"),
    )
    delayed_vote: bool = Field(
        False,
        description="ask for a third vote at the end, with only the two earlier votes in the "
        "prompt; about 13 % more calls",
        json_schema_extra=field_notes(label="Third vote at the end"),
    )
    judge_sample: int = Field(
        12,
        ge=1,
        description="number of positions shown to the judge of `llm_judge`",
        json_schema_extra=field_notes(label="Positions shown to the judge"),
    )

    @field_validator("pilot_id")
    @classmethod
    def _check_folder_name(cls, pilot_id: str) -> str:
        if not re.fullmatch(r"[\w.-]{1,100}", pilot_id) or not pilot_id.strip("."):
            raise ValueError("must be a folder name of letters, digits, `_`, `-` and `.`")
        return pilot_id

    @model_validator(mode="after")
    def _check_opposition_mapping(self) -> CrossPollinationConfig:
        if self.opposition_method != "predefined":
            return self
        # All problems are collected before raising, so that the researcher can correct them in one
        # pass.
        mapping = self.opposition_mapping or {}
        options = self.topic.options
        faults = [f"no opposing view for {option!r}" for option in options if option not in mapping]
        faults += [
            f"{option!r} is mapped to itself"
            for option, opposing in mapping.items()
            if option == opposing
        ]
        faults += [f"{option!r} is not an option" for option in mapping if option not in options]
        faults += [
            f"{opposing!r} is not an option"
            for opposing in mapping.values()
            if opposing not in options
        ]
        if faults:
            raise ValueError("opposition_mapping: " + "; ".join(dict.fromkeys(faults)))
        return self

    @model_validator(mode="after")
    def _check_conditions(self) -> CrossPollinationConfig:
        known = self._all_conditions
        for name, design in self._added_conditions.items():
            if not re.fullmatch(r"[a-z]\w{0,39}", name) or name in PLACEBOS:
                raise ValueError(
                    f"exposure: {name!r} cannot be the name of a condition; use lower-case "
                    "letters, digits and `_`"
                )
            if name in CONDITIONS and design != CONDITIONS[name]:
                raise ValueError(
                    f"exposure: {name} is a condition of the source study, so its switches cannot "
                    "be changed; add the condition under another name"
                )
        for name in self.conditions or ():
            if name not in known:
                hint = did_you_mean(name, known, f"the conditions are: {', '.join(known)}")
                raise ValueError(f"conditions: there is no condition {name!r}; {hint}")
        # The checks below need all conditions, so they are in a model validator and not at the
        # fields.
        readers = self.conditions_with("summaries")
        if readers and self.summary_draws > self.participants_per_condition:
            raise ValueError(
                f"summary_draws: {self.summary_draws} draws cannot be divided over "
                f"{self.participants_per_condition} readers in each condition"
            )
        # Agglomerative clustering compares all pairs of members. In the worst case all interviewed
        # participants choose the same option.
        interviewed = self.participants_per_condition * len(self.conditions_with("interview"))
        if self.clustering_algorithm == "agglomerative" and interviewed > LARGE:
            raise ValueError(
                f"clustering_algorithm: {too_large(interviewed)} (interviewed participants, "
                "who may all choose one option); set it to kmeans"
            )
        if readers and not self.conditions_with("interview"):
            raise ValueError(
                f"conditions: {', '.join(readers)} would read summaries, but no condition has the "
                "interviews from which they are made; add a condition with `interview`"
            )
        return self

    @property
    def _added_conditions(self) -> dict[str, ConditionDesign]:
        return {} if self.exposure == "source" else self.exposure

    @property
    def _all_conditions(self) -> dict[str, ConditionDesign]:
        placebos: dict[str, ConditionDesign] = {
            name: ConditionDesign() for name in self.extra_conditions
        }
        return {**CONDITIONS, **placebos, **self._added_conditions}

    @property
    def condition_designs(self) -> dict[str, ConditionDesign]:
        """Return the design of each condition of this run."""
        # The four conditions of the source study come first.
        chosen = self._all_conditions if self.conditions is None else self.conditions
        return {name: design for name, design in self._all_conditions.items() if name in chosen}

    def shown_in_final_vote(self, condition: str) -> ConditionDesign:
        """Return the switches that say what a condition's participants see at the final vote."""
        # `exposure: source` leaves out the summaries if there is a dialogue, as in the source
        # study.
        design = self.condition_designs[condition]
        if self.exposure != "source":
            return design
        return ConditionDesign(
            summaries=design.summaries and not design.dialogue, dialogue=design.dialogue
        )

    def conditions_with(self, *switches: str) -> tuple[str, ...]:
        """Return the conditions that switch on all of `switches`. One switch is `interview`."""
        designs = self.condition_designs.items()
        return tuple(
            name for name, design in designs if all(getattr(design, switch) for switch in switches)
        )

    @property
    def uninformed_revote_conditions(self) -> tuple[str, ...]:
        """The conditions with two votes, without summaries and without a dialogue."""
        # The condition `simple_voting` counts only if the setting `revote` is on.
        return tuple(
            name
            for name, design in self.condition_designs.items()
            if not (design.summaries or design.dialogue) and (name != SIMPLE_VOTING or self.revote)
        )

    @property
    def participant_count(self) -> int:
        """Return the number of participants over all conditions."""
        return self.participants_per_condition * len(self.condition_designs)


CHANGED = "participants.position_changed"


def describe_stopping_rule(config: CrossPollinationConfig) -> str:
    """Return the rule by which first votes end the study, as a sentence for the preregistration."""
    # Every digit counts: with 92.5 %, a share of 92.4 % does not end the study.
    least = f"{100 * config.disagreement_threshold:.6g} %"
    return (
        f"The first votes end it early if one option has {least} or more of at least "
        f"{config.min_responses_for_threshold} valid votes, or if no vote is valid. Participants "
        "are then skipped, apart from those who only vote."
    )


def declare_claims(config: CrossPollinationConfig) -> list[Claim]:
    """Return one claim for each pair of conditions in which participants vote twice."""
    # A claim compares the shares of participants who change their choice. The primary claims
    # compare the adversarial condition (summaries, interview and dialogue) with the three simpler
    # ones.
    # The claims are two-sided, because the source study states no direction. Without `revote` the
    # participants of simple voting have no second vote, so no change is possible.
    conditions = [*name_conditions(config)[CHANGED]]
    claims = [_change_claim(config, *pair) for pair in combinations(reversed(conditions), 2)]
    return sorted(claims, key=lambda claim: claim.family != "primary")


def name_conditions(config: CrossPollinationConfig) -> dict[str, dict[str, str]]:
    """Return the display names of conditions, as maps from condition id to display name.

    The map under the key "condition" holds all conditions. The map under the key `CHANGED` holds
    the conditions with two votes.
    """
    names = {name: condition_name(name) for name in config.condition_designs}
    twice = {name: label for name, label in names.items() if name != SIMPLE_VOTING or config.revote}
    return {"condition": names, CHANGED: twice}


def _change_claim(config: CrossPollinationConfig, first: str, second: str) -> Claim:
    designs = [config.condition_designs[name] for name in (first, second)]
    # All readers of one draw saw the same texts, so they are not independent. With fewer draws than
    # `FEWEST_UNITS` no interval over draws is possible, and the claim holds for these texts alone.
    reading = [design.summaries for design in designs]
    has_draw_units = config.summary_draws >= FEWEST_UNITS and any(reading)
    unit = (DRAWS if all(reading) else DRAWS_OR_OWN) if has_draw_units else "participant"
    given = "" if has_draw_units or not any(reading) else (", given the summaries of this run")
    names = condition_name(first), condition_name(second)
    is_primary = first == ACP and second in (CLARIFIED_PASSIVE, SIMPLE_PASSIVE, SIMPLE_VOTING)
    return Claim(
        CHANGED,
        (first, second),
        family="primary" if is_primary else "exploratory",
        unit=unit,
        estimand=(
            "Among simulated participants like those drawn for this run: the share who change from "
            f"first to final vote in {names[0]} minus that in {names[1]}{given}; independent unit: "
            f"{unit}."
        ),
        by="condition",
        outcome="changed their choice",
        names=names,
    )
