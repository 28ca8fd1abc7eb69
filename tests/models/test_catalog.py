"""Names of models: the meant model, its endpoint and its key."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import Any

import pytest

from folkmoot.errors import InputError
from folkmoot.models import catalog
from folkmoot.models.catalog import CALL_LLM_MODELS, KNOWN_MODELS, open_provider, resolve_model
from folkmoot.models.request import ProviderSettings
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.registry import PROVIDERS

WORKBOOK_MODELS = (
    "gpt-4.5-preview o3 o4-mini o1-pro o1 gpt-4.1 gpt-4.1-mini gpt-4.1-nano gpt-4o gpt-4o-mini "
    "gpt-4-turbo gpt-4 gpt-3.5-turbo"
)


@pytest.mark.parametrize(
    ("name", "provider", "wire", "url"),
    [
        ("gpt-4o", "openai", "gpt-4o", "https://api.openai.com/v1"),
        ("openai/gpt-4o", "openai", "gpt-4o", "https://api.openai.com/v1"),
        (
            "gemini-3-flash",
            "gemini",
            "gemini-3-flash-preview",
            "https://generativelanguage.googleapis.com/v1beta",
        ),
        ("claude-haiku-4.5", "anthropic", "claude-haiku-4-5", "https://api.anthropic.com/v1"),
        (
            "anthropic/claude-sonnet-4-20250514",
            "anthropic",
            "claude-sonnet-4-20250514",
            "https://api.anthropic.com/v1",
        ),
        ("kimi-k2", "openai", "kimi-k2-0905-preview", "https://api.moonshot.ai/v1"),
        (
            "exaone-4.0",
            "openai",
            "LGAI-EXAONE/EXAONE-4.0-32B",
            "https://api.friendli.ai/serverless/v1",
        ),
        ("openai/org/model-7b", "openai", "org/model-7b", "https://api.openai.com/v1"),
    ],
)
def test_names_resolve_to_provider_model_and_url(
    name: str, provider: str, wire: str, url: str
) -> None:
    spec = resolve_model(name, environ={})
    assert (spec.provider, spec.wire_model, spec.base_url) == (provider, wire, url)
    assert "/" in spec.name and spec.key_needed


def test_bare_and_full_names_are_equivalent() -> None:
    for short_name, (vendor, _) in KNOWN_MODELS.items():
        assert resolve_model(short_name, environ={}) == resolve_model(
            f"{vendor}/{short_name}", environ={}
        )


@pytest.mark.parametrize("name", [*WORKBOOK_MODELS.split(), *CALL_LLM_MODELS])
def test_models_of_the_source_studies_are_known(name: str) -> None:
    assert resolve_model(name, environ={}).key_env


def test_base_url_moves_a_model_and_makes_its_key_optional() -> None:
    by_variable = resolve_model("exaone-4.0", environ={"EXAONE_BASE_URL": "http://gpu:8000/v1/"})
    assert (by_variable.base_url, by_variable.key_needed) == ("http://gpu:8000/v1", False)
    # A file with Windows line ends.
    assert resolve_model("gpt-4o", environ={"OPENAI_BASE_URL": " http://gpu/v1/ \r"}).base_url == (
        "http://gpu/v1"
    )
    for key in ("exaone-4.0", "exaone/LGAI-EXAONE/EXAONE-4.0-32B", "exaone"):
        moved_model = resolve_model(
            "exaone-4.0", {key: "http://mine/v1"}, {"EXAONE_BASE_URL": "http://other"}
        )
        assert moved_model.base_url == "http://mine/v1"
    assert (
        resolve_model("gpt-4o", {"exaone-4.0": "http://mine/v1"}, {}).base_url != "http://mine/v1"
    )


def test_hosted_endpoint_needs_its_url() -> None:
    with pytest.raises(InputError, match="endpoint"):
        resolve_model("hf-inference", environ={})
    spec = resolve_model(
        "hf-inference", {"hf-inference": "https://x.endpoints.huggingface.cloud"}, {}
    )
    assert spec.base_url == "https://x.endpoints.huggingface.cloud/v1"


@pytest.mark.parametrize(
    ("wrong_name", "likely_name"),
    [
        ("gpt-4oo", "gpt-4o"),
        ("claude-haiku4.5", "claude-haiku-4.5"),
        ("synthetik", "synthetic"),
        ("openia/gpt-4o", "openai"),
        ("antropic/claude-haiku-4.5", "anthropic"),
    ],
)
def test_wrong_name_suggests_similar_names(wrong_name: str, likely_name: str) -> None:
    with pytest.raises(InputError) as caught:
        resolve_model(wrong_name, environ={})
    assert likely_name in str(caught.value) and wrong_name.partition("/")[0] in str(caught.value)


@pytest.mark.parametrize("name", ["", "openai/", "  "])
def test_empty_name_is_an_error(name: str) -> None:
    with pytest.raises(InputError):
        resolve_model(name, environ={})


def test_embedded_respondent_is_local_and_needs_no_key() -> None:
    spec = resolve_model("synthetic", environ={})
    assert spec.local and not spec.key_needed and spec.base_url is None


def test_provider_of_a_third_party_is_found_by_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    custom_provider = ScriptedProvider(lambda request, address: "yes")
    point = EntryPoint("acme", "acme:provider", PROVIDERS)
    monkeypatch.setattr(EntryPoint, "load", lambda self: lambda settings: custom_provider)
    monkeypatch.setattr(catalog, "installed_entry_points", lambda group: {"acme": point})
    spec = resolve_model("acme/rocket-1", environ={})
    assert (spec.provider, spec.wire_model, spec.key_env) == (
        "acme",
        "rocket-1",
        ("ACME_API_KEY",),
    )
    assert open_provider(spec, ProviderSettings()) is custom_provider


def test_wire_providers_are_registered() -> None:
    for name in ("gpt-4o", "gemini-3-flash", "claude-haiku-4.5"):
        provider: Any = open_provider(
            resolve_model(name, environ={}), ProviderSettings(api_key="k")
        )
        assert callable(provider.complete_request)
