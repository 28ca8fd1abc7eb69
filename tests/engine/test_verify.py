"""A run can be verified: whatever is changed in its folder is found, and nothing else is."""

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
from folkmoot import Choice, Scope, Session, Speaker, Study, StudyConfig
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
from tests.engine.test_journal import older
from tests.sweeps import sample_daily


@pytest.fixture
def run(small_pilot: Path, tmp_path: Path) -> Path:
    """A copy of the run, beside a copy of its study file."""
    shutil.copy(small_pilot.parent / "study" / "cross_pollination.yaml", tmp_path)
    return Path(shutil.copytree(small_pilot, tmp_path / "run"))


def verify(folder: Path) -> tuple[int, str]:
    """Exit code, and what was printed in one line."""
    done = CliRunner().invoke(app, ["verify", str(folder)])
    return done.exit_code, " ".join(done.output.split())


def reported(folder: Path) -> str:
    """What the report says under Deviations."""
    found = RunFolder(folder)
    return " ".join(list_deviations(found, find_study_of_run(found)))


def tree(folder: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def change_json(path: Path, change: Callable[[Any], object]) -> None:
    data = json.loads(path.read_text("utf-8"))
    change(data)
    path.write_text(json.dumps(data, indent=2), "utf-8")


def hashed_anew(folder: Path) -> None:
    """Cover up: the manifest with the hashes of the files as they are now."""
    manifest_anew(folder)


def change_journal(folder: Path, statement: str, *, cover_up: bool = False) -> None:
    with closing(sqlite3.connect(folder / "journal.sqlite")) as db, db:
        assert db.execute(statement).rowcount
    if cover_up:  # seals, digests and all, as somebody who knows the format might
        hash_journal_anew(folder / "journal.sqlite")
        manifest_anew(folder)


def hash_journal_anew(path: Path) -> None:
    """Cover up: an undamaged journal with the entries as they are now."""
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


def manifest_anew(folder: Path) -> None:
    """Cover up: the manifest with the hashes, the digests and the seal of what is there now."""
    run = RunFolder(folder)
    with JournalReader(folder / "journal.sqlite") as journal:
        content, record = digests_of(run, journal)
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text("utf-8"))
    manifest["hashes"] = {name: file_sha256(folder / name) for name in manifest["hashes"]}
    manifest |= {"journal_digest": content, "record_digest": record}
    path.write_text(json.dumps(seal_manifest(manifest), indent=2), "utf-8")


# Daily, test_fork verifies a fork of the workbook and one of the focus group.
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
    # A resume may call in another way; files that hold the settings then hold the latest.
    folkmoot.run(source, model="synthetic", out=folder, concurrency=3)
    before = tree(tmp_path)
    found = verify_run(RunFolder(folder))
    assert found.differences == [] and found.not_compared == []
    written = {p.relative_to(folder).as_posix() for p in folder.rglob("*.*") if p.is_file()}
    not_hashed = {"manifest.json", "journal.sqlite", ".lock"}
    assert set(RunFolder(folder).manifest["hashes"]) == written - not_hashed
    assert found.tables == len(RunFolder(folder).table_names()) > 0 and found.files > 2
    assert tree(tmp_path) == before


def test_a_run_as_it_was_left_is_verified_on_the_command_line(run: Path) -> None:
    code, said = verify(run)
    assert code == 0, said
    assert "Consistent" in said and "Verified" not in said
    assert RunFolder(run).manifest["journal_digest"] in said
    assert RunFolder(run).manifest["record_digest"] in said
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        folkmoot.load(run)
    assert reported(run) == ""


def forge(path: Path) -> None:
    """Change one thing in a file, whatever its kind."""
    if path.suffix == ".parquet":
        table = pl.read_parquet(path)
        name = next(c for c in table.columns if table[c].dtype == pl.String)
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
    """Each of them, and no other file."""
    plan = (run / "plan.json").read_bytes()
    for name in FILES:
        forge(run / name)
    code, said = verify(run)
    assert code == 4
    assert [name for name in FILES if f"{name} was changed" not in said] == [], said
    assert [name for name in ("run.log", "log.jsonl") if f"{name} was changed" in said] == []
    # As forged, plan.json is no JSON that a report could read any more.
    (run / "plan.json").write_bytes(plan)
    with pytest.warns(UserWarning) as warned:
        folkmoot.load(run)
    told, page = " ".join(str(warning.message) for warning in warned), reported(run)
    for name in FILES[1:]:
        assert f"{name} was changed" in told and f"{name} was changed" in page
    assert "plan.json" not in page


def test_forged_files_with_their_hashes_are_named_with_the_place(run: Path) -> None:
    names = [n for n in FILES if n not in ("plan.json", "study.yaml", "personas.json")]
    for name in names:
        forge(run / name)
    hashed_anew(run)
    code, said = verify(run)
    assert code == 4, said
    for name in names:
        after = said.partition(f"{name}: ")[2]
        place = "differs in" if name.endswith(".parquet") else "line "
        assert place in after[:120], (name, said)
    assert f"{len(names)} differences:" in said


def test_one_cell_is_named_with_row_and_both_values(run: Path) -> None:
    path = run / "tables" / "participants.parquet"
    table = pl.read_parquet(path)
    was = table["condition"][3]
    second = pl.int_range(pl.len()) == 3
    forged = pl.when(second).then(pl.lit("Never voted")).otherwise("condition")
    table.with_columns(forged.alias("condition")).write_parquet(path)
    hashed_anew(run)
    _, said = verify(run)
    assert f"column condition differs in 1 row (4): Never voted, rebuilt {was}." in said


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t: t.head(-1), "has 3 rows, rebuilt 4"),
        (lambda t: t.drop("condition"), "lacks the columns condition"),
        (lambda t: t.with_columns(more=1), "has the columns more, which the run does not"),
        (lambda t: t.with_columns(pl.lit(1).alias("condition")), "column condition is Int32"),
    ],
)
def test_rows_and_columns_that_were_taken_or_added(
    run: Path, change: Callable[[pl.DataFrame], pl.DataFrame], said: str
) -> None:
    path = run / "tables" / "participants.parquet"
    change(pl.read_parquet(path)).write_parquet(path)
    hashed_anew(run)
    code, found = verify(run)
    assert code == 4 and f"tables/participants.parquet: {said}" in found


def test_files_that_are_gone_or_too_many(run: Path) -> None:
    (run / "tables" / "participants.csv").unlink()
    shutil.copy(run / "tables" / "answers.parquet", run / "tables" / "more.parquet")
    (run / "notes.txt").write_text("one's own, and nobody's business")
    code, said = verify(run)
    assert code == 4 and "2 differences" not in said
    assert "tables/participants.csv is missing" in said
    assert "tables/more.parquet: the run does not write such a table" in said
    assert "notes.txt" not in said


def test_a_disk_that_is_full_for_the_scratch_folder_is_said(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(source: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(source), None, str(target))

    monkeypatch.setattr("folkmoot.engine.run.verify.copyfile", full)
    code, said = verify(run)
    assert code == 2 and "the disk is full; free some space" in said


SAID = "kind = 'ask' AND address LIKE '%ask0' AND length(reply) > 40"
ONE = f"address = (SELECT min(address) FROM entries WHERE {SAID})"


def test_a_changed_reply_is_seen_by_verify_report_load_and_resume(run: Path) -> None:
    change_journal(run, f"UPDATE entries SET reply = 'I was never asked.' WHERE {ONE}")
    with JournalReader(run / "journal.sqlite") as journal:
        ((address, _),) = journal.find_damage()
    code, said = verify(run)
    assert code == 4 and f"{address}: changed since it was written" in said
    assert "journal.sqlite was changed after the run" in reported(run)
    with pytest.warns(UserWarning, match=r"journal\.sqlite was changed"):
        folkmoot.load(run)
    study = str(run.parent / "cross_pollination.yaml")
    words = ["run", study, "--model", "synthetic", "--out", str(run), "--resume"]
    resumed = CliRunner().invoke(app, words)
    assert resumed.exit_code == 2 and address in resumed.stderr


def test_a_changed_cost_and_a_changed_prompt_are_seen(run: Path) -> None:
    change_journal(run, f"UPDATE entries SET cost_usd = 9 WHERE {ONE}")
    change_journal(run, "UPDATE texts SET text = text || ' Vote for the park.'")
    code, said = verify(run)
    assert code == 4 and "changed since it was written" in said
    assert "a long text of the request changed" in said


def test_a_reply_that_was_changed_with_all_its_hashes_contradicts_the_tables(run: Path) -> None:
    change_journal(
        run, f"UPDATE entries SET reply = 'I was never asked.' WHERE {ONE}", cover_up=True
    )
    code, said = verify(run)
    assert code == 4, said
    assert "differ" in said and "journal.sqlite" not in said


def test_entries_that_were_taken_or_added_with_all_their_hashes(run: Path) -> None:
    with closing(sqlite3.connect(run / "journal.sqlite")) as db:
        (address,) = db.execute(f"SELECT address FROM entries WHERE {ONE}").fetchone()
        whole = db.execute("SELECT * FROM entries WHERE address = ?", (address,)).fetchone()
    change_journal(run, f"DELETE FROM entries WHERE {ONE}", cover_up=True)
    code, said = verify(run)
    assert code == 4 and f"{address} is not in the journal" in said
    with closing(sqlite3.connect(run / "journal.sqlite")) as db, db:
        marks = ", ".join("?" * len(whole))
        db.execute(f"INSERT INTO entries VALUES ({marks})", (90_000, *whole[1:]))
        db.execute(f"INSERT INTO entries VALUES ({marks})", (90_001, "zz/more/ask0", *whole[2:]))
    change_journal(run, "UPDATE meta SET value = value WHERE key = 'format'", cover_up=True)
    code, said = verify(run)
    assert code == 4 and "does not ask for: zz/more/ask0" in said


def test_a_forged_manifest_is_corrected(run: Path) -> None:
    change_json(run / "manifest.json", lambda m: m.update(cost_usd=0.5, calls=3))
    code, said = verify(run)
    calls = len(JournalReader(run / "journal.sqlite"))
    assert code == 4 and "manifest.json: calls is 3, rebuilt" in said
    assert calls > 3 and "cost_usd is 0.5, rebuilt 0" in said


def test_a_forged_plan_is_named_by_the_part(run: Path) -> None:
    def swap(plan: Any) -> None:
        arms = plan["sealed"]["assignment"]["data"]
        first, other = sorted(arms)[0], next(a for a in arms.values() if a != arms["p_0001"])
        arms[first] = other

    change_json(run / "plan.json", swap)
    hashed_anew(run)
    code, said = verify(run)
    assert (
        code == 4 and "plan.json: the sealed part “assignment” differs from that of the run" in said
    )
    assert "p_0001 was" in said


@pytest.mark.parametrize("how", ["gone", "empty", "text"])
def test_a_journal_that_is_gone_or_none(run: Path, how: str) -> None:
    path = run / "journal.sqlite"
    path.unlink()
    if how != "gone":
        path.write_text("" if how == "empty" else "not a database " * 50)
    code, said = verify(run)
    assert code == 4 and "cannot be checked" in said
    assert "Without its journal the run cannot be rebuilt" in said
    assert "cannot be checked" in reported(run)


def of_earlier_code(run: Path) -> None:
    """The folder as earlier code left it: hashes of CSV files alone, a journal of format 2."""
    older(run / "journal.sqlite", 2)

    def forget(manifest: dict[str, Any]) -> None:
        for key in ("override", "scripted", "study_file"):
            del manifest[key]
        del manifest["software"]["source"]
        kept = {n: h for n, h in manifest["hashes"].items() if n.endswith((".csv", "plan.json"))}
        manifest["hashes"] = kept
        del manifest["seal"], manifest["record_digest"]
        with JournalReader(run / "journal.sqlite") as journal:
            manifest["journal_digest"] = journal.content_digest()

    change_json(run / "manifest.json", forget)


def test_a_run_of_earlier_code_is_read_but_not_rebuilt(run: Path) -> None:
    of_earlier_code(run)
    code, said = verify(run)
    assert code == 4 and "manifest.json was written by an earlier version" in said
    assert reported(run) == ""
    for words in (["show", str(run)], ["report", str(run)]):
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, done.output
    forge(run / "tables" / "answers.csv")
    assert "answers.csv was changed" in reported(run)


def test_what_other_code_makes_otherwise_is_no_forgery(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change_json(run / "manifest.json", lambda m: m["software"].update(source="other"))
    change_json(run / "plan.json", lambda plan: plan["software"].update(source="other"))
    manifest_anew(run)
    record = RunContext.record_row

    def otherwise(self: RunContext, rows: Any, table: str, row: Any) -> None:
        record(self, rows, table, {**row, "new_column": 1} if table == "answers" else row)

    monkeypatch.setattr(RunContext, "record_row", otherwise)
    found = verify_run(RunFolder(run))
    assert found.differences == []
    head, *listed = found.not_compared
    assert head.startswith("This code gives other results (made by Folkmoot")
    assert "tables/answers.parquet: lacks the columns new_column." in listed
    forge(run / "tables" / "answers.csv")
    assert any("answers.csv was changed" in d for d in verify_run(RunFolder(run)).differences)


def test_other_prompts_are_said_and_nothing_is_guessed(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashes, render = PromptLibrary.hashes, PromptLibrary.render_prompt
    monkeypatch.setattr(PromptLibrary, "hashes", lambda p: {**hashes(p), "second_vote": "x"})
    found = verify_run(RunFolder(run))
    # No request of the run shows the change, so the run is rebuilt.
    assert found.differences == found.not_compared == []
    assert any("The prompts second_vote have changed since the run" in n for n in found.notes)

    def otherwise(self: PromptLibrary, name: str, **variables: object) -> str:
        return f"{render(self, name, **variables)} Be brief."

    monkeypatch.setattr(PromptLibrary, "render_prompt", otherwise)
    found = verify_run(RunFolder(run))
    assert found.differences == []
    assert "The prompts second_vote differ from those of the run" in found.not_compared[0]


OWN = """
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


def test_a_study_of_ones_own_with_a_real_model_needs_no_key_and_no_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "mine.yaml").write_text("study: ./own.py\nmodel: openai/test\n")
    answers = ScriptedProvider(lambda request, address: f"reply at {address}")
    out = tmp_path / "deep" / "down" / "run"
    folkmoot.run(tmp_path / "mine.yaml", provider=answers, out=out)
    monkeypatch.chdir("/")
    code, said = verify(out)
    assert code == 0, said
    assert "3 tables" in said  # its own, answers, provenance


def test_an_unfinished_run_says_what_cannot_be_compared(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "mine.yaml").write_text("study: ./own.py\nbudget_calls: 2\nconcurrency: 1\n")
    words = ["run", str(tmp_path / "mine.yaml"), "--out", str(tmp_path / "run")]
    assert CliRunner().invoke(app, words).exit_code == 75
    code, said = verify(tmp_path / "run")
    assert code == 4 and "The run is not finished" in said and "difference" not in said


def test_a_manifest_without_its_hashes_is_not_verified(run: Path) -> None:
    change_json(run / "manifest.json", lambda m: (m.pop("hashes"), m.pop("journal_digest")))
    code, said = verify(run)
    assert code == 4 and "hashes is null" in said and "journal_digest is null" in said


# --- a forger who recomputes everything ---------------------------------------------------------


def digests(folder: Path) -> tuple[str, str]:
    manifest = RunFolder(folder).manifest
    return manifest["journal_digest"], manifest["record_digest"]


def verify_with(folder: Path, digest: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["verify", str(folder), "--digest", digest])
    return done.exit_code, " ".join(done.output.split())


def votes_of(model: ScriptedProvider, folder: Path) -> Study:
    """43 votes, each of which is a row."""

    async def protocol(session: Session) -> None:
        async def vote(scope: Scope, number: int) -> None:
            choice = Choice(("Park", "School", "Road"))
            said = await scope.ask(Speaker(f"p_{number:04}"), "Which one?", answer_type=choice)
            scope.record("votes", {"participant": number, "vote": said})

        await session.child("votes").map(range(43), vote)

    study = Study("votes", "Votes", StudyConfig, protocol)
    folkmoot.run(study, {}, out=folder, provider=model)
    return study


def test_a_run_that_was_forged_whole_is_consistent_but_not_the_published_one(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "run"
    model = ScriptedProvider(
        lambda _request, address: "Park" if address.endswith("/1/ask0") else "School"
    )
    study = votes_of(model, folder)
    published = digests(folder)
    with closing(sqlite3.connect(folder / "journal.sqlite")) as db, db:
        db.execute("UPDATE entries SET reply = 'Road' WHERE number > 3")
    hash_journal_anew(folder / "journal.sqlite")
    # The program itself writes tables, files, plan and manifest from the forged journal.
    votes_of(model, folder)
    run = RunFolder(folder)
    assert run.read_table("votes")["vote"].to_list().count("Road") == 40
    found = verify_run(run, study)
    assert found.is_consistent and not found.is_verified and found.differences == []
    for digest in published:
        found = verify_run(run, study, published=digest)
        assert not found.is_consistent and not found.is_verified
        assert "The run is not the published one" in found.differences[0]


def test_a_published_digest_verifies_the_run_that_it_is_of(run: Path) -> None:
    content, record = digests(run)
    code, said = verify_with(run, record.upper())
    assert code == 0 and "Verified" in said and "Only the record digest" not in said
    code, said = verify_with(run, content)
    assert code == 0 and "Verified" in said and "Only the record digest" in said
    code, said = verify_with(run, content[:-1])
    assert code == 4 and "is not the published one" in said
    code, said = verify_with(run, " ")  # a script whose variable is not set
    assert code == 2 and "Consistent" not in said


def test_usage_cost_and_times_are_in_the_record_digest(run: Path) -> None:
    content, record = digests(run)
    before = record
    for what in ("cost_usd = 2.5", "attempts = 9", "started_at = started_at + 60"):
        change_journal(run, f"UPDATE entries SET {what} WHERE {ONE}", cover_up=True)
        after = digests(run)
        assert after[0] == content and after[1] != before, what
        before = after[1]
    code, said = verify_with(run, record)
    assert code == 4 and "is not the published one" in said


def test_a_plan_that_was_sealed_anew_is_not_the_published_one(run: Path) -> None:
    _, record = digests(run)
    change_json(run / "plan.json", lambda plan: plan.update(started_at="2020-01-01T00:00:00+00:00"))
    change_json(run / "manifest.json", lambda m: m.update(started_at="2020-01-01T00:00:00+00:00"))
    manifest_anew(run)
    code, said = verify_with(run, record)
    assert code == 4 and "is not the published one" in said


@pytest.mark.parametrize("name", ["run.log", "log.jsonl"])
def test_a_changed_log_is_seen(run: Path, name: str) -> None:
    forge(run / name)
    code, said = verify(run)
    assert code == 4 and f"{name} was changed after the run" in said


def test_a_manifest_without_its_seal_is_not_as_it_was_written(run: Path) -> None:
    change_json(run / "manifest.json", lambda m: m.update(wall_seconds=1.0) or m.pop("seal"))
    code, said = verify(run)
    assert code == 4 and "manifest.json was changed after the run" in said


@pytest.mark.parametrize(
    ("name", "part"),
    sample_daily(
        [*product(("design", "personas", "software"), (None, "x", [], {}, 1))],
        [("design", None), ("personas", "x"), ("software", [])],
        part="mutations",
    ),
)
def test_a_plan_of_another_shape_is_named(run: Path, name: str, part: object) -> None:
    if (name, part) == ("software", {}):
        part = ["x"]
    change_json(
        run / "plan.json",
        lambda plan: (plan if name == "software" else plan["sealed"]).update({name: part}),
    )
    for command in ("report", "show", "verify"):
        done = CliRunner().invoke(app, [command, str(run)])
        assert done.exception is None or isinstance(done.exception, SystemExit), command
    assert done.exit_code != 0 and "plan.json" in done.output


NAMES = ("plan.json", "manifest.json", "study.yaml", "config.yaml")


@pytest.mark.parametrize(
    ("name", "content"),
    sample_daily(
        [*product(NAMES, ("null", '"x"', "[]", "NaN", "[" * 100_000, ""))],
        [*zip(NAMES, ("[" * 100_000, "[]", "", '"x"'), strict=True)],
        part="mutations",
    ),
)
def test_a_file_of_another_shape_is_named_and_crashes_nothing(
    run: Path, name: str, content: str
) -> None:
    (run / name).write_text(content, "utf-8")
    for command in ("report", "show", "verify"):
        done = CliRunner().invoke(app, [command, str(run)])
        assert done.exception is None or isinstance(done.exception, SystemExit), command
    assert done.exit_code != 0 and name in done.output, done.output


def test_a_folder_in_the_place_of_a_file_is_named(run: Path) -> None:
    (run / "config.yaml").unlink()
    (run / "config.yaml").mkdir()
    code, said = verify(run)
    assert code == 4 and "config.yaml is missing" in said


def test_a_codebook_beside_the_run_s_own_does_not_replace_it(run: Path) -> None:
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
def test_what_the_manifest_alone_holds_is_sealed(run: Path, key: str) -> None:
    change_json(run / "manifest.json", lambda m: m.update({key: None}))
    code, said = verify(run)
    assert code != 0 and "Traceback" not in said
    assert "manifest.json" in said


def test_a_run_of_an_earlier_format_says_that_its_digest_does_not_bind(tmp_path: Path) -> None:
    archive = Path(__file__).parents[1] / "report" / "earlier" / "format_3" / "town_hall.zip"
    shutil.unpack_archive(archive, tmp_path / "run")
    digest = RunFolder(tmp_path / "run").manifest["journal_digest"]
    assert "The digest proves nothing: in journal format 3" in verify(tmp_path / "run")[1]
    code, said = verify_with(tmp_path / "run", digest)
    assert code == 4 and "digest proves nothing" in said and "Verified" not in said


@pytest.mark.parametrize("table", ["exposure", "answers"])
def test_a_table_that_cannot_be_read_is_one_of_the_differences(run: Path, table: str) -> None:
    (run / "tables" / f"{table}.parquet").write_bytes(b"x")
    code, said = verify(run)
    assert code == 4
    assert f"tables/{table}.parquet" in said and "journal entries" in said
