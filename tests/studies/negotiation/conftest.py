"""A small run: two groups with ready-made preferences and a scripted mediator."""

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


def members(*roles: str) -> list[dict[str, Any]]:
    """Members who are calm and lively in turn."""
    return [{"role": role, "preferences": (CALM, LIVELY)[n % 2]} for n, role in enumerate(roles)]


GROUPS = [
    {"id": "fam", "type": "family", "members": members("parent", "child", "child")},
    {
        "id": "old",
        "type": "multigenerational",
        "members": members("grandparent", "young_adult", "grandparent", "young adult"),
    },
    {"id": "team", "type": "colleagues", "members": members(*["colleague"] * 4)},
    {"id": "pair", "type": "spouses", "members": members("partner", "partner")},
    {"id": "strange", "type": "strangers", "members": members(*["stranger"] * 3)},
]
SETTINGS: dict[str, Any] = {"groups": GROUPS, "max_feedback_rounds": 2, "coding": "off"}


def names_in(request: ModelRequest) -> list[str]:
    return list(request.schema["$defs"]["Spoken"]["properties"]["speaker"]["enum"][1:])


def options_in(prompt: str) -> list[str]:
    listed = re.split(r"\nOptions(?: on the table)?:\n", prompt)[1].split("\n\n")[0]
    return [line.removeprefix("- ") for line in listed.splitlines()]


def gives(option: str, *members: str, when: str = "") -> dict[str, Any]:
    """An entry of a stated decision; without members it is for everyone."""
    return {"option": option, "members": list(members or ("everyone",)), "when": when}


def gives_new(option: str, *members: str, when: str = "") -> dict[str, Any]:
    """An entry that gives an option which is not on the table."""
    return gives("none_of_these", *members, when=when) | {"new_option": option}


def question_of(request: ModelRequest) -> str:
    """The question, also where a reply to it goes back with what was wrong."""
    return next(m.content for m in request.messages if m.role == "user")


def mediator(request: ModelRequest, address: str, **changes: Any) -> str:
    """A sensible mediator and sensible members; `changes` replace fields of every reply. The
    mediator states that everyone gets the first option of the alphabet, and revises nothing."""
    if request.schema is None:
        return "yes"
    title = request.schema["title"]
    prompt = question_of(request)
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
        scored = text_scores(wish, options_in(prompt))
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
            "decision": [{"option": min(options_in(prompt)), "members": ["everyone"], "when": ""}],
            "dropped": [],
            "dialogue": [
                {"speaker": "System", "text": "Here is what I would do."},
                *({"speaker": n, "text": "Fine by me."} for n in names_in(request)),
            ],
        }
    data.update({k: v for k, v in changes.items() if k in data})
    return json.dumps(data)


Runner = Callable[..., Any]


@pytest.fixture(scope="session")
def whole(shared_folder: SharedFolder) -> Any:
    """One run of all groups under all conditions, for tests that only read."""

    def make(folder: Path) -> None:
        provider = ScriptedProvider(mediator)
        folkmoot.run(STUDY, SETTINGS, out=folder / "run", provider=provider, model="scripted/test")

    return folkmoot.load(shared_folder("negotiation/whole", make) / "run")


def some(*ids: str, size: int | None = None) -> list[dict[str, Any]]:
    """The groups of these ids, each with its first `size` members (default: all)."""
    return [g | {"members": g["members"][:size]} for g in GROUPS if g["id"] in ids]


@pytest.fixture
def negotiation(tmp_path: Path) -> Runner:
    """Run the study in a new folder: `negotiation(answering, **settings)`.

    Members do not confirm decisions unless `confirm=True`: a third of all calls confirm one.
    """
    count = iter(range(1000))

    def run(
        answering: Callable[[ModelRequest, str], Any] = mediator,
        *,
        concurrency: int | None = None,
        latency: Any = 0.0,
        **settings: Any,
    ) -> Any:
        return folkmoot.run(
            STUDY,
            {**SETTINGS, "confirm": False, **settings},
            out=tmp_path / f"run{next(count)}",
            provider=ScriptedProvider(answering, latency=latency),
            model="scripted/test",
            concurrency=concurrency,
        )

    return run


def session_json(run: Any, group: str, condition: str, name: str) -> Any:
    return run.folder.read_json(f"groups/{group}/{condition}/{name}.json")


def texts_of(data: Any) -> list[str]:
    """Every text value of JSON data."""
    if isinstance(data, str):
        return [data]
    if isinstance(data, Mapping):
        return [t for v in data.values() for t in texts_of(v)]
    if isinstance(data, list):
        return [t for v in data for t in texts_of(v)]
    return []
