"""Which model answers whom, and the open connections to them. Used by the runner."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from folkmoot.engine.config import StudyConfig
from folkmoot.errors import InputError, Problem
from folkmoot.models.catalog import LOCAL, ModelSpec, open_provider, resolve
from folkmoot.models.keys import find_key, key_for, refuse_unencrypted, secrets_in
from folkmoot.models.prices import rate_for
from folkmoot.models.request import Provider, ProviderSettings


class Providers:
    """The models of a run. `override` (--model) takes every seat, embeddings as far as it can.

    A study that names no model is answered by the embedded respondent: nobody's money is spent
    without being asked.
    """

    def __init__(
        self,
        config: StudyConfig,
        override: str | None,
        key: str | None = None,
        provider: Provider | None = None,
        seats: Sequence[str] = (),
    ) -> None:
        self._config = config
        self._seats = seats
        self._key = key
        self._given = provider
        self._opened: dict[ModelSpec, Provider] = {}
        self.override = override
        self.default = override or config.model or LOCAL
        self.embedding = self._embedding()
        self.secrets: set[str] = {key} if key else set()

    @property
    def synthetic(self) -> bool:
        """Whether the embedded respondent answers any seat."""
        return self._given is None and any(_is_local(name) for name in self.named())

    def check(self) -> None:
        """Look every named model up, with its key. Raises InputError before anything is written:
        one problem for each model that is unknown or has no key."""
        if self._given is not None:
            return
        problems: list[Problem] = []
        for name in dict.fromkeys([*self.named(), self.embedding]):
            try:
                self._settings(resolve(name, self._config.endpoints))
            except InputError as error:
                problems += [p for p in error.problems if p not in problems]
        if not problems:
            problems = unpriced(self._config, self.named())
        if problems:
            raise InputError(problems)

    def named(self) -> list[str]:
        if self.override:
            return [self.override]
        others = [*self._config.models.values(), *self._seats]
        # A study whose seats all name their models has no use for the default.
        return others if self._config.model is None and self._seats else [self.default, *others]

    def addresses(self) -> list[tuple[ModelSpec, str]]:
        """Every model that is asked over a network, and the name of the key that goes along."""
        found: list[tuple[ModelSpec, str]] = []
        if self._given is not None:
            return found
        for name in dict.fromkeys([*self.named(), self.embedding]):
            spec = resolve(name, self._config.endpoints)
            if not spec.local:
                kept = find_key(spec)
                explicit = self._explicit(spec)
                found.append((spec, "given with --key" if explicit else kept[0] if kept else ""))
        return found

    def refuse_unencrypted(self) -> None:
        """Raise InputError for every key that is set and would travel over networks of others
        unencrypted."""
        for spec, variable in self.addresses():
            refuse_unencrypted(variable, spec.base_url, spec.name)

    def open(self, model: str) -> tuple[Provider, ModelSpec]:
        """The provider of a model, opened once, and what the catalog knows of it."""
        if self._given is not None:
            return self._given, ModelSpec(model, LOCAL, model, key_needed=False, local=True)
        spec = resolve(model, self._config.endpoints)
        if spec not in self._opened:
            self._opened[spec] = open_provider(spec, self._settings(spec))
        return self._opened[spec], spec

    def _settings(self, spec: ModelSpec) -> ProviderSettings:
        config = self._config
        key = None if spec.local else key_for(spec, self._explicit(spec))
        refuse_unencrypted(key, spec.base_url, spec.name)
        self.secrets.update(filter(None, (key, *secrets_in(spec.base_url or ""))))
        return ProviderSettings(
            base_url=spec.base_url,
            api_key=key,
            timeout=config.request_timeout_seconds,
            seed=config.random_seed,
            options=config.respondent if spec.local else {},
        )

    def _explicit(self, spec: ModelSpec) -> str | None:
        """The key given with `--key`, if this model takes it."""
        main = resolve(self.default, self._config.endpoints)
        return self._key if spec.key_env == main.key_env else None

    def _embedding(self) -> str:
        if _is_local(self.default) or self._config.embedding_model is None:
            return LOCAL
        return self._config.embedding_model


def unpriced(config: StudyConfig, models: Iterable[str]) -> list[Problem]:
    """One problem for each model on whose bill `budget_usd` cannot hold: its price is unknown."""
    if config.budget_usd is None:
        return []
    specs = [resolve(name, config.endpoints) for name in dict.fromkeys(models)]
    return [
        Problem(
            f"the price of {spec.name} is unknown, so that a budget in money cannot hold",
            key="budget_usd",
            mend="leave out budget_usd (and --budget) and set budget_calls instead",
        )
        for spec in specs
        if rate_for(spec) is None
    ]


def _is_local(name: str) -> bool:
    return name == LOCAL or name.startswith(f"{LOCAL}/")
