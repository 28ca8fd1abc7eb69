"""Levels: named bundles of switches, and how a level's models are dealt over the seats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from folkmoot.errors import Problem, ProtocolError
from folkmoot.hints import did_you_mean
from folkmoot.randomness import generator
from folkmoot.studies.town_hall.config import LevelSettings, TownHallConfig

FIVE_MODELS = ("gemini-3-flash", "gpt-5-mini", "claude-haiku-4.5", "kimi-k2", "exaone-4.0")


@dataclass(frozen=True, slots=True)
class Level:
    """One level of technical implementation.

    `models` empty means the run's own model; several are dealt over the seats. `moderator` is
    `none`, `model` (the run's own model for that role) or the name of a model. `part` says
    whether the level is compared in the main results or reported apart.

    Controls: without `vulnerable` others sit in their seats; without `moderator_list` the moderator
    is not told who they are; shuffled `labels` say by lot who is listed and counted as vulnerable;
    `stories` says who has a life story (with `all` everybody, of the same length).
    """

    name: str
    context: Literal["shared", "separate"] = "separate"
    models: tuple[str, ...] = ()
    moderator: str = "none"
    think: bool = True
    reflect: bool = True
    vulnerable: bool = True
    moderator_list: bool = True
    labels: Literal["own", "shuffled"] = "own"
    stories: Literal["vulnerable", "all", "none"] = "vulnerable"
    part: Literal["main", "supplementary"] = "main"

    @property
    def moderated(self) -> bool:
        return self.moderator != "none"

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"models": list(self.models)}


BUILT_IN: Mapping[str, Level] = {
    level.name: level
    for level in (
        Level("1", context="shared"),
        Level("2-1"),
        Level("2-2", models=("exaone-4.0",), part="supplementary"),
        Level("3", models=FIVE_MODELS),
        Level("4", models=FIVE_MODELS, moderator="model"),
    )
}


def levels_of(config: TownHallConfig) -> list[Level]:
    """The levels that are run, with the study file's own switches, in the file's order.

    Unknown names are left out; `level_problems` reports them before a run.
    """
    known = known_levels(config)
    return [known[name] for name in config.levels if name in known]


def known_levels(config: TownHallConfig) -> dict[str, Level]:
    """All levels that a study file can name: the built-in ones and its own."""
    names = dict.fromkeys([*BUILT_IN, *config.level_settings])
    return {n: level for n in names if (level := _level(config, n, ()))}


def _level(config: TownHallConfig, name: str, above: tuple[str, ...]) -> Level | None:
    """A level with its own switches over those of the level that it is like; None where that
    leads to no level, or in a circle."""
    settings = config.level_settings.get(name)
    if settings is None or settings.like is None:
        return _with(BUILT_IN.get(name, Level(name) if settings else None), settings)
    base = None if settings.like in above else _level(config, settings.like, (*above, name))
    return _with(base and replace(base, name=name), settings)


def _with(level: Level | None, settings: LevelSettings | None) -> Level | None:
    if settings is None or level is None:
        return level
    changed = settings.model_dump(exclude={"like"}, exclude_none=True)
    if "models" in changed:
        changed["models"] = tuple(changed["models"])
    return Level(**(asdict(level) | changed))


def level_problems(config: TownHallConfig, vulnerable: int) -> list[Problem]:
    """What is wrong with the levels of a study file, given the number of vulnerable residents."""
    known = known_levels(config)
    described = known.keys() | config.level_settings
    problems = [_unknown(name, list(known)) for name in config.levels if name not in described]
    for name in sorted({n for n in config.levels if config.levels.count(n) > 1}):
        problems.append(Problem(f"duplicate level {name}", key="levels", hint="list it once"))
    for name in sorted(config.level_settings.keys() - known):
        like = str(config.level_settings[name].like)
        hint = did_you_mean(like, known, "name a level that stands by itself")
        what = f"{like} leads to no level that {name} could be like"
        problems.append(Problem(what, key=f"level_settings.{name}.like", hint=hint))
    for level in {level.name: level for level in levels_of(config)}.values():
        problems.extend(_level_problems(level, vulnerable, level.name in config.level_settings))
        key = f"level_settings.{level.name}.labels"
        if level.labels == "shuffled" and not (vulnerable and level.vulnerable):
            what = f"level {level.name} has no vulnerable residents whose labels could be shuffled"
            problems.append(Problem(what, key=key, hint="leave one of the two out"))
    return problems


def _level_problems(level: Level, vulnerable: int, own: bool) -> list[Problem]:
    key = f"level_settings.{level.name}.models" if own else "levels"
    distinct = len(set(level.models))
    if distinct < len(level.models):
        return [Problem(f"level {level.name} lists a model twice", key=key, hint="list each once")]
    if level.context == "shared" and distinct > 1:
        return [
            Problem(
                f"level {level.name} has one shared session but {distinct} models",
                key=key,
                hint="name one model, or set context: separate",
            )
        ]
    if distinct > 1 and vulnerable > distinct:
        return [
            Problem(
                f"level {level.name} has {vulnerable} vulnerable residents for {distinct} models, "
                "and no two of them may share one",
                key=key,
                hint=f"name at least {vulnerable} models, or at most {distinct} profiles",
            )
        ]
    return []


def _unknown(name: str, known: list[str]) -> Problem:
    listed = f"known are {', '.join(known)}; define new ones under level_settings"
    hint = f"{did_you_mean(name, known)} {listed}".lstrip()
    return Problem(f"there is no level {name!r}", key="levels", hint=hint)


def deal(
    models: Sequence[str], general: Sequence[str], vulnerable: Sequence[str], seed: int, set_no: int
) -> dict[str, str | None]:
    """Which model sits on which seat: resident id → model, None for the run's own.

    Several models are spread as evenly as they go, the vulnerable on different ones. The draw
    depends on the seed, the set and the number of models, never on the level, so that levels
    with the same list get the same dealing. Raises ProtocolError if two vulnerable residents
    would share a model.
    """
    if len(models) < 2:
        only = models[0] if models else None
        return dict.fromkeys((*general, *vulnerable), only)
    rng = generator(seed, ("town_hall", f"set{set_no:02d}", "deal", str(len(models))))
    order = [models[i] for i in rng.permutation(len(models))]
    seats: dict[str, str | None] = dict(zip(vulnerable, order, strict=False))
    if len(set(seats.values())) != len(vulnerable):
        raise ProtocolError(
            f"{len(vulnerable)} vulnerable residents cannot sit on {len(models)} different models"
        )
    # Round robin from the first model without a vulnerable resident keeps the counts even.
    first = len(vulnerable) % len(order)
    rest = [order[(first + i) % len(order)] for i in range(len(general))]
    dealt = {g: rest[i] for g, i in zip(general, rng.permutation(len(rest)), strict=True)}
    return {**dealt, **seats}
