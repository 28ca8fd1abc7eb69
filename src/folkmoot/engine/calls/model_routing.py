"""Decide which model answers in which role, and keep the open connections to models."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Self

from folkmoot.engine.journal.earlier_replies import ReplyChange
from folkmoot.engine.settings.config import StudyConfig
from folkmoot.errors import InputError, Problem
from folkmoot.models.api_keys import find_key, load_environment, resolve_key
from folkmoot.models.catalog import (
    LOCAL_MODEL,
    SYNTHETIC_MODEL,
    WORD_VECTOR_MODEL,
    ModelSpec,
    embedding_for,
    is_synthetic,
    is_text_only,
    on_this_machine,
    open_provider,
    resolve_model,
)
from folkmoot.models.endpoints import ResolvedServer, resolve_server
from folkmoot.models.load_balancer import LoadBalancer
from folkmoot.models.prices import find_price
from folkmoot.models.request import Provider, ProviderSettings, StudyPart, check_provider
from folkmoot.models.urls import find_secrets, require_encryption


class ModelRouter:
    """The models of a run: which model answers in which role, and the open connections.

    - `override`: replaces the model of every role (`--model`).
    - `extra_models`: the models that the study's code names for speakers.
    - `provider`: answers all calls in place of any named model.
    - `key`: the API key given with `--key`.
    """

    # If the researcher chose no model, the embedded respondent answers, because no money may be
    # spent without consent.
    def __init__(
        self,
        config: StudyConfig,
        override: str | None,
        key: str | None = None,
        provider: Provider | None = None,
        extra_models: Sequence[str] = (),
        *,
        respondent: object = None,
    ) -> None:
        self._config = config
        self._extra_models = extra_models
        self._key = key
        self._respondent = respondent
        # Models that are not named by the study file or `--model`, but by a fork's changed reply.
        self._further: list[str] = []
        self._seed = config.random_seed
        self._given = None if provider is None else check_provider(provider, "provider=")
        self._opened: dict[ModelSpec, Provider] = {}
        # Hosts that answered once. A later connection error to one of them is transient.
        self._reached: set[str] = set()
        self.override = override
        self.default = override or config.model or SYNTHETIC_MODEL
        # Keys and other secrets, to be removed from logs.
        self.secrets: set[str] = {key} if key else set()

    def change_for(self, change: ReplyChange | None) -> Self:
        """Set up the router for a fork: allow the model of the changed reply, and set the seed.

        - `change`: the changed reply, or None if the run is not a fork.

        Returns the router itself.
        """
        if change is not None:
            self._further = [change.model] if change.model else []
            self._seed = self._config.random_seed + change.draw
        return self

    def speaker_model(self, named: str | None) -> str | None:
        """Return `named` if the run may use the model of this name, otherwise None.

        `named`: the model that the study's code sets for one speaker.
        """
        # If the researcher named a hosted model for the run, every model is allowed. Otherwise only
        # the embedded respondent, the run's own model, models under `models:` and those of
        # `Study.extra_models` are allowed.
        config = self._config
        if named is None or is_synthetic(named) or names_hosted_model(config):
            return named
        allowed = (config.model, *config.models.values(), *self._extra_models)
        return named if named in allowed else None

    @property
    def has_custom_provider(self) -> bool:
        """True if a provider given in Python answers all calls."""
        return self._given is not None

    @property
    def is_synthetic_only(self) -> bool:
        """True if the embedded rule-based respondent answers everything and no model is called."""
        return not self.has_custom_provider and all(map(is_synthetic, self.list_models()))

    @property
    def model_names_text(self) -> str:
        """The model of each role, in words."""
        role_models = {} if self.override else dict(self._config.models)
        if not role_models:
            return self.default
        models_by_role = {**role_models, "others": self.default}
        return ", ".join(f"{role} {name}" for role, name in models_by_role.items())

    @cached_property
    def embedding_choice(self) -> str | Problem:
        """The embedding model, or the problem to report if there is none."""
        # The study file's model comes first, then one of a vendor of the run's models. A run
        # without hosted models embeds on this machine. `--model synthetic` always does, even if the
        # file names a hosted model.
        configured_model = self._config.embedding_model
        if (
            configured_model is not None
            and resolve_model(configured_model, self._config.endpoints).provider == "wordllama"
        ):
            return WORD_VECTOR_MODEL
        # A dry run must not call a hosted embedding model.
        if self.override is not None and is_synthetic(self.override):
            return SYNTHETIC_MODEL if configured_model == SYNTHETIC_MODEL else WORD_VECTOR_MODEL
        if configured_model is not None:
            return configured_model
        # Only hosted vendors have an embedding model to suggest.
        model_names = [name for name in self.list_models() if not is_synthetic(name)]
        if self.has_custom_provider:
            return SYNTHETIC_MODEL
        if not model_names:
            return WORD_VECTOR_MODEL
        for name in model_names:
            embedding_model = embedding_for(name, self._config.endpoints)
            if embedding_model is not None:
                return embedding_model
        return Problem(
            "this study embeds texts, and there is no default embedding model for "
            + ", ".join(dict.fromkeys(model_names)),
            key="embedding_model",
            hint="name one, such as `embedding_model: openai/text-embedding-3-small`, or write "
            "`embedding_model: wordllama` for the word vectors that Folkmoot installs",
        )

    def check_models(
        self, *, uses_embeddings: bool = False, images: Sequence[str] = (), file: str = ""
    ) -> None:
        """Look up every named model and the model's key, before the run writes anything.

        Raises InputError if a model is unknown, has no key, or cannot see the study's images.
        Raises InputError also if the study embeds texts and has no embedding model.
        """
        if self._given is not None:
            return
        problems: list[Problem] = []
        names = self.list_models()
        # Further checks need models that resolve, so they run only without problems so far.
        for name in dict.fromkeys(names):
            problems += self._find_problems(name, problems)
        if not problems:
            problems = image_problems(self._config, names, images, file)
        if uses_embeddings and not problems:
            names.append(self.embedding_model(file))
            problems += self._find_problems(names[-1], [])
        if not problems:
            problems = price_problems(self._config, names)
        if problems:
            raise InputError(problems)

    def restore_sealed_embedding(self, sealed: str | None) -> None:
        """Set the embedding model that an older run used, so that a resume uses the same model.

        `sealed`: the embedding model in the run's `plan.json`, or None.
        """
        if sealed == SYNTHETIC_MODEL and self.embedding_choice == WORD_VECTOR_MODEL:
            self.embedding_choice = SYNTHETIC_MODEL

    def embedding_model(self, file: str) -> str:
        """Return the embedding model of a study that embeds texts.

        Raises InputError if there is no embedding model, or if the model needs word vectors that
        are not installed.
        """
        if isinstance(self.embedding_choice, Problem):
            raise InputError(replace(self.embedding_choice, file=file))
        if self.embedding_choice == WORD_VECTOR_MODEL:
            # Raises InputError if the word vectors are not installed.
            self.open_provider(WORD_VECTOR_MODEL)
        return self.embedding_choice

    def _find_problems(self, name: str, known_problems: Sequence[Problem]) -> list[Problem]:
        try:
            spec = resolve_model(name, self._config.endpoints)
            self._provider_settings(spec)
            if spec.provider == LOCAL_MODEL:
                # Raises InputError if the packages that a local model needs are not installed.
                self.open_provider(name)
        except InputError as error:
            return [problem for problem in error.problems if problem not in known_problems]
        return []

    def list_models(self) -> list[str]:
        if self.override:
            return [self.override, *self._further]
        return [self.default, *self._config.models.values(), *self._extra_models, *self._further]

    def list_destinations(self) -> list[tuple[str, str | None, str]]:
        """Return every server that is called over a network, as (model, URL, names of the keys)."""
        destinations: list[tuple[str, str | None, str]] = []
        if self._given is not None:
            return destinations
        embedding_models = [self.embedding_choice] if isinstance(self.embedding_choice, str) else []
        for name in dict.fromkeys([*self.list_models(), *embedding_models]):
            spec = resolve_model(name, self._config.endpoints)
            if not spec.local:
                stored_key = find_key(spec)
                explicit = self._explicit_key(spec)
                key_source = "given with --key" if explicit else stored_key[0] if stored_key else ""
                for server in spec.servers or (None,):
                    variable_names = " and ".join(server.variable_names) if server else ""
                    destinations.append(
                        (
                            spec.name,
                            server.url if server else spec.base_url,
                            variable_names or key_source,
                        )
                    )
        return destinations

    def require_encryption(self) -> None:
        """Raise InputError if a key would be sent unencrypted over a public network."""
        for name, url, variable in self.list_destinations():
            require_encryption(variable, url, name)

    def open_provider(self, model: str) -> tuple[Provider, ModelSpec]:
        """Return the provider of a model and the model's catalogue entry."""
        # Each provider is opened only once.
        if self._given is not None:
            return self._given, ModelSpec(
                model, SYNTHETIC_MODEL, model, key_needed=False, local=True
            )
        spec = resolve_model(model, self._config.endpoints)
        if spec not in self._opened:
            servers = [open_provider(spec, settings) for settings in self._provider_settings(spec)]
            self._opened[spec] = servers[0] if len(servers) == 1 else LoadBalancer(servers)
        return self._opened[spec], spec

    def _provider_settings(self, spec: ModelSpec) -> list[ProviderSettings]:
        environ = load_environment()
        return [
            self._settings_at(
                spec, resolve_server(server, environ), own_key=bool(server.variable_names)
            )
            for server in spec.servers
        ] or [self._settings_at(spec, ResolvedServer(spec.base_url or "", {}, ()))]

    def _settings_at(
        self, spec: ModelSpec, server: ResolvedServer, *, own_key: bool = False
    ) -> ProviderSettings:
        # `own_key`: the server's headers or query hold a key, so no other key is sent to this
        # server.
        config = self._config
        key = None if spec.local or own_key else resolve_key(spec, self._explicit_key(spec))
        # Check before the settings exist, so that no connection can be opened with the key.
        require_encryption(key or next(iter(server.secrets), None), server.url, spec.name)
        self.secrets.update(filter(None, (key, *server.secrets, *find_secrets(server.url))))
        return ProviderSettings(
            base_url=server.url or None,
            headers=server.headers,
            secrets=server.secrets,
            api_key=key,
            timeout=config.request_timeout_seconds,
            max_reply_bytes=round(config.max_reply_mb * 1e6),
            seed=self._seed,
            # Options of the embedded respondent, or the settings `local:` for models that are
            # started on this machine.
            options=config.respondent
            if spec.local
            else config.local.model_dump()
            if config.local
            else {},
            reached_hosts=self._reached,
            study=StudyPart(self._respondent, config) if self._respondent else None,
        )

    def _explicit_key(self, spec: ModelSpec) -> str | None:
        default_spec = resolve_model(self.default, self._config.endpoints)
        return self._key if spec.key_env == default_spec.key_env else None


def names_hosted_model(config: StudyConfig) -> bool:
    """Return whether a study file names a hosted model for the run."""
    name = config.model
    return name is not None and not is_synthetic(name) and not on_this_machine(name)


def image_problems(
    config: StudyConfig, models: Iterable[str], images: Sequence[str], file: str = ""
) -> list[Problem]:
    """Return one problem for each model that cannot see the study's images.

    `images`: the cells or lines of the study that show images.
    """
    if not images:
        return []
    specs = [resolve_model(name, config.endpoints) for name in dict.fromkeys(models)]
    hint = "name a model that accepts images, e.g. --model gpt-4o, or remove the address"
    if "images" in type(config).model_fields:
        hint += "; to try the study without its images: --set images=placeholder"
    return [
        Problem(
            f"the prompt shows an image, but {spec.name} accepts no images",
            file=file,
            where=images[0],
            hint=hint,
        )
        for spec in specs
        if is_text_only(spec)
    ]


def price_problems(config: StudyConfig, models: Iterable[str]) -> list[Problem]:
    """Return one problem for each model of unknown price if there is a budget."""
    if config.budget_usd is None:
        return []
    specs = [resolve_model(name, config.endpoints) for name in dict.fromkeys(models)]
    return [
        Problem(
            f"the price of {spec.name} is unknown, so a budget in money cannot be kept",
            key="budget_usd",
            hint="leave out budget_usd (and --budget) and set budget_calls instead",
        )
        for spec in specs
        if find_price(spec) is None
    ]
