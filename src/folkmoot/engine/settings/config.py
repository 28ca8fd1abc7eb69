"""Declare the keys that every study file may have."""

# Study types subclass `StudyConfig`.

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    WithJsonSchema,
    field_validator,
)
from typing_extensions import TypeVar

from folkmoot.engine.seats.seats import SeatSettingsField
from folkmoot.engine.settings.controls import ControlSettings
from folkmoot.engine.settings.hypotheses import Hypothesis
from folkmoot.field_notes import field_notes
from folkmoot.models.endpoints import ADDRESS_SCHEMA, parse_servers
from folkmoot.respondent.mind.knobs import RespondentSettings

PositiveInt = Annotated[int, Field(ge=1)]
NonNegative = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Proportion = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
# Keys that say how requests are sent, and how long a run waits and tries again.
REQUEST_KEYS = (
    *("concurrency", "max_api_retries", "api_retry_base_seconds", "api_sleep_seconds"),
    *("request_timeout_seconds", "max_reply_mb", "quota_wait_seconds"),
)
BUDGET_KEYS = ("budget_usd", "budget_calls")
BATCH_KEYS = ("batch", "batch_at_least", "batch_poll_seconds")
# All keys that say how models are called and not what is studied. Two runs that differ only in
# these keys have the same design.
CALL_KEYS = frozenset({*REQUEST_KEYS, *BUDGET_KEYS, *BATCH_KEYS, "endpoints"})


class LocalSettings(BaseModel):
    """Settings of the server for the model `local`. Folkmoot chooses values for missing keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    threads: int | None = Field(
        None,
        ge=1,
        description="processor cores that the model uses",
        json_schema_extra=field_notes(label="Processor threads"),
    )
    slots: int | None = Field(
        None,
        ge=1,
        le=64,
        description="conversations that the model answers side by side",
        json_schema_extra=field_notes(label="Conversations at the same time"),
    )
    context: int | None = Field(
        None,
        ge=512,
        description="longest conversation",
        json_schema_extra=field_notes(unit="tokens", label="Longest conversation"),
    )


def _as_given(settings: object) -> object:
    # The embedded respondent checks these settings later.
    # The loader checks them later with `RespondentSettings.from_mapping`, which names all problems.
    return settings


class StudyConfig(BaseModel):
    """Settings shared by all study types. Unknown keys are rejected. Instances are immutable.

    A study type subclasses this class and adds its own keys. The fields of the class generate the
    JSON Schema, the problem messages, new study files, and the tables of keys in `docs/`.
    """

    # Without `protected_namespaces=()`, pydantic would warn of keys that begin with `model_`.
    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())

    # The headings under which a new study file lists keys. All other keys of a study type are
    # listed under its title.
    SECTIONS: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "Models": (
            *("model", "models", "endpoints", "embedding_model", "temperature", "max_tokens"),
            *("local", "prompts"),
        ),
        "Calls and costs": (
            *(*BUDGET_KEYS, *REQUEST_KEYS, *BATCH_KEYS, "max_instruction_failures"),
        ),
        "Randomness, humans, hypotheses and controls": (
            *("random_seed", "seats", "hypotheses", "controls"),
        ),
        "The embedded respondent": ("respondent",),
    }
    # Values that a new study file of this type shows for keys that all types share.
    TEMPLATE_VALUES: ClassVar[Mapping[str, object]] = {}
    # Name of a setting in the source project of the study type → hint for a study file with it.
    INSTEAD_OF: ClassVar[Mapping[str, str]] = {}

    study: str | None = Field(
        None,
        description="study type, or the path of a Python file that defines STUDY",
        json_schema_extra=field_notes(essential=True),
    )
    model: str | None = Field(
        None,
        min_length=1,
        description="model that answers, `provider/model`; without it `DEFAULT_MODEL` in the "
        "environment or `.env`, else `synthetic`",
        examples=["synthetic", "openai/gpt-4o", "anthropic/claude-haiku-4.5", "local"],
        json_schema_extra=field_notes(essential=True, label="Model that answers"),
    )
    models: dict[str, str] = Field(
        default_factory=dict,
        description="other models for single roles: role → model",
        examples=[{"moderator": "anthropic/claude-haiku-4.5"}],
        json_schema_extra=field_notes(label="Models of single roles"),
    )
    endpoints: dict[str, Annotated[JsonValue, WithJsonSchema(ADDRESS_SCHEMA)]] = Field(
        default_factory=dict,
        description="servers: model → base URL, or `{url, headers, query}`, or a list of servers",
        examples=[{"openai/my-model": "http://localhost:8000/v1"}],
        json_schema_extra=field_notes(label="Model servers"),
    )
    embedding_model: str | None = Field(
        None,
        min_length=1,
        description="model that compares texts; default: an embedding model of the vendor",
        examples=["openai/text-embedding-3-small"],
        json_schema_extra=field_notes(label="Model for comparing texts"),
    )
    temperature: float | None = Field(
        None,
        ge=0,
        le=5,
        allow_inf_nan=False,
        description="how much replies vary; default: the vendor's",
        examples=[0.7],
        json_schema_extra=field_notes(label="Temperature of the model"),
    )
    max_tokens: PositiveInt | None = Field(
        None,
        description="longest reply",
        examples=[1000],
        json_schema_extra=field_notes(unit="tokens", label="Longest reply"),
    )
    random_seed: NonNegative = Field(
        42,
        description="number from which all random draws of the run follow",
        json_schema_extra=field_notes(essential=True, label="Seed of random draws"),
    )
    concurrency: PositiveInt = Field(
        64,
        description="most calls that wait for a reply at the same time",
        json_schema_extra=field_notes(label="Calls at the same time"),
    )
    max_api_retries: NonNegative = Field(
        5,
        description="further attempts if the vendor is busy or the network fails",
        json_schema_extra=field_notes(label="Retries after an error"),
    )
    api_retry_base_seconds: Seconds = Field(
        2.0,
        description="first wait before an attempt; it doubles each time",
        json_schema_extra=field_notes(unit="seconds", label="First wait before a retry"),
    )
    api_sleep_seconds: Seconds = Field(
        0.0,
        description="minimum time between the starts of two calls to one model",
        json_schema_extra=field_notes(unit="seconds", label="Pause between two calls"),
    )
    request_timeout_seconds: float = Field(
        120.0,
        gt=0,
        allow_inf_nan=False,
        description="time without a reply after which a call has failed",
        json_schema_extra=field_notes(unit="seconds", label="Time limit of a call"),
    )
    max_reply_mb: float = Field(
        8.0,
        gt=0,
        allow_inf_nan=False,
        description="longest reply that is read; a longer one counts as missing, without a re-ask",
        json_schema_extra=field_notes(unit="megabytes", label="Longest reply that is read"),
    )
    quota_wait_seconds: Seconds = Field(
        60.0,
        description="single wait when a quota is used up, before the run pauses",
        json_schema_extra=field_notes(unit="seconds", label="Wait when a quota is used up"),
    )
    budget_usd: float | None = Field(
        None,
        ge=0,
        allow_inf_nan=False,
        description="spending limit at which the run pauses",
        examples=[20],
        json_schema_extra=field_notes(unit="US dollars", label="Budget"),
    )
    budget_calls: NonNegative | None = Field(
        None,
        description="number of calls at which the run pauses",
        examples=[10_000],
        json_schema_extra=field_notes(label="Most calls"),
    )
    batch: bool | Literal["auto"] = Field(
        False,
        description="submit calls through the vendor's batch API, at half the price and with "
        "results within 24 hours; `auto`: only if at least `batch_at_least` calls wait together",
        json_schema_extra=field_notes(label="Batches at half the price"),
    )
    batch_at_least: PositiveInt = Field(
        100,
        description="with `batch: auto`, the fewest calls that make a batch",
        json_schema_extra=field_notes(label="Fewest calls of a batch"),
    )
    batch_poll_seconds: Seconds = Field(
        60.0,
        description="time between two checks on a batch",
        json_schema_extra=field_notes(unit="seconds", label="Time between checks on a batch"),
    )
    max_instruction_failures: Proportion = Field(
        0.2,
        description="share of a model's first replies that may need a further request, repeat "
        "themselves or be cut; above it the report says that the model did not follow the "
        "instructions",
        json_schema_extra=field_notes(label="Failed first replies to accept"),
    )
    prompts: str | None = Field(
        None,
        min_length=1,
        description="folder of your own prompts that replace shipped ones",
        json_schema_extra=field_notes(label="Folder of your own prompts"),
    )
    local: LocalSettings | None = Field(
        None,
        description="how a model on this machine runs, with `model: local`",
        json_schema_extra=field_notes(label="Model on this machine"),
    )
    seats: SeatSettingsField = Field(
        None,
        description="participants whom humans play: number, names, or keys",
        json_schema_extra=field_notes(label="Human participants"),
    )
    respondent: Annotated[
        dict[str, object], BeforeValidator(_as_given, json_schema_input_type=RespondentSettings)
    ] = Field(
        default_factory=dict,
        description="settings of the embedded respondent",
        json_schema_extra=field_notes(label="Embedded respondent"),
    )
    hypotheses: tuple[Hypothesis, ...] = Field(
        (), description="differences between conditions that are tested first and reported apart"
    )

    controls: ControlSettings | None = Field(
        None,
        description="questions after the protocol: why do participants answer as they do?",
        json_schema_extra=field_notes(label="Control questions"),
    )

    @field_validator("endpoints")
    @classmethod
    def _check_endpoints(cls, endpoints: dict[str, JsonValue]) -> dict[str, JsonValue]:
        # A run folder keeps a copy of these settings, and error messages quote the URL. So the
        # check rejects an address that contains an API key.
        for model, address in endpoints.items():
            try:
                parse_servers(address)
            except ValueError as error:
                raise ValueError(f"{model}: {error}") from None
        return endpoints

    def model_for(self, role: str) -> str | None:
        """Return the model that the study file names for a role, or None."""
        return self.models.get(role, self.model)


# The settings class of a study type. Without a parameter, `Study` and `Session` accept any.
ConfigT = TypeVar("ConfigT", bound=StudyConfig, default=Any)
