"""Groups that are generated, read from files of researchers, or refused with one clear line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import folkmoot
from folkmoot.engine.run.dry_run import estimate_run
from folkmoot.engine.run.runner import apply_limit
from folkmoot.engine.study.study_file import load_study_file, validate_settings
from folkmoot.errors import InputError
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.studies.negotiation import STUDY
from folkmoot.studies.negotiation.config import NegotiationConfig
from folkmoot.studies.negotiation.participants import groups_of, read_groups
from folkmoot.studies.negotiation.preparation import check_config, limit_groups, template_files
from folkmoot.studies.negotiation.rules.strategies import TOPICS
from tests.studies.negotiation.conftest import CALM, GROUPS, make_members


def config(**settings: Any) -> NegotiationConfig:
    made = validate_settings(STUDY, settings)
    assert isinstance(made, NegotiationConfig)
    return made


def test_default_groups_have_the_roles_of_their_type() -> None:
    groups = groups_of(config(groups_per_type=1), Path())
    names = {g.id: [m.name for m in g.members] for g in groups}
    assert names == {
        "family_01": ["Parent 1", "Parent 2", "Child 1", "Child 2"],
        "elder_young_01": ["Grandparent 1", "Grandparent 2", "Young Adult 1", "Young Adult 2"],
        "colleagues_01": [f"Colleague {n}" for n in range(1, 5)],
        "spouses_01": ["Partner 1", "Partner 2"],
        "strangers_01": [f"Stranger {n}" for n in range(1, 5)],
    }
    assert all(m.persona for g in groups for m in g.members)


def test_travellers_follow_from_seed_and_group_alone() -> None:
    small = groups_of(config(groups_per_type=1, group_types=["strangers"]), Path())
    large = groups_of(config(groups_per_type=3), Path())
    assert small[0] == next(g for g in large if g.id == "strangers_01")
    other = groups_of(config(groups_per_type=1, random_seed=7), Path())
    assert other[-1] != small[0]


def test_sizes_and_weights_by_role() -> None:
    made = config(
        group_types=["Family"],
        sizes={"family": {"parents": 1, "child": 3}},
        weights={"family": {"parent": 2.5}},
    )
    group = groups_of(made, Path())[0]
    assert [(m.role, m.weight) for m in group.members] == [
        ("parent", 2.5),
        *[("child", 1.0)] * 3,
    ]


def test_custom_personas_are_assigned_once_each(tmp_path: Path) -> None:
    path = tmp_path / "people.jsonl"
    lines = [json.dumps({"persona": f"You are person {n}."}) for n in range(8)]
    path.write_text("\n".join(lines), encoding="utf-8")
    settings: dict[str, Any] = {"group_types": ["strangers"], "personas": "people.jsonl"}
    groups = groups_of(config(groups_per_type=2, **settings), tmp_path)
    texts = [m.persona for g in groups for m in g.members]
    assert sorted(texts) == [f"person {n}." for n in range(8)]
    problems = check_config(config(groups_per_type=3, **settings), tmp_path)
    assert "has 8 personas and the groups have 12 members" in problems[0].message


CSV = """\
group_id,group_type,role,name,weight,traveler_type,travel_purpose,spending_preference,cuisine,attraction,event,lodging
a,spouses,partner,Ann,2,planner,nature,luxury,sushi,museums,film,shared room
a,spouses,partner,,,planner,nature,luxury,"sushi, not pub",museums,film,shared room
"""


def test_the_three_file_kinds_say_the_same(tmp_path: Path) -> None:
    (tmp_path / "g.csv").write_text(CSV, encoding="utf-8")
    slots = "traveler_type travel_purpose spending_preference cuisine attraction event lodging"
    first = dict(
        zip(
            slots.split(),
            ["planner", "nature", "luxury", "sushi", "museums", "film", "shared room"],
            strict=True,
        )
    )
    second = {**first, "cuisine": "sushi, not pub"}
    data = {
        "groups": [
            {
                "id": "a",
                "type": "couple",
                "members": [
                    {"role": "partner", "name": "Ann", "weight": 2, "preferences": first},
                    {"role": "Partners", "preferences": second},
                ],
            }
        ]
    }
    (tmp_path / "g.json").write_text(json.dumps(data), encoding="utf-8")
    (tmp_path / "g.yaml").write_text(yaml.safe_dump(data["groups"]), encoding="utf-8")
    found = [read_groups(tmp_path / f"g.{kind}") for kind in ("csv", "json", "yaml")]
    assert found[0] == found[1] == found[2]
    ann, other = found[0][0].members
    assert (ann.name, ann.weight, other.name, other.weight) == ("Ann", 2.0, "Partner 2", 1.0)
    assert set(ann.preferences) == set(TOPICS)
    assert ann.preferences["room_type"] == ann.preferences["house_rule"] == "shared room"


def changed(**changes: Any) -> list[dict[str, Any]]:
    """Return the family group with changes to it or, by `member`, to its last member."""
    group: dict[str, Any] = json.loads(json.dumps(GROUPS[0]))
    group["members"][-1].update(changes.pop("member", {}))
    group.update(changes)
    return [group]


no_cuisine = {k: v for k, v in CALM.items() if k != "cuisine"}
BAD = [
    ({"groups": changed(type="flatmates")}, "unknown group type `flatmates`"),
    ({"groups": changed(type="")}, "groups[1].type: is missing"),
    ({"groups": changed(member={"preferences": None})}, "Child 2 states no preference"),
    ({"groups": changed(member={"preferences": no_cuisine})}, "no preference for cuisine"),
    ({"groups": changed(member={"preferences": {**CALM, "cuisine": " "}})}, "for cuisine"),
    ({"groups": changed(member={"preferences": {**CALM, "dessert": "x"}})}, "`dessert`"),
    (
        {"groups": changed(member={"preferences": ["x"]})},
        "groups[1].members[3].preferences: must be a group of keys",
    ),
    ({"groups": changed(members=make_members("child", "child"))}, "needs at least 1 parent"),
    ({"groups": changed(members=make_members("parent", "parent"))}, "needs at least 1 child"),
    ({"groups": changed(member={"role": "uncle"})}, "has no role `uncle`"),
    ({"groups": changed(member={"role": ""})}, "groups[1].members[3].role: is missing"),
    ({"groups": changed(member={"weight": -1})}, "weight: must be more than 0, is -1"),
    ({"groups": changed(member={"weight": "lots"})}, 'weight: must be a number, is "lots"'),
    ({"groups": changed(member={"name": "Parent 1"})}, "two members are called Parent 1"),
    ({"groups": changed(member={"name": "SYSTEM"})}, "cannot be called 'SYSTEM'"),
    ({"groups": changed(member={"name": "Ann: x"})}, "none of : ; |"),
    ({"groups": changed(member={"name": "A" * 61})}, "has at most 60 characters"),
    ({"groups": changed(member={"name": "Everyone"})}, "or for the whole group"),
    ({"groups": changed(id="../../etc")}, "an id has letters"),
    ({"groups": [*changed(), *changed(id="FAM")]}, "duplicate group id `fam`"),
    ({"groups": changed(member={"age": 3})}, "groups[1].members[3].age: unknown key"),
    ({"groups": changed(leader="x")}, "groups[1].leader: unknown key"),
    ({"groups": changed(members=[])}, "needs at least 1 parent"),
    ({"groups": changed() * 2}, "duplicate group id `fam`"),
    ({"groups": []}, "contains no group"),
    (
        {"groups": [{"id": "p", "type": "spouses", "members": make_members(*["partner"] * 3)}]},
        "3 members",
    ),
    (
        {"groups": [{"id": "p", "type": "spouses", "members": [{"role": "partner"}] * 2}]},
        "neither preferences nor a persona",
    ),
    ({"groups": "nowhere.yaml"}, "cannot be read"),
    ({"groups": None, "group_types": ["flatmates"]}, "unknown group type `flatmates`"),
    ({"groups": None, "sizes": {"family": {"child": 2}}}, "needs at least 1 parent"),
    ({"groups": None, "sizes": {"family": {"uncle": 2}}}, "no role `uncle`"),
    ({"groups": None, "weights": {"family": {"parent": 0}}}, "must be more than 0"),
    ({"groups": None, "personas": "nowhere.csv"}, "there is no file"),
    ({"conditions": ["C9"]}, "conditions"),
    ({"conditions": ["C1", "C1"]}, "duplicate condition"),
    ({"conditions": []}, "at least 1"),
    ({"max_feedback_rounds": -1}, "must be at least 0"),
    ({"options": {"dessert": ["x"]}}, "`dessert` is not a topic"),
    ({"options": {"cuisine": ["pub", "Pubs"]}}, "a duplicate option"),
    (
        {"trip": {"date": ["2026-01-01"]}},
        "trip.date: needs as many dates as `days`, 3, and has 1",
    ),
]


@pytest.mark.parametrize(("settings", "says"), BAD)
def test_bad_input_is_refused_in_plain_words_and_nothing_is_written(
    tmp_path: Path, settings: dict[str, Any], says: str
) -> None:
    study = tmp_path / "study.yaml"
    given = {"study": "negotiation", "groups": GROUPS, **settings}
    given = {k: v for k, v in given.items() if v is not None}
    study.write_text(yaml.safe_dump(given, sort_keys=False), encoding="utf-8")
    silent = ScriptedProvider(lambda request, address: pytest.fail("a model was asked"))
    with pytest.raises(InputError) as error:
        folkmoot.run(study, out=tmp_path / "out", provider=silent, model="scripted/test")
    assert says in str(error.value)
    assert error.value.exit_code == 2
    assert all("\n" not in str(p) for p in error.value.problems)
    assert list(tmp_path.iterdir()) == [study]


def test_a_file_of_groups_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "g.csv").write_text(CSV.replace("partner,Ann,2", "partner,Ann,none"))
    with pytest.raises(InputError, match=r'g\.csv:2: .*weight: must be a number, is "none"'):
        read_groups(tmp_path / "g.csv")
    text = yaml.safe_dump(GROUPS[:2], sort_keys=False).replace("type: family", "type: flatmates")
    (tmp_path / "g.yaml").write_text(text)
    with pytest.raises(InputError, match=r"g\.yaml:2: groups\[1\]\.type: unknown group type"):
        read_groups(tmp_path / "g.yaml")


MISTAKEN = """\
groups:
  - id: a
    type: familly
    members:
      - role: parent
        weight: lots
        preferences: {dessert: ice}
      - role: child
        age: 3
  - id: b
    type: spouses
    members:
      - {role: partner, persona: somebody}
"""


@pytest.mark.parametrize("inline", [True, False])
def test_every_problem_of_every_group_is_reported_at_its_line(tmp_path: Path, inline: bool) -> None:
    study, file = tmp_path / "study.yaml", tmp_path / "g.yaml"
    file.write_text(MISTAKEN)
    study.write_text("study: negotiation\n" + (MISTAKEN if inline else "groups: g.yaml\n"))
    with pytest.raises(InputError) as error:
        folkmoot.run(study, out=tmp_path / "out", model="synthetic")
    told = [(p.where, p.key, p.message) for p in error.value.problems]
    shift = 1 if inline else 0
    assert [(int(line) - shift, key) for line, key, _ in told] == [
        (3, "groups[1].type"),
        (6, "groups[1].members[1].weight"),
        (7, "groups[1].members[1].preferences"),
        (9, "groups[1].members[2].age"),
        (10, "groups[2]"),
        (10, "groups[2]"),
    ]
    assert told[0][2].endswith("did you mean family?")
    assert "needs at least 2 partners" in told[4][2]


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("g.csv", b"id,role\n1,2\n", "no column `group_id`"),
        ("g.csv", b"\xff\xfe\x00", "is not UTF-8"),
        ("g.yaml", b"just words", "is not a list of groups"),
        ("g.yaml", b"a: [", "g.yaml"),
        ("g.json", b"[1, 2]", r"groups\[1\]: must be a group of keys, is 1"),
        (
            "g.yaml",
            b"groups: [{id: a, type: spouses, members: 3}]",
            "members: must be a list",
        ),
    ],
)
def test_unreadable_files(tmp_path: Path, name: str, content: bytes, says: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=says):
        read_groups(tmp_path / name)


def test_the_groups_of_a_new_study_are_those_of_the_example(tmp_path: Path) -> None:
    ((name, content),) = template_files().items()
    assert isinstance(content, str)
    (tmp_path / name).write_text(content, encoding="utf-8")
    assert len(read_groups(tmp_path / name)) == 1
    repository = Path(__file__).parents[3]
    assert (repository / "examples" / name).read_text(encoding="utf-8") == content


def test_a_limit_keeps_types_before_numbers() -> None:
    assert len(groups_of(limit_groups(config(), 7), Path())) == 5
    assert len(groups_of(limit_groups(config(), 2), Path())) == 2
    assert len(groups_of(limit_groups(config(groups=GROUPS), 3), Path())) == 3


@pytest.mark.parametrize(("limit", "group_count"), [(1, 1), (2, 2), (50, 3)])
def test_a_limit_applies_to_a_file_of_groups(tmp_path: Path, limit: int, group_count: int) -> None:
    groups = [{**GROUPS[0], "id": f"group{number}"} for number in range(3)]
    (tmp_path / "g.yaml").write_text(yaml.safe_dump(groups), encoding="utf-8")
    study = tmp_path / "s.yaml"
    study.write_text("study: negotiation\nconditions: [C1]\ngroups: g.yaml\n", encoding="utf-8")
    run = folkmoot.run(study, model="synthetic", limit=limit, out=tmp_path / "out")
    assert run.tables["groups"]["group_id"].to_list() == [
        f"group{number}" for number in range(group_count)
    ]
    estimate = estimate_run(apply_limit(load_study_file(study), limit), "synthetic")
    assert estimate.calls == run.manifest["calls"]


def test_a_file_without_end_is_refused_and_not_read_to_its_end() -> None:
    with pytest.raises(InputError, match="larger than the limit for files of groups"):
        read_groups(Path("/dev/zero"))
