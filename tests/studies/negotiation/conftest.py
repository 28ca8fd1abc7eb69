"""Groups with stated preferences, and a provider that replies by a script."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import folkmoot
from folkmoot.conversation.answer_types import WAYS_OUT
from folkmoot.models.request import ModelRequest
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.studies.negotiation import STUDY
from folkmoot.studies.negotiation.rules.tally import text_scores
from tests.conftest import SharedFolder

CALM = {
    "traveler_type": "I want us to be laidback travelers.",
    "travel_purpose": "I need relaxation.",
    "spending_preference": "Economical, please. No luxury.",
    "cuisine": "I love a diner.",
    "attraction": "I like museums.",
    "event": "I would enjoy the theatre.",
    "lodging": {"room_type": "I prefer an entire home.", "house_rule": "I want no smoking."},
}
LIVELY = {
    "traveler_type": "I want to be an adventure seeker!",
    "travel_purpose": "I love adventure.",
    "spending_preference": "I want luxury.",
    "cuisine": "I love barbecue, no diner.",
    "attraction": "I want nature parks, no museums.",
    "event": "I love sports.",
    "lodging": {"room_type": "I like a private room.", "house_rule": "I want pets allowed."},
}


def make_members(*roles: str) -> list[dict[str, Any]]:
    """Make members with these roles, who are calm and lively in turn."""
    return [{"role": role, "preferences": (CALM, LIVELY)[n % 2]} for n, role in enumerate(roles)]


GROUPS = [
    {"id": "fam", "type": "family", "members": make_members("parent", "child", "child")},
    {
        "id": "old",
        "type": "multigenerational",
        "members": make_members("grandparent", "young_adult", "grandparent", "young adult"),
    },
    {"id": "team", "type": "colleagues", "members": make_members(*["colleague"] * 4)},
    {"id": "pair", "type": "spouses", "members": make_members("partner", "partner")},
    {"id": "strange", "type": "strangers", "members": make_members(*["stranger"] * 3)},
]
SETTINGS: dict[str, Any] = {"groups": GROUPS, "max_feedback_rounds": 2, "coding": "off"}


def list_speakers(request: ModelRequest) -> list[str]:
    return list(request.schema["$defs"]["Spoken"]["properties"]["speaker"]["enum"][1:])


def list_options(prompt: str) -> list[str]:
    listed = re.split(r"\nOptions(?: on the table)?:\n", prompt)[1].split("\n\n")[0]
    return [line.removeprefix("- ") for line in listed.splitlines()]


def make_share(option: str, *members: str, when: str = "") -> dict[str, Any]:
    """Make an entry of a stated decision. Without members it is for everyone."""
    return {"option": option, "members": list(members or ("everyone",)), "when": when}


def make_new_share(option: str, *members: str, when: str = "") -> dict[str, Any]:
    """Make an entry with an option that is not on the table."""
    return make_share("none_of_these", *members, when=when) | {"new_option": option}


def get_question(request: ModelRequest) -> str:
    """Return the question. In a re-ask, it is the first message of the user."""
    return next(m.content for m in request.messages if m.role == "user")


def reply_sensibly(request: ModelRequest, address: str, **changes: Any) -> str:
    """Reply as a sensible mediator, or as a sensible member.

    The mediator states that everyone gets the first option of the alphabet, and revises nothing.
    - `changes`: values that replace fields of every reply.
    """
    if request.schema is None:
        return "yes"
    title = request.schema["title"]
    prompt = get_question(request)
    if title == "BallotForm":
        wish = prompt.split("Your stated preference: ")[1].splitlines()[0]
        listed = request.schema["properties"]["top_choice"].get("enum", ["anything"])
        on_table = sorted(option for option in listed if option not in WAYS_OUT)
        top = next((o for o in on_table if o.rstrip("s") in wish), on_table[0])
        data: dict[str, Any] = {
            "top_choice": top,
            "acceptable": [],
            "hard_no": [],
            "new_option": "",
            "objection": "",
        }
    elif title == "OwnScores":
        wish = prompt.split("Your stated preference: ")[1].splitlines()[0]
        scored = text_scores(wish, list_options(prompt))
        scores = [{"option": o, "score": score} for o, score in scored.items()]
        data = {"reason": "As I said.", "scores": scores, "hard_no": [], "objection": ""}
    elif title == "FeedbackReply":
        target = prompt.split("Asked in this round: ")[1].splitlines()[0]
        data = {
            "resolved": "round2" in address,
            "updated_resolution_explanation": "",
            "targeted_feedback_question": f"{target}, is it well so?",
            "final_revised_decision": "",
            "decision": [],
            "dropped": [],
            "hard_no": [],
            "objection": "",
            "dialogue": [{"speaker": target, "text": "Well enough."}],
        }
    else:
        data = {
            "has_conflict": True,
            "conflict_description": "They want different things",
            "resolution_strategy": "policy",
            "resolution_explanation": "We will find a way that suits all",
            "decision": [
                {"option": min(list_options(prompt)), "members": ["everyone"], "when": ""}
            ],
            "dropped": [],
            "dialogue": [
                {"speaker": "System", "text": "Here is what I would do."},
                *({"speaker": n, "text": "Fine by me."} for n in list_speakers(request)),
            ],
        }
    data.update({k: v for k, v in changes.items() if k in data})
    return json.dumps(data)


Runner = Callable[..., Any]


@pytest.fixture(scope="session")
def full_run(shared_folder: SharedFolder) -> Any:
    """A run of all groups under all conditions, for tests that only read it."""

    def make(folder: Path) -> None:
        provider = ScriptedProvider(reply_sensibly)
        folkmoot.run(STUDY, SETTINGS, out=folder / "run", provider=provider, model="scripted/test")

    return folkmoot.load(shared_folder("negotiation/whole", make) / "run")


def select_groups(*ids: str, size: int | None = None) -> list[dict[str, Any]]:
    """Return the groups with these ids, each with its first `size` members (default: all)."""
    return [g | {"members": g["members"][:size]} for g in GROUPS if g["id"] in ids]


def copy_group(group_id: str, *new_ids: str, size: int | None = None) -> list[dict[str, Any]]:
    """Return copies of a group with these ids, for runs in which each copy replies otherwise."""
    (group,) = select_groups(group_id, size=size)
    return [group | {"id": new_id} for new_id in new_ids]


def script_by_group(scripts: Mapping[str, Callable[[ModelRequest, str], Any]]) -> Any:
    """Return a script that replies by the script of the group that the address names."""

    def reply_to(request: ModelRequest, address: str) -> Any:
        group_id = re.sub(r"-C\d$", "", address.split("/")[1])
        return scripts[group_id](request, address)

    return reply_to


@pytest.fixture
def run_negotiation(tmp_path: Path) -> Runner:
    """Run the study in a new folder: `run_negotiation(reply_to, **settings)`.

    Members do not confirm decisions unless `confirm=True`: a third of all calls confirm one.
    """
    count = iter(range(1000))

    def run(
        reply_to: Callable[[ModelRequest, str], Any] = reply_sensibly,
        *,
        concurrency: int | None = None,
        latency: Any = 0.0,
        **settings: Any,
    ) -> Any:
        return folkmoot.run(
            STUDY,
            {**SETTINGS, "confirm": False, **settings},
            out=tmp_path / f"run{next(count)}",
            provider=ScriptedProvider(reply_to, latency=latency),
            model="scripted/test",
            concurrency=concurrency,
        )

    return run


def read_session_file(run: Any, group: str, condition: str, name: str) -> Any:
    return run.folder.read_json(f"groups/{group}/{condition}/{name}.json")


def collect_texts(data: Any) -> list[str]:
    """Return every text value of JSON data."""
    if isinstance(data, str):
        return [data]
    if isinstance(data, Mapping):
        return [t for v in data.values() for t in collect_texts(v)]
    if isinstance(data, list):
        return [t for v in data for t in collect_texts(v)]
    return []
