"""Before a run: deeper checks, what it will cost, a smaller version, a study file to begin with."""

from __future__ import annotations

from pathlib import Path

from folkmoot.engine.study import StageEstimate
from folkmoot.errors import InputError, Problem
from folkmoot.studies.negotiation import design, tripcraft
from folkmoot.studies.negotiation.conditions import CONDITIONS
from folkmoot.studies.negotiation.config import NegotiationConfig
from folkmoot.studies.negotiation.groups import Group
from folkmoot.studies.negotiation.slots import TOPICS
from folkmoot.studies.negotiation.strategies import strategy_for

# Tokens by which calls are estimated, and how often decisions are in conflict.
PREFERENCE, SYNTHESIS, BALLOT, FEEDBACK = (260, 45), (900, 260), (320, 60), (520, 200)
CONFLICTS = 0.8
ROUNDS = 1.4


def check(config: NegotiationConfig, folder: Path) -> list[Problem]:
    """What is wrong with the groups, personas and trips that a study file names."""
    problems = design.check(config, folder)
    try:
        tripcraft.read_trips(config, folder)
    except InputError as error:
        problems += error.problems
    return problems


def estimate(config: NegotiationConfig) -> list[StageEstimate]:
    """Calls and tokens by stage; ballots and feedback depend on conflicts, so on a guess. Groups
    in a file of the user's own are counted as if made up."""
    groups = _expected_groups(config)
    members = sum(len(g.members) for g in groups)
    asked = sum(not m.preferences for g in groups for m in g.members)
    locked = [c for c in config.conditions if CONDITIONS[c].locked]
    mediated = [c for c in config.conditions if CONDITIONS[c].synthesis != "none"]
    ballots = sum(len(g.members) * strategy_for(g.type.id, t).votes for g in groups for t in TOPICS)
    rounds = min(ROUNDS, config.max_feedback_rounds) * CONFLICTS * config.enable_feedback
    stages = [
        _stage("preferences", asked * len(TOPICS), PREFERENCE, len(TOPICS) if members else 1),
        _stage("synthesis", len(groups) * len(mediated) * len(TOPICS), SYNTHESIS, len(TOPICS)),
        _stage("ballots", ballots * len(locked) * CONFLICTS, BALLOT, 3),
        _stage(
            "feedback",
            len(groups) * ("C5" in config.conditions) * len(TOPICS) * rounds,
            FEEDBACK,
            len(TOPICS),
        ),
    ]
    return [s for s in stages if s.calls]


def _expected_groups(config: NegotiationConfig) -> list[Group]:
    made_up = config.model_copy(update={"personas": None})
    if isinstance(config.groups, str):
        made_up = made_up.model_copy(update={"groups": None})
    return design.groups_of(made_up, Path())


def _stage(name: str, calls: float, tokens: tuple[int, int], chain: int) -> StageEstimate:
    count = round(calls)
    return StageEstimate(name, count, count * tokens[0], count * tokens[1], chain)


def cut(config: NegotiationConfig, limit: int) -> NegotiationConfig:
    """The same study with at most `limit` groups, as many types as that allows."""
    if isinstance(config.groups, str):
        return config
    if config.groups is not None:
        return config.model_copy(update={"groups": config.groups[: max(1, limit)]})
    types = config.group_types[: max(1, limit)]
    per = max(1, min(config.groups_per_type, limit // len(types)))
    return config.model_copy(update={"group_types": types, "groups_per_type": per})


def template() -> dict[str, str | bytes]:
    """A study file to begin with, and a file of groups with ready-made preferences."""
    return {"negotiation.yaml": STUDY_FILE, "negotiation_groups.yaml": GROUPS_FILE}


STUDY_FILE = """\
# Groups of travellers negotiate seven slots under five conditions. Run it with
#   folkmoot run negotiation.yaml --model synthetic
study: negotiation
title: Which mediation leaves whom content?

conditions: [C1, C2, C3, C4, C5]
group_types: [family, elder_young, colleagues, spouses, strangers]
groups_per_type: 4
# groups: negotiation_groups.yaml    # your own groups instead (YAML, JSON or CSV)
# weights: {family: {parent: 2, child: 1}}

days: 3
enable_feedback: true                # C5 only
max_feedback_rounds: 2

model: synthetic                     # or openai/gpt-4o, anthropic/claude-haiku-4.5, …
random_seed: 42
"""

GROUPS_FILE = """\
# One group of your own. Give every member all slots, or give members a persona instead and they
# are asked. `lodging` may be one text, or room_type and house_rule.
groups:
  - id: the_millers
    type: family
    members:
      - role: parent
        weight: 2
        preferences: &calm
          traveler_type: I want us to be a laidback traveler group.
          travel_purpose: I need relaxation, not adventure.
          spending_preference: Economical, please. No luxury.
          cuisine: I love a diner, but no sushi.
          attraction: I like museums.
          event: I would enjoy the theatre.
          lodging: {room_type: I prefer an entire home., house_rule: I want no smoking.}
      - role: child
        preferences:
          traveler_type: I want to be an adventure seeker!
          travel_purpose: Adventure!
          spending_preference: I don't mind, moderate is fine.
          cuisine: I love barbecue and sushi.
          attraction: I want water and amusement parks, no museums.
          event: I love sports.
          lodging: {room_type: I like adjoining rooms., house_rule: I want pets allowed.}
"""
