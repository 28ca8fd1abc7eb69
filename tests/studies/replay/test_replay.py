"""Replay of a human experiment: the same participants, texts and arms, and the fit of the model."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import folkmoot
from folkmoot.engine.run.verify import verify_run
from folkmoot.errors import InputError
from folkmoot.measures.replayed import adjusted_changes, fidelity, fit_of_changes
from folkmoot.models.request import ModelRequest
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.people.sources.experiment import read_experiment
from folkmoot.report.comparison.compare import compare_runs
from folkmoot.storage.findings import Finding
from folkmoot.studies.replay.writing import files_of_replay

ITEMS = ("Buses should be free.", "Parks should close at night.", "Cars should pay to enter.")
EFFECTS = {"read": (20.0, 5.0, -10.0), "control": (0.0, 0.0, 0.0)}


def write_table(path: Path, **columns: Callable[[int], str]) -> Path:
    """Write sixty participants. Readers move by the effect of the item, and others do not move."""
    rows = []
    for number in range(60):
        arm = ("read", "control")[number % 2]
        item = number // 2 % 3
        # With fractions, so that the model may give fractions too.
        before = 30.5 + number % 7
        row = {
            "person": f"a{number}",
            "item": ITEMS[item],
            "before": str(before),
            "after": str(before + EFFECTS[arm][item]),
            "arm": arm,
            "text_shown": f"Move by {EFFECTS[arm][item]:g}." if arm == "read" else "",
            "age": str(20 + number),
            "lives in": ("town", "village")[number % 3 == 0],
        }
        rows.append({**row, **{name: make(number) for name, make in columns.items()}})
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def write_study(folder: Path, table: Path, new_scale: str = "[0, 100]") -> Path:
    folder.mkdir()
    for name, content in files_of_replay(table).items():
        data = content if isinstance(content, bytes) else content.encode()
        (folder / name).write_bytes(data)
    text = (folder / "replay.yaml").read_text("utf-8")
    scale = text[text.index("scale:\n") : text.index("first_answer: given\n")]
    (folder / "replay.yaml").write_text(text.replace(scale, f"scale: {new_scale}\n"), "utf-8")
    return folder / "replay.yaml"


def reply_with_shift(request: ModelRequest, _address: str) -> str:
    """Reply with the first answer, moved by half of the number in the text."""
    prompt = request.messages[-1].content
    before = float(prompt.partition("You answered ")[2].partition(".\n")[0])
    move = prompt.partition("Move by ")[2].partition(".\n")[0]
    return f"{before + float(move or 0) / 2:g}"


def read_rows_by_key(findings: folkmoot.Run, key: str) -> list[dict[str, object]]:
    found: Finding = next(f for f in findings.findings if f.key == key)
    return [dict(zip(found.grid.columns, row, strict=True)) for row in found.grid.rows]


def test_effects_are_compared_with_the_first_condition_of_the_table_despite_missing_answers(
    tmp_path: Path,
) -> None:
    effects = []
    for name, known in (("all", True), ("first_missing", False)):
        table = write_table(
            tmp_path / f"{name}.csv",
            after=lambda number, known=known: "50" if number or known else "",
        )
        study = write_study(tmp_path / name, table)
        provider = ScriptedProvider(reply_with_shift)
        run = folkmoot.run(study, out=tmp_path / f"run_{name}", provider=provider, trust=True)
        effects.append([row["effect"] for row in read_rows_by_key(run, "causal_fidelity")])
        assert [row["arm"] for row in read_rows_by_key(run, "replay")] == ["read", "control"]
    assert effects == [["change in read", "change in control", "control − read"]] * 2


def test_the_same_people_texts_and_arms_are_asked(tmp_path: Path) -> None:
    study = write_study(tmp_path / "study", write_table(tmp_path / "people.csv"))
    model = ScriptedProvider(reply_with_shift, keep_requests=True)
    run = folkmoot.run(study, out=tmp_path / "run", provider=model, trust=True)
    assert model.calls == 60
    table = run.table("replayed")
    assert table["before"].to_list() == table["people_before"].to_list()
    for address, request in model.seen:
        text = "\n".join(message.content for message in request.messages)
        row = table.filter(address=address).row(0, named=True)
        assert row["item"] in text and f"You answered {row['people_before']:g}." in text
        assert ("Move by" in text) == (row["arm"] == "read")
        assert f"{20 + int(row['person'][1:])}-year-old" in text
    provenance = run.table("provenance")
    assert not provenance.filter(kind="unattributed").height
    assert verify_run(run.folder, run.study).is_consistent

    arms = {row["arm"]: row for row in read_rows_by_key(run, "replay")}
    read = arms["read"]
    assert read["people_change"] == pytest.approx(5.0)
    assert read["simulated_change"] == pytest.approx(2.5)
    assert read["r"] == pytest.approx(1.0) and read["slope"] == pytest.approx(2.0)
    moves = {row["group"]: row for row in read_rows_by_key(run, "replay_moves")}
    assert moves["control"]["people_moved_share"] == moves["control"]["moved_share"] == 0
    assert {row["subgroup"] for row in read_rows_by_key(run, "replay_subgroups")} == {
        "lives in: town",
        "lives in: village",
    }


def test_two_replays_are_compared_with_the_person_as_the_unit(tmp_path: Path) -> None:
    """Each of twenty people answers three items. The second model moves everybody by 2 more."""
    table = write_table(tmp_path / "people.csv", person=lambda number: f"a{number % 20}")
    study = write_study(tmp_path / "replay", table)

    def reply_with_more(request: ModelRequest, address: str) -> str:
        return f"{float(reply_with_shift(request, address)) + 2:g}"

    runs = [
        folkmoot.run(study, out=tmp_path / name, provider=ScriptedProvider(reply), trust=True)
        for name, reply in (("first", reply_with_shift), ("second", reply_with_more))
    ]
    finding = next(
        finding
        for finding in compare_runs([run.path for run in runs])
        if finding.key == "compare_figures"
    )
    rows = [dict(zip(finding.grid.columns, row, strict=True)) for row in finding.grid.rows]
    row = next(row for row in rows if row["measure"] == "After")
    assert row["difference"] == pytest.approx(2)
    assert (row["units"], row["unit"]) == (40, "person")


def test_answers_that_are_asked_for_are_not_those_of_the_table(tmp_path: Path) -> None:
    study = write_study(tmp_path / "study", write_table(tmp_path / "people.csv"))
    text = study.read_text("utf-8").replace("first_answer: given", "first_answer: asked")
    study.write_text(text, "utf-8")
    run = folkmoot.run(
        study, out=tmp_path / "run", limit=8, provider=ScriptedProvider(lambda *_: "70"), trust=True
    )
    table = run.table("replayed")
    assert table.height == 8 and set(table["before"]) == {70.0} == set(table["after"])
    assert (table["people_before"] < 40).all()


def test_where_people_gave_whole_numbers_the_model_gives_whole_numbers(tmp_path: Path) -> None:
    table = write_table(
        tmp_path / "people.csv", before=lambda n: str(30 + n % 7), after=lambda n: str(35 + n % 7)
    )
    study = write_study(tmp_path / "study", table)

    def answer(_request: ModelRequest, address: str) -> str:
        return '{"number": 41}' if address.endswith(".r2") else "40.5"

    run = folkmoot.run(
        study, out=tmp_path / "run", limit=8, provider=ScriptedProvider(answer), trust=True
    )
    assert set(run.table("replayed")["after"]) == {41.0}


def test_few_people_correct_the_simulation(tmp_path: Path) -> None:
    table = write_table(
        tmp_path / "people.csv", after=lambda n: str(35 + n % 7) if n < 48 else "NA"
    )
    study = write_study(tmp_path / "study", table)
    run = folkmoot.run(
        study, out=tmp_path / "run", provider=ScriptedProvider(reply_with_shift), trust=True
    )
    rows = read_rows_by_key(run, "replay_rectified")
    assert [row["people"] for row in rows] == [24, 24]
    assert [row["simulated_others"] for row in rows] == [6, 6]
    # Every known change is 4.5 points, so the corrected mean is that of these participants.
    assert [row["people_alone"] for row in rows] == [pytest.approx(4.5)] * 2
    assert [row["corrected"] for row in rows] == [pytest.approx(4.5)] * 2


def write_answers(path: Path, rows: list[dict[str, object]]) -> Path:
    pl.DataFrame(rows).write_csv(path)
    return path


def replay_answers(folder: Path, rows: list[dict[str, object]], scale: str) -> folkmoot.Run:
    """Replay rows in which the column `model` is the answer of the model."""
    answers = {str(row["person"]): str(row["model"]) for row in rows}
    table = write_answers(
        folder / "people.csv", [{k: v for k, v in row.items() if k != "model"} for row in rows]
    )
    study = write_study(folder / "study", table, scale)
    model = ScriptedProvider(lambda _, address: answers[address.partition(":")[0]])
    return folkmoot.run(study, out=folder / "run", provider=model, trust=True)


def test_the_report_of_each_arm_has_the_figures_that_were_computed_by_hand(tmp_path: Path) -> None:
    """Six participants read a text. Six others did not, and did not change."""
    before, after, simulated = [1, 2, 3, 4, 5, 2], [2, 4, 3, 4, 3, 4], [1, 4, 3, 2, 4, 3]
    rows: list[dict[str, object]] = [
        {
            "person": f"{arm}{n}",
            "item": "Buses should be free.",
            "before": before[n],
            "after": after[n] if arm == "read" else before[n],
            "model": simulated[n] if arm == "read" else before[n],
            "arm": arm,
            "lives in": "town" if arm == "read" else "village",
        }
        for arm in ("read", "control")
        for n in range(6)
    ]
    run = replay_answers(tmp_path, rows, "[1, 5]")
    # Changes of people 1, 2, 0, 0, -2, 2 and of the model 0, 2, 0, -2, -1, 1.
    expected = {
        "answers": 6,
        "people_change": 3 / 6,
        "simulated_change": 0,
        "gap": -3 / 6,
        "r": 8 / (10 * 11.5) ** 0.5,
        "slope": 8 / 10,
        # Sorted final answers 2 3 3 4 4 4 and 1 2 3 3 4 4, on a scale of 4.
        "distance_share": 3 / 6 / 4,
    }
    (read, control), subgroups = (
        read_rows_by_key(run, "replay"),
        read_rows_by_key(run, "replay_subgroups"),
    )
    for row in (read, subgroups[0]):
        assert {key: row[key] for key in expected} == pytest.approx(expected)
    # Gaps −1, 0, 0, −2, 1, −1: standard error √(1.1 / 6), 5 degrees of freedom.
    reach = 2.5706 * (1.1 / 6) ** 0.5
    assert (read["low"], read["high"]) == pytest.approx((-0.5 - reach, -0.5 + reach), abs=1e-3)
    assert (control["people_change"], control["gap"], control["distance_share"]) == (0, 0, 0)
    assert control["r"] is None and control["slope"] is None
    moved = {
        "people_moved_share": 4 / 6,
        "moved_share": 4 / 6,
        # 2 to 4 twice; the model 2 to 4 and 4 to 2. Answers on the middle have crossed nothing.
        "people_crossed_share": 2 / 6,
        "crossed_share": 2 / 6,
        "people_regression": -57 / 65,
        "regression": -42 / 65,
    }
    rows_of_moves = {row["group"]: row for row in read_rows_by_key(run, "replay_moves")}
    assert [*rows_of_moves] == ["read", "control", "lives in: town", "lives in: village"]
    for group in ("read", "lives in: town"):
        assert {key: rows_of_moves[group][key] for key in moved} == pytest.approx(moved)
    assert rows_of_moves["control"]["moved_share"] == 0


def test_effects_can_be_right_where_the_answers_are_wrong(tmp_path: Path) -> None:
    """The model is about 20 points too low everywhere, and shows half of each effect."""
    effects = [20, 8, -4, -12, 16]
    rows: list[dict[str, object]] = [
        {
            "person": f"{arm}{item}{n}",
            "item": f"item {item}",
            "before": 50 + 2 * n,
            "after": 50 + 2 * n + (effect if arm == "read" else 0),
            "model": 30 + 3 * n + (effect // 2 if arm == "read" else 0),
            "arm": arm,
        }
        for item, effect in enumerate(effects)
        for arm in ("control", "read")
        for n in range(3)
    ]
    run = replay_answers(tmp_path, rows, "[0, 100]")
    gaps = {row["arm"]: row["gap"] for row in read_rows_by_key(run, "replay")}
    assert gaps["control"] == -19
    assert {row["verdict"] for row in read_rows_by_key(run, "replay")} == {"failed"}
    causal = {row["effect"]: row for row in read_rows_by_key(run, "causal_fidelity")}
    contrast = causal["read − control"]
    assert contrast["items"] == 5 and contrast["r"] == pytest.approx(1)
    assert contrast["slope"] == pytest.approx(2) and contrast["same_sign_share"] == 1


def test_missing_answers_are_counted_by_reason(tmp_path: Path) -> None:
    study = write_study(tmp_path / "study", write_table(tmp_path / "people.csv"))

    def answer(request: ModelRequest, address: str) -> str:
        return "cannot_say" if address.startswith("a1") else reply_with_shift(request, address)

    run = folkmoot.run(study, out=tmp_path / "run", provider=ScriptedProvider(answer), trust=True)
    (finding,) = (finding for finding in run.findings if finding.key == "replay")
    # a1 and a10 to a19.
    assert "11 answers of the model are missing: cannot_say 11." in finding.notes


def test_problems_in_the_table_are_reported_by_line(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_text("person,item,before,after\na,Buses,3,x\na,Buses,3,4\nb,,3,4\n", "utf-8")
    with pytest.raises(InputError) as caught:
        read_experiment(path)
    told = [str(problem) for problem in caught.value.problems]
    assert len(told) == 3
    assert "'x' is not a finite number" in told[0] and "answers twice" in told[1]
    path.write_text("person,item,before\na,Buses,3\n", "utf-8")
    with pytest.raises(InputError, match="no column 'after'"):
        read_experiment(path)


def test_a_first_vote_in_a_table_of_personas_is_refused(tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text(
        "persona,first_vote\n" + "a baker,Park\na nurse,Park\n" * 20, "utf-8"
    )
    (tmp_path / "study.yaml").write_text(
        "study: cross_pollination\npilot_id: a\n"
        "topic: {description: One can be funded., options: [Park, Bus]}\n"
        "participants_per_condition: 2\npersonas: {source: table, file: people.csv}\n",
        "utf-8",
    )
    with pytest.raises(InputError, match="every participant is asked for a vote"):
        folkmoot.run(tmp_path / "study.yaml", model="synthetic", out=tmp_path / "run")


def test_regression_to_the_mean_is_no_effect() -> None:
    """Two sets of answers that share only their first answers have different effects."""
    rng = np.random.default_rng(1)
    before = np.repeat(rng.uniform(0, 100, 40), 5)
    items = np.repeat(np.arange(40), 5)

    def final() -> np.ndarray:
        return 50 + 0.3 * (before - 50) + rng.normal(0, 5, len(before))

    people, simulated = final(), final()

    def effects(changes: np.ndarray) -> list[float]:
        return [float(changes[items == item].mean()) for item in range(40)]

    raw = fidelity(effects(people - before), effects(simulated - before))
    adjusted = fidelity(
        effects(adjusted_changes(before, people)), effects(adjusted_changes(before, simulated))
    )
    assert raw.correlation > 0.9 and abs(adjusted.correlation) < 0.4


def test_participants_who_cross_the_middle_are_counted() -> None:
    fit = fit_of_changes(
        ([2, 4, 5], [4, 4, 1]), ([2, 4, 5], [2, 2, 5]), ["a", "b", "c"], (1.0, 5.0)
    )
    assert fit.people_crossed == pytest.approx(2 / 3) and fit.crossed == pytest.approx(1 / 3)
    assert fit.people_moved == pytest.approx(2 / 3) and fit.moved == pytest.approx(1 / 3)
    # Final answers 1, 4, 4 and 2, 2, 5: moved by 1 + 2 + 1 of a scale of 4.
    assert fit.distance == pytest.approx(4 / 3 / 4)


def test_codes_for_missing_answers_do_not_widen_the_scale(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_text("person,item,before,after\na,Buses,3,5\nb,Buses,1,-99\n", "utf-8")
    files = files_of_replay(path)
    settings = str(files["replay.yaml"])
    assert "scale:\n- 1.0\n- 5.0\n" in settings and "# -99: looks like a code" in settings
    (tmp_path / "new").mkdir()
    for name, content in files.items():
        data = content if isinstance(content, bytes) else content.encode()
        (tmp_path / "new" / name).write_bytes(data)
    with pytest.raises(InputError, match=r"an answer of the table is -99 .write NA"):
        folkmoot.run(tmp_path / "new" / "replay.yaml", out=tmp_path / "run", trust=True)


def test_decimal_commas_in_a_table_are_one_problem(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    rows = "".join(f'p{n},Buses,3,"{n % 5},5"\n' for n in range(20))
    path.write_text("person,item,before,after\n" + rows, "utf-8")
    with pytest.raises(InputError) as caught:
        read_experiment(path)
    (problem,) = caught.value.problems
    assert "20 rows: '0,5' is not a finite number" in problem.message and "point" in problem.hint
