"""Settings that all study types share: defaults, bounds and refused values."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from folkmoot.engine.settings.config import StudyConfig


def test_defaults_match_the_documentation() -> None:
    config = StudyConfig()
    assert (config.random_seed, config.concurrency, config.max_api_retries) == (42, 64, 5)
    assert (config.api_retry_base_seconds, config.request_timeout_seconds) == (2.0, 120.0)
    assert (config.quota_wait_seconds, config.api_sleep_seconds) == (60.0, 0.0)
    assert config.model is None
    assert config.budget_usd is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("random_seed", -1),
        ("concurrency", 0),
        ("max_api_retries", -1),
        ("api_sleep_seconds", -0.1),
        ("api_retry_base_seconds", float("nan")),
        ("request_timeout_seconds", 0),
        ("quota_wait_seconds", float("inf")),
        ("budget_usd", -1),
        ("budget_calls", -1),
        ("temperature", -0.1),
        ("max_tokens", 0),
        ("model", ""),
        ("colour", "blue"),
    ],
)
def test_invalid_values_are_refused(key: str, value: object) -> None:
    with pytest.raises(ValidationError):
        StudyConfig.model_validate({key: value})


def test_values_are_immutable() -> None:
    with pytest.raises(ValidationError):
        StudyConfig().random_seed = 7  # type: ignore[misc]


def test_role_uses_its_own_model_or_the_model_of_the_study() -> None:
    config = StudyConfig(model="gpt-4o", models={"moderator": "claude-haiku-4.5"})
    assert config.model_for("moderator") == "claude-haiku-4.5"
    assert config.model_for("participant") == "gpt-4o"


def test_config_round_trips_and_every_key_is_described() -> None:
    config = StudyConfig(model="gpt-4o", respondent={"kappa": 1})
    assert StudyConfig.model_validate(config.model_dump(mode="json")) == config
    assert all(field.description for field in StudyConfig.model_fields.values())
