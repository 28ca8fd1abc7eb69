"""The keys that every study file may have, whatever its type. Study types extend `StudyConfig`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_validator
from typing_extensions import TypeVar

from folkmoot.engine.hypotheses import Hypothesis
from folkmoot.engine.seats import SeatsKey
from folkmoot.models.endpoints import servers_of

Positive = Annotated[int, Field(ge=1)]
NonNegative = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class LocalSettings(BaseModel):
    """How the model `local` is served; what is left out is chosen by the machine."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    threads: int | None = Field(None, ge=1, description="processor threads")
    slots: int | None = Field(None, ge=1, le=64, description="conversations at once")
    context: int | None = Field(None, ge=512, description="tokens of one conversation")


class StudyConfig(BaseModel):
    """Settings shared by all study types. Unknown keys are refused, values never change.

    A study type subclasses this and adds its own keys; the description of each field is what
    `docs/study_files.md` and the messages about mistakes show.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())

    study: str | None = Field(
        None, description="study type, or the path of a Python file that defines STUDY"
    )
    model: str | None = Field(
        None,
        min_length=1,
        description="model that answers, `provider/model`; default: `DEFAULT_MODEL` in the "
        "environment or `.env`, else `synthetic`",
    )
    models: dict[str, str] = Field(
        default_factory=dict, description="other models for single roles: role → model"
    )
    endpoints: dict[str, JsonValue] = Field(
        default_factory=dict,
        description="servers: model → base URL, or `{url, headers, query}`, or a list of servers",
    )
    embedding_model: str | None = Field(
        None,
        min_length=1,
        description="model for embeddings; default: that of the answering model's vendor",
    )
    temperature: float | None = Field(
        None, ge=0, le=5, allow_inf_nan=False, description="sampling temperature of all calls"
    )
    max_tokens: Positive | None = Field(None, description="longest reply, in tokens")
    random_seed: NonNegative = Field(42, description="seed of every random draw of the run")
    concurrency: Positive = Field(64, description="maximum number of calls in flight")
    max_api_retries: NonNegative = Field(5, description="retries after a transient error")
    api_retry_base_seconds: Seconds = Field(
        2.0, description="first wait of the exponential backoff"
    )
    api_sleep_seconds: Seconds = Field(
        0.0, description="minimum time between the starts of two calls to one model"
    )
    request_timeout_seconds: float = Field(
        120.0, gt=0, allow_inf_nan=False, description="timeout of one call"
    )
    max_reply_mb: float = Field(
        8.0,
        gt=0,
        allow_inf_nan=False,
        description="longest reply that is read, in megabytes; a longer one is not asked for "
        "again and counts as missing (`too_large`)",
    )
    quota_wait_seconds: Seconds = Field(
        60.0, description="wait once this long when a quota is used up, then pause the run"
    )
    budget_usd: float | None = Field(
        None, ge=0, allow_inf_nan=False, description="pause after spending this many US dollars"
    )
    budget_calls: NonNegative | None = Field(None, description="pause after this many calls")
    batch: bool | Literal["auto"] = Field(
        False,
        description="hand calls in by the vendor's batch interface, at half the price and within "
        "a day; `auto`: only where at least `batch_at_least` calls wait together",
    )
    batch_at_least: Positive = Field(
        100, description="with `batch: auto`, the fewest calls that are worth a batch"
    )
    batch_poll_seconds: Seconds = Field(60.0, description="how often to check on a batch")
    max_instruction_failures: Share = Field(
        0.2,
        description="share of a model's first replies that may need a further request, repeat "
        "themselves or be cut; above it the report says that the model did not follow the "
        "instructions",
    )
    prompts: str | None = Field(
        None, min_length=1, description="folder of prompts of your own that replace shipped ones"
    )
    local: LocalSettings | None = Field(
        None, description="threads, slots and context of the model `local`"
    )
    seats: SeatsKey = Field(
        None, description="participants whom people play: how many, which, or more (docs/people.md)"
    )
    respondent: dict[str, object] = Field(
        default_factory=dict, description="settings of the embedded respondent"
    )
    hypotheses: tuple[Hypothesis, ...] = Field(
        (), description="differences between arms that are tested first and reported apart"
    )

    @field_validator("endpoints")
    @classmethod
    def _servers(cls, endpoints: dict[str, JsonValue]) -> dict[str, JsonValue]:
        # A run folder keeps a copy of these settings, and errors quote the URL: no key is in them.
        for model, address in endpoints.items():
            try:
                servers_of(address)
            except ValueError as error:
                raise ValueError(f"{model}: {error}") from None
        return endpoints

    def model_for(self, role: str) -> str | None:
        """The model that the file names for a role; None where it names none at all."""
        return self.models.get(role, self.model)


# The settings of a study type; a plain `Study` or `Session` leaves open which.
Config = TypeVar("Config", bound=StudyConfig, default=Any)
