"""The model catalogue: from a model's name to its vendor, address and API key.

The name `provider/model` always works, and known models also have bare names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from folkmoot.errors import InputError, Problem
from folkmoot.hints import did_you_mean
from folkmoot.models.api_keys import load_environment
from folkmoot.models.endpoints import Endpoints, Server, parse_servers
from folkmoot.models.request import Provider, ProviderSettings, check_provider
from folkmoot.models.urls import (
    ANTHROPIC_BASE_URL,
    GEMINI_BASE_URL,
    OPENAI_BASE_URL,
    ensure_version,
)
from folkmoot.registry import PROVIDERS, installed_entry_points

SYNTHETIC_MODEL = "synthetic"
# The model name in tables for answers that a human gave.
HUMAN_MODEL = "human"
# Also `local:PATH` (see `models.local`).
LOCAL_MODEL = "local"
# Embeds texts in this process (see `models.local.word_vectors`).
WORD_VECTOR_MODEL = "wordllama/l2_supercat_256"


@dataclass(frozen=True, slots=True)
class Vendor:
    """A vendor of models, with its address and key variables."""

    # The entry point of the provider that speaks the vendor's wire format.
    wire: str
    base_url: str | None
    key_env: tuple[str, ...]
    # The environment variable that replaces the address.
    base_url_env: str
    # The vendor's name in the price library.
    price_vendor: str | None = None
    key_needed: bool = True
    # The text embedding model that the vendor recommends, or None.
    embedding: str | None = None


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """What Folkmoot knows about one model, as returned by `resolve_model`."""

    # The canonical name, `provider/model`.
    name: str
    # The entry point of the provider.
    provider: str
    # The model ID that the API expects.
    wire_model: str
    # The address of the server. None means the provider's default.
    base_url: str | None = None
    key_env: tuple[str, ...] = ()
    key_needed: bool = True
    # True for a model that answers in this process. Such models have no limits and no price.
    local: bool = False
    price_provider: str | None = None
    price_model: str = ""
    # The servers that the study file names. `base_url` is then the address of the first.
    servers: tuple[Server, ...] = ()


def _openai_compatible(
    url: str | None, name: str, prices: str | None, *keys: str, embedding: str | None = None
) -> Vendor:
    return Vendor("openai", url, keys, f"{name}_BASE_URL", prices, embedding=embedding)


_GOOGLE = Vendor(
    "gemini",
    GEMINI_BASE_URL,
    ("GOOGLE_API_KEY", "GEMINI_API_KEY", "GOOGLE"),
    "GOOGLE_BASE_URL",
    "google",
    embedding="gemini-embedding-001",
)
_FRIENDLI = "https://api.friendli.ai/serverless/v1"

VENDORS: Mapping[str, Vendor] = {
    "openai": _openai_compatible(
        OPENAI_BASE_URL,
        "OPENAI",
        "openai",
        "OPENAI_API_KEY",
        "OPENAI",
        embedding="text-embedding-3-small",
    ),
    "anthropic": Vendor(
        "anthropic",
        ANTHROPIC_BASE_URL,
        ("ANTHROPIC_API_KEY", "ANTHROPIC"),
        "ANTHROPIC_BASE_URL",
        "anthropic",
    ),
    # Researchers write either name.
    "google": _GOOGLE,
    "gemini": _GOOGLE,
    "moonshot": _openai_compatible(
        "https://api.moonshot.ai/v1", "MOONSHOT", "moonshotai", "MOONSHOT_API_KEY", "MOONSHOT"
    ),
    "exaone": _openai_compatible(
        _FRIENDLI, "EXAONE", None, "EXAONE_API_KEY", "FRIENDLI_TOKEN", "EXAONE"
    ),
    "friendli": _openai_compatible(_FRIENDLI, "FRIENDLI", None, "FRIENDLI_TOKEN", "EXAONE_API_KEY"),
    "huggingface": _openai_compatible(
        "https://router.huggingface.co/v1", "HF", None, "HF_TOKEN", "HUGGINGFACE_API_KEY"
    ),
    "mistral": _openai_compatible(
        "https://api.mistral.ai/v1",
        "MISTRAL",
        "mistral",
        "MISTRAL_API_KEY",
        embedding="mistral-embed",
    ),
    "deepseek": _openai_compatible(
        "https://api.deepseek.com/v1", "DEEPSEEK", "deepseek", "DEEPSEEK_API_KEY"
    ),
    "groq": _openai_compatible("https://api.groq.com/openai/v1", "GROQ", "groq", "GROQ_API_KEY"),
    "together": _openai_compatible(
        "https://api.together.xyz/v1", "TOGETHER", "together", "TOGETHER_API_KEY"
    ),
    "openrouter": _openai_compatible(
        "https://openrouter.ai/api/v1", "OPENROUTER", "openrouter", "OPENROUTER_API_KEY"
    ),
    "xai": _openai_compatible("https://api.x.ai/v1", "XAI", "x-ai", "XAI_API_KEY"),
    "ollama": Vendor(
        "openai", "http://localhost:11434/v1", ("OLLAMA_API_KEY",), "OLLAMA_BASE_URL", None, False
    ),
}

# Short names of current models, so that researchers need not know dated API model IDs. Maps a bare
# name to (vendor, API model ID).
_OPENAI_NAMES = (
    *("gpt-4o", "gpt-4o-mini", "gpt-4.1", "gpt-4.1-mini", "gpt-4.1-nano", "gpt-4.5-preview"),
    *("gpt-4-turbo", "gpt-4", "gpt-3.5-turbo", "gpt-5", "gpt-5-mini", "gpt-5-nano", "gpt-5.1"),
    *("gpt-5.2", "o1", "o1-pro", "o1-mini", "o3", "o3-mini", "o4-mini"),
    *("text-embedding-3-small", "text-embedding-3-large", "text-embedding-ada-002"),
)
KNOWN_MODELS: Mapping[str, tuple[str, str]] = {
    **{name: ("openai", name) for name in _OPENAI_NAMES},
    "gemini-3-flash": ("google", "gemini-3-flash-preview"),
    "gemini-3-pro": ("google", "gemini-3-pro-preview"),
    "gemini-2.5-pro": ("google", "gemini-2.5-pro"),
    "gemini-2.5-flash": ("google", "gemini-2.5-flash"),
    "gemini-2.5-flash-lite": ("google", "gemini-2.5-flash-lite"),
    "gemini-embedding-001": ("google", "gemini-embedding-001"),
    "claude-haiku-4.5": ("anthropic", "claude-haiku-4-5"),
    "claude-sonnet-4": ("anthropic", "claude-sonnet-4-20250514"),
    "claude-sonnet-4.5": ("anthropic", "claude-sonnet-4-5"),
    "claude-opus-4.5": ("anthropic", "claude-opus-4-5"),
    "kimi-k2": ("moonshot", "kimi-k2-0905-preview"),
    "exaone-4.0": ("exaone", "LGAI-EXAONE/EXAONE-4.0-32B"),
}
# The five model keys of `call_llm`, in the order in which the source lists them.
CALL_LLM_MODELS = ("gemini-3-flash", "gpt-5-mini", "claude-haiku-4.5", "kimi-k2", "exaone-4.0")
# A dedicated Hugging Face endpoint. It serves one model, so the model is not named.
HUGGING_FACE_VENDOR = "hf-inference"


# Maximum output tokens by the beginning of the API model ID, as the vendors document them. The
# limits of other models are unknown.
MAX_OUTPUT_TOKENS: Mapping[str, int] = {
    "gpt-4o": 16_384,
    "gpt-4.1": 32_768,
    "gpt-5": 128_000,
    "claude-3-5-haiku": 8_192,
    "claude-haiku-4": 64_000,
    "claude-sonnet-4": 64_000,
    "gemini-2.0": 8_192,
    "gemini-2.5": 65_536,
    "gemini-3": 65_536,
    # Half of the default context of the local model.
    LOCAL_MODEL: 2_048,
}


def max_output_tokens(name: str, endpoints: Endpoints | None = None) -> int | None:
    """Return the largest number of output tokens of a model, or None if unknown."""
    try:
        wire_model = resolve_model(name, endpoints).wire_model
    except InputError:
        # The check of all models reports an unknown name.
        return None
    return next(
        (limit for prefix, limit in MAX_OUTPUT_TOKENS.items() if wire_model.startswith(prefix)),
        None,
    )


def resolve_model(
    name: str,
    endpoints: Endpoints | None = None,
    environ: Mapping[str, str] | None = None,
) -> ModelSpec:
    """Return what Folkmoot knows about the model with this name.

    - `endpoints`: the servers that the study file names for a model or a vendor.

    Raises InputError with similar names if the name is unknown.
    """
    # The environment variable `<VENDOR>_BASE_URL` has lower priority than `endpoints`. A model with
    # a custom base URL works without a key. If a key is set, it is sent.
    name = name.strip()
    endpoints = endpoints or {}
    if is_synthetic(name):
        return ModelSpec(name, SYNTHETIC_MODEL, name, key_needed=False, local=True)
    if name in (WORD_VECTOR_MODEL, "wordllama"):
        return ModelSpec(
            WORD_VECTOR_MODEL, "wordllama", WORD_VECTOR_MODEL, key_needed=False, local=True
        )
    if on_this_machine(name):
        return ModelSpec(name, LOCAL_MODEL, name, key_needed=False)
    if name == HUGGING_FACE_VENDOR:
        return _resolve_hugging_face(name, endpoints)
    vendor_name, wire_model = _split_model_name(name)
    vendor = VENDORS.get(vendor_name)
    canonical = f"{vendor_name}/{wire_model}"
    # A vendor without a row here is a provider that another package registers as an entry point.
    if vendor is None:
        servers = _endpoint_servers(name, canonical, wire_model, vendor_name, endpoints)
        url = servers[0].url if servers else None
        key = _default_key_variables(vendor_name)
        return ModelSpec(canonical, vendor_name, wire_model, url, key, False, servers=servers)
    environ = load_environment() if environ is None else environ
    servers = _endpoint_servers(name, canonical, wire_model, vendor_name, endpoints)
    # A file with Windows line ends gives the address a carriage return, as it does to keys.
    url_from_environment = environ.get(vendor.base_url_env, "").strip().rstrip("/")
    if not servers and url_from_environment:
        servers = (Server(url_from_environment),)
    return ModelSpec(
        canonical,
        vendor.wire,
        wire_model,
        servers[0].url if servers else vendor.base_url,
        vendor.key_env,
        vendor.key_needed and not servers,
        price_provider=vendor.price_vendor,
        price_model=wire_model,
        servers=servers,
    )


def is_synthetic(name: str) -> bool:
    """Return True if the name selects the rule-based embedded respondent."""
    return name == SYNTHETIC_MODEL or name.startswith(f"{SYNTHETIC_MODEL}/")


def on_this_machine(name: str) -> bool:
    """Return True if the name selects a model that Folkmoot runs on this machine."""
    return name == LOCAL_MODEL or name.startswith(f"{LOCAL_MODEL}:")


# Text-only models by their vendors' documentation. For other models the server decides when it
# receives an image.
_TEXT_ONLY_MODELS = re.compile(
    r"(?:^|/)(?:gpt-3\.5|gpt-4(?:-\d{4}(?:-preview)?|-32k.*)?$|o1-(?:mini|preview)|o3-mini|"
    r"claude-(?:2|instant)|kimi-k2(?!\.\d)|exaone|deepseek-(?:chat|reasoner|r1|v3)|text-)",
    re.IGNORECASE,
)


def is_text_only(spec: ModelSpec) -> bool:
    """Return True if a model is known to accept no images."""
    runs_here = spec.local or spec.provider == LOCAL_MODEL
    return runs_here or bool(_TEXT_ONLY_MODELS.search(spec.wire_model))


def embedding_for(name: str, endpoints: Endpoints | None = None) -> str | None:
    """Return the name of the embedding model that belongs to a chat model.

    Returns None if no embedding model is known for the vendor and the server.
    """
    # The result is also None if the study file moves only the chat model to a custom server,
    # because texts for that server must not be sent to the vendor.
    spec = resolve_model(name, endpoints)
    if spec.local or spec.provider == LOCAL_MODEL:
        return WORD_VECTOR_MODEL
    vendor_name = spec.name.partition("/")[0]
    vendor = VENDORS.get(vendor_name)
    if vendor is None or vendor.embedding is None:
        return None
    embedding_model = resolve_model(f"{vendor_name}/{vendor.embedding}", endpoints)
    return embedding_model.name if embedding_model.base_url == spec.base_url else None


def open_provider(spec: ModelSpec, settings: ProviderSettings) -> Provider:
    """Return a new provider for a model."""
    entry_point = installed_entry_points(PROVIDERS).get(spec.provider)
    if entry_point is None:
        raise InputError(f"no provider named {spec.provider!r} is installed (group {PROVIDERS})")
    provider = entry_point.load()(replace(settings, model=spec.wire_model))
    return check_provider(provider, f"{spec.provider} ({entry_point.value})")


def _split_model_name(name: str) -> tuple[str, str]:
    if not name:
        raise InputError(Problem("the model has no name", hint="e.g. gpt-4o or synthetic"))
    vendor, slash, rest = name.partition("/")
    if not slash:
        return _resolve_bare_name(name)
    if not rest:
        raise InputError(
            Problem(f"{name!r} lacks the name of a model after the slash", hint=f"{vendor}/<model>")
        )
    if vendor in VENDORS:
        known_model = KNOWN_MODELS.get(rest)
        return (
            (vendor, known_model[1])
            if known_model and VENDORS[known_model[0]] == VENDORS[vendor]
            else (vendor, rest)
        )
    if vendor in installed_entry_points(PROVIDERS):
        return vendor, rest
    suggestion = did_you_mean(vendor, [*VENDORS, *installed_entry_points(PROVIDERS)], max_guesses=3)
    hint = f"for any OpenAI-compatible server write openai/{rest} and give its URL under endpoints:"
    raise InputError(
        Problem(
            f"unknown model provider {vendor!r} in {name!r}", hint=f"{suggestion} {hint}".lstrip()
        )
    )


def _resolve_bare_name(name: str) -> tuple[str, str]:
    if name in KNOWN_MODELS:
        return KNOWN_MODELS[name]
    vendor_by_model = _vendors_by_priced_model()
    # Vendors write version numbers with dashes ("claude-3-5-haiku"), researchers often with dots.
    dashed = re.sub(r"(?<=\d)\.(?=\d)", "-", name)
    for candidate in (name, dashed):
        if candidate in vendor_by_model:
            return vendor_by_model[candidate], candidate
    suggestion = did_you_mean(
        name, [*KNOWN_MODELS, SYNTHETIC_MODEL, LOCAL_MODEL, HUGGING_FACE_VENDOR], max_guesses=3
    )
    hint = f"write a model that is newer than this list as provider/model, e.g. openai/{name}"
    raise InputError(Problem(f"unknown model {name!r}", hint=f"{suggestion} {hint}".lstrip()))


def _vendors_by_priced_model() -> dict[str, str]:
    # Maps a model ID of the price library to its vendor. IDs of several vendors are left out.
    # The import takes 0.25 s and is needed only for unusual names.
    from genai_prices import data_snapshot

    names_by_price_vendor = {
        VENDORS[vendor].price_vendor: vendor
        for vendor in ("openai", "anthropic", "google", "moonshot")
    }
    return {
        model.id: names_by_price_vendor[provider.id]
        for provider in data_snapshot.get_snapshot().providers
        if provider.id in names_by_price_vendor
        for model in provider.models
        # Google's list also has open models such as Gemma, which other vendors serve too.
        if provider.id != "google" or model.id.startswith("gemini")
    }


def _endpoint_servers(
    name: str, canonical: str, wire_model: str, vendor: str, endpoints: Endpoints
) -> tuple[Server, ...]:
    # A key of `endpoints` may be any name of the model, or its vendor.
    # The most specific key has priority.
    for key in (name, canonical, wire_model, vendor):
        if key in endpoints:
            return parse_servers(endpoints[key])
    return ()


def _resolve_hugging_face(name: str, endpoints: Endpoints) -> ModelSpec:
    if name not in endpoints:
        raise InputError(
            Problem(
                f"{name} needs the URL of its endpoint", hint=f"endpoints: {{{name}: https://…}}"
            )
        )
    servers = tuple(
        server._replace(url=ensure_version(server.url, "/v1"))
        for server in parse_servers(endpoints[name])
    )
    keys = VENDORS["huggingface"].key_env
    url = servers[0].url
    return ModelSpec(f"huggingface/{name}", "openai", "tgi", url, keys, False, servers=servers)


def _default_key_variables(provider: str) -> tuple[str, ...]:
    return (f"{re.sub(r'[^A-Z0-9]', '_', provider.upper())}_API_KEY",)
