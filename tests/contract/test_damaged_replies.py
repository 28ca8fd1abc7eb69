"""Damaged replies cause no internal error and put no infinite number into a table."""

from __future__ import annotations

import json
import random  # noqa: TID251 (a seeded generator of its own, to damage replies)
from pathlib import Path

import polars.selectors as cs
import pytest

import folkmoot
from folkmoot.engine.study.study import registered_studies
from folkmoot.models.request import Completion, ModelRequest
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.report.document.html import write_report
from tests.contract.small import people_of, small_study
from tests.contract.test_nothing_usable import assert_declared_columns
from tests.damage import ODD_VALUES, damage_values
from tests.sweeps import sample_daily

STUDIES = sorted(registered_studies())
CASES = [(study, seed) for study in STUDIES for seed in range(8)]


def make_damaging_model(study: str, seed: int) -> ScriptedProvider:
    """Return the embedded respondent with damaged replies: a tenth or half of them, by seed."""
    inner, share = people_of(study), (0.1, 0.5)[seed % 2]

    async def answer(request: ModelRequest, address: str) -> Completion:
        reply = await inner.complete_request(request, address=address)
        dice = random.Random(f"{seed} {address}")
        if dice.random() > share:
            return reply
        try:
            value = json.loads(reply.text)
        except ValueError:
            value = None
        changed = (
            damage_values(value, dice)
            if isinstance(value, (dict, list))
            else dice.choice(ODD_VALUES)
        )
        text = changed if isinstance(changed, str) else json.dumps(changed, ensure_ascii=False)
        return reply._replace(text=text)

    return ScriptedProvider(answer)


@pytest.mark.parametrize(
    ("study", "seed"),
    sample_daily(CASES, daily=[("workbook", 1)], part="mutations"),
)
def test_damaged_replies_end_no_run(study: str, seed: int, tmp_path: Path) -> None:
    provider = make_damaging_model(study, seed)
    run = folkmoot.run(small_study(study, tmp_path), out=tmp_path / "run", provider=provider)
    assert run.manifest["outcome"] == "done"
    assert run.table("answers")["reasks"].sum() > 0
    assert_declared_columns(run)
    for name in run.tables:
        for column in run.table(name).select(cs.float()):
            assert column.drop_nulls().is_finite().all(), (name, column.name)
    assert write_report(run.folder).stat().st_size > 0
