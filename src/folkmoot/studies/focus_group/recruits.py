"""Who sits in which group: drawn before the first call, sealed into the plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from folkmoot.engine.session import Session
from folkmoot.errors import InputError, Problem
from folkmoot.people.sources.grounded import PersonaGenerator, Profile
from folkmoot.studies.focus_group.config import DiscussionConfig, Stimulus, first_name, profiles


def recruit(session: Session) -> dict[str, list[Profile]]:
    """The people of each group. Every group has its own draws."""
    config: DiscussionConfig = session.config
    rows = profiles(config, session.study_dir)
    engine = PersonaGenerator(appeal=config.appeal)
    found: dict[str, list[Profile]] = {}
    for group in config.groups:
        rng = session.at("recruits", group).rng
        if rows:
            chosen = with_different_names(rows, config.num_personas, rng)
            people = engine.from_profiles(chosen, rng)
        else:
            people = engine.generate(config.num_personas, rng, config.quotas or None)
        found[group] = people
    return found


def with_different_names(
    rows: Sequence[Mapping[str, Any]], wanted: int, rng: np.random.Generator
) -> list[Mapping[str, Any]]:
    """Rows drawn at random, no two with the same first name (people are addressed by it)."""
    chosen: list[Mapping[str, Any]] = []
    taken: set[str] = set()
    for i in rng.permutation(len(rows)):
        row = rows[int(i)]
        first = first_name(row)
        if first and first in taken:
            continue
        taken.add(first)
        chosen.append(row)
        if len(chosen) == wanted:
            return chosen
    raise InputError(
        Problem(
            f"{wanted} people are wanted, and only {len(chosen)} have different first names",
            key="personas",
        )
    )


def facing(
    session: Session, group: str, people: Sequence[Profile], stimulus: Stimulus
) -> list[Profile]:
    """The same people with a first opinion on this concept (with one concept: as recruited).

    What they are like pulls each opinion the same way; the rest is drawn for each concept.
    """
    config: DiscussionConfig = session.config
    if len(config.concepts) == 1:
        return list(people)
    engine = PersonaGenerator(appeal=config.appeal)
    return [
        engine.facing_another_concept(
            person, session.at("recruits", group, "opinions", stimulus.id, person.id).rng
        )
        for person in people
    ]
