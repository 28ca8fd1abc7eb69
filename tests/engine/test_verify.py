"""Verification of a run: every change in its folder is found, and nothing else."""

from __future__ import annotations

import errno
import json
import shutil
import sqlite3
import warnings
from collections.abc import Callable
from contextlib import closing
from itertools import product
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

import folkmoot
from folkmoot import Choice, Scope, Session, Speaker, Study, StudyConfig, Text
from folkmoot.cli.app import app
from folkmoot.conversation.prompts import PromptLibrary
from folkmoot.engine.journal.integrity import Chain, hash_content, hash_entry
from folkmoot.engine.journal.journal_file import SELECT_SQL
from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.engine.run.verify import digests_of, verify_run
from folkmoot.engine.session.run_context import RunContext
from folkmoot.engine.study.study import find_study_of_run, registered_studies
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.report.document.deviations import list_deviations
from folkmoot.storage.manifest import file_sha256, seal_manifest
from folkmoot.storage.run_folder import RunFolder
from tests.engine.test_journal import convert_to_earlier_format
from tests.servers.faults import FaultPlan
from tests.servers.thread import ServerThread
from tests.sweeps import sample_daily


@pytest.fixture
def run(small_pilot: Path, tmp_path: Path) -> Path:
    """Copy the run beside a copy of its study file."""
    shutil.copy(small_pilot.parent / "study" / "cross_pollination.yaml", tmp_path)
    return Path(shutil.copytree(small_pilot, tmp_path / "run"))


def verify(folder: Path) -> tuple[int, str]:
    """Return the exit code, and the output in one line."""
    result = CliRunner().invoke(app, ["verify", str(folder)])
    return result.exit_code, " ".join(result.output.split())


def read_reported_deviations(folder: Path) -> str:
    """Return the text of the section Deviations of the report."""
    run_folder = RunFolder(folder)
    return " ".join(list_deviations(run_folder, find_study_of_run(run_folder)))


def read_tree(folder: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def change_json(path: Path, change: Callable[[Any], object]) -> None:
    data = json.loads(path.read_text("utf-8"))
    change(data)
    path.write_text(json.dumps(data, indent=2), "utf-8")


def update_file_hashes(folder: Path) -> None:
    """Conceal a change: recompute the file hashes in the manifest."""
    reseal_manifest(folder)


def change_journal(folder: Path, statement: str, *, cover_up: bool = False) -> None:
    with closing(sqlite3.connect(folder / "journal.sqlite")) as db, db:
        assert db.execute(statement).rowcount
    if cover_up:  # recompute seals and digests, like a forger who knows the format
        reseal_journal(folder / "journal.sqlite")
        reseal_manifest(folder)


def reseal_journal(path: Path) -> None:
    """Conceal a change: recompute all seals of the journal."""
    with closing(sqlite3.connect(path)) as db, db:
        rows = db.execute(f"{SELECT_SQL} ORDER BY number").fetchall()
        db.execute("DELETE FROM entries")
        chain = Chain()
        for row in rows:
            content = hash_content(row)
            seal = hash_entry(chain.length + 1, row, content)
            marks = ", ".join("?" * (len(row) + 3))
            cells = (chain.length + 1, *row, content, seal)
            db.execute(f"INSERT INTO entries VALUES ({marks})", cells)
            chain = chain.add_event(seal)
        db.execute("UPDATE meta SET value = ? WHERE key = 'chain'", (str(chain),))


def reseal_manifest(folder: Path) -> None:
    """Conceal a change: recompute the hashes, the digests and the seal of the manifest."""
    run = RunFolder(folder)
    with JournalReader(folder / "journal.sqlite") as journal:
        content, record = digests_of(run, journal)
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text("utf-8"))
    manifest["hashes"] = {name: file_sha256(folder / name) for name in manifest["hashes"]}
    manifest |= {"journal_digest": content, "record_digest": record}
    path.write_text(json.dumps(seal_manifest(manifest), indent=2), "utf-8")


# Daily, test_fork verifies forks of the workbook and the focus group.
@pytest.mark.parametrize(
    "study",
    sample_daily(
        sorted(registered_studies()),
        daily=("cross_pollination", "town_hall"),
        part="sweeps",
    ),
)
def test_every_study_type_can_be_verified(
    study: str, run_of_small_study: Callable[[str], Path], tmp_path: Path
) -> None:
    finished = run_of_small_study(study)
    (source,) = (finished.parent / "study").iterdir()
    folder = Path(shutil.copytree(finished, tmp_path / "run"))
    # A resume may use other settings. Files with settings then contain the latest ones.
    folkmoot.run(source, model="synthetic", out=folder, concurrency=3)
    before = read_tree(tmp_path)
    verification = verify_run(RunFolder(folder))
    assert verification.differences == [] and verification.not_compared == []
    written_files = {
        path.relative_to(folder).as_posix() for path in folder.rglob("*.*") if path.is_file()
    }
    not_hashed = {"manifest.json", "journal.sqlite", ".lock"}
    assert set(RunFolder(folder).manifest["hashes"]) == written_files - not_hashed
    assert (
        verification.tables == len(RunFolder(folder).table_names()) > 0 and verification.files > 2
    )
    assert read_tree(tmp_path) == before


def test_unchanged_run_is_verified_on_the_command_line(run: Path) -> None:
    code, output = verify(run)
    assert code == 0, output
    assert "Consistent" in output and "Verified" not in output
    assert RunFolder(run).manifest["journal_digest"] in output
    assert RunFolder(run).manifest["record_digest"] in output
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        folkmoot.load(run)
    assert read_reported_deviations(run) == ""


def forge(path: Path) -> None:
    """Change one value in a file of any type."""
    if path.suffix == ".parquet":
        table = pl.read_parquet(path)
        name = next(
            column_name for column_name in table.columns if table[column_name].dtype == pl.String
        )
        table.with_columns(pl.lit("forged").alias(name)).write_parquet(path)
        return
    text = path.read_bytes()
    path.write_bytes(text.replace(b"e", b"f", 1))
    assert path.read_bytes() != text


FILES = (
    *("plan.json", "study.yaml", "codebook.json", "personas.json", "participants.json"),
    *("summary.json", "individual_embeddings.json", "checkpoint.json", "config.yaml"),
    *("tables/participants.parquet", "tables/participants.csv", "tables/answers.parquet"),
)


def test_forged_files_are_named_by_verify_report_and_load(run: Path) -> None:
    """Every forged file is named, and no other file."""
    plan = (run / "plan.json").read_bytes()
    for name in FILES:
        forge(run / name)
    code, output = verify(run)
    assert code == 4
    assert [name for name in FILES if f"{name} was changed" not in output] == [], output
    assert [name for name in ("run.log", "log.jsonl") if f"{name} was changed" in output] == []
    # The forged plan.json is not valid JSON, so the report could not read it.
    (run / "plan.json").write_bytes(plan)
    with pytest.warns(UserWarning) as warned:
        folkmoot.load(run)
    warning_text, page = (
        " ".join(str(warning.message) for warning in warned),
        read_reported_deviations(run),
    )
    for name in FILES[1:]:
        assert f"{name} was changed" in warning_text and f"{name} was changed" in page
    assert "plan.json" not in page


def test_forged_files_with_new_hashes_are_named_with_the_place(run: Path) -> None:
    names = [n for n in FILES if n not in ("plan.json", "study.yaml", "personas.json")]
    for name in names:
        forge(run / name)
    update_file_hashes(run)
    code, output = verify(run)
    assert code == 4, output
    for name in names:
        text_after_name = output.partition(f"{name}: ")[2]
        place_text = "differs in" if name.endswith(".parquet") else "line "
        assert place_text in text_after_name[:120], (name, output)
    assert f"{len(names)} differences:" in output


def test_changed_cell_is_named_with_row_and_both_values(run: Path) -> None:
    path = run / "tables" / "participants.parquet"
    table = pl.read_parquet(path)
    was = table["condition"][3]
    second_row = pl.int_range(pl.len()) == 3
    forged = pl.when(second_row).then(pl.lit("Never voted")).otherwise("condition")
    table.with_columns(forged.alias("condition")).write_parquet(path)
    update_file_hashes(run)
    _, output = verify(run)
    assert f"column condition differs in 1 row (4): Never voted, rebuilt {was}." in output


@pytest.mark.parametrize(
    ("change", "expected_text"),
    [
        (lambda t: t.head(-1), "has 3 rows, rebuilt 4"),
        (lambda t: t.drop("condition"), "lacks the columns condition"),
        (lambda t: t.with_columns(more=1), "has the columns more, which the run does not"),
        (lambda t: t.with_columns(pl.lit(1).alias("condition")), "column condition is Int32"),
    ],
)
def test_removed_or_added_rows_and_columns_are_named(
    run: Path, change: Callable[[pl.DataFrame], pl.DataFrame], expected_text: str
) -> None:
    path = run / "tables" / "participants.parquet"
    change(pl.read_parquet(path)).write_parquet(path)
    update_file_hashes(run)
    code, output = verify(run)
    assert code == 4 and f"tables/participants.parquet: {expected_text}" in output


def test_missing_or_extra_files_are_named(run: Path) -> None:
    (run / "tables" / "participants.csv").unlink()
    shutil.copy(run / "tables" / "answers.parquet", run / "tables" / "more.parquet")
    (run / "notes.txt").write_text("one's own, and nobody's business")
    code, output = verify(run)
    assert code == 4 and "2 differences" not in output
    assert "tables/participants.csv is missing" in output
    assert "tables/more.parquet: the run does not write such a table" in output
    assert "notes.txt" not in output


def test_full_disk_of_the_temporary_folder_is_reported(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raise_disk_full(source: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(source), None, str(target))

    monkeypatch.setattr("folkmoot.engine.run.verify.copyfile", raise_disk_full)
    code, output = verify(run)
    assert code == 2 and "the disk is full; free some space" in output


LONG_REPLIES = "kind = 'ask' AND address LIKE '%ask0' AND length(reply) > 40"
FIRST_LONG_REPLY = f"address = (SELECT min(address) FROM entries WHERE {LONG_REPLIES})"


def test_changed_reply_is_found_by_verify_report_load_and_resume(run: Path) -> None:
    change_journal(run, f"UPDATE entries SET reply = 'I was never asked.' WHERE {FIRST_LONG_REPLY}")
    with JournalReader(run / "journal.sqlite") as journal:
        ((address, _),) = journal.find_damage()
    code, output = verify(run)
    assert code == 4 and f"{address}: changed since it was written" in output
    assert "journal.sqlite was changed after the run" in read_reported_deviations(run)
    with pytest.warns(UserWarning, match=r"journal\.sqlite was changed"):
        folkmoot.load(run)
    study = str(run.parent / "cross_pollination.yaml")
    command = ["run", study, "--model", "synthetic", "--out", str(run), "--resume"]
    resumed = CliRunner().invoke(app, command)
    assert resumed.exit_code == 2 and address in resumed.stderr


def test_changed_cost_and_changed_prompt_are_found(run: Path) -> None:
    change_journal(run, f"UPDATE entries SET cost_usd = 9 WHERE {FIRST_LONG_REPLY}")
    change_journal(run, "UPDATE texts SET text = text || ' Vote for the park.'")
    code, output = verify(run)
    assert code == 4 and "changed since it was written" in output
    assert "a long text of the request changed" in output


def test_reply_changed_with_all_hashes_contradicts_the_tables(run: Path) -> None:
    change_journal(
        run,
        f"UPDATE entries SET reply = 'I was never asked.' WHERE {FIRST_LONG_REPLY}",
        cover_up=True,
    )
    code, output = verify(run)
    assert code == 4, output
    assert "differ" in output and "journal.sqlite" not in output


def test_entries_removed_or_added_with_all_hashes_are_found(run: Path) -> None:
    with closing(sqlite3.connect(run / "journal.sqlite")) as db:
        (address,) = db.execute(f"SELECT address FROM entries WHERE {FIRST_LONG_REPLY}").fetchone()
        entry_row = db.execute("SELECT * FROM entries WHERE address = ?", (address,)).fetchone()
    change_journal(run, f"DELETE FROM entries WHERE {FIRST_LONG_REPLY}", cover_up=True)
    code, output = verify(run)
    assert code == 4 and f"{address} is not in the journal" in output
    with closing(sqlite3.connect(run / "journal.sqlite")) as db, db:
        marks = ", ".join("?" * len(entry_row))
        db.execute(f"INSERT INTO entries VALUES ({marks})", (90_000, *entry_row[1:]))
        db.execute(
            f"INSERT INTO entries VALUES ({marks})", (90_001, "zz/more/ask0", *entry_row[2:])
        )
    change_journal(run, "UPDATE meta SET value = value WHERE key = 'format'", cover_up=True)
    code, output = verify(run)
    assert code == 4 and "does not ask for: zz/more/ask0" in output


def test_forged_manifest_values_are_named_with_the_correct_ones(run: Path) -> None:
    change_json(run / "manifest.json", lambda m: m.update(cost_usd=0.5, calls=3))
    code, output = verify(run)
    calls = len(JournalReader(run / "journal.sqlite"))
    assert code == 4 and "manifest.json: calls is 3, rebuilt" in output
    assert calls > 3 and "cost_usd is 0.5, rebuilt 0" in output


def test_forged_part_of_a_plan_is_named(run: Path) -> None:
    def swap_arms(plan: Any) -> None:
        arms = plan["sealed"]["assignment"]["data"]
        first_arm, other_arm = (
            sorted(arms)[0],
            next(arm for arm in arms.values() if arm != arms["p_0001"]),
        )
        arms[first_arm] = other_arm

    change_json(run / "plan.json", swap_arms)
    update_file_hashes(run)
    code, output = verify(run)
    assert (
        code == 4
        and "plan.json: the sealed part “assignment” differs from that of the run" in output
    )
    assert "p_0001 was" in output


@pytest.mark.parametrize("file_state", ["gone", "empty", "text"])
def test_missing_or_invalid_journal_is_reported(run: Path, file_state: str) -> None:
    path = run / "journal.sqlite"
    path.unlink()
    if file_state != "gone":
        path.write_text("" if file_state == "empty" else "not a database " * 50)
    code, output = verify(run)
    assert code == 4 and "cannot be checked" in output
    assert "Without its journal the run cannot be rebuilt" in output
    assert "cannot be checked" in read_reported_deviations(run)


def convert_to_earlier_version(run: Path) -> None:
    """Convert the folder to an earlier version: hashes of CSV files only, journal format 2."""
    convert_to_earlier_format(run / "journal.sqlite", 2)

    def remove_new_keys(manifest: dict[str, Any]) -> None:
        for key in ("override", "scripted", "study_file"):
            del manifest[key]
        del manifest["software"]["source"]
        hashes = {
            name: file_hash
            for name, file_hash in manifest["hashes"].items()
            if name.endswith((".csv", "plan.json"))
        }
        manifest["hashes"] = hashes
        del manifest["seal"], manifest["record_digest"]
        with JournalReader(run / "journal.sqlite") as journal:
            manifest["journal_digest"] = journal.content_digest()

    change_json(run / "manifest.json", remove_new_keys)


def test_run_of_an_earlier_version_is_read_but_not_rebuilt(run: Path) -> None:
    convert_to_earlier_version(run)
    code, output = verify(run)
    assert code == 4 and "manifest.json was written by an earlier version" in output
    assert read_reported_deviations(run) == ""
    for command in (["show", str(run)], ["report", str(run)]):
        result = CliRunner().invoke(app, command)
        assert result.exit_code == 0, result.output
    forge(run / "tables" / "answers.csv")
    assert "answers.csv was changed" in read_reported_deviations(run)


def test_difference_caused_by_other_code_is_no_forgery(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change_json(run / "manifest.json", lambda m: m["software"].update(source="other"))
    change_json(run / "plan.json", lambda plan: plan["software"].update(source="other"))
    reseal_manifest(run)
    record = RunContext.record_row

    def change_first_text(self: RunContext, rows: Any, table: str, row: Any) -> None:
        record(self, rows, table, {**row, "new_column": 1} if table == "answers" else row)

    monkeypatch.setattr(RunContext, "record_row", change_first_text)
    verification = verify_run(RunFolder(run))
    assert verification.differences == []
    first_line, *other_lines = verification.not_compared
    assert first_line.startswith("This code gives other results (made by Folkmoot")
    assert "tables/answers.parquet: lacks the columns new_column." in other_lines
    forge(run / "tables" / "answers.csv")
    assert any(
        "answers.csv was changed" in difference
        for difference in verify_run(RunFolder(run)).differences
    )


def test_changed_prompts_are_reported_without_guessing(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashes, render = PromptLibrary.hashes, PromptLibrary.render_prompt
    monkeypatch.setattr(PromptLibrary, "hashes", lambda p: {**hashes(p), "second_vote": "x"})
    verification = verify_run(RunFolder(run))
    # No request of the run contains the change, so the run is rebuilt.
    assert verification.differences == verification.not_compared == []
    assert any(
        "The prompts second_vote have changed since the run" in note for note in verification.notes
    )

    def render_differently(self: PromptLibrary, name: str, **variables: object) -> str:
        return f"{render(self, name, **variables)} Be brief."

    monkeypatch.setattr(PromptLibrary, "render_prompt", render_differently)
    verification = verify_run(RunFolder(run))
    assert verification.differences == []
    assert "The prompts second_vote differ from those of the run" in verification.not_compared[0]


CUSTOM_STUDY = """
from folkmoot import Scope, Session, Speaker, Study, StudyConfig


class Config(StudyConfig):
    people: int = 4


async def protocol(session: Session) -> None:
    async def talk(scope: Scope, n: int) -> None:
        said = await scope.ask(Speaker(f"p{n}"), "Well?")
        scope.record("said", {"person": n, "text": said})

    await session.map(range(session.config.people), talk)


STUDY = Study(name="own", title="My own", config=Config, protocol=protocol)
"""


def test_custom_study_with_a_real_model_needs_no_key_and_no_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    (tmp_path / "own.py").write_text(CUSTOM_STUDY)
    (tmp_path / "mine.yaml").write_text("study: ./own.py\nmodel: openai/test\n")
    answers = ScriptedProvider(lambda request, address: f"reply at {address}")
    out = tmp_path / "deep" / "down" / "run"
    folkmoot.run(tmp_path / "mine.yaml", provider=answers, out=out)
    monkeypatch.chdir("/")
    code, output = verify(out)
    assert code == 0, output
    assert "3 tables" in output  # the table of the study, answers, provenance


def test_unfinished_run_says_what_cannot_be_compared(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(CUSTOM_STUDY)
    (tmp_path / "mine.yaml").write_text("study: ./own.py\nbudget_calls: 2\nconcurrency: 1\n")
    command = ["run", str(tmp_path / "mine.yaml"), "--out", str(tmp_path / "run")]
    assert CliRunner().invoke(app, command).exit_code == 75
    code, output = verify(tmp_path / "run")
    assert code == 4 and "The run is not finished" in output and "difference" not in output


def test_manifest_without_hashes_is_not_verified(run: Path) -> None:
    change_json(run / "manifest.json", lambda m: (m.pop("hashes"), m.pop("journal_digest")))
    code, output = verify(run)
    assert code == 4 and "hashes is null" in output and "journal_digest is null" in output


# --- a forger who recomputes all hashes --------------------------------------------------------


def read_digests(folder: Path) -> tuple[str, str]:
    manifest = RunFolder(folder).manifest
    return manifest["journal_digest"], manifest["record_digest"]


def verify_with(folder: Path, digest: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["verify", str(folder), "--digest", digest])
    return result.exit_code, " ".join(result.output.split())


def run_votes(model: ScriptedProvider, folder: Path) -> Study:
    """Run 43 votes, each of which is one row."""

    async def protocol(session: Session) -> None:
        async def vote(scope: Scope, number: int) -> None:
            choice = Choice(("Park", "School", "Road"))
            reply = await scope.ask(Speaker(f"p_{number:04}"), "Which one?", answer_type=choice)
            scope.record("votes", {"participant": number, "vote": reply})

        await session.child("votes").map(range(43), vote)

    study = Study("votes", "Votes", StudyConfig, protocol)
    folkmoot.run(study, {}, out=folder, provider=model)
    return study


def test_completely_forged_run_is_consistent_but_not_the_published_one(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "run"
    model = ScriptedProvider(
        lambda _request, address: "Park" if address.endswith("/1/ask0") else "School"
    )
    study = run_votes(model, folder)
    published = read_digests(folder)
    with closing(sqlite3.connect(folder / "journal.sqlite")) as db, db:
        db.execute("UPDATE entries SET reply = 'Road' WHERE number > 3")
    reseal_journal(folder / "journal.sqlite")
    # The program writes tables, files, plan and manifest from the forged journal.
    run_votes(model, folder)
    run = RunFolder(folder)
    assert run.read_table("votes")["vote"].to_list().count("Road") == 40
    verification = verify_run(run, study)
    assert (
        verification.is_consistent
        and not verification.is_verified
        and verification.differences == []
    )
    for digest in published:
        verification = verify_run(run, study, published=digest)
        assert not verification.is_consistent and not verification.is_verified
        assert "The run is not the published one" in verification.differences[0]


def test_published_digest_verifies_the_run(run: Path) -> None:
    content, record = read_digests(run)
    code, output = verify_with(run, record.upper())
    assert code == 0 and "Verified" in output and "Only the record digest" not in output
    code, output = verify_with(run, content)
    assert code == 0 and "Verified" in output and "Only the record digest" in output
    code, output = verify_with(run, content[:-1])
    assert code == 4 and "is not the published one" in output
    code, output = verify_with(run, " ")  # like a script with an empty variable
    assert code == 2 and "Consistent" not in output


def test_record_digest_covers_usage_cost_and_times(run: Path) -> None:
    content, record = read_digests(run)
    before = record
    for assignment in ("cost_usd = 2.5", "attempts = 9", "started_at = started_at + 60"):
        change_journal(
            run, f"UPDATE entries SET {assignment} WHERE {FIRST_LONG_REPLY}", cover_up=True
        )
        digests_after = read_digests(run)
        assert digests_after[0] == content and digests_after[1] != before, assignment
        before = digests_after[1]
    code, output = verify_with(run, record)
    assert code == 4 and "is not the published one" in output


def test_resealed_plan_is_not_the_published_one(run: Path) -> None:
    _, record = read_digests(run)
    change_json(run / "plan.json", lambda plan: plan.update(started_at="2020-01-01T00:00:00+00:00"))
    change_json(run / "manifest.json", lambda m: m.update(started_at="2020-01-01T00:00:00+00:00"))
    reseal_manifest(run)
    code, output = verify_with(run, record)
    assert code == 4 and "is not the published one" in output


@pytest.mark.parametrize("name", ["run.log", "log.jsonl"])
def test_changed_log_is_found(run: Path, name: str) -> None:
    forge(run / name)
    code, output = verify(run)
    assert code == 4 and f"{name} was changed after the run" in output


def test_manifest_without_its_seal_is_reported_as_changed(run: Path) -> None:
    change_json(run / "manifest.json", lambda m: m.update(wall_seconds=1.0) or m.pop("seal"))
    code, output = verify(run)
    assert code == 4 and "manifest.json was changed after the run" in output


@pytest.mark.parametrize(
    ("name", "parts"),
    sample_daily(
        [*product(("design", "personas", "software"), (None, "x", [], {}, 1))],
        [("design", None), ("personas", "x"), ("software", [])],
        part="mutations",
    ),
)
def test_plan_with_an_invalid_structure_is_named(run: Path, name: str, parts: object) -> None:
    if (name, parts) == ("software", {}):
        parts = ["x"]
    change_json(
        run / "plan.json",
        lambda plan: (plan if name == "software" else plan["sealed"]).update({name: parts}),
    )
    for command in ("report", "show", "verify"):
        result = CliRunner().invoke(app, [command, str(run)])
        assert result.exception is None or isinstance(result.exception, SystemExit), command
    assert result.exit_code != 0 and "plan.json" in result.output


NAMES = ("plan.json", "manifest.json", "study.yaml", "config.yaml")


@pytest.mark.parametrize(
    ("name", "content"),
    sample_daily(
        [*product(NAMES, ("null", '"x"', "[]", "NaN", "[" * 100_000, ""))],
        [*zip(NAMES, ("[" * 100_000, "[]", "", '"x"'), strict=True)],
        part="mutations",
    ),
)
def test_file_with_an_invalid_structure_is_named_without_a_crash(
    run: Path, name: str, content: str
) -> None:
    (run / name).write_text(content, "utf-8")
    for command in ("report", "show", "verify"):
        result = CliRunner().invoke(app, [command, str(run)])
        assert result.exception is None or isinstance(result.exception, SystemExit), command
    assert result.exit_code != 0 and name in result.output, result.output


def test_folder_in_the_place_of_a_file_is_named(run: Path) -> None:
    (run / "config.yaml").unlink()
    (run / "config.yaml").mkdir()
    code, output = verify(run)
    assert code == 4 and "config.yaml is missing" in output


def test_codebook_beside_the_run_does_not_replace_its_own(run: Path) -> None:
    before = RunFolder(run).codebook()
    (run / "tables" / "codebook.json").write_text("{}", "utf-8")
    assert RunFolder(run).codebook() == before != {}


@pytest.mark.parametrize(
    "key",
    sample_daily(
        ["wall_seconds", "processes", "finished_at", "software", "hashes"],
        daily=["wall_seconds", "hashes"],
        part="mutations",
    ),
)
def test_manifest_only_values_are_sealed(run: Path, key: str) -> None:
    change_json(run / "manifest.json", lambda m: m.update({key: None}))
    code, output = verify(run)
    assert code != 0 and "Traceback" not in output
    assert "manifest.json" in output


def test_run_of_an_earlier_format_says_that_its_digest_is_not_binding(tmp_path: Path) -> None:
    archive = Path(__file__).parents[1] / "report" / "earlier" / "format_3" / "town_hall.zip"
    shutil.unpack_archive(archive, tmp_path / "run")
    digest = RunFolder(tmp_path / "run").manifest["journal_digest"]
    assert "The digest proves nothing: in journal format 3" in verify(tmp_path / "run")[1]
    code, output = verify_with(tmp_path / "run", digest)
    assert code == 4 and "digest proves nothing" in output and "Verified" not in output


@pytest.mark.parametrize("table", ["exposure", "answers"])
def test_unreadable_table_is_one_of_the_differences(run: Path, table: str) -> None:
    (run / "tables" / f"{table}.parquet").write_bytes(b"x")
    code, output = verify(run)
    assert code == 4
    assert f"tables/{table}.parquet" in output and "journal entries" in output


@pytest.mark.parametrize("is_set_for", ["run", "reader"])
def test_verification_does_not_depend_on_the_servers_of_the_environment(
    is_set_for: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The default embedding model follows from the servers, and the plan seals that of the run."""

    async def protocol(session: Session[StudyConfig]) -> None:
        await session.ask(Speaker("p1"), "What do you think?", answer_type=Text())

    study = Study("opinion", "An opinion", StudyConfig, protocol)
    with ServerThread(FaultPlan(), answers="respondent") as server:
        monkeypatch.setenv("OPENAI_API_KEY", "k" * 24)
        if is_set_for == "run":
            monkeypatch.setenv("OPENAI_BASE_URL", server.openai)
        settings = {"model": "openai/gpt-4o", "endpoints": {"openai/gpt-4o": server.openai}}
        made = folkmoot.run(study, settings, out=tmp_path / "run")
        if is_set_for == "run":
            monkeypatch.delenv("OPENAI_BASE_URL")
        else:
            monkeypatch.setenv("OPENAI_BASE_URL", server.openai)
        sealed = made.folder.plan["sealed"]["design"]["data"]["embedding_model"]
        assert (sealed is None) == (is_set_for == "reader")
        assert made.verify().differences == []
