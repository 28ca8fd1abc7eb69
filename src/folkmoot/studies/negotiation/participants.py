"""Who takes part: the groups of a run, made up from the seed or the user's own, and how they and
their mediator are asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from folkmoot.conversation.transcript import Speaker
from folkmoot.engine.session import Scope
from folkmoot.engine.yaml_tree import Tree
from folkmoot.errors import InputError, Problem
from folkmoot.files import packaged_yaml
from folkmoot.people.sources import table as persona_table
from folkmoot.randomness import generator
from folkmoot.studies.negotiation.config import NegotiationConfig, path_in
from folkmoot.studies.negotiation.groups import (
    Group,
    Member,
    StatedMember,
    build_group,
    checked_groups,
    faults_of,
    listed,
    read_groups,
)
from folkmoot.studies.negotiation.strategies import GroupType, group_type


def groups_of(config: NegotiationConfig, folder: Path) -> list[Group]:
    """The groups of a study, in order. Raises InputError with every mistake."""
    if isinstance(config.groups, str):
        return read_groups(path_in(folder, config.groups), config.weights)
    if config.groups is not None:
        return checked_groups(Tree({"groups": list(config.groups)}), config.weights)
    return _made_up(config, folder)


def _made_up(config: NegotiationConfig, folder: Path) -> list[Group]:
    kinds = [group_type(name) for name in config.group_types]
    seats = {
        (f"{kind.id}_{n + 1:02d}", kind): _roles(config, kind)
        for kind in kinds
        for n in range(config.groups_per_type)
    }
    people = _dealt_personas(config, folder, sum(map(len, seats.values())))
    given = iter(people or ())
    groups: list[Group] = []
    for (group_id, kind), roles in seats.items():
        rng = generator(config.random_seed, ("negotiation", "travellers", group_id))
        texts = _travellers(roles, rng) if people is None else [next(given) for _ in roles]
        stated = [StatedMember(role=r, persona=t) for r, t in zip(roles, texts, strict=True)]
        groups.append(build_group(group_id, kind, stated, config.weights.get(kind.id)))
    problems = [p for group in groups for p in faults_of(group, "sizes")]
    if problems:
        raise InputError(problems)
    return groups


def _roles(config: NegotiationConfig, kind: GroupType) -> list[str]:
    sizes = config.sizes.get(kind.id, {r.id: r.size for r in kind.roles})
    return [r.id for r in kind.roles for _ in range(sizes.get(r.id, 0))]


def _travellers(roles: Sequence[str], rng: np.random.Generator) -> list[str]:
    """One description per seat; no life, manner or taste is used twice in a group if there are
    enough."""
    words = _words()
    lives = {r: list(rng.permutation(words["lives"][r])) for r in dict.fromkeys(roles)}
    rest = {k: list(rng.permutation(words[k])) for k in ("manners", "tastes", "dislikes")}
    texts: list[str] = []
    for seat, role in enumerate(roles):
        life = lives[role][roles[:seat].count(role) % len(lives[role])]
        manner, taste, dislike = (v[seat % len(v)] for v in rest.values())
        texts.append(f"{life}. You are someone {manner}. {taste} {dislike}")
    return texts


@cache
def _words() -> Mapping[str, Any]:
    words: Mapping[str, Any] = packaged_yaml(__file__, "travellers.yaml")
    return words


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
                hint="add personas, or lower groups_per_type or sizes",
            )
        )
    order = generator(config.random_seed, ("negotiation", "personas")).permutation(len(texts))
    return [_without_you_are(texts[int(i)]) for i in order[:needed]]


def _without_you_are(text: str) -> str:
    text = text.strip()
    return text[8:] if text.casefold().startswith("you are ") else text


def member_speaker(scope: Scope, group: Group, member: Member, days: int) -> Speaker:
    """A member as somebody who can be asked."""
    persona = member.persona.rstrip() or f"a traveller, {member.name}."
    system = scope.prompt(
        "member_system",
        persona=persona,
        me=member.name,
        companions=listed([m.name for m in group.members if m.id != member.id]),
        group_title=group.type.title,
        days=days,
    )
    return Speaker(member.id, member.name, "participant", system, persona=persona)


def mediator(scope: Scope) -> Speaker:
    """The System: one neutral mediator, asked for the exchange as a whole."""
    return Speaker("system", "System", "moderator", scope.prompt("mediator_system"))
