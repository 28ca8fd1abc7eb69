"""Controls of a study file are checked, included in estimates, and limited by the run's budget."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

import folkmoot
from folkmoot.cli.app import app
from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.engine.run.dry_run import SUFFICIENT_SAMPLE_CALLS
from folkmoot.engine.run.execution import RunOptions
from folkmoot.engine.run.runner import load_study_with_options
from folkmoot.engine.study.study_file import load_study_file
from folkmoot.errors import BudgetReachedError, InputError
from folkmoot.kit.controls.findings import control_findings
from folkmoot.kit.controls.tables import AS_DESIGNED, REPLACING, ControlRow
from folkmoot.kit.named_controls import run_grid_with_controls
from folkmoot.measures.inference.estimates import format_dollars
from folkmoot.report.comparison.pooled import pooled_findings
from folkmoot.report.study_check import run_dry_run
from folkmoot.storage.run_folder import CONTROLS, JOURNAL, PLAN, RunFolder
from tests.contract.small import SMALL
from tests.engine.test_seats import build_seat_host, choose_first_option
from tests.servers.faults import FaultPlan
from tests.servers.thread import ServerThread
from tests.sweeps import sample_daily

STUDY = """
study: cross_pollination
pilot_id: controlled
topic:
  description: One purpose can be funded.
  options: [Park improvements, Youth job training, Safer streets]
conditions: [simple_voting, simple_passive, clarified_passive]
participants_per_condition: 6
personas: {source: quota}
"""
CONTROLS_KEY = (
    "controls: {retest: 4, no_persona: 3, same_length: true, order: true, participants: 5}\n"
)


def write_study(folder: Path, other_keys: str = CONTROLS_KEY) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "study.yaml"
    path.write_text(STUDY + other_keys)
    return path


def read_control_answers(run: RunFolder) -> pl.DataFrame:
    return RunFolder(run.path / CONTROLS).read_table(ControlRow.table)


@pytest.fixture(scope="module")
def run_with_controls(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """Make a run with the named controls. Tests only read it."""
    folder = tmp_path_factory.mktemp("named")
    return folkmoot.run(write_study(folder), model="synthetic", out=folder / "run").folder


def test_named_controls_are_sealed_before_and_run_after_the_protocol(
    run_with_controls: RunFolder,
) -> None:
    run = run_with_controls
    sealed = json.loads((run.path / PLAN).read_text())["sealed"]
    assert sealed["design"]["data"]["settings"]["controls"]["no_persona"] == 3
    table = read_control_answers(run)
    counts = table.group_by("control", "condition", "moment").agg(
        people=pl.col("participant_id").n_unique()
    )
    participant_counts = {
        (control, condition, moment): count
        for control, condition, moment, count in counts.iter_rows()
    }
    assert participant_counts["negative", "simple_passive", "final"] == 5
    assert participant_counts["no_persona", "simple_passive", "final"] == 3
    assert participant_counts["retest", "simple_voting", "first"] == 4
    drawn_sample = json.loads((run.path / CONTROLS / PLAN).read_text())["sealed"]["controls"][
        "data"
    ]
    assert set(drawn_sample["decisions"]["no_persona"]) <= set(
        drawn_sample["decisions"]["negative"]
    )
    assert {finding.section for finding in control_findings(run)} == {"Controls"}


def test_the_estimate_of_each_control_equals_its_calls(
    run_with_controls: RunFolder, tmp_path: Path
) -> None:
    path = write_study(tmp_path)
    total = run_dry_run(load_study_file(path), "synthetic")
    lines = {
        stage.stage: stage.calls for stage in total.stages if stage.stage.startswith("controls: ")
    }
    run = run_with_controls
    asked_rows = read_control_answers(run).filter(
        (pl.col("address") != "") & (pl.col("control") != AS_DESIGNED)
    )
    # The scope of a row has its question and the replies that a fork repeats before it.
    counts: Counter[str] = Counter()
    with JournalReader(run.path / CONTROLS / JOURNAL) as journal:
        for control, address in asked_rows.select("control", "address").iter_rows():
            scope = address.rpartition("/")[0]
            counts[f"controls: {control}"] += len(journal.addresses_in_scope(scope))
    # The dry run makes all calls of a small study, so the count of forks is exact as well.
    assert lines == counts and {f"controls: {control}" for control in REPLACING} < lines.keys()
    assert total.calls_range is not None and total.calls_range[0] <= total.calls
    assert total.calls == sum(total.model_calls.values()) - _count_embeddings(total)


@pytest.mark.nightly(part="scale")
def test_the_calls_of_a_large_study_are_within_the_estimated_range(tmp_path: Path) -> None:
    controls_key = (
        "controls: {negative: false, retest: false, no_persona: true, participants: 30}\n"
    )
    path = write_study(tmp_path, controls_key)
    # Too many calls to run as a whole in a dry run.
    path.write_text(path.read_text().replace("condition: 6", "condition: 120"))
    total = run_dry_run(load_study_file(path), "synthetic")
    assert total.calls > SUFFICIENT_SAMPLE_CALLS and total.calls_range is not None
    estimated = {stage.stage: stage.calls for stage in total.stages}["controls: no_persona"]
    other_calls = total.calls - estimated
    run = folkmoot.run(path, model="synthetic", out=tmp_path / "run").folder
    with JournalReader(run.path / CONTROLS / JOURNAL) as journal:
        control_calls = len(journal.list_addresses())
    low, high = (bound - other_calls for bound in total.calls_range)
    assert low <= control_calls <= high and low < estimated < high


def _count_embeddings(total: object) -> int:
    calls = getattr(total, "model_calls", {})
    return sum(count for name, count in calls.items() if name.startswith("wordllama"))


def test_a_budget_covers_the_run_and_its_controls(
    run_with_controls: RunFolder, tmp_path: Path
) -> None:
    unlimited = run_with_controls
    run_calls = int(unlimited.manifest["calls"])
    path = write_study(tmp_path / "b", f"{CONTROLS_KEY}budget_calls: {run_calls + 20}\n")
    with pytest.raises(BudgetReachedError):
        folkmoot.run(path, model="synthetic", out=tmp_path / "run")
    paused = RunFolder(tmp_path / "run")
    assert paused.is_finished
    assert RunFolder(paused.path / CONTROLS).manifest["calls"] <= 20
    (finding,) = control_findings(paused)
    assert "not finished" in finding.title
    write_study(tmp_path / "b", f"{CONTROLS_KEY}budget_calls: 100000\n")
    resumed = folkmoot.run(path, model="synthetic", out=tmp_path / "run").folder
    assert read_control_answers(resumed).equals(read_control_answers(unlimited))
    second = folkmoot.run(path, model="synthetic", out=tmp_path / "run")
    assert (
        read_control_answers(second.folder).equals(read_control_answers(unlimited))
        and not second.verify().differences
    )


def test_a_pause_in_the_controls_reports_the_shared_budget(
    run_with_controls: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = int(run_with_controls.manifest["calls"]) + 20
    arguments = [
        "run",
        str(write_study(tmp_path)),
        "--model",
        "synthetic",
        "--out",
        str(tmp_path / "run"),
    ]
    arguments += ["--set", f"budget_calls={calls}"]
    monkeypatch.setattr("sys.argv", ["folkmoot", *arguments])
    result = CliRunner().invoke(app, arguments)
    output = " ".join(result.output.split())
    assert result.exit_code == 75, output
    assert f"The run and its controls share a budget of {calls} calls." in output
    assert "`folkmoot report` shows controls and codings when they are complete." in output
    assert "marked as partial" not in output


def test_a_fork_without_controls_is_not_reported_as_unfinished(
    run_with_controls: RunFolder, tmp_path: Path
) -> None:
    address = run_with_controls.read_table("answers")["address"][0]
    fork = folkmoot.fork(
        folkmoot.load(run_with_controls.path), address, drop=True, out=tmp_path / "fork"
    )
    assert fork.folder.config["controls"] and control_findings(fork.folder) == []


def test_answers_of_humans_do_not_use_the_call_budget(tmp_path: Path) -> None:
    seats = {
        "seats": ("p_0001", "p_0002", "p_0003"),
        "seat_host": build_seat_host(choose_first_option),
    }
    run_without_controls = folkmoot.run(
        write_study(tmp_path, ""), model="synthetic", out=tmp_path / "plain", **seats
    )
    calls_by_model = {
        model["asked"]: model["calls"] for model in run_without_controls.manifest["models"]
    }
    human_answers = calls_by_model.pop("human")
    assert human_answers > 0
    control_calls = human_answers - 1
    path = write_study(
        tmp_path, f"{CONTROLS_KEY}budget_calls: {sum(calls_by_model.values()) + control_calls}\n"
    )
    with pytest.raises(BudgetReachedError):
        folkmoot.run(path, model="synthetic", out=tmp_path / "run", **seats)
    assert RunFolder(tmp_path / "run" / CONTROLS).manifest["calls"] == control_calls


def test_each_cell_of_a_grid_has_controls(tmp_path: Path) -> None:
    options = RunOptions(model="synthetic", out=tmp_path / "grid")
    axes = {"temperature": ["0.2", "0.9"]}
    path = write_study(tmp_path, "controls: {retest: 2, participants: 2}\n")
    grid = run_grid_with_controls(path, options, axes, 1)
    runs = [run for _, run in grid.finished_cells().values()]
    assert len(runs) == 2 and all(read_control_answers(run).height for run in runs)


@pytest.mark.nightly(part="sweeps")
def test_only_personas_of_participants_have_stated_attributes(tmp_path: Path) -> None:
    other_keys = "respondent: {drift: 0.9}\ncontrols: {retest: false, confounders: none}\n"
    path = write_study(tmp_path, other_keys)
    path.write_text(path.read_text().replace("condition: 6", "condition: 12"))
    options = RunOptions(model="synthetic", out=tmp_path / "grid")
    axes = {"controls.confounders": ["none", "all"]}
    grid = run_grid_with_controls(path, options, axes, 1)
    plain_run, stating_run = (run for _, run in grid.finished_cells().values())
    with (
        JournalReader(plain_run.path / JOURNAL) as plain_journal,
        JournalReader(stating_run.path / JOURNAL) as stating_journal,
    ):
        votes = plain_run.read_table("exposure").unique("decision", maintain_order=True)
        for address in votes["address"].to_list():
            plain_entry, stating_entry = (
                plain_journal.entry_at(address),
                stating_journal.entry_at(address),
            )
            assert plain_entry is not None and stating_entry is not None
            systems = [
                entry.request["messages"][0]["content"] for entry in (plain_entry, stating_entry)
            ]
            assert "siblings" not in systems[0] and "With which hand do you write?" in systems[1]
            lines = [line for line in systems[1].split("\n\n") if "With which hand" not in line]
            if address.startswith("initial_vote"):  # later prompts quote the choice
                assert "\n\n".join(lines) == systems[0]
    spans = stating_run.read_table("provenance").filter(
        pl.col("source_id").str.contains("confounders")
    )
    assert set(spans["kind"]) == {"persona"} and "unattributed" not in set(spans["kind"])
    answers = stating_run.scan_table("answers").select("address", "speaker_id", "role").collect()
    speakers_of_spans = spans.select("address").unique().join(answers, on="address", how="left")
    assert set(speakers_of_spans["role"].drop_nulls()) == {"participant"}
    effect_finding = {finding.key: finding for finding in pooled_findings(grid)}["effect_and_drift"]
    rows = [
        dict(zip(effect_finding.grid.columns, row, strict=True)) for row in effect_finding.grid.rows
    ]
    drifts = {(row["contrast"], row["specification"]): row["drift_share"] for row in rows}
    changed_contrast = next(
        contrast for contrast, _ in drifts if "Simple passive: final" in str(contrast)
    )
    assert drifts[changed_contrast, "controls.confounders none"] > 0.3  # type: ignore[operator]
    assert drifts[changed_contrast, "controls.confounders all"] < 0.1  # type: ignore[operator]


@pytest.mark.parametrize("name", sample_daily(sorted(SMALL), daily=("focus_group",), part="truths"))
def test_every_study_type_supports_controls_without_code(name: str, tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(f"{SMALL[name]}\ncontrols: {{participants: 2, no_persona: true}}\n")
    run = folkmoot.run(path, model="synthetic", out=tmp_path / "run").folder
    assert {"negative", "no_persona"} <= set(read_control_answers(run)["control"])


def test_controls_of_a_study_without_decisions_are_refused_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "from folkmoot import Session, Speaker, Study, StudyConfig\n\n"
        "async def protocol(session: Session) -> None:\n"
        "    await session.ask(Speaker('a'), 'Well?')\n\n"
        "STUDY = Study('own', 'Own', StudyConfig, protocol)\n"
    )
    path = tmp_path / "own.yaml"
    path.write_text("study: ./own.py\nmodel: synthetic\ncontrols: {retest: 5}\n")
    with pytest.raises(InputError, match="records no decisions"):
        folkmoot.run(path, out=tmp_path / "run", trust=True)
    assert not (tmp_path / "run").exists()


def test_questions_in_a_file_are_sealed_with_their_content(tmp_path: Path) -> None:
    path = write_study(tmp_path, "controls: {negative: own.yaml, participants: 2}\n")
    question_file = tmp_path / "own.yaml"
    question_file.write_text(
        "- {id: shoes, text: 'Which size are your shoes?', number: [30, 50]}\n"
    )
    run = folkmoot.run(path, model="synthetic", out=tmp_path / "run").folder
    question_file.unlink()
    assert "shoes" in read_control_answers(run)["question"]
    sealed = json.loads((run.path / PLAN).read_text())["sealed"]["design"]["data"]["settings"]
    assert sealed["controls"]["negative"][0]["text"] == "Which size are your shoes?"
    assert folkmoot.load(run.path).verify().differences == []


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("{negative: own.yaml}", "there is no file"),
        ("{negative: []}", "must be true, false, a file, or a list of questions"),
        ("{negative: [{id: a, text: How, options: [x]}]}", "at least two different options"),
        ("{retest: -1}", "must be at least 0"),
        ("{no_persona: many}", "must be a whole number"),
        ("{orders: true}", "did you mean order"),
        ("{language: fr}", "controls.language"),
        ("{confounders: [shoes]}", "no negative control shoes"),
    ],
)
def test_mistakes_are_reported_with_their_key(written: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        load_study_with_options(
            write_study(tmp_path, f"controls: {written}\n"), RunOptions(model="synthetic")
        )
    assert message in str(caught.value) and "controls" in str(caught.value)


def test_the_end_of_a_run_and_its_report_tell_the_cost_with_controls(tmp_path: Path) -> None:
    path, out = tmp_path / "study.yaml", tmp_path / "run"
    with ServerThread(FaultPlan()) as server:
        path.write_text(
            STUDY.replace("condition: 6", "condition: 3").replace("simple_passive, ", "")
            + "controls: {participants: 2, order: true}\nmodel: openai/gpt-4o\n"
            f"endpoints: {{openai: '{server.openai}'}}\nembedding_model: synthetic\n"
        )
        command = ["run", str(path), "--out", str(out), "--no-preflight", "--trust"]
        result = CliRunner().invoke(app, command)
        answered_count = server.model.counts["answered"]
    assert result.exit_code == 0, result.output
    manifests = RunFolder(out).manifest, RunFolder(out / CONTROLS).manifest
    assert manifests[0]["calls"] < answered_count
    usd = sum(manifest["cost_usd"] for manifest in manifests)
    # Embeddings are made in this process.
    calls = sum(manifest["calls"] for manifest in manifests)
    assert calls > answered_count
    total = f"In total: {format_dollars(usd)} ({calls} calls)."
    assert total in " ".join(result.output.split())
    assert CliRunner().invoke(app, ["report", str(out)]).exit_code == 0
    # In the methods text, in its checklist and among the facts of the run.
    assert (out / "report.html").read_text("utf-8").count(total) == 3


def test_a_grid_tells_the_cost_of_all_its_cells(tmp_path: Path) -> None:
    path = write_study(tmp_path, "controls: {participants: 2}\n")
    command = ["run", str(path), "--out", str(tmp_path / "grid"), "--repeats", "2"]
    result = CliRunner().invoke(app, [*command, "--model", "synthetic"])
    assert result.exit_code == 0, result.output
    journals = list((tmp_path / "grid").rglob(JOURNAL))
    assert len(journals) == 4
    call_count = 0
    for journal_path in journals:
        with JournalReader(journal_path) as journal:
            call_count += journal.count_calls()
    sum_of_cells = f"$0 ({call_count} calls)"
    total = f"All cells together. Paid {sum_of_cells}"
    assert total in " ".join(result.output.split())
    shown = CliRunner().invoke(app, ["show", str(tmp_path / "grid")])
    assert total in " ".join(shown.output.split())
    assert CliRunner().invoke(app, ["report", str(tmp_path / "grid")]).exit_code == 0
    report = (tmp_path / "grid" / "report.html").read_text("utf-8")
    assert f"all cells together: {sum_of_cells}" in report


def test_later_controls_end_with_their_cost(tmp_path: Path) -> None:
    out = tmp_path / "run"
    folkmoot.run(write_study(tmp_path, ""), model="synthetic", out=out)
    result = CliRunner().invoke(app, ["controls", str(out), "--order", "--participants", "2"])
    assert result.exit_code == 0, result.output
    with JournalReader(out / CONTROLS / JOURNAL) as journal:
        call_count = journal.count_calls()
    output = " ".join(result.output.split())
    assert f"Controls and codings of the run: $0 ({call_count} calls). In total: $0 " in output
