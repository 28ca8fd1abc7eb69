"""Which model answers whom, and the open connections to them. Used by the runner."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Self

from folkmoot.engine.journal.earlier_replies import ReplyChange
from folkmoot.engine.settings.config import StudyConfig
from folkmoot.errors import InputError, Problem
from folkmoot.models.api_keys import environment, find_key, key_for
from folkmoot.models.catalog import (
    LOCAL,
    ON_THIS_MACHINE,
    WORD_VECTORS,
    ModelSpec,
    embedding_for,
    is_local,
    on_this_machine,
    open_provider,
    reads_text_alone,
    resolve,
)
from folkmoot.models.endpoints import Opened, opened
from folkmoot.models.load_balancer import Spread
from folkmoot.models.prices import rate_for
from folkmoot.models.request import Provider, ProviderSettings, StudyPart
from folkmoot.models.urls import refuse_unencrypted, secrets_in


class Providers:
    """The models of a run. `override` (--model) takes every seat, embeddings as far as it can.

    A study that names no model is answered by the embedded respondent: nobody's money is spent
    without being asked. `seats`: the models that seats name by themselves and that are asked
    (`Study.seat_models`).
    """

    def __init__(
        self,
        config: StudyConfig,
        override: str | None,
        key: str | None = None,
        provider: Provider | None = None,
        seats: Sequence[str] = (),
        *,
        respondent: object = None,
    ) -> None:
        self._config = config
        self._seats = seats
        self._key = key
        self._respondent = respondent
        self._further: list[str] = []  # models that neither the file nor --model names
        self._seed = config.random_seed
        self._given = provider
        self._opened: dict[ModelSpec, Provider] = {}
        self._reached: set[str] = set()
        self.override = override
        self.default = override or config.model or LOCAL
        self.secrets: set[str] = {key} if key else set()

    def change_for(self, change: ReplyChange | None) -> Self:
        """Take over the model and the draw of the change of a fork; returns this object."""
        if change is not None:
            self._further = [change.model] if change.model else []
            self._seed = self._config.random_seed + change.draw
        return self

    def seat_model(self, named: str | None) -> str | None:
        """The model that a seat names by itself, if it is asked. A study type may name models in
        its code: they are asked only where the user named a hosted model for the run, or this
        one."""
        config = self._config
        if named is None or is_local(named) or names_hosted_model(config):
            return named
        return named if named in (*config.models.values(), *self._seats) else None

    @property
    def scripted(self) -> bool:
        """Whether the caller's own provider answers everything, whatever the models are called."""
        return self._given is not None

    @property
    def synthetic(self) -> bool:
        """Whether nobody but the embedded respondent is named, so that it will answer."""
        return not self.scripted and all(map(is_local, self.named()))

    @property
    def who(self) -> str:
        """Which model answers whom, in words."""
        seats = {} if self.override else dict(self._config.models)
        if not seats:
            return self.default
        named = {**seats, "others": self.default}
        return ", ".join(f"{role} {name}" for role, name in named.items())

    @cached_property
    def embedding(self) -> str | Problem:
        """The embedding model: the one named, else that of the vendor who answers, or what to say
        where there is none. A rehearsal with `--model synthetic` embeds here, whatever is named."""
        named = self._config.embedding_model
        if named is not None and resolve(named, self._config.endpoints).provider == "wordllama":
            return WORD_VECTORS
        if self.override is not None and is_local(self.override):
            return LOCAL if named == LOCAL else WORD_VECTORS
        if named is not None:
            return named
        real = [name for name in self.named() if not is_local(name)]
        if self.scripted:
            return LOCAL
        if not real:
            return WORD_VECTORS
        for name in real:
            found = embedding_for(name, self._config.endpoints)
            if found is not None:
                return found
        return Problem(
            "this study embeds texts, and no embedding model is known to go with "
            + ", ".join(dict.fromkeys(real)),
            key="embedding_model",
            hint="name one, such as `embedding_model: openai/text-embedding-3-small`, or write "
            "`embedding_model: wordllama` for the word vectors that Folkmoot installs",
        )

    def check(self, *, embeds: bool = False, images: Sequence[str] = (), file: str = "") -> None:
        """Look every named model up, with its key. Raises InputError before anything is written:
        one problem for each model that is unknown, has no key, or cannot see the `images` of the
        study, and one where a study that `embeds` has no embedding model."""
        if self._given is not None:
            return
        problems: list[Problem] = []
        names = self.named()
        for name in dict.fromkeys(names):
            problems += self._problems(name, problems)
        if not problems:
            problems = blind(self._config, names, images, file)
        if embeds and not problems:
            names.append(self.embedding_model(file))
            problems += self._problems(names[-1], [])
        if not problems:
            problems = unpriced(self._config, names)
        if problems:
            raise InputError(problems)

    def keep_embedding(self, sealed: str | None) -> None:
        """A run that began before the word vectors were the default keeps its word hash."""
        if sealed == LOCAL and self.embedding == WORD_VECTORS:
            self.embedding = LOCAL

    def embedding_model(self, file: str) -> str:
        """The embedding model of a study that embeds. Raises InputError where there is none, or
        the one that embeds here is not installed."""
        if isinstance(self.embedding, Problem):
            raise InputError(replace(self.embedding, file=file))
        if self.embedding == WORD_VECTORS:
            self.open(WORD_VECTORS)  # raises where they are not installed
        return self.embedding

    def _problems(self, name: str, known: Sequence[Problem]) -> list[Problem]:
        try:
            spec = resolve(name, self._config.endpoints)
            self._settings(spec)
            if spec.provider == ON_THIS_MACHINE:
                self.open(name)  # raises where what it needs is not installed
        except InputError as error:
            return [p for p in error.problems if p not in known]
        return []

    def named(self) -> list[str]:
        if self.override:
            return [self.override, *self._further]
        return [self.default, *self._config.models.values(), *self._seats, *self._further]

    def addresses(self) -> list[tuple[str, str | None, str]]:
        """Every model that is asked over a network, each of its addresses, and the names of the
        keys that go along."""
        found: list[tuple[str, str | None, str]] = []
        if self._given is not None:
            return found
        embeds = [self.embedding] if isinstance(self.embedding, str) else []
        for name in dict.fromkeys([*self.named(), *embeds]):
            spec = resolve(name, self._config.endpoints)
            if not spec.local:
                kept = find_key(spec)
                explicit = self._explicit(spec)
                key = "given with --key" if explicit else kept[0] if kept else ""
                for server in spec.servers or (None,):
                    own = " and ".join(server.variables) if server else ""
                    found.append((spec.name, server.url if server else spec.base_url, own or key))
        return found

    def refuse_unencrypted(self) -> None:
        """Raise InputError for every key that is set and would travel over networks of others
        unencrypted."""
        for name, url, variable in self.addresses():
            refuse_unencrypted(variable, url, name)

    def open(self, model: str) -> tuple[Provider, ModelSpec]:
        """The provider of a model, opened once, and what the catalog knows of it."""
        if self._given is not None:
            return self._given, ModelSpec(model, LOCAL, model, key_needed=False, local=True)
        spec = resolve(model, self._config.endpoints)
        if spec not in self._opened:
            servers = [open_provider(spec, each) for each in self._settings(spec)]
            self._opened[spec] = servers[0] if len(servers) == 1 else Spread(servers)
        return self._opened[spec], spec

    def _settings(self, spec: ModelSpec) -> list[ProviderSettings]:
        """The settings of a model's providers, one for each of its servers."""
        environ = environment()
        return [
            self._settings_at(spec, opened(server, environ), own_key=bool(server.variables))
            for server in spec.servers
        ] or [self._settings_at(spec, Opened(spec.base_url or "", {}, ()))]

    def _settings_at(
        self, spec: ModelSpec, server: Opened, *, own_key: bool = False
    ) -> ProviderSettings:
        """`own_key`: the server's headers or query have one, and no other is sent there."""
        config = self._config
        key = None if spec.local or own_key else key_for(spec, self._explicit(spec))
        refuse_unencrypted(key or next(iter(server.secrets), None), server.url, spec.name)
        self.secrets.update(filter(None, (key, *server.secrets, *secrets_in(server.url))))
        return ProviderSettings(
            base_url=server.url or None,
            headers=server.headers,
            secrets=server.secrets,
            api_key=key,
            timeout=config.request_timeout_seconds,
            max_reply_bytes=round(config.max_reply_mb * 1e6),
            seed=self._seed,
            options=config.respondent
            if spec.local
            else config.local.model_dump()
            if config.local
            else {},
            reached=self._reached,
            study=StudyPart(self._respondent, config) if self._respondent else None,
        )

    def _explicit(self, spec: ModelSpec) -> str | None:
        """The key given with `--key`, if this model takes it."""
        main = resolve(self.default, self._config.endpoints)
        return self._key if spec.key_env == main.key_env else None


def names_hosted_model(config: StudyConfig) -> bool:
    """Whether a study file names a model for the run that does not answer on this machine."""
    name = config.model
    return name is not None and not is_local(name) and not on_this_machine(name)


def blind(
    config: StudyConfig, models: Iterable[str], images: Sequence[str], file: str = ""
) -> list[Problem]:
    """One problem for each model that takes no images, where `images` says that some are shown."""
    if not images:
        return []
    specs = [resolve(name, config.endpoints) for name in dict.fromkeys(models)]
    hint = "name a model that does, e.g. --model gpt-4o, or take the address out"
    if "images" in type(config).model_fields:
        hint += "; to try the study without its images: --set images=placeholder"
    return [
        Problem(
            f"the prompt shows an image, and {spec.name} takes none",
            file=file,
            where=images[0],
            hint=hint,
        )
        for spec in specs
        if reads_text_alone(spec)
    ]


def unpriced(config: StudyConfig, models: Iterable[str]) -> list[Problem]:
    """One problem for each model on whose bill `budget_usd` cannot hold: its price is unknown."""
    if config.budget_usd is None:
        return []
    specs = [resolve(name, config.endpoints) for name in dict.fromkeys(models)]
    return [
        Problem(
            f"the price of {spec.name} is unknown, so a budget in money cannot be kept",
            key="budget_usd",
            hint="leave out budget_usd (and --budget) and set budget_calls instead",
        )
        for spec in specs
        if rate_for(spec) is None
    ]
