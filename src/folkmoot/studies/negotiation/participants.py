"""The groups of a run and their speakers."""

# YAML and JSON files hold a list of groups, directly or under `groups:`. Each group has `id`,
# `type` and `members`. A member has a role, a weight, and a persona or preferences. A CSV file has
# one row per member. All problems of a file are reported together, with their lines.

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TypedDict

import numpy as np
from pydantic import ValidationError

from folkmoot.conversation.transcript import Speaker
from folkmoot.engine.seats.seats import SELF_DESCRIPTION_PLACEHOLDER, Seat
from folkmoot.engine.session.session import Scope, Session
from folkmoot.engine.settings.config_problems import problems_from_validation
from folkmoot.engine.settings.yaml_tree import SourceLocation, YamlTree, parse_yaml
from folkmoot.errors import InputError, Problem
from folkmoot.files import packaged_yaml, read_csv
from folkmoot.people.sources import table as persona_table
from folkmoot.provenance import cell_id, enumerate_texts, quote_value
from folkmoot.randomness import generator
from folkmoot.studies.negotiation.config import (
    GroupInput,
    MemberInput,
    NegotiationConfig,
    path_in,
)
from folkmoot.studies.negotiation.decision import SYSTEM_SPEAKER
from folkmoot.studies.negotiation.quotes import quote_names, quote_title
from folkmoot.studies.negotiation.rules.strategies import (
    LODGING,
    RESERVED,
    SLOTS,
    TOPICS,
    Group,
    GroupType,
    Member,
    group_type,
)
from folkmoot.studies.negotiation.rules.vocabulary import names_everyone


def groups_of(config: NegotiationConfig, folder: Path) -> list[Group]:
    """Return the groups of a study: the researcher's groups, or generated groups.

    Raises InputError with all problems of the researcher's groups.
    """
    if isinstance(config.groups, str):
        groups = read_groups(path_in(folder, config.groups), config.weights)
    elif config.groups is not None:
        groups = checked_groups(YamlTree({"groups": list(config.groups)}), config.weights)
    else:
        groups = _generate_groups(config, folder)
    return groups[: config.first_groups]


def available_seats(config: NegotiationConfig, folder: Path) -> list[Seat]:
    """Return one seat, a place that a human can take, for each member."""
    # A human in a seat plays all conditions of the group. Humans cannot take the seats if the
    # mediator of a condition writes utterances for members.
    mediated = [condition for condition in config.conditions if condition not in ("C1", "C2")]
    closed_reason = ""
    if mediated and not config.members_speak:
        closed_reason = (
            f"under {mediated[0]} the mediator writes what members say; set members_speak to true, "
            "or conditions to [C1, C2]"
        )
    return [
        Seat(
            member.id,
            (group.id, *(f"{group.id}-{condition}" for condition in config.conditions)),
            member.role,
            closed_reason=closed_reason,
        )
        for group in groups_of(config, folder)
        for member in group.members
    ]


def with_anonymous_humans(session: Session[NegotiationConfig], group: Group) -> Group:
    """Return the group with no drawn name and no persona for members whom humans play."""
    # Such a member is named by role ("Parent 1") and is asked for preferences.
    roles = [member.role for member in group.members]

    def keep_if_simulated(number: int, member: Member) -> Member:
        if not session.speaks_as_self(member.id, group.id):
            return member
        name = _by_role(group.type, member.role, roles[: number + 1].count(member.role))
        return replace(member, name=name, persona=SELF_DESCRIPTION_PLACEHOLDER, preferences={})

    return replace(
        group,
        members=tuple(
            keep_if_simulated(number, member) for number, member in enumerate(group.members)
        ),
    )


def _generate_groups(config: NegotiationConfig, folder: Path) -> list[Group]:
    group_kinds = [group_type(name) for name in config.group_types]
    seats = {
        (f"{kind.id}_{index + 1:02d}", kind): _role_ids(config, kind)
        for kind in group_kinds
        for index in range(config.groups_per_type)
    }
    persona_texts = _assign_personas(config, folder, sum(map(len, seats.values())))
    texts_left = iter(persona_texts or ())
    groups: list[Group] = []
    for (group_id, kind), roles in seats.items():
        # Each group has its own random stream, so more groups do not change the existing ones.
        rng = generator(config.random_seed, ("negotiation", "travellers", group_id))
        texts = (
            _draw_travellers(roles, rng)
            if persona_texts is None
            else [next(texts_left) for _ in roles]
        )
        stated = [
            MemberInput(role=role, persona=text) for role, text in zip(roles, texts, strict=True)
        ]
        groups.append(build_group(group_id, kind, stated, config.weights.get(kind.id)))
    problems = [problem for group in groups for problem in group_problems(group, "sizes")]
    if problems:
        raise InputError(problems)
    return groups


def _role_ids(config: NegotiationConfig, kind: GroupType) -> list[str]:
    sizes = config.sizes.get(kind.id, {role.id: role.size for role in kind.roles})
    return [role.id for role in kind.roles for _ in range(sizes.get(role.id, 0))]


def _draw_travellers(roles: Sequence[str], rng: np.random.Generator) -> list[str]:
    # Two members get the same wording only if the group has more members than there are wordings.
    wordings = _load_wordings()
    lives = {role: list(rng.permutation(wordings["lives"][role])) for role in dict.fromkeys(roles)}
    other_wordings = [
        list(rng.permutation(wordings_of_kind))
        for wordings_of_kind in (wordings["manners"], wordings["tastes"], wordings["dislikes"])
    ]
    texts: list[str] = []
    for seat, role in enumerate(roles):
        life = lives[role][roles[:seat].count(role) % len(lives[role])]
        manner, taste, dislike = (
            wordings_of_kind[seat % len(wordings_of_kind)] for wordings_of_kind in other_wordings
        )
        texts.append(f"{life}. You are someone {manner}. {taste} {dislike}")
    return texts


class _Words(TypedDict):
    # Role → descriptions such as "a 44-year-old electrician and father of two".
    lives: dict[str, list[str]]
    manners: list[str]
    tastes: list[str]
    dislikes: list[str]


@cache
def _load_wordings() -> _Words:
    words: _Words = packaged_yaml(__file__, "travellers.yaml")
    return words


def _assign_personas(config: NegotiationConfig, folder: Path, count: int) -> list[str] | None:
    if config.personas is None:
        return None
    path = path_in(folder, config.personas)
    if not path.is_file():
        raise InputError(Problem(f"there is no file {path}", key="personas"))
    texts = [persona.text for persona in persona_table.read_personas(path)]
    if len(texts) < count:
        raise InputError(
            Problem(
                f"{path.name} has {len(texts)} personas and the groups have {count} members",
                key="personas",
                hint="add personas, or lower groups_per_type or sizes",
            )
        )
    # A random order, so that a file sorted by any attribute does not decide who is in which group.
    order = generator(config.random_seed, ("negotiation", "personas")).permutation(len(texts))
    return [_without_you_are(texts[int(index)]) for index in order[:count]]


def _without_you_are(text: str) -> str:
    # The system prompt begins with "You are", so the persona must not repeat it.
    text = text.strip()
    return text[8:] if text.casefold().startswith("you are ") else text


def member_speaker(scope: Scope, group: Group, member: Member, days: int) -> Speaker:
    """Return a member as a speaker with a system prompt."""
    id = cell_id("members.persona", group.id, member.id)
    persona = quote_value(member.full_description, "persona", id, member.id)
    companion_ids = [companion.id for companion in group.members if companion.id != member.id]
    system = scope.prompt(
        "member_system",
        persona=persona,
        me=quote_names(group, [member.id])[0],
        companions=enumerate_texts(quote_names(group, companion_ids)),
        group_title=quote_title(group),
        days=quote_value(days, "material", "study.days"),
    )
    return Speaker(member.id, member.name, "participant", system)


def mediator_speaker(scope: Scope) -> Speaker:
    """Return the mediator as a speaker with a system prompt."""
    # The mediator is called System in dialogues.
    return replace(SYSTEM_SPEAKER, system=scope.prompt("mediator_system"))


# The id is a folder name. A name must not contain marks that separate speakers in dialogues.
_ID = re.compile(r"\w[\w.-]{0,79}")
MAX_NAME_CHARACTERS = 60
_NAME = re.compile(rf"[^\W_][^\n\r\t:;|]{{0,{MAX_NAME_CHARACTERS - 1}}}")


def build_group(
    id: str,
    type: GroupType,
    stated: Sequence[MemberInput],
    weights: Mapping[str, float] | None = None,
) -> Group:
    """Return a group of members with the ids `traveler_1`, `traveler_2` and so on.

    - `stated`: the members as the researcher describes them.
    - `weights`: the weight of each role. Used for members without a weight.
    """
    # A member without a name is named by role ("Parent 1"). The default weight is 1.
    by_role: dict[str, int] = {}
    members: list[Member] = []
    for number, stated_member in enumerate(stated, start=1):
        by_role[stated_member.role] = by_role.get(stated_member.role, 0) + 1
        name = stated_member.name or _by_role(type, stated_member.role, by_role[stated_member.role])
        weight = (
            stated_member.weight
            if stated_member.weight is not None
            else (weights or {}).get(stated_member.role, 1.0)
        )
        preferences = stated_member.preferences
        members.append(
            Member(
                f"traveler_{number}",
                name,
                stated_member.role,
                weight,
                stated_member.persona,
                preferences,
            )
        )
    return Group(id, type, tuple(members))


def _by_role(kind: GroupType, role: str, number: int) -> str:
    known_role = kind.role(role)
    return f"{known_role.name if known_role else role.replace('_', ' ').title()} {number}"


def _hint_on_name(name: str) -> str:
    # Empty if the name can be used. Dialogues identify members by name.
    if name.casefold() in RESERVED or names_everyone(name):
        return "dialogues use this word for the mediator or for the whole group"
    if not _NAME.fullmatch(name):
        return (
            f"a name begins with a letter or digit, has at most {MAX_NAME_CHARACTERS} characters "
            "and none of : ; |"
        )
    return ""


def group_problems(group: Group, key: str) -> list[Problem]:
    """Return the problems of a group.

    `key`: the key of the group in the file, for the problems.
    """
    # The checks cover id, size, roles, names and weights. Either all members or no members must
    # have preferences.
    problems: list[Problem] = []

    def add_problem(message: str, hint: str = "") -> None:
        problems.append(Problem(f"group `{group.id}`: {message}", key=key, hint=hint))

    kind, members = group.type, group.members
    if not _ID.fullmatch(group.id):
        add_problem("an id has letters, digits, `_`, `-` and `.`", "it names a folder of the run")
    role_ids = [role.id for role in kind.roles]
    for member in members:
        if member.role not in role_ids:
            roles = f"roles are {', '.join(role_ids)}"
            add_problem(f"a {kind.id} group has no role `{member.role}`", roles)
        if hint := _hint_on_name(member.name):
            add_problem(f"a member cannot be called {member.name!r}", hint)
        if not member.weight > 0:
            add_problem(f"{member.name} has weight {member.weight:g}", "weights must be above 0")
        missing_topics = [
            topic for topic in TOPICS if not member.preferences.get(topic, "").strip()
        ]
        if missing_topics and any(member.preferences for member in members):
            topics_text = (
                "" if len(missing_topics) == len(TOPICS) else f" for {', '.join(missing_topics)}"
            )
            add_problem(
                f"{member.name} states no preference{topics_text}",
                "give every member all slots, or give no member any, so that all are asked",
            )
        if not member.preferences and not member.persona:
            add_problem(f"{member.name} has neither preferences nor a persona")
    for role in kind.roles:
        if sum(member.role == role.id for member in members) < role.needed:
            needed_text = f"at least {role.needed} {role.id}{'s' if role.needed > 1 else ''}"
            add_problem(
                f"a {kind.id} group needs {needed_text}",
                "the strategies of this group type need the role",
            )
    if len(members) < 2:
        add_problem(
            f"{len(members)} member(s) cannot negotiate", "a group needs two or more members"
        )
    if kind.largest is not None and len(members) > kind.largest:
        add_problem(
            f"{len(members)} members", f"a {kind.id} group has at most {kind.largest} members"
        )
    names = [member.name for member in members]
    duplicates = sorted({name for name in names if names.count(name) > 1})
    if duplicates:
        add_problem(
            f"two members are called {', '.join(duplicates)}", "speakers are identified by name"
        )
    return problems


# Group type → role → weight.
Weights = Mapping[str, Mapping[str, float]]
_CSV_KEYS = ("group_id", "group_type", "role", "name", "weight", "persona", *SLOTS, *LODGING)
# Far above any real file of groups, so a larger file is a mistake and is not parsed.
MOST_BYTES = 20_000_000


def read_groups(path: Path, weights: Weights | None = None) -> list[Group]:
    """Return the groups of a file, in order.

    `weights`: for each group type, the weight of each role. Used for members without a weight.

    Raises InputError with all problems.
    """
    name = str(path)
    try:
        # Read no more than the limit: a device or a pipe has no size that could be checked before.
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise InputError(
                Problem("is larger than the limit for files of groups (20 MB)", file=name)
            )
        # Spreadsheet programs write a byte order mark, which this codec removes.
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(Problem("is not UTF-8", file=name, hint="save it as UTF-8")) from error
    except OSError as error:
        raise InputError(Problem(f"cannot be read: {error.strerror}", file=name)) from error
    if path.suffix.lower() == ".csv":
        return checked_groups(_from_csv(text, name), weights or {}, name)
    tree = parse_yaml(text, name)
    if tree.problems:
        raise InputError(tree.problems)
    if isinstance(tree.value, list):
        places = {("groups", *keys): location for keys, location in tree.locations.items()}
        tree = YamlTree({"groups": tree.value}, places)
    if not isinstance(tree.value, Mapping) or not isinstance(tree.value.get("groups"), list):
        raise InputError(Problem("is not a list of groups", file=name, hint="start with `groups:`"))
    return checked_groups(tree, weights or {}, name)


def checked_groups(tree: YamlTree, weights: Weights, file: str = "") -> list[Group]:
    """Return the groups under the key `groups` of a YAML tree.

    - `weights`: for each group type, the weight of each role. Used for members without a weight.
    - `file`: the name of the file that problems should give.

    Raises InputError with all problems.
    """
    problems: list[Problem] = []
    groups: list[Group] = []
    for index, entry in enumerate(tree.value["groups"]):
        # Locations are relative to the entry, because the entry is validated alone.
        locations = {
            path[2:]: location
            for path, location in tree.locations.items()
            if path[:2] == ("groups", index)
        }
        where, key = str(locations[()].line) if () in locations else "", f"groups[{index + 1}]"
        try:
            stated = GroupInput.model_validate(entry)
        except ValidationError as error:
            entry_problems = problems_from_validation(error, YamlTree(entry, locations), GroupInput)
            problems += [
                replace(
                    problem,
                    file=file,
                    where=problem.where or where,
                    key=f"{key}.{problem.key}".strip("."),
                )
                for problem in entry_problems
            ]
            continue
        kind = group_type(stated.type)
        id = stated.id or f"group_{index + 1:02d}"
        group = build_group(id, kind, stated.members, weights.get(kind.id))
        groups.append(group)
        problems += [
            replace(problem, file=file, where=where) for problem in group_problems(group, key)
        ]
    ids = [group.id.casefold() for group in groups]
    duplicate_ids = sorted({group_id for group_id in ids if ids.count(group_id) > 1})
    problems += [
        Problem(f"duplicate group id `{group_id}`", file=file, key="groups")
        for group_id in duplicate_ids
    ]
    if not tree.value["groups"]:
        problems.append(Problem("contains no group", file=file, key="groups"))
    if problems:
        raise InputError(problems)
    return groups


def _from_csv(text: str, name: str) -> YamlTree:
    columns, rows = read_csv(text, name)
    header_problems = [
        f"no column `{column}`"
        for column in ("group_id", "group_type", "role")
        if column not in columns
    ]
    header_problems += [
        f"unknown column `{column}`" for column in columns if column not in _CSV_KEYS
    ]
    columns_hint = f"columns are {', '.join(_CSV_KEYS)}"
    problems = [
        Problem(message, file=name, where="1", hint=columns_hint) for message in header_problems
    ]
    kinds: dict[str, str] = {}
    members: dict[str, list[dict[str, object]]] = {}
    places: dict[tuple[str | int, ...], SourceLocation] = {}
    for line, cells in rows if not problems else ():
        id, kind = cells["group_id"], cells["group_type"]
        if not id:
            problems.append(Problem("a row without group_id", file=name, where=str(line)))
        group_members = members.setdefault(id, [])
        if kind not in ("", kinds.setdefault(id, kind)):
            message = f"group `{id}` has two types: {kinds[id]} and {kind}"
            problems.append(Problem(message, file=name, where=str(line)))
        path = ("groups", list(members).index(id))
        member = {key: cells.get(key) for key in ("role", "name", "weight", "persona")}
        preferences = {key: cells[key] for key in (*LODGING, *SLOTS) if cells.get(key)}
        # Keep the line of each row, so that a problem of a member can name it.
        places.setdefault(path, SourceLocation(name, line))
        places.setdefault((*path, "members"), SourceLocation(name, line))
        places[*path, "members", len(group_members)] = SourceLocation(name, line)
        group_members.append({**member, "preferences": preferences})
    if problems:
        raise InputError(problems)
    groups = [
        {"id": id, "type": kinds[id], "members": group_members}
        for id, group_members in members.items()
    ]
    return YamlTree({"groups": groups}, places)
