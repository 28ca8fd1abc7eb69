"""A model that answers at random gets a red report, although every reply has a valid form.

In each study the embedded respondent writes the texts, and its choices and ratings are
replaced by random ones. The unchanged embedded respondent does not fail this check.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openpyxl
import pytest

import folkmoot
from folkmoot.models.request import Completion, ModelRequest
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.randomness import generator
from folkmoot.report.document.document import Document, build_document
from folkmoot.respondent.provider import Respondent
from folkmoot.storage.run_folder import RunFolder
from tests.studies.cross_pollination.test_protocol import SETTINGS, Cast
from tests.sweeps import sample_daily

EXAMPLES = Path(__file__).parents[2] / "examples"


def run_with_random_votes(folder: Path, **settings: object) -> RunFolder:
    """Run 60 participants in each condition with random votes."""
    cast = Cast()

    def reply(request: ModelRequest, address: str) -> object:
        options = request.hints.offered
        if request.hints.kind == "choice" and len(options) > 1:
            return generator(0, ("coin", address)).choice(options).item()
        return cast(request, address)

    config = {**SETTINGS, "participants_per_condition": 60, **settings}
    config |= {
        "disagreement_threshold": 1.0,
        "conditions": ["simple_voting", "simple_passive", "clarified_passive"],
    }
    provider = ScriptedProvider(reply)  # type: ignore[arg-type]
    return folkmoot.run("cross_pollination", config, out=folder / "run", provider=provider).folder


@pytest.mark.parametrize("revote", sample_daily((True, False), (True,), part="alarms"))
def test_random_votes_give_a_red_report(revote: bool, tmp_path: Path) -> None:
    document = build_document(run_with_random_votes(tmp_path, revote=revote))
    assert document.front is not None and document.front.colour == "red"
    assert "Reliability (retest)" in list_failed_checks(document)


def list_failed_checks(document: Document) -> list[str]:
    """List the rows of the validity card that a report shows as failed."""
    assert document.front is not None
    return [row.name for row in document.front.card if row.verdict == "failed"]


def iterate_bounds(schema: Any) -> Iterator[tuple[str, tuple[float, float, bool]]]:
    """Yield each numeric field at any depth of a JSON schema: its minimum, its maximum, and whether
    it must be a whole number."""
    if isinstance(schema, list):
        for part in schema:
            yield from iterate_bounds(part)
    if isinstance(schema, dict):
        for name, field in (schema.get("properties") or {}).items():
            for kind in (field, *field.get("anyOf", ())):
                if "minimum" in kind and "maximum" in kind:
                    yield name, (kind["minimum"], kind["maximum"], kind["type"] == "integer")
        for part in schema.values():
            yield from iterate_bounds(part)


def randomise_reply(request: ModelRequest, text: str, address: str) -> str:
    """Return the reply with every choice and number replaced by a random one."""
    rng = generator(0, ("coin", address))
    options = request.hints.offered
    if request.schema is None:
        if text in options:
            return str(rng.choice(options).item())
        return str(rng.integers(0, 11)) if text.isdigit() else text
    bounds = dict(iterate_bounds(request.schema))

    def randomise_part(part: Any, name: str = "") -> Any:
        if isinstance(part, dict):
            return {key: randomise_part(value, key) for key, value in part.items()}
        if isinstance(part, list):
            return [randomise_part(value, name) for value in part]
        if isinstance(part, bool) or not isinstance(part, int | float) or name not in bounds:
            return part
        low, high, is_whole = bounds[name]
        return int(rng.integers(low, high + 1)) if is_whole else round(rng.uniform(low, high), 2)

    return json.dumps(randomise_part(json.loads(text)))


STUDIES: dict[str, tuple[str, ...]] = {
    "cross_pollination": ("participants_per_condition=40", "min_responses_for_threshold=5"),
    "focus_group": ("replications=5", "phases=[reaction]"),
    "negotiation": ("groups_per_type=3", "conditions=[C2]", "group_types=[family, strangers]"),
    "town_hall": ("levels=[1, 2-1, 4]", "rounds=1", "sets=2"),
    "workbook": (),
}


def report_study(study: str, folder: Path) -> Document:
    source = EXAMPLES / f"{study}.yaml"
    if study == "workbook":
        source = folder / "game.xlsx"
        workbook = openpyxl.load_workbook(EXAMPLES / "public_goods.xlsx")
        for sheet, key, value in (
            ("experimental_setting", "num_agents_per_session", 2),
            ("experimental_setting", "num_sessions", 8),
            ("constants", "members", "[2]"),
        ):
            row = next(
                candidate for candidate in workbook[sheet].iter_rows() if candidate[0].value == key
            )
            row[1].value = value
        workbook.save(source)
    run = folkmoot.run(source, model="synthetic", out=folder / "run", overrides=STUDIES[study])
    return build_document(run.folder)


@pytest.mark.parametrize("study", sample_daily(STUDIES, ("focus_group",), part="alarms"))
def test_random_answers_fail_in_every_study(
    study: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original_reply = Respondent.reply

    def reply_at_random(self: Respondent, request: ModelRequest, address: str) -> Completion:
        reply = original_reply(self, request, address)
        if request.hints.role != "participant":
            return reply
        return reply._replace(text=randomise_reply(request, reply.text, address))

    monkeypatch.setattr(Respondent, "reply", reply_at_random)
    assert "Reliability (retest)" in list_failed_checks(report_study(study, tmp_path))


@pytest.mark.parametrize("study", sample_daily(STUDIES, ("workbook",), part="alarms"))
def test_the_embedded_respondent_does_not_answer_at_random(study: str, tmp_path: Path) -> None:
    assert "instability" not in list_failed_checks(report_study(study, tmp_path))
