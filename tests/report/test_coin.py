"""A model that answers at random: the report is red, although every reply has the right form.

In each study the embedded respondent speaks as it always does, and what it chooses or rates is
replaced by a draw. The embedded respondent itself passes the same check or leaves it open.
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


def answered_by_lot(folder: Path, **settings: object) -> RunFolder:
    """A run of 60 participants in each condition who draw each vote."""
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
def test_a_coin_is_red(revote: bool, tmp_path: Path) -> None:
    made = build_document(answered_by_lot(tmp_path, revote=revote))
    assert made.front is not None and made.front.colour == "red"
    assert "Reliability (retest)" in failed_checks(made)


def failed_checks(made: Document) -> list[str]:
    """The rows of the validity card that a report shows as failed."""
    assert made.front is not None
    return [row.name for row in made.front.card if row.verdict == "failed"]


def bounds_in(schema: Any) -> Iterator[tuple[str, tuple[float, float, bool]]]:
    """Yield each numeric field at any depth of a JSON schema: its minimum, its maximum, and whether
    it must be a whole number."""
    if isinstance(schema, list):
        for part in schema:
            yield from bounds_in(part)
    if isinstance(schema, dict):
        for name, field in (schema.get("properties") or {}).items():
            for kind in (field, *field.get("anyOf", ())):
                if "minimum" in kind and "maximum" in kind:
                    yield name, (kind["minimum"], kind["maximum"], kind["type"] == "integer")
        for part in schema.values():
            yield from bounds_in(part)


def drawn(request: ModelRequest, text: str, address: str) -> str:
    """Return the reply with every choice and number replaced by a random one."""
    rng = generator(0, ("coin", address))
    options = request.hints.offered
    if request.schema is None:
        if text in options:
            return str(rng.choice(options).item())
        return str(rng.integers(0, 11)) if text.isdigit() else text
    bounds = dict(bounds_in(request.schema))

    def throw(part: Any, name: str = "") -> Any:
        if isinstance(part, dict):
            return {key: throw(value, key) for key, value in part.items()}
        if isinstance(part, list):
            return [throw(value, name) for value in part]
        if isinstance(part, bool) or not isinstance(part, int | float) or name not in bounds:
            return part
        low, high, whole = bounds[name]
        return int(rng.integers(low, high + 1)) if whole else round(rng.uniform(low, high), 2)

    return json.dumps(throw(json.loads(text)))


STUDIES: dict[str, tuple[str, ...]] = {
    "cross_pollination": ("participants_per_condition=40", "min_responses_for_threshold=5"),
    "focus_group": ("replications=5", "phases=[reaction]"),
    "negotiation": ("groups_per_type=3", "conditions=[C2]", "group_types=[family, strangers]"),
    "town_hall": ("levels=[1, 2-1, 4]", "rounds=1", "sets=2"),
    "workbook": (),
}


def reported(study: str, folder: Path) -> Document:
    source = EXAMPLES / f"{study}.yaml"
    if study == "workbook":
        source = folder / "game.xlsx"
        book = openpyxl.load_workbook(EXAMPLES / "public_goods.xlsx")
        for sheet, key, value in (
            ("experimental_setting", "num_agents_per_session", 2),
            ("experimental_setting", "num_sessions", 8),
            ("constants", "members", "[2]"),
        ):
            row = next(r for r in book[sheet].iter_rows() if r[0].value == key)
            row[1].value = value
        book.save(source)
    run = folkmoot.run(source, model="synthetic", out=folder / "run", overrides=STUDIES[study])
    return build_document(run.folder)


@pytest.mark.parametrize("study", sample_daily(STUDIES, ("focus_group", "workbook"), part="alarms"))
def test_random_answers_fail_in_every_study(
    study: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = Respondent.reply

    def by_lot(self: Respondent, request: ModelRequest, address: str) -> Completion:
        reply = honest(self, request, address)
        if request.hints.role != "participant":
            return reply
        return reply._replace(text=drawn(request, reply.text, address))

    monkeypatch.setattr(Respondent, "reply", by_lot)
    assert "Reliability (retest)" in failed_checks(reported(study, tmp_path))


@pytest.mark.parametrize("study", sample_daily(STUDIES, ("workbook",), part="alarms"))
def test_the_embedded_respondent_does_not_answer_at_random(study: str, tmp_path: Path) -> None:
    assert "instability" not in failed_checks(reported(study, tmp_path))
