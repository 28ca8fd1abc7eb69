"""Grids: many runs of one study under one budget, resumed together."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ttest_1samp
from statsmodels.stats.multitest import multipletests
from typer.testing import CliRunner

from folkmoot.cli.app import app
from folkmoot.engine.calls.progress import CallDone, Event, Notice, RunEnded, ignore_progress
from folkmoot.engine.run.event_loop import RunStopper
from folkmoot.engine.run.execution import RunOptions
from folkmoot.engine.run.grid import GridCell, RunGrid, build_cells, parse_axes, read_grid, run_grid
from folkmoot.engine.run.runner import load_study_with_options, run_study
from folkmoot.engine.session.folder_access import lock_folder
from folkmoot.engine.session.plan import DESIGN, Plan
from folkmoot.engine.study.consent import Consent
from folkmoot.errors import (
    DriftError,
    FatalModelError,
    InputError,
    RunExistsError,
    RunInterruptedError,
    RunLockedError,
    RunPausedError,
    StorageError,
)
from folkmoot.models.request import Completion, ModelRequest, Provider, Usage
from folkmoot.report.comparison import pooled as pooling
from folkmoot.report.comparison.pooled import (
    Figure,
    MeasuredFigure,
    overall_estimate,
    pooled_findings,
    sign_agreement,
)
from folkmoot.report.comparison.pooled import _variance_finding as variance
from folkmoot.report.document.html import write_grid_report
from folkmoot.storage.findings import Finding, IntervalChart, ResultTable
from folkmoot.storage.run_folder import RunFolder
from folkmoot.storage.tables import write_table
from tests.frames import rows_to_frame
from tests.servers.faults import FaultPlan
from tests.servers.thread import ServerThread

STUDY = """\
from folkmoot import Choice, Speaker, Study, StudyConfig, Text


class Config(StudyConfig):
    people: int = 6
    wording: str = "plain"
    broken: bool = False
    choose: bool = True


async def protocol(session):
    async def vote(scope, n):
        who = Speaker(f"p{n}", system=f"You are number {n} of {session.seed}.")
        answer = Choice(["Parks", "Jobs"]) if session.config.choose else Text()
        said = await scope.ask(who, session.config.wording, answer_type=answer)
        scope.record("votes", {"n": n, "draw": int(scope.rng.integers(1000)), "said": str(said)})

    if session.config.broken:
        raise ValueError("broken on purpose")
    await session.map(range(session.config.people), vote)


STUDY = Study(name="small", title="Small", config=Config, protocol=protocol)
"""


class Answers(Provider):
    """Replies that depend on the request, counted by prompt."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()

    async def complete_request(self, request: ModelRequest, *, address: str) -> Completion:
        text = " ".join(message.content for message in request.messages)
        self.asked[f"{text} {request.temperature}"] += 1
        await asyncio.sleep(0)
        return Completion("Parks" if len(text) % 2 else "Jobs", Usage(10, 1, 0), finish="stop")


@pytest.fixture
def study(tmp_path: Path) -> Path:
    (tmp_path / "small.py").write_text(STUDY)
    (tmp_path / "study.yaml").write_text("study: ./small.py\nconcurrency: 4\nrandom_seed: 5\n")
    return tmp_path / "study.yaml"


AXES = {"wording": ["plain", "fancy"], "temperature": ["0", "1"]}


def build_options(out: Path, answers: Answers, **more) -> RunOptions:
    return RunOptions(out=out, custom_provider=answers, consent=Consent(True), **more)


def read_table_bytes(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted((folder / "tables").iterdir())}


def test_every_cell_equals_a_single_run_with_its_settings(study: Path, tmp_path: Path) -> None:
    answers = Answers()
    grid = run_grid(study, build_options(tmp_path / "grid", answers), AXES, 3)
    assert len(grid.cells) == len(grid.finished_cells()) == 12
    for cell, run in grid.finished_cells().values():
        cell_options = build_options(
            tmp_path / "alone" / cell.name,
            Answers(),
            seed=cell.seed,
            overrides=tuple(f"{k}={v}" for k, v in cell.settings.items()),
        )
        single_run = run_study(load_study_with_options(study, cell_options), cell_options)
        assert read_table_bytes(run.path) == read_table_bytes(single_run.path), cell.name
        assert run.manifest["journal_digest"] == single_run.manifest["journal_digest"]
    # Cells of one repeat share their participants. Repeats do not.
    draws = {
        name: run.read_table("votes")["draw"].to_list()
        for name, (_, run) in grid.finished_cells().items()
    }
    by_repeat = {
        repeat: {tuple(draw) for name, draw in draws.items() if name.endswith(f"r{repeat}")}
        for repeat in (1, 2, 3)
    }
    assert all(len(draws) == 1 for draws in by_repeat.values())
    assert len(set.union(*by_repeat.values())) == 3


def test_one_budget_pauses_all_cells_and_the_grid_resumes_as_a_whole(
    study: Path, tmp_path: Path
) -> None:
    out, first_answers, second_answers = tmp_path / "grid", Answers(), Answers()
    study.write_text(study.read_text() + "budget_calls: 20\n")
    with pytest.raises(RunPausedError, match="20 calls"):
        run_grid(study, build_options(out, first_answers), AXES, 2)
    assert first_answers.asked.total() == 20
    resume_options = build_options(
        out, second_answers, resume=True, overrides=("budget_calls=100",)
    )
    grid = run_grid(study, resume_options, {}, None)  # axes and repeats come from the grid
    assert len(grid.finished_cells()) == 8
    assert second_answers.asked.total() == 48 - 20  # no call was repeated
    whole_grid = run_grid(
        study,
        build_options(tmp_path / "whole", Answers(), overrides=("budget_calls=100",)),
        AXES,
        2,
    )
    for name, (_, run) in whole_grid.finished_cells().items():
        assert read_table_bytes(run.path) == read_table_bytes(grid.finished_cells()[name][1].path)


@pytest.fixture
def server(study: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServerThread]:
    """Start a server for one model, on which limits can be tested."""
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    with ServerThread(FaultPlan(), latency=0.02) as server:
        model_settings = (
            f"model: openai/gpt-4o\nendpoints: {{openai: {server.openai}}}\nchoose: false\n"
        )
        study.write_text(study.read_text() + model_settings)
        yield server


def test_one_limiter_serves_all_cells(study: Path, tmp_path: Path, server: ServerThread) -> None:
    run_grid(study, RunOptions(out=tmp_path / "grid", consent=Consent(True)), AXES, 2)
    assert 0 < server.model.counts["most_in_flight"] <= 4


def test_stop_waits_for_replies_and_the_grid_can_be_resumed(
    study: Path, tmp_path: Path, server: ServerThread
) -> None:
    stopper, calls, ends = RunStopper(), Counter[bool](), list[str]()

    def stop_after_some(event: Event) -> None:
        if isinstance(event, RunEnded):
            ends.append(event.outcome)
        if isinstance(event, CallDone):
            calls[event.replayed] += 1
            if calls.total() == 15:
                stopper()

    options = RunOptions(out=tmp_path / "grid", consent=Consent(True), progress=stop_after_some)
    with pytest.raises(RunInterruptedError):
        run_grid(study, options, AXES, 2, stopper)
    assert 15 <= calls.total() < 48
    assert ends == ["interrupted"]
    calls.clear()
    grid = run_grid(study, replace(options, resume=True, progress=ignore_progress), {}, None)
    assert len(grid.finished_cells()) == 8
    assert server.model.counts["received"] == 48  # no call was repeated


def test_a_server_that_is_down_pauses_the_cells_of_another_model(
    study: Path, tmp_path: Path, server: ServerThread
) -> None:
    """Their own server answers, so no cell of this model may be called failed."""
    out, text = tmp_path / "grid", study.read_text()
    healthy = f"{{openai/gpt-4o: '{server.openai}', openai/gpt-4o-mini: '{server.openai}'}}"
    down = healthy.replace(f"gpt-4o-mini: '{server.openai}'", "gpt-4o-mini: 'http://127.0.0.1:9'")
    study.write_text(text.replace(f"{{openai: {server.openai}}}", down))
    axes = {"model": ["openai/gpt-4o", "openai/gpt-4o-mini"]}
    notices: list[Notice] = []

    def keep_notices(event: Event) -> None:
        notices.extend([event] if isinstance(event, Notice) else [])

    options = RunOptions(out=out, consent=Consent(True), progress=keep_notices)
    with pytest.raises(FatalModelError, match="cannot be reached"):
        run_grid(study, options, axes, 2)
    grid = read_grid(out)
    stopped = [
        run
        for cell in grid.cells
        if cell.settings["model"] == "openai/gpt-4o" and (run := grid.run(cell)) is not None
    ]
    assert stopped and {run.manifest["outcome"] for run in stopped} == {"paused"}
    for run in stopped:
        log = (run.path / "run.log").read_text()
        assert "stopped because another cell of the grid stopped" in log and "failed:" not in log
    errors = [notice.message for notice in notices if notice.level == "error"]
    assert errors and all("model=openai-gpt-4o-mini" in message for message in errors)
    assert server.model.counts["answered"] > 0
    # All cells can be resumed, and no call is repeated.
    study.write_text(study.read_text().replace(down, healthy))
    options = RunOptions(out=out, consent=Consent(True), resume=True)
    assert len(run_grid(study, options, {}, None).finished_cells()) == 4
    assert server.model.counts["received"] == 4 * 6


def test_failed_cell_does_not_affect_other_cells(study: Path, tmp_path: Path) -> None:
    answers = Answers()
    axes = {"broken": ["true", "false"]}
    events: list[Event] = []
    with pytest.raises(ValueError, match="on purpose"):
        run_grid(study, build_options(tmp_path / "grid", answers, progress=events.append), axes, 2)
    messages = [
        event.message for event in events if isinstance(event, Notice) and event.level == "error"
    ]
    assert sorted(messages) == [f"broken=true_r{r}: broken on purpose" for r in (1, 2)]
    grid = read_grid(tmp_path / "grid")
    assert [cell.settings["broken"] for cell, _ in grid.finished_cells().values()] == [
        "false",
        "false",
    ]
    assert "2 of 4 cells have finished" in pooled_findings(grid)[0].says


def test_grid_can_grow_but_its_cells_never_change(study: Path, tmp_path: Path) -> None:
    out = tmp_path / "grid"
    run_grid(study, build_options(out, Answers()), {"wording": ["plain"]}, 2)
    with pytest.raises(RunExistsError):
        run_grid(study, build_options(out, Answers()), {"wording": ["plain"]}, 2)
    more_answers = Answers()
    wider = {"wording": ["plain", "fancy"]}
    grid = run_grid(study, build_options(out, more_answers, resume=True), wider, 3)
    assert len(grid.finished_cells()) == 6
    assert more_answers.asked.total() == 6 * 6 - 2 * 6
    with pytest.raises(InputError, match="another grid"):
        run_grid(study, build_options(out, Answers(), resume=True), {"wording": ["fancy"]}, 3)
    with pytest.raises(InputError, match="another grid"):
        run_grid(study, build_options(out, Answers(), resume=True), wider, 1)


def test_nine_repeats_are_kept_when_a_tenth_is_added(study: Path, tmp_path: Path) -> None:
    run_grid(study, build_options(tmp_path / "grid", Answers()), {}, 9)
    more_answers = Answers()
    grid = run_grid(study, build_options(tmp_path / "grid", more_answers, resume=True), {}, 10)
    assert more_answers.asked.total() == 6
    assert len(grid.finished_cells()) == len(list((tmp_path / "grid" / "cells").iterdir())) == 10


@pytest.mark.parametrize("change", [{"seed": 99}, {"overrides": ("wording=other",)}])
def test_grid_never_mixes_two_studies(study: Path, tmp_path: Path, change: dict) -> None:
    out, answers = tmp_path / "grid", Answers()
    run_grid(study, build_options(out, Answers()), {}, 2)
    before = (out / "grid.json").read_bytes()
    with pytest.raises(DriftError, match=r"differs from plan\.json"):
        run_grid(study, build_options(out, answers, resume=True, **change), {}, 3)
    assert not answers.asked
    assert (out / "grid.json").read_bytes() == before
    grid = run_grid(
        study, build_options(out, answers, resume=True, accept_changes=True, **change), {}, 3
    )
    wordings = {run.config.get("wording", "plain") for _, run in grid.finished_cells().values()}
    assert len(wordings) == 1
    assert [cell.seed for cell in grid.cells] == [
        run.manifest["seed"] for _, run in grid.finished_cells().values()
    ]


def test_grid_locked_by_another_process_is_unchanged(study: Path, tmp_path: Path) -> None:
    out = tmp_path / "grid"
    run_grid(study, build_options(out, Answers()), {}, 2)
    with lock_folder(out), pytest.raises(RunLockedError):
        run_grid(study, build_options(out, Answers(), resume=True), {}, 3)
    assert read_grid(out).repeats == 2


def test_file_that_is_no_grid_is_named(tmp_path: Path) -> None:
    (tmp_path / "grid.json").write_text("{}")
    with pytest.raises(StorageError, match=r"grid\.json: not the file of a grid"):
        read_grid(tmp_path)


def test_money_budget_needs_the_price_of_every_cell(
    study: Path, tmp_path: Path, server: ServerThread
) -> None:
    options = RunOptions(out=tmp_path / "grid", consent=Consent(True))
    axes = {"model": ["openai/gpt-4o", "openai/nobody-knows-its-price"]}
    with pytest.raises(InputError, match="price of openai/nobody-knows-its-price is unknown"):
        run_grid(study, replace(options, budget=5.0), axes, 1)
    assert not server.model.counts["received"]
    assert not options.out.exists()


def test_images_need_vision_models_in_every_cell(
    study: Path, tmp_path: Path, server: ServerThread
) -> None:
    module = tmp_path / "small.py"
    study_text = STUDY.replace(
        "protocol=protocol", 'protocol=protocol, image_locations=lambda _: ["poster.png"]'
    )
    module.write_text(study_text)
    axes = {"model": ["openai/gpt-4o", "openai/gpt-3.5-turbo"]}
    with pytest.raises(InputError, match=r"gpt-3\.5-turbo"):
        run_grid(study, RunOptions(out=tmp_path / "grid", consent=Consent(True)), axes, 1)
    assert not server.model.counts["received"]


def test_earlier_replies_of_unknown_cost_do_not_count_as_free(study: Path, tmp_path: Path) -> None:
    out, answers = tmp_path / "grid", Answers()
    run_grid(study, build_options(out, Answers()), {}, 1)
    with sqlite3.connect(out / "cells" / "r1" / "journal.sqlite") as journal:
        journal.execute("UPDATE entries SET cost_usd = NULL")
    with pytest.raises(InputError, match="is unknown, so budget_usd"):
        run_grid(study, build_options(out, answers, resume=True, budget=5.0), {}, 2)
    assert not answers.asked


def test_mistakes_in_any_cell_are_reported_before_the_first_call(
    study: Path, tmp_path: Path
) -> None:
    answers = Answers()
    with pytest.raises(InputError, match="in the cell people many"):
        run_grid(study, build_options(tmp_path / "grid", answers), {"people": ["3", "many"]}, 2)
    assert not answers.asked
    assert not (tmp_path / "grid").exists()


@pytest.mark.parametrize(
    ("axes", "reason"),
    [
        (["wording"], "not key=value"),
        (["wording=a,,b"], "not key=value"),
        (["=a"], "not key=value"),
        (["wording=a,a"], "duplicate"),
        (["wording=a", "wording=b"], "twice"),
        (["random_seed=1,2"], "--repeats"),
        (["budget_usd=1,2"], "one budget"),
    ],
)
def test_invalid_axes_are_refused(axes: list[str], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        parse_axes(axes)


def test_cell_names_are_plain_and_unique() -> None:
    cells = build_cells({"model": ["openai/gpt-4o", "a b"], "prompts": ["../mine"]}, 10, 7)
    assert [cell.name for cell in cells[:2]] == [
        "model=openai-gpt-4o_prompts=mine_r1",
        "model=a-b_prompts=mine_r1",
    ]
    assert [cell.seed for cell in cells[::2]] == list(range(7, 17))
    with pytest.raises(InputError, match="the same folder name"):
        build_cells({"model": ["a/b", "a-b"]}, 1, 1)
    with pytest.raises(InputError, match="1,000 cells"):
        build_cells({"model": [str(n) for n in range(400)]}, 3, 1)
    with pytest.raises(InputError, match="too long"):
        build_cells({"wording": ["ä" * 120, "b"]}, 1, 1)


def build_figure(values: dict[tuple[str, int], tuple[float, float, float]]) -> Figure:
    cells = tuple(
        MeasuredFigure(GridCell(f"{spec}{r}", {"spec": spec}, r, r), *at)
        for (spec, r), at in values.items()
    )
    return Figure("f", "Effects", "a − b", True, 0.0, cells)


def test_a_long_specification_curve_is_drawn_from_end_to_end_and_says_so() -> None:
    def curve_of(count: int) -> Finding:
        shifts = [(step - 40) / 100 for step in range(count)]
        cells = tuple(
            MeasuredFigure(GridCell(str(at), {"spec": str(at)}, 1, 1), at, at - 0.05, at + 0.05)
            for at in shifts
        )
        figure = Figure("f", "Effects", "a − b", True, 0.0, cells, "participant", count)
        finding = pooling._curve_finding(figure)
        assert finding is not None
        return finding

    short, long = curve_of(60), curve_of(100)
    assert isinstance(short.chart, IntervalChart) and len(short.chart.items) == 60
    assert len(short.notes) == 1
    assert isinstance(long.chart, IntervalChart)
    drawn = [value for _, value, *_ in long.chart.items]
    assert len(drawn) == 60 and (drawn[0], drawn[-1]) == (-0.4, 0.59)
    assert max(np.diff(drawn)) == pytest.approx(0.02)
    assert "draws 60 of 100 specifications" in long.notes[1]


def test_agreement_of_specifications_is_a_share() -> None:
    positive, negative = (0.2, 0.1, 0.3), (-0.05, -0.2, 0.1)
    mixed_figure = build_figure(
        {(f"s{i}", 1): at for i, at in enumerate([positive] * 3 + [negative] * 2)}
    )
    assert sign_agreement(mixed_figure) == (0.6, 0.6)


@pytest.mark.parametrize(
    ("direction", "smallest", "word"),
    [("greater", 0.1, "robust"), ("greater", 0.5, "fragile"), ("less", 0.0, "contradicted")],
)
def test_grid_tests_the_hypothesis_with_its_direction_and_margin(
    direction: str, smallest: float, word: str, tmp_path: Path
) -> None:
    """Five wordings of one experiment: 45 of 60 participants change in one arm, 15 in the other."""
    stated = {"measure": "moved", "contrast": ["a", "b"], "direction": direction}
    cells = tuple(build_cells({"wording": ["v", "w", "x", "y", "z"]}, 1, 1))
    for number, cell in enumerate(cells):
        run = tmp_path / "cells" / cell.name
        (run / "tables").mkdir(parents=True)
        rows = [
            {"participant_id": f"{arm}{i}", "condition": arm, "moved": i < changed_count + number}
            for arm, changed_count in (("a", 45), ("b", 15))
            for i in range(60)
        ]
        write_table(run / "tables", "participants", rows_to_frame(rows))
        (run / "manifest.json").write_text(json.dumps({"outcome": "done"}))
        hypotheses = [{**stated, "smallest": smallest}]
        (run / "study.yaml").write_text(
            yaml.safe_dump({"study": "cross_pollination", "hypotheses": hypotheses})
        )
        plan = Plan(run / "plan.json", started_at="2026-11-26T09:00:00+00:00")
        plan.seal_part(DESIGN, {"settings": {"hypotheses": hypotheses}})
        plan.write_plan()
    finished_cells = {
        cell.name: (cell, RunFolder(tmp_path / "cells" / cell.name)) for cell in cells
    }
    finding = pooling.judge_claims(finished_cells)
    assert finding is not None
    row = dict(zip(finding.grid.columns, finding.grid.rows[0], strict=True))
    assert (row["over_the_grid"], row["specifications"]) == (word, 5)
    # As in the report of a run, the units of both conditions count.
    assert row["units"] == finding.units == 120 and finding.unit == "participant"
    assert row["cells_supporting"] == (5 if word == "robust" else 0)
    assert ("robust" in finding.says) == (word == "robust")
    # An unfinished grid is not judged yet.
    interim = pooling.judge_claims(finished_cells, is_complete=False)
    assert interim is not None and "not tested over 5 specifications" in interim.says
    assert "robust over" not in interim.says and "joint p" not in interim.says
    # Two wordings are not enough for this statement. The finding counts the supporting cells.
    few = pooling.judge_claims(dict([*finished_cells.items()][:2]))
    assert few is not None
    supporting = (
        "2" if word == "robust" else "0 and contradicted in 2" if direction == "less" else "0"
    )
    assert (
        "2 specifications cannot carry a statement about robustness, which needs 5 (supported in "
        f"{supporting} of 2 cells, estimates from" in few.says
    )
    assert "fragile" not in few.says and "robust over" not in few.says


@given(st.lists(st.floats(-1, 1), min_size=5, max_size=12))
def test_repeat_is_the_unit_of_the_pooled_interval(effects: list[float]) -> None:
    """Cells of one repeat are more alike than repeats, so twice the cells are no more evidence."""
    one_specification = build_figure({("s", r): (x, x - 1, x + 1) for r, x in enumerate(effects)})
    two_specifications = build_figure(
        {
            (specification, r): (x, x - 1, x + 1)
            for r, x in enumerate(effects)
            for specification in "st"
        }
    )
    assert overall_estimate(two_specifications).value == pytest.approx(
        overall_estimate(one_specification).value
    )
    if np.std(effects) > 1e-6:
        assert overall_estimate(two_specifications).low == pytest.approx(
            overall_estimate(one_specification).low, rel=0.15, abs=0.02
        )
    few_repeats = build_figure({("s", r): (x, x - 1, x + 1) for r, x in enumerate(effects[:4])})
    assert not overall_estimate(few_repeats).has_interval


def test_variance_is_attributed_to_the_factors(tmp_path: Path) -> None:
    axes = {"spec": ["a", "b"]}
    cells = tuple(build_cells(axes, 3, 1))
    grid = RunGrid(tmp_path, axes, 3, cells)
    values = [(cell.settings["spec"] == "b") * 3.0 + cell.repeat for cell in cells]
    result = Figure(
        "f",
        "F",
        "x",
        False,
        0.0,
        tuple(MeasuredFigure(cell, v, v, v) for cell, v in zip(cells, values, strict=True)),
    )
    rows = variance([result], grid)
    assert rows is not None
    shares = dict(zip(rows.grid.columns, rows.grid.rows[0], strict=True))
    # Computed manually: squares between a and b 13.5, between repeats 4, total 17.5.
    assert shares["spec_share"] == pytest.approx(13.5 / 17.5)
    assert shares["repeat_share"] == pytest.approx(4 / 17.5)
    assert shares["rest_share"] == pytest.approx(0.0, abs=1e-12)


def test_report_of_a_grid_is_written(study: Path, tmp_path: Path) -> None:
    grid = run_grid(study, build_options(tmp_path / "grid", Answers()), AXES, 2)
    page = write_grid_report(grid).read_text("utf-8")
    assert "8 of 8 cells have finished" in page
    assert "an illustration" in page
    assert re.search(r"card failed in \d of 8 runs", page)
    assert json.loads((tmp_path / "grid" / "grid.json").read_text())["repeats"] == 2
    for _, run in grid.finished_cells().values():
        assert (run.path / "report.html").exists()


def build_findings(*labels: str) -> list[Finding]:
    """Return the findings of one cell with an estimate for each label."""
    chart = IntervalChart(tuple((label, 0.2, 0.1, 0.3) for label in labels), "", 0.0)
    return [Finding("f", "Effects", "", ResultTable((), ()), chart, unit="group", units=9)]


def test_estimates_missing_in_some_cells_and_unusable_cells_are_named(tmp_path: Path) -> None:
    axes = {"spec": ["a", "b"]}
    cells = tuple(build_cells(axes, 2, 1))
    grid = RunGrid(tmp_path, axes, 2, cells)
    findings_of_cells = [
        build_findings("x", "y"),
        build_findings("x", "y"),
        build_findings("x"),
        None,
    ]
    findings_by_cell = {
        cell.name: findings for cell, findings in zip(cells, findings_of_cells, strict=True)
    }
    overview, table, *_ = pooled_findings(grid, findings_by_cell)
    assert "1 cell holds nothing usable and enters no figure" in overview.says
    rows = [dict(zip(table.grid.columns, row, strict=True)) for row in table.grid.rows]
    assert [(row["figure"], row["cells"]) for row in rows] == [("x", "3 of 3"), ("y", "2 of 3")]
    assert "Not in every cell, so pooled over fewer cells, which may differ from the rest: y." in (
        table.notes
    )
    with pytest.raises(InputError, match="no cell has a usable result"):
        pooled_findings(grid, {cell.name: None for cell in cells})


@pytest.mark.parametrize(
    ("axes", "values", "statement", "are_people_shared"),
    [
        # Two differences have equal estimates under both settings, one with another interval.
        (
            {"spec": ["a", "b"]},
            {"a": (0.0, 0.2, 0.1), "b": (0.0, 0.2, 0.3)},
            "Of 1 difference with several estimates 1 has the same sign in all specifications. "
            "2 differences have equal estimates in all of their specifications.",
            True,
        ),
        (
            {"spec": ["a", "b"]},
            {"a": (0.0, 0.2, 0.1), "b": (0.0, 0.2, 0.1)},
            "3 differences have equal estimates in all of their specifications.",
            True,
        ),
        (
            {"spec": ["a"]},
            {"a": (0.0, 0.2, 0.1)},
            "3 differences in one specification, repeat by repeat.",
            False,
        ),
        (
            {},
            {"": (0.0, 0.2, 0.1)},
            "Of 3 differences with several estimates 2 have the same sign in all specifications.",
            False,
        ),
    ],
)
def test_all_differences_of_a_grid_are_counted(
    axes: dict[str, list[str]],
    values: dict[str, tuple[float, ...]],
    statement: str,
    are_people_shared: bool,
) -> None:
    cells = tuple(build_cells(axes, 2, 1))
    findings_by_cell = {}
    for number, cell in enumerate(cells):
        at = values[cell.settings.get("spec", "")]
        bounds = [(value - 0.1 - number / 100, value + 0.1) for value in at]
        items = tuple((name, v, *ends) for name, v, ends in zip("xyz", at, bounds, strict=True))
        chart = IntervalChart(items, reference_line=0.0)
        findings_by_cell[cell.name] = [replace(build_findings("x")[0], chart=chart)]
    _, table, *_ = pooled_findings(RunGrid(Path(), axes, 2, cells), findings_by_cell)
    assert statement in table.says
    assert table.says.endswith(" This describes the grid; only primary claims are judged.")
    assert (pooling.SHARED_PEOPLE in table.notes) == are_people_shared
    assert pooling.NOT_DRAWN in table.notes


def test_p_value_is_a_t_test_over_repeats_adjusted_for_the_whole_table() -> None:
    """Two settings in six repeats, three differences. The mean of a repeat is one observation."""
    rng = np.random.default_rng(5)
    cells = tuple(build_cells({"spec": ["a", "b"]}, 6, 1))
    values = {cell.name: rng.normal((0.2, 0.05, 0.0), 0.1) for cell in cells}
    findings_by_cell = {
        name: [
            replace(
                finding,
                chart=IntervalChart(
                    tuple(
                        (label, estimate, estimate, estimate)
                        for label, estimate in zip("xyz", estimates, strict=True)
                    ),
                    reference_line=0.0,
                ),
            )
            for finding in build_findings("x")
        ]
        for name, estimates in values.items()
    }
    _, table, *_ = pooled_findings(
        RunGrid(Path(), {"spec": ["a", "b"]}, 6, cells), findings_by_cell
    )
    rows = [dict(zip(table.grid.columns, row, strict=True)) for row in table.grid.rows]
    means = np.array(
        [
            np.mean([values[cell.name] for cell in cells if cell.repeat == repeat], axis=0)
            for repeat in range(1, 7)
        ]
    )
    by_scipy = ttest_1samp(means, 0).pvalue
    assert [row["p"] for row in rows] == pytest.approx(by_scipy)
    assert [row["holm_p"] for row in rows] == pytest.approx(
        multipletests(by_scipy, method="holm")[1]
    )
    assert rows[0]["holm_p"] > rows[0]["p"]
    # Primary claims are tested over all cells together, so this table gives no second p for them.
    primary = {
        name: [replace(finding, primary=True) for finding in findings]
        for name, findings in findings_by_cell.items()
    }
    _, table, *_ = pooled_findings(RunGrid(Path(), {"spec": ["a", "b"]}, 6, cells), primary)
    rows = [dict(zip(table.grid.columns, row, strict=True)) for row in table.grid.rows]
    assert {row["p"] for row in rows} == {row["holm_p"] for row in rows} == {None}
    assert all(row["interval"] for row in rows)
    assert pooling.NO_SECOND_P in table.notes


def test_a_grid_with_a_damaged_journal_has_a_report(study: Path, tmp_path: Path) -> None:
    grid = run_grid(study, build_options(tmp_path / "grid", Answers()), {}, 2)
    (next(iter(grid.finished_cells().values()))[1].path / "journal.sqlite").write_text("damaged")
    page = write_grid_report(grid).read_text("utf-8")
    assert "all cells together: cost not known, because a journal cannot be read" in page


def test_each_cell_is_read_once_for_all_reports(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = run_grid(study, build_options(tmp_path / "grid", Answers()), {}, 2)
    cell_names: list[str] = []
    original_function = pooling.findings_with_controls

    def count_reads(*args: Any) -> list[Finding]:
        cell_names.append(args[1].path.name)
        return [*original_function(*args), *build_findings("x")]

    monkeypatch.setattr(pooling, "findings_with_controls", count_reads)
    write_grid_report(grid)
    assert sorted(cell_names) == ["r1", "r2"]


@pytest.mark.parametrize("command", [["export"], ["compare", "x"], ["codes"]])
def test_commands_for_one_run_name_the_cells_of_a_grid(
    study: Path, tmp_path: Path, command: list[str]
) -> None:
    run_grid(study, build_options(tmp_path / "grid", Answers()), {}, 2)
    command_name, *arguments = command
    result = CliRunner().invoke(
        app, [command_name, str(tmp_path / "grid"), *arguments], env={"COLUMNS": "300"}
    )
    assert result.exit_code == 2
    assert "this is a grid of runs" in result.output
    assert "cells/r1" in result.output


@pytest.mark.parametrize("repeats", [5, 12])
def test_pooled_intervals_cover_the_true_value(repeats: int) -> None:
    """Cells of a repeat share its draw. Intervals over repeats have the nominal coverage."""
    rng = np.random.default_rng(repeats)
    truth, covered_count, worlds = 0.1, 0, 600
    for _ in range(worlds):
        draws = rng.normal(truth, 0.05, repeats)
        cells = {
            (spec, repeat): (x := draws[repeat] + rng.normal(0, 0.02), x - 0.1, x + 0.1)
            for repeat in range(repeats)
            for spec in ("s", "t")
        }
        estimate = overall_estimate(build_figure(cells))
        covered_count += estimate.low <= truth <= estimate.high
    assert 0.92 <= covered_count / worlds <= 0.98
