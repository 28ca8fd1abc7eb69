"""Who negotiates: the groups of a run, from the user's file or made up from the seed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from folkmoot.errors import InputError, Problem
from folkmoot.files import packaged_yaml
from folkmoot.people.sources import table as persona_table
from folkmoot.randomness import generator
from folkmoot.studies.negotiation.config import NegotiationConfig, path_in
from folkmoot.studies.negotiation.group_files import from_entries, read_groups
from folkmoot.studies.negotiation.groups import (
    Draft,
    Group,
    GroupType,
    build_group,
    group_type,
    problems_of,
)


def groups_of(config: NegotiationConfig, folder: Path) -> list[Group]:
    """The groups of a study, in order. Raises InputError with every mistake."""
    if isinstance(config.groups, str):
        return read_groups(path_in(folder, config.groups), config.weights)
    if config.groups is not None:
        return from_entries(config.groups, config.weights)
    return _made_up(config, folder)


def _made_up(config: NegotiationConfig, folder: Path) -> list[Group]:
    kinds = [k for name in config.group_types if (k := group_type(name)) is not None]
    roles = {(k.id, n): _roles(config, k) for k in kinds for n in range(config.groups_per_type)}
    people = _dealt_personas(config, folder, sum(len(r) for r in roles.values()))
    given = iter(people or ())
    groups: list[Group] = []
    problems: list[Problem] = []
    for kind in kinds:
        for n in range(config.groups_per_type):
            group_id = f"{kind.id}_{n + 1:02d}"
            rng = generator(config.random_seed, ("negotiation", "travellers", group_id))
            seats = roles[kind.id, n]
            made_up = _travellers(seats, rng) if people is None else None
            texts = made_up or [next(given) for _ in seats]
            drafts = [Draft(r, persona=t) for r, t in zip(seats, texts, strict=True)]
            group = build_group(group_id, kind, drafts, config.weights.get(kind.id))
            problems += problems_of(group, key="sizes")
            groups.append(group)
    if problems:
        raise InputError(problems)
    return groups


def _roles(config: NegotiationConfig, kind: GroupType) -> list[str]:
    sizes = config.sizes.get(kind.id)
    if sizes is None:
        return [r.id for r in kind.roles for _ in range(r.size)]
    return [r.id for r in kind.roles for _ in range(sizes.get(r.id, 0))]


def _travellers(roles: Sequence[str], rng: np.random.Generator) -> list[str]:
    """One description a seat; within a group no life, manner or taste stands twice if it can."""
    words = _words()
    lives = {r: list(rng.permutation(words["lives"][r])) for r in dict.fromkeys(roles)}
    rest = {k: list(rng.permutation(words[k])) for k in ("manners", "tastes", "dislikes")}
    texts: list[str] = []
    for seat, role in enumerate(roles):
        own = lives[role]
        life = own[roles[:seat].count(role) % len(own)]
        manner, taste, dislike = (v[seat % len(v)] for v in rest.values())
        texts.append(f"{life}. You are someone {manner}. {taste} {dislike}")
    return texts


@cache
def _words() -> dict[str, Any]:
    data: dict[str, Any] = packaged_yaml(__file__, "travellers.yaml")
    return data


def _dealt_personas(config: NegotiationConfig, folder: Path, needed: int) -> list[str] | None:
    """The texts of the user's own personas in a drawn order, `needed` of them; None for none."""
    if config.personas is None:
        return None
    path = path_in(folder, config.personas)
    if not path.is_file():
        raise InputError(Problem(f"there is no file {path}", key="personas"))
    texts = [p.text for p in persona_table.read(path)]
    if len(texts) < needed:
        raise InputError(
            Problem(
                f"{path.name} has {len(texts)} personas and the groups have {needed} members",
                key="personas",
                mend="add personas, or lower groups_per_type or sizes",
            )
        )
    order = generator(config.random_seed, ("negotiation", "personas")).permutation(len(texts))
    return [_without_you_are(texts[int(i)]) for i in order[:needed]]


def _without_you_are(text: str) -> str:
    text = text.strip()
    return text[8:] if text.casefold().startswith("you are ") else text


def check(config: NegotiationConfig, folder: Path) -> list[Problem]:
    """What is wrong with the groups, personas and trips that a study file names."""
    try:
        groups_of(config, folder)
    except InputError as error:
        return list(error.problems)
    return []
