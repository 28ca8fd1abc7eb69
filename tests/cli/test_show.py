"""`folkmoot show RUN ID --prompts`: the sources of a prompt can be read without colours."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from pydantic import BaseModel
from typer.testing import CliRunner

import folkmoot
from folkmoot import Choice, Json, Session, Speaker, Study, StudyConfig
from folkmoot.cli.app import app
from folkmoot.cli.show import list_addresses, render_run_lines
from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.errors import InputError
from folkmoot.models.request import ModelRequest
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.storage.rows import Row
from folkmoot.storage.run_folder import JOURNAL, RunFolder
from folkmoot.studies.negotiation.rules.strategies import TOPICS
from folkmoot.view.rooms import LEADERS
from tests.shown import render_run_text
from tests.sweeps import sample_daily

STUDIES = ("cross_pollination", "focus_group", "negotiation", "town_hall", "workbook")
LEGEND_ENTRY = re.compile(r"^  \[(\w+|\?)\] ([^:]+)(?:: (.*))?$")


@pytest.fixture(scope="module")
def runs_folder(
    tmp_path_factory: pytest.TempPathFactory, run_of_small_study: Callable[[str], Path]
) -> Path:
    folder = tmp_path_factory.mktemp("show")
    for name in STUDIES:
        shutil.copytree(run_of_small_study(name), folder / name)
    return folder


def find_call_with_utterances(run: RunFolder) -> str:
    spans = run.read_table("provenance").with_columns(number=pl.len().over("address"))
    candidates = spans.filter(pl.col("kind").is_in(["utterance", "answer"]), pl.col("number") < 60)
    return str(candidates.sort("number", "address")["address"][-1])


@pytest.mark.parametrize("study", sample_daily(STUDIES, daily=("town_hall",), part="sweeps"))
def test_prompts_are_complete_and_the_legend_explains_each_mark(
    runs_folder: Path, study: str
) -> None:
    run = RunFolder(runs_folder / study)
    address = find_call_with_utterances(run)
    text = render_run_text(run, address, prompts=True)
    with JournalReader(run.path / JOURNAL) as journal:
        entry = journal.entry_at(address)
        assert entry is not None
    entries = [match for line in text.splitlines() if (match := LEGEND_ENTRY.match(line))]
    keys = {match[1] for match in entries}
    head, *messages = re.split(r"\n(?=(?:system|user|assistant|reply):\n)", text)
    assert "without a key: instructions of the study" in head
    unmarked = [
        re.sub(rf"\[/?(?:{'|'.join(map(re.escape, keys))})\]", "", match) for match in messages
    ]
    expected = [f"{match['role']}:\n{match['content']}" for match in entry.request["messages"]]
    assert unmarked == [*expected, f"reply:\n{entry.reply}"]
    for key in keys - {"V"}:
        assert text.count(f"[{key}]") - 1 == text.count(f"[/{key}]") > 0
    quoted = run.read_table("provenance").filter(address=address, kind="utterance")["source_id"]
    listed_ids = {
        id for match in entries for id in (match[3] or "").replace(" (changed)", "").split(", ")
    }
    assert set(quoted) <= listed_ids or any("more" in id for id in listed_ids)
    utterance_ids = run.read_table("utterances")["utterance_id"].to_list()
    assert set(quoted) <= {*utterance_ids}


def test_output_without_colours_has_the_same_content(
    runs_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["show", str(runs_folder / "cross_pollination"), "p_0001", "--prompts"]
    monkeypatch.setenv("NO_COLOR", "1")
    plain_result = CliRunner().invoke(app, arguments)
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "400")
    coloured_result = CliRunner().invoke(app, arguments, env={"TERM": "xterm-256color"})
    assert plain_result.exit_code == coloured_result.exit_code == 0, plain_result.output
    assert "\x1b" not in plain_result.stdout and "\x1b[" in coloured_result.stdout
    assert "[P]" in plain_result.stdout and "[/P]" in plain_result.stdout
    stripped = re.sub(r"\x1b\[[\d;]*m", "", coloured_result.stdout)
    assert stripped.split()[-200:] == plain_result.stdout.split()[-200:]


@pytest.mark.parametrize(
    ("study", "selected_id", "address_part"),
    [
        ("cross_pollination", "p_0002", "/p_0002/"),
        ("focus_group", "group_001/oven", "group_001/oven/"),
        ("focus_group", "moderator", "/"),
        ("town_hall", "set01_lv4/A02", "set01_lv4/"),
    ],
)
def test_ids_select_participants_conversations_and_leading_roles(
    runs_folder: Path, study: str, selected_id: str, address_part: str
) -> None:
    run = RunFolder(runs_folder / study)
    text = render_run_text(run, selected_id, prompts=True)
    titles = re.findall(r"^\S.*  (\S+/ask\d+)$", text, re.MULTILINE)
    speakers_by_address = dict(
        run.read_table("answers").select("address", "speaker_id").iter_rows()
    )
    assert titles and all(address_part in title for title in titles)
    speakers = {speakers_by_address[title] for title in titles}
    assert (
        len(speakers) > 1
        if selected_id.endswith("oven")
        else speakers == {selected_id.rpartition("/")[2]}
    )
    with pytest.raises(InputError, match="is not in this run"):
        render_run_text(run, "elsewhere", prompts=True)


# Daily, a study with rooms. At night, one with sessions as well.
@pytest.mark.parametrize("study", sample_daily(STUDIES, daily=("town_hall",), part="pages"))
def test_every_id_of_the_overview_can_be_shown_with_and_without_prompts(
    runs_folder: Path, study: str
) -> None:
    """Conversations, participants, and ids that the study type adds, such as groups."""
    run = RunFolder(runs_folder / study)
    ids = [
        line.plain[span.start : span.end].strip()
        for line in render_run_lines(run)
        for span in line.spans
        if "bold" in str(span.style).split()
    ]
    listed_ids = [id for id in ids if id and " " not in id and id != run.id]
    assert len(listed_ids) >= run.read_table("answers")["speaker_id"].n_unique() - len(LEADERS)
    assert study != "negotiation" or set(run.read_table("decisions")["group_id"]) <= {*listed_ids}
    for id in listed_ids:
        assert render_run_text(run, id) and re.search(
            r"  \S+/ask\d+$", render_run_text(run, id, prompts=True), re.M
        ), id


def test_an_id_without_calls_has_no_prompts(tmp_path: Path) -> None:
    """A negotiation with preferences from the file and without dialogue asks only members."""
    path = tmp_path / "home.yaml"
    member = {"role": "spouse", "persona": "a judge", "preferences": dict.fromkeys(TOPICS, "any")}
    groups = [{"id": "home", "type": "spouses", "members": [member, member]}]
    settings = {"study": "negotiation", "conditions": ["C1"], "coding": "off", "groups": groups}
    path.write_text(json.dumps(settings), "utf-8")
    run = folkmoot.run(path, model="synthetic", out=tmp_path / "run").folder
    assert "single user" in render_run_text(run) and "\nhome\n" in render_run_text(run)
    assert (
        render_run_text(run, "home", prompts=True)
        == "home: no model was asked here, so there are no prompts"
    )


def test_a_study_types_own_status_is_shown_as_any_other_column(tmp_path: Path) -> None:
    class Motion(Row, table="participants"):
        participant_id: str
        status: str

    async def protocol(session: Session[StudyConfig]) -> None:
        session.record(Motion(participant_id="anna", status="failed"))
        await session.ask(Speaker("chair", "Chair"), "Anna's motion?")

    study = Study("motions", "Motions", StudyConfig, protocol, tables=(Motion,))
    provider = ScriptedProvider(lambda _request, _attempt: "yes")
    run = folkmoot.run(study, {}, provider=provider, out=tmp_path / "run").folder
    assert "anna  status failed" in render_run_text(run)


def test_addresses_are_listed_with_the_replies_of_json_answers(tmp_path: Path) -> None:
    class Opinion(BaseModel):
        score: int

    async def ask_for_opinions(session: Session) -> None:
        speaker = Speaker("ann", system="You are Ann.")
        await session.ask(speaker, "Rate the parks.", answer_type=Json(Opinion))
        await session.ask(speaker, "Parks?", answer_type=Choice(("yes", "no")))

    replies = {"Rate the parks.": "Hm.", "Parks?": "yes"}

    def reply_to(request: ModelRequest, address: str) -> str:
        # The first reply cannot be read, so the answer is that of the re-ask.
        return replies.get(request.messages[-1].content, '{"score": 4}')

    study = Study("opinions", "Opinions", StudyConfig, ask_for_opinions)
    finished_run = folkmoot.run(
        study, {}, out=tmp_path / "run", provider=ScriptedProvider(reply_to)
    )
    lines = [line.plain for line in list_addresses(finished_run.folder)]
    assert lines == ['ask0  ann: {"score": 4}', "ask1  ann: yes"]


def test_missing_sources_of_a_run_are_reported(runs_folder: Path, tmp_path: Path) -> None:
    run = RunFolder(runs_folder / "cross_pollination")
    path = run.path / "tables" / "provenance.parquet"
    moved_table = path.rename(tmp_path / "kept")
    try:
        text = render_run_text(run, "p_0001", prompts=True)
    finally:
        moved_table.rename(path)
    assert "This run did not record the sources of this prompt." in text
    assert "You are" in text and "[P]" not in text
