"""Forks: one reply is changed, everything that depends on it is asked again, the rest is reused."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from pydantic import BaseModel
from typer.testing import CliRunner

import folkmoot
from folkmoot import Json, Session, Speaker, Study, StudyConfig
from folkmoot.cli.app import app
from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.engine.run.execution import RunOptions
from folkmoot.engine.run.fork import ReplyReplacement, fork_change
from folkmoot.engine.run.fork_repeats import pairs_of, repeat_fork, resume_repeats
from folkmoot.engine.run.grid import RunGrid
from folkmoot.engine.run.verify import verify_run
from folkmoot.engine.study.study import registered_studies
from folkmoot.errors import DriftError, ForeignJournalError, InputError, StorageError
from folkmoot.hints import command_line
from folkmoot.models.request import Completion, ModelRequest, Provider
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.report.comparison.compare import compare_runs
from folkmoot.report.comparison.forks import compare_talks
from folkmoot.report.comparison.pooled import pooled_findings
from folkmoot.storage.findings import TableCell
from folkmoot.storage.run_folder import JOURNAL, RunFolder
from folkmoot.studies.town_hall.quality import quality_of_run
from tests.contract.small import people_of, small_study
from tests.sweeps import sample_daily

SmallRun = Callable[[str], Path]
CHANGED_TEXT = "The costs are unfair, and my neighbours would have to leave."


class Crash(Exception):
    """Represents anything that ends a process before its run is finished."""


class StatedView(BaseModel):
    """A private thought and a public statement in one reply."""

    thought: str
    spoken: str


def hash_files(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def find_first_quoted_utterance(run: Path) -> tuple[str, str]:
    """Return the id and text of the first public utterance that a later prompt quotes."""
    table = pl.read_parquet(run / "tables" / "utterances.parquet")
    quoted = pl.read_parquet(run / "tables" / "provenance.parquet")["source_id"].implode()
    utterances = table.filter(
        (pl.col("address") != "") & (pl.col("text") != "") & pl.col("utterance_id").is_in(quoted)
    )
    public_utterances = (
        utterances.filter(pl.col("public")) if utterances["public"].any() else utterances
    )
    return public_utterances["utterance_id"][0], public_utterances["text"][0]


def read_entries_by_address(run: Path) -> dict[str, tuple[bytes, str, int]]:
    with JournalReader(run / JOURNAL) as journal:
        return {
            entry.address: (entry.fingerprint, entry.reply, entry.attempts)
            for entry in journal.read_entries()
        }


# Daily, one study type without and one with a separate verification below.
@pytest.mark.parametrize(
    "study",
    sample_daily(
        sorted(registered_studies()), daily=("cross_pollination", "workbook"), part="sweeps"
    ),
)
def test_only_calls_that_depend_on_the_reply_are_asked(
    study: str, run_of_small_study: SmallRun, tmp_path: Path
) -> None:
    base = run_of_small_study(study)
    before = hash_files(base)
    utterance_id, text = find_first_quoted_utterance(base)
    changed_text = ("no" if text == "yes" else "yes") if study == "workbook" else CHANGED_TEXT
    fork = folkmoot.fork(base, utterance_id, say=changed_text, out=tmp_path / "fork")

    was, now = read_entries_by_address(base), read_entries_by_address(fork.path)
    fork_entry = fork.manifest["fork"]
    change = fork_change(fork.folder)
    assert change is not None and changed_text in now[change.address][1]
    assert now[change.address][0] == was[change.address][0], "the question is the same"
    asked_addresses = {address for address, (_, _, attempts) in now.items() if attempts}
    assert asked_addresses, "something heard these words"
    for address, (fingerprint, reply, attempts) in now.items():
        if address not in asked_addresses and address != change.address:
            assert was[address][:2] == (fingerprint, reply)
        elif attempts:
            assert address not in was or was[address][0] != fingerprint, address
    assert fork_entry["asked"] == sum("compute" not in address for address in asked_addresses)
    assert 0 < fork_entry["asked"] < RunFolder(base).manifest["calls"] / 2
    assert (fork.path / "plan.json").read_text("utf-8").count(change.journal_digest) == 1
    assert hash_files(base) == before
    if study in ("focus_group", "workbook"):  # a verification takes as long as the fork
        verified = verify_run(fork.folder)
        assert verified.is_consistent, (verified.differences, verified.not_compared)


def test_the_calls_of_a_fork_are_told_apart_from_those_that_it_copied(
    run_of_small_study: SmallRun, tmp_path: Path
) -> None:
    base, out = run_of_small_study("focus_group"), tmp_path / "fork [1]"
    utterance_id, _ = find_first_quoted_utterance(base)
    command = ["fork", str(base), utterance_id, "--say", CHANGED_TEXT, "--out", str(out)]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    fork_entry = RunFolder(out).manifest["fork"]
    asked, taken_over = fork_entry["asked"], fork_entry["taken_over"]
    output = " ".join(result.output.split())
    # The changed reply costs no call, but is not that of the run.
    copied_count = taken_over - 1
    assert f" {asked} calls · " in output
    assert f"{asked} new calls, {copied_count} copied" in output
    # The line can be pasted into a shell.
    assert f"Compare the conversations {command_line('compare', base, out)}" in output
    change = fork_change(RunFolder(out))
    assert change is not None
    difference = compare_talks(RunFolder(base), RunFolder(out), change)
    assert f"{copied_count} are those of {base.name}" in difference.says
    assert CliRunner().invoke(app, ["report", str(out)]).exit_code == 0
    copied = f"{copied_count} of these calls were copied from another run at no cost."
    assert copied in (out / "report.html").read_text("utf-8")


def test_unchanged_text_changes_nothing(run_of_small_study: SmallRun, tmp_path: Path) -> None:
    base = run_of_small_study("focus_group")
    utterance_id, text = find_first_quoted_utterance(base)
    fork = folkmoot.fork(base, utterance_id, say=text, out=tmp_path / "fork")
    assert fork.manifest["fork"]["asked"] == 0
    for table in RunFolder(base).table_names():
        assert fork.folder.read_table(table).equals(RunFolder(base).read_table(table)), table


def test_compare_shows_both_transcripts_and_the_readers_of_the_text(
    run_of_small_study: SmallRun, tmp_path: Path
) -> None:
    base = run_of_small_study("focus_group")
    utterance_id, text = find_first_quoted_utterance(base)
    fork = folkmoot.fork(base, utterance_id, say=CHANGED_TEXT, out=tmp_path / "fork")
    findings = {finding.key: finding for finding in compare_runs([RunFolder(base), fork.folder])}
    # Codings depend on what was said. They do not make the participants other people.
    assert findings["designs"].says == (
        "The designs differ in changed reply. "
        f"{fork.folder.id} drew the same people as {base.name}."
    )
    finding = findings["fork"]
    assert CHANGED_TEXT in finding.says and text in finding.says
    rows = [dict(zip(finding.grid.columns, row, strict=True)) for row in finding.grid.rows]
    spans = fork.table("provenance").filter(pl.col("source_id") == utterance_id)
    read_addresses = set(spans["address"])
    assert read_addresses and {
        row["address"] for row in rows if row["changed words in the prompt"] == "yes"
    } == {address for address in read_addresses if address in {row["address"] for row in rows}}
    assert f"were in {len(read_addresses)} later prompt" in finding.says
    with JournalReader(fork.path / JOURNAL) as journal:
        for address in read_addresses:
            assert any(CHANGED_TEXT in message.content for message in journal.messages(address))


def test_reply_can_be_left_out(run_of_small_study: SmallRun, tmp_path: Path) -> None:
    base = run_of_small_study("cross_pollination")
    votes = RunFolder(base).read_table("answers").filter(pl.col("kind") == "choice")
    address = votes["address"][-1]
    fork = folkmoot.fork(base, address, drop=True, out=tmp_path / "fork")
    answer = fork.table("answers").filter(pl.col("address") == address)
    assert answer["missing"].to_list() == ["dropped"]
    assert verify_run(fork.folder).is_consistent


@pytest.mark.parametrize(
    ("address", "table", "column"),
    sample_daily(
        [
            ("set01_lv1/after/ask0", "satisfaction", "post_missing"),
            ("set01_lv4/vote/A02/ask0", "votes", "missing"),
            ("set01_lv4/round2/turns/A02/ask1", "utterances", "missing"),
        ],
        daily=1,
        part="sweeps",
    ),
)
def test_a_dropped_reply_of_a_town_hall_is_not_counted_as_unreadable(
    address: str, table: str, column: str, run_of_small_study: SmallRun, tmp_path: Path
) -> None:
    base = folkmoot.load(run_of_small_study("town_hall"))
    fork = folkmoot.fork(base, address, drop=True, out=tmp_path / "fork")
    assert "dropped" in fork.table(table)[column].to_list()
    was, now = (quality_of_run(run.folder)["all"] for run in (base, fork))
    names = [name for name in now if name.endswith("_unread") or name == "minimal_structures"]
    assert [now[name] for name in names] == [was[name] for name in names]
    assert now["missing_reasons"] == {"dropped": 1}
    assert verify_run(fork.folder).is_consistent


def test_a_decision_without_the_dropped_reply_of_the_mediator_says_why(
    run_of_small_study: SmallRun, tmp_path: Path
) -> None:
    base = run_of_small_study("negotiation")
    address = "negotiation/strangers_01-C3/traveler_type/ask0"
    fork = folkmoot.fork(base, address, drop=True, out=tmp_path / "fork")
    decisions = fork.table("decisions").filter(
        group_id="strangers_01", condition="C3", topic="traveler_type"
    )
    assert decisions["undecided"].to_list() == ["dropped"]
    assert decisions["parse_step"].to_list() == ["dropped"]


def test_another_model_can_give_the_reply(tmp_path: Path) -> None:
    def answer(request: ModelRequest, address: str) -> Completion | str:
        if request.model == "gpt-4o":
            return Completion("Something else entirely.", model_served="gpt-4o-2024-11-20")
        return inner.complete_request(request, address=address)  # type: ignore[return-value]

    inner = people_of("focus_group")
    source = small_study("focus_group", tmp_path)
    base = folkmoot.run(
        source,
        out=tmp_path / "run",
        provider=people_of("focus_group"),
        overrides=("replications=1", "phases=[warmup, reaction]"),
    )
    replies = base.table("utterances").filter(
        (pl.col("speaker_role") == "participant") & (pl.col("address") != "")
    )
    address = replies["address"][0]
    fork = folkmoot.fork(
        base, address, model="gpt-4o", out=tmp_path / "fork", provider=ScriptedProvider(answer)
    )
    with JournalReader(fork.path / JOURNAL) as journal:
        asked_models = {
            entry.model_asked for entry in journal.read_entries("ask") if entry.address == address
        }
        other_models = {
            entry.model_asked
            for entry in journal.read_entries("ask")
            if not entry.address.startswith(address)
        }
    assert asked_models == {"gpt-4o"} and "gpt-4o" not in other_models
    served_by_asked = {model["asked"]: model["served"] for model in fork.manifest["models"]}
    assert served_by_asked["gpt-4o"] == ["gpt-4o-2024-11-20"]
    row = fork.table("answers").filter(pl.col("address") == address)
    assert row["model_asked"].to_list() == ["gpt-4o"]
    assert verify_run(fork.folder).is_consistent


@pytest.fixture(scope="module")
def finished_hall(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a finished town hall run with a custom provider. Tests only read it."""
    folder = tmp_path_factory.mktemp("hall")
    source = small_study("town_hall", folder)
    text = source.read_text("utf-8").replace("levels: [1, 4]", "levels: [1]")
    source.write_text(text, "utf-8")
    return folkmoot.run(source, out=folder / "run", provider=people_of("town_hall")).path


def say_the_same(value: object) -> object:
    """Return a JSON reply in which all statements and lines have the same words."""
    if isinstance(value, list):
        return [say_the_same(item) for item in value]
    if not isinstance(value, dict):
        return value
    said = {key: say_the_same(item) for key, item in value.items()}
    if "full_statement" in said:
        said |= {"full_statement": "The same words.", "new_points": ["The same words."]}
    if "speaker" in said:
        said["text"] = "The same words."
    return said


def equal_words_provider(study: str) -> ScriptedProvider:
    inner = people_of(study)

    async def answer(request: ModelRequest, address: str) -> Completion:
        completion = await inner.complete_request(request, address=address)
        if not completion.text.startswith("{"):
            return completion
        return completion._replace(text=json.dumps(say_the_same(json.loads(completion.text))))

    return ScriptedProvider(answer)


@pytest.mark.parametrize(
    ("study", "settings", "part"),
    sample_daily(
        [
            ("town_hall", ("levels=[1]", "rounds=1"), "#A02"),
            ("town_hall", ("levels=[4]", "rounds=1"), ""),
            ("negotiation", ("conditions=[C3]", "group_types=[strangers]"), "#response2"),
        ],
        daily=2,
        part="sweeps",
    ),
)
def test_only_the_named_utterance_changes_among_equal_ones(
    study: str, settings: tuple[str, ...], part: str, tmp_path: Path
) -> None:
    source, provider = small_study(study, tmp_path), equal_words_provider(study)
    base = folkmoot.run(source, out=tmp_path / "run", provider=provider, overrides=settings)
    before = base.table("utterances").filter(text="The same words.", public=True)
    chosen_id = before.filter(pl.col("utterance_id").str.ends_with(part))["utterance_id"][0]
    fork = folkmoot.fork(
        base, chosen_id, say=CHANGED_TEXT, out=tmp_path / "fork", provider=provider
    )
    after = fork.table("utterances").filter(pl.col("utterance_id").is_in(before["utterance_id"]))
    changed = after.filter(text=CHANGED_TEXT)["utterance_id"].to_list()
    assert changed == [chosen_id] and len(after) == len(before) > 1
    reply = read_entries_by_address(fork.path)[chosen_id.partition("#")[0]][1]
    assert reply.count(CHANGED_TEXT) == 1, "private fields with the same words stay"
    assert "The same words." in reply


def test_equal_words_of_an_unknown_place_are_not_replaced(tmp_path: Path) -> None:
    async def protocol(session: Session) -> None:
        speaker = Speaker("a", "A")
        view = await session.ask(speaker, "What do you say?", answer_type=Json(StatedView))
        if isinstance(view, StatedView):
            session.say(speaker, view.spoken, address=session.address)

    def fork_view(thought: str, out: Path) -> folkmoot.Run:
        reply = json.dumps({"thought": thought, "spoken": "I agree."})
        provider = ScriptedProvider(lambda _request, address: reply)
        base = folkmoot.run(study, {}, out=out / "run", provider=provider)
        return folkmoot.fork(
            base, "ask0", say="No.", out=out / "fork", provider=provider, study=study
        )

    study = Study("view", "A view", StudyConfig, protocol, tables=())
    with pytest.raises(InputError, match="contains these words 2 times") as refused:
        fork_view("I agree.", tmp_path / "equal")
    assert "give the whole reply as JSON (thought, spoken)" in str(refused.value)
    fork = fork_view("I do not.", tmp_path / "unequal")
    assert fork.table("utterances")["text"].to_list() == ["No."]


def test_killed_fork_is_resumed_where_it_stopped(finished_hall: Path, tmp_path: Path) -> None:
    inner = people_of("town_hall")
    answered = 0

    async def answer(request: ModelRequest, address: str) -> Completion:
        nonlocal answered
        answered += 1
        if answered == 4:
            raise Crash
        return await inner.complete_request(request, address=address)

    utterance_id, _ = find_first_quoted_utterance(finished_hall)

    def fork_hall(name: str, provider: Provider) -> folkmoot.Run:
        out = tmp_path / name
        return folkmoot.fork(
            finished_hall, utterance_id, say=CHANGED_TEXT, out=out, provider=provider
        )

    whole_fork = fork_hall("whole", people_of("town_hall"))
    with pytest.raises(Crash):
        fork_hall("fork", ScriptedProvider(answer))
    fork = fork_hall("fork", people_of("town_hall"))
    assert fork.manifest["journal_digest"] == whole_fork.manifest["journal_digest"]
    assert fork.manifest["fork"]["asked"] == whole_fork.manifest["fork"]["asked"] > 4
    with JournalReader(fork.path / JOURNAL) as journal:
        assert journal.count_calls() == fork.manifest["fork"]["asked"], "the budget counts no other"


def test_text_that_answers_no_question_is_refused(
    run_of_small_study: SmallRun, tmp_path: Path
) -> None:
    base = run_of_small_study("cross_pollination")
    votes = RunFolder(base).read_table("answers").filter(pl.col("kind") == "choice")
    with pytest.raises(InputError, match="cannot be read"):
        folkmoot.fork(base, votes["address"][0], say="a holiday", out=tmp_path / "fork")
    assert not (tmp_path / "fork").exists()


def test_mistakes_are_reported(run_of_small_study: SmallRun, tmp_path: Path) -> None:
    base = run_of_small_study("town_hall")
    out = tmp_path / "fork"
    with pytest.raises(InputError, match="did you mean set01_lv1/round1/session/ask0"):
        folkmoot.fork(base, "set01_lv1/round1/session/ask9", say="…", out=out)
    with pytest.raises(InputError, match="contains utterances of several speakers"):
        folkmoot.fork(base, "set01_lv1/round1/session/ask0", say="…", out=out)
    with pytest.raises(InputError, match="one reply in one way"):
        folkmoot.fork(base, "set01_lv1/round1/session/ask0", say="…", drop=True, out=out)
    unfinished = tmp_path / "unfinished"
    shutil.copytree(base, unfinished)
    (unfinished / "manifest.json").unlink()
    with pytest.raises(InputError, match="not finished"):
        folkmoot.fork(unfinished, "set01_lv1/round1/session/ask0", drop=True, out=out)
    assert not out.exists()


def build_three_question_study(first: str, second: str = "And then?") -> Study:
    async def protocol(session: Session) -> None:
        replies: list[str] = []
        for question in (first, second, "What follows?"):
            scope = session.child(f"q{len(replies)}")
            reply = await scope.ask(Speaker("a", "A"), f"{question} {' '.join(replies)}")
            replies.append(str(reply))
            scope.say(Speaker("a", "A"), reply)

    return Study("three", "Three questions", StudyConfig, protocol, tables=())


def test_fork_with_different_earlier_prompts_is_refused(tmp_path: Path) -> None:
    """A difference before the changed reply would be mistaken for its effect."""

    def echo() -> ScriptedProvider:
        return ScriptedProvider(
            lambda request, address: f"{len(request.messages[-1].content)} characters"
        )

    study = build_three_question_study("How do you do?")
    base = folkmoot.run(study, {}, out=tmp_path / "run", provider=echo())
    options = {"say": "Well.", "out": tmp_path / "fork", "provider": echo()}
    with pytest.raises(DriftError, match="before the changed reply"):
        folkmoot.fork(base, "q1/ask0", study=build_three_question_study("How are you?"), **options)
    fork = folkmoot.fork(base, "q1/ask0", study=study, **options)
    assert fork.manifest["fork"]["asked"] == 1, "the last question alone hears the second reply"
    assert fork.manifest["calls"] == 3


def test_resumed_fork_with_different_prompts_must_be_made_again(tmp_path: Path) -> None:
    def answer(request: ModelRequest, address: str) -> str:
        if address == "q2/ask0" and not is_resumed:
            raise Crash
        return f"{len(request.messages[-1].content)} characters"

    is_resumed = True
    study, out = build_three_question_study("How do you do?"), tmp_path / "fork"
    base = folkmoot.run(study, {}, out=tmp_path / "run", provider=ScriptedProvider(answer))
    options = {"say": "Well.", "out": out, "provider": ScriptedProvider(answer)}
    is_resumed = False
    with pytest.raises(Crash):
        folkmoot.fork(base, "q0/ask0", study=study, **options)
    is_resumed = True
    changed_study = build_three_question_study("How do you do?", "And now?")
    with pytest.raises(DriftError, match="make it again in another folder") as refused:
        folkmoot.fork(base, "q0/ask0", study=changed_study, **options)
    assert "+" in str(refused.value) and "And now?" in str(refused.value)
    assert "accept-changes" not in str(refused.value)
    assert folkmoot.fork(base, "q0/ask0", study=study, **options).manifest["fork"]["asked"] == 2


def test_resumed_fork_needs_the_run_that_it_came_from(finished_hall: Path, tmp_path: Path) -> None:
    base, out = Path(shutil.copytree(finished_hall, tmp_path / "run")), tmp_path / "fork"
    utterance_id, _ = find_first_quoted_utterance(base)

    def crash(_request: ModelRequest, _address: str) -> str:
        raise Crash

    with pytest.raises(Crash):
        folkmoot.fork(
            base, utterance_id, say=CHANGED_TEXT, out=out, provider=ScriptedProvider(crash)
        )
    source, people = finished_hall.parent / "town_hall.yaml", people_of("town_hall")
    other_run = folkmoot.run(source, seed=7, out=tmp_path / "other", provider=people)
    shutil.copy(other_run.path / JOURNAL, base / JOURNAL)
    with pytest.raises((ForeignJournalError, InputError)):
        folkmoot.fork(
            base, utterance_id, say=CHANGED_TEXT, out=out, provider=people_of("town_hall")
        )


@pytest.mark.parametrize("out", ["file", "file/forks"])
def test_repeats_in_a_path_that_is_no_folder_are_refused(
    out: str, run_of_small_study: SmallRun, tmp_path: Path
) -> None:
    base = RunFolder(run_of_small_study("cross_pollination"))
    utterance_id, _ = find_first_quoted_utterance(base.path)
    (tmp_path / "file").write_text("")
    options = RunOptions(out=tmp_path / out)
    with pytest.raises(StorageError, match="a file is where a folder is needed"):
        repeat_fork(base, utterance_id, ReplyReplacement(say=CHANGED_TEXT), 2, options)


@pytest.mark.nightly(part="truths")
def test_repeats_separate_the_effect_of_a_reply_from_chance(
    run_of_small_study: SmallRun, tmp_path: Path
) -> None:
    base = RunFolder(run_of_small_study("cross_pollination"))
    before = hash_files(base.path)
    utterance_id, _ = find_first_quoted_utterance(base.path)
    options = RunOptions(out=tmp_path / "forks")
    grid = repeat_fork(base, utterance_id, ReplyReplacement(say=CHANGED_TEXT), 2, options)
    assert hash_files(base.path) == before
    for changed_cell, unchanged_cell in pairs_of(grid):
        changed_run, unchanged_run = grid.run(changed_cell), grid.run(unchanged_cell)
        assert changed_run is not None and unchanged_run is not None
        change, same = fork_change(changed_run), fork_change(unchanged_run)
        assert change is not None and same is not None
        assert change.draw == same.draw == changed_cell.repeat
        changed_entries, unchanged_entries, base_entries = (
            read_entries_by_address(changed_run.path),
            read_entries_by_address(unchanged_run.path),
            read_entries_by_address(base.path),
        )
        assert unchanged_entries[same.address][1] == base_entries[same.address][1]
        assert CHANGED_TEXT in changed_entries[change.address][1]
        # Both sides ask again everything after the reply, so that both vary by chance alike.
        asked_after_change = {
            address
            for address, (_, _, n) in changed_entries.items()
            if n and "compute" not in address
        }
        asked_without_change = {
            address for address, (_, _, attempts) in unchanged_entries.items() if attempts
        }
        assert (
            set(same.asked_again) == asked_after_change
            and (asked_after_change & set(unchanged_entries)) <= asked_without_change
        )
        assert verify_run(unchanged_run).is_consistent
    assert [cell.seed for cell in grid.cells if cell.repeat == 1] == [43, 43], "seed of providers"
    # Repeats have the same participants, so no claim is tested over them.
    (finding,) = pooled_findings(grid)
    assert finding.key == "fork_effect"
    rows = [dict(zip(finding.grid.columns, row, strict=True)) for row in finding.grid.rows]
    assert rows[0]["figure"] == "closed answers that differ from the run"
    assert rows[0]["difference"] == pytest.approx(rows[0]["changed"] - rows[0]["as it was"])
    assert all(row["low"] is None for row in rows), "two repeats give no interval"
    again_grid = resume_repeats(tmp_path / "forks", RunOptions())
    assert [cell.name for cell in again_grid.cells] == [cell.name for cell in grid.cells]


def read_effects(grid: RunGrid) -> dict[str, dict[str, TableCell]]:
    (finding,) = pooled_findings(grid)
    records = [dict(zip(finding.grid.columns, row, strict=True)) for row in finding.grid.rows]
    effects = {str(record["figure"]): record for record in records}
    assert len(effects) == len(records), "no figure is listed twice"
    return effects


def test_repeats_show_each_primary_claim_with_and_without_the_change(
    run_of_small_study: SmallRun, tmp_path: Path
) -> None:
    base = RunFolder(run_of_small_study("focus_group"))
    answers = base.scan_table("answers").select("address").collect()["address"]
    address = next(each for each in answers if "oven/before" in each and "/opinion/" in each)
    changed_reply = {"declined": False, "opinion": "I would never buy it.", "position": -1}
    replacement = ReplyReplacement(say=json.dumps(changed_reply))
    grid = repeat_fork(base, address, replacement, 1, RunOptions(out=tmp_path / "forks"))
    means = []
    for cell in next(iter(pairs_of(grid))):
        run = grid.run(cell)
        assert run is not None
        statements = run.scan_table("statements").filter(pl.col("stimulus") == "oven").collect()
        positions = statements.pivot("when", index=["group", "persona_id"], values="position")
        means.append((positions["after"] - positions["before"]).mean())
    effects = read_effects(grid)
    effect = effects["Position on oven: after the discussion − before"]
    assert effect["family"] == "primary"
    assert [effect["changed"], effect["as it was"]] == pytest.approx(means)
    assert means[0] != means[1] and effect["difference"] == pytest.approx(means[0] - means[1])
    assert effects["Would buy oven: after the discussion − before"]["family"] == "secondary"
    (finding,) = pooled_findings(grid)
    assert "Position on oven: after the discussion − before" in finding.says


def test_repeats_show_each_hypothesis_with_and_without_the_change(tmp_path: Path) -> None:
    source = small_study("town_hall", tmp_path)
    hypothesis = "{measure: satisfaction.post_satisfaction, contrast: ['4', '1'], direction: less}"
    source.write_text(f"{source.read_text('utf-8')}hypotheses: [{hypothesis}]\n", "utf-8")
    base = folkmoot.run(source, model="synthetic", out=tmp_path / "run").folder
    replacement = ReplyReplacement(drop=True)
    forks = RunOptions(out=tmp_path / "forks")
    grid = repeat_fork(base, "set01_lv4/after/A01/ask0", replacement, 1, forks)
    effects = read_effects(grid)
    (label,) = (label for label in effects if label.startswith("Post satisfaction"))
    means = []
    for cell in next(iter(pairs_of(grid))):
        run = grid.run(cell)
        assert run is not None
        table = run.scan_table("satisfaction").group_by("level").agg(pl.mean("post_satisfaction"))
        by_level = dict(table.collect().iter_rows())
        means.append(by_level["4"] - by_level["1"])
    assert effects[label]["family"] == "primary"
    assert [effects[label]["changed"], effects[label]["as it was"]] == pytest.approx(means)


TWO_MEASURES = """
import folkmoot as fm
from folkmoot.kit.claims import claims_finding, read_results
from folkmoot.measures.inference.claims import Claim

class Vote(fm.Row, table="votes"):
    participant_id: str
    condition: str
    changed: bool
    score: float

async def protocol(session):
    async def ask(scope, n):
        said = await scope.ask(fm.Speaker(f"p{n}"), "How are you?")
        row = {"condition": "ab"[n % 2], "changed": n % 3 == 0, "score": n + len(str(said))}
        scope.record(Vote(participant_id=f"p{n}", **row))

    await session.map(range(12), ask)

def claims(config):
    share = Claim("votes.changed", ("a", "b"), family="primary")
    return [share, Claim("votes.score", ("a", "b"), "mean", family="primary")]

def findings(run):
    results = read_results(run, fm.StudyConfig, claims)
    return [claims_finding("differences", "Differences", results, axis="difference")]

STUDY = fm.Study(
    "two", "Two", fm.StudyConfig, protocol, tables=(Vote,), claims=claims, findings=findings
)
"""


def test_repeats_list_the_claims_of_a_finding_on_several_measures_once(tmp_path: Path) -> None:
    (tmp_path / "two.py").write_text(TWO_MEASURES)
    (tmp_path / "two.yaml").write_text("study: two.py\n")
    base = folkmoot.run(tmp_path / "two.yaml", model="synthetic", out=tmp_path / "run").folder
    address = base.scan_table("answers").select("address").collect()["address"][0]
    options = RunOptions(out=tmp_path / "forks")
    grid = repeat_fork(base, address, ReplyReplacement(say="Fine."), 1, options)
    assert {*read_effects(grid)} == {"Changed: a − b", "Score: a − b"}
    # The lines of the finding are named, because another measure may have the same values.
    (finding,) = pooled_findings(grid)
    (note,) = (note for note in finding.notes if note.startswith("Not listed again"))
    assert "“Differences: Changed: a − b”, “Differences: Score: a − b”" in note
