"""Functions that the engine calls before a run: checks, expected rows, limits and templates."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from folkmoot.engine.study.expected_rows import ExpectedRows
from folkmoot.errors import InputError, Problem
from folkmoot.measures.inference.power import DesignSize
from folkmoot.studies.negotiation.config import NegotiationConfig
from folkmoot.studies.negotiation.files import read_trips
from folkmoot.studies.negotiation.participants import groups_of


def check_config(config: NegotiationConfig, folder: Path) -> list[Problem]:
    """Return the problems in the groups, personas and trips that a study file names."""
    problems: list[Problem] = []
    for reader in (groups_of, read_trips):
        try:
            reader(config, folder)
        except InputError as error:
            problems += error.problems
    return problems


def expected_rows(sealed: Mapping[str, Any]) -> list[ExpectedRows]:
    """Return the rows that the tables of a run must have.

    `sealed`: the design in the sealed plan of the run.
    """
    # The table `measures` has one row per group and condition. The table `members` has one row per
    # member.
    rows = tuple(
        {"group_id": group["id"], "condition": condition, "group_type": group["type"]}
        for group in sealed.get("groups", [])
        for condition in sealed.get("conditions", [])
    )
    members = tuple(
        {
            "group_id": group["id"],
            "member_id": member["id"],
            "member_name": member["name"],
            "role": member["role"],
        }
        for group in sealed.get("groups", [])
        for member in group["members"]
    )
    return [
        ExpectedRows("measures", ("group_id", "condition"), rows, "session", part="group_id"),
        ExpectedRows("members", ("group_id", "member_id"), members, "member"),
    ]


def limit_groups(config: NegotiationConfig, limit: int) -> NegotiationConfig:
    """Return the settings with at most `limit` groups, spread over as many types as possible."""
    # A file of groups is read later, so `groups_of` cuts its groups.
    if isinstance(config.groups, str):
        first_groups = max(1, min(limit, config.first_groups or limit))
        return config.model_copy(update={"first_groups": first_groups})
    if config.groups is not None:
        return config.model_copy(update={"groups": config.groups[: max(1, limit)]})
    types = config.group_types[: max(1, limit)]
    groups_per_type = max(1, min(config.groups_per_type, limit // len(types)))
    return config.model_copy(update={"group_types": types, "groups_per_type": groups_per_type})


def template_files() -> dict[str, str | bytes]:
    """Return the example file of groups that comes with a new study file."""
    return {"negotiation_groups.yaml": GROUPS_FILE}


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


def design_size(config: NegotiationConfig, folder: Path) -> DesignSize:
    """Return the size of the design. `folkmoot power` uses this size."""
    # Every group takes part in all conditions.
    groups = groups_of(config, folder)
    members = round(fmean(len(group.members) for group in groups))
    key = ("groups_per_type", config.groups_per_type) if config.groups is None else ("", 0)
    return DesignSize("paired", len(config.conditions), len(groups), members, "group", key)
