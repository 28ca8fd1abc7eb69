"""A small town hall with a scripted model. Tests replace single answers of the model."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from folkmoot import Run, run
from folkmoot.models.request import ModelRequest
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.studies.town_hall import STUDY

PROFILE = """\
---
label: {label}
vulnerable_type: {kind}
age_group: 70s+
gender: female
residence_years: 20
ownership: tenant
occupation: retired cleaner
assertiveness: 2
openness: 3
risk_tolerance: 1
community_orientation: 3
income_level: low
can_afford_contribution: false
economic_pressure: struggling
participation_tendency: passive
information_access: low
community_engagement: minimal
---
You live alone on the ground floor.
"""

# Stage, resident (or role) and round, from the address of a call.
CallKey = tuple[str, str, int | None]
Answer = Callable[[CallKey, ModelRequest], Any]
_ADDRESS = re.compile(r"[^/]+/(?P<stage>[a-z]+)(?P<round>\d+)?/(?P<rest>.*)")


def parse_address(address: str) -> CallKey:
    """Return the key of an address. A re-ask has the key of its question."""
    found = _ADDRESS.fullmatch(address)
    assert found, address
    stage, number, rest = found["stage"], found["round"], found["rest"]
    round_no = int(number) if number else None
    if stage != "round":
        return stage, rest.split("/")[0] if "/" in rest else stage, None
    part, *more = rest.split("/")
    if part == "turns":
        return ("think" if more[1].startswith("ask0") else "speak"), more[0], round_no
    if part == "reflect":
        return "reflect", more[0], round_no
    return part, part, round_no  # moderator, session


def answer_plainly(key: CallKey, request: ModelRequest) -> Any:
    """Return a valid answer for each stage, without reactions to other residents."""
    stage, who, round_no = key
    if stage == "think":
        reactions: dict[str, Any] = {} if round_no == 1 else {"reactions": []}
        return {**reactions, "overall_stance": "neutral", "key_concerns": [], "strategic_notes": ""}
    if stage == "speak":
        references: dict[str, Any] = {} if round_no == 1 else {"references": []}
        words = f"{who} speaks in round {round_no}."
        return {**references, "new_points": [], "questions": [], "full_statement": words}
    if stage == "reflect":
        return make_reflection("neutral", "neutral", "maintain")
    if stage == "moderator":
        return {
            "summary": f"Summary {round_no}.",
            "underrepresented_opinions": [],
            "invited_residents": [],
            "overlooked_concerns": [],
            "spoken": f"The moderator sums up round {round_no}.",
        }
    if stage == "plan":
        return {
            "items": [{"proposal": "Do it?", "reasoning": "", "originating_residents": ["A01"]}]
        }
    if stage == "vote":
        items = (request.schema or {})["properties"]
        return {item: {"vote": "yes", "reason": "because"} for item in items if item != "declined"}
    if stage == "consensus":
        return {"consensus": "We agree.", "concerns_reflected": []}
    assert stage in ("before", "after"), key
    return {"satisfaction": 5, "reason": "so so"}


def make_reflection(before: str, after: str, change: str, **more: Any) -> dict[str, Any]:
    evolution = {
        "previous_stance": before,
        "current_stance": after,
        "change_type": change,
        "change_reason": "",
    }
    return {
        "most_compelling": None,
        "most_disagreed": None,
        "stance_evolution": evolution,
        "next_round_strategy": "",
        **more,
    }


def make_model(answer: Answer = answer_plainly, *, keep: bool = False) -> ScriptedProvider:
    """Return a scripted model. `answer` returns a reply, or a value that is written as JSON."""

    def reply(request: ModelRequest, address: str) -> str:
        said = answer(parse_address(address), request)
        return said if isinstance(said, str) else json.dumps(said)

    return ScriptedProvider(reply, keep_requests=keep)


def small_hall(folder: Path, *, general: int = 3, vulnerable: int = 2) -> dict[str, Any]:
    """Return the settings of a small hall. The last residents of A01… are the vulnerable ones."""
    profiles = folder / "profiles"
    profiles.mkdir(parents=True, exist_ok=True)
    for i in range(vulnerable):
        kind = ("housing", "participation")[i % 2]
        text = PROFILE.format(label=f"profile {i}", kind=kind)
        (profiles / f"p{i}.md").write_text(text, "utf-8")
    return {
        "topic": {"title": "Shall it be built?", "background": "A plan is on the table."},
        "sets": 1,
        "levels": ["2-1"],
        "residents": {"general": general},
        "vulnerable": str(profiles),
        "coding": "off",
    }


def run_hall(folder: Path, settings: Mapping[str, Any], model: ScriptedProvider) -> Run:
    """Run a town hall into `folder/run`."""
    return run(STUDY, settings, provider=model, out=folder / "run")


def answer_in_one_session(answer: Answer = answer_plainly) -> Answer:
    """Return the same answers for a shared session, with one entry for each resident."""

    def reply(key: CallKey, request: ModelRequest) -> Any:
        stage, _, round_no = key
        wanted = (request.schema or {})["properties"]
        if stage in ("plan", "consensus", "moderator"):
            return answer(key, request)
        if stage != "session":
            ballot = re.findall(r"^(V\d+):", request.messages[-1].content, re.M)
            fake = ModelRequest(
                request.model, request.messages, schema={"properties": dict.fromkeys(ballot)}
            )
            return {who: answer((stage, who, None), fake) for who in wanted}
        if "turns" not in wanted:
            one = next(iter(wanted.values()))
            looks_back = "Turn" not in one.get("title", one.get("$ref"))
            return {who: _answer_part(answer, who, round_no, request, looks_back) for who in wanted}
        found = {
            "turns": {
                w: _answer_part(answer, w, round_no, request, False) for w in _list_ids(wanted, 0)
            }
        }
        if "reflections" in wanted:
            entries = {
                w: _answer_part(answer, w, round_no, request, True) for w in _list_ids(wanted, 1)
            }
            found["reflections"] = entries
        return found

    return reply


def answer_in_any_session(answer: Answer = answer_plainly) -> Answer:
    """Return the same answers for shared and for separate sessions, told apart by the schema."""
    shared = answer_in_one_session(answer)

    def reply(key: CallKey, request: ModelRequest) -> Any:
        # A shared session is asked for turns, or for one answer of each of several residents.
        wanted = (request.schema or {}).get("properties", {})
        is_shared = any(re.fullmatch(r"turns|A\d\d", name) for name in wanted)
        return (shared if is_shared else answer)(key, request)

    return reply


def _list_ids(wanted: Mapping[str, Any], which: int) -> list[str]:
    return list(wanted[("turns", "reflections")[which]]["properties"])


def _answer_part(
    answer: Answer, who: str, round_no: int | None, request: ModelRequest, back: bool
) -> Any:
    if back:
        return answer(("reflect", who, round_no), request)
    return {
        "thinking": answer(("think", who, round_no), request),
        "speaking": answer(("speak", who, round_no), request),
    }
