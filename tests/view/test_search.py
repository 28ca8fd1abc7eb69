"""Search: every reply that holds the words, no other, and nothing that was taken back."""

from __future__ import annotations

import html
import json
import re
import shutil
import sqlite3
import threading
from pathlib import Path
from urllib.parse import quote

import pytest

import folkmoot
from folkmoot import Session, Speaker, Study, StudyConfig
from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.storage.run_folder import JOURNAL, RunFolder, cache_folder
from folkmoot.view import search
from folkmoot.view.overview import open_overview_cache
from folkmoot.view.search import INDEX, _mark_matches, _query_expression
from tests.servers.pages import PageServer
from tests.view.conftest import found_in, reader


def count(page: str) -> int:
    found = re.search(r">([\d,]+) repl", page)
    assert found, page
    return int(found[1].replace(",", ""))


def test_as_many_replies_are_found_as_the_journal_holds(copy: Path) -> None:
    with JournalReader(copy / JOURNAL) as journal:
        replies = [
            e.reply for e in journal.read_entries("ask") if not e.address.startswith("coding/")
        ]
    with reader(copy.parent) as server:
        for word in ("price", "oven", "agree", "Moderator"):
            own = re.compile(rf"\b{word}", re.IGNORECASE)
            fields = [" ".join(_values(r)) for r in replies]
            assert count(found_in(server, "copy", word)) == sum(bool(own.search(f)) for f in fields)
        assert count(found_in(server, "copy", '"the oven"')) <= count(
            found_in(server, "copy", "the oven")
        )
        assert count(found_in(server, "copy", "wombat")) == 0


def _values(reply: str) -> list[str]:
    try:
        found = json.loads(reply)
    except ValueError:
        return [reply]
    return list(_texts(found)) if isinstance(found, dict) else [reply]


def _texts(value: object) -> list[str]:
    if isinstance(value, dict):
        return [t for v in value.values() for t in _texts(v)]
    if isinstance(value, list):
        return [t for v in value for t in _texts(v)]
    return [str(value)]


@pytest.mark.parametrize(
    "query", ['"', "*", "a OR", "NEAR(", "text:x", "'; DROP", "(", '""', "-x", "ünï", "a\0b"]
)
def test_no_query_is_an_error(copy: Path, query: str) -> None:
    with reader(copy.parent) as server:
        page = found_in(server, "copy", query)
        assert 'id="find"' in page
        everywhere = server.get(f"/search?q={quote(query)}").text
        assert "could be searched" not in page + everywhere


def test_a_hit_leads_to_its_utterance(copy: Path) -> None:
    with reader(copy.parent) as server:
        page = found_in(server, "copy", "oven")
        links = re.findall(r'href="([^"]*/said\?[^"]*)"', page)
        assert links
        assert "oven" in server.get(html.unescape(links[0])).text.lower()


def test_what_was_withdrawn_is_not_found_and_not_in_the_index(copy: Path) -> None:
    with reader(copy.parent) as server:
        before = count(found_in(server, "copy", "oven"))
        db = sqlite3.connect(copy / JOURNAL)
        with db:
            db.execute("UPDATE entries SET reply = '[withdrawn]'")
        db.close()
        (copy / "amendments.jsonl").write_text("{}\n")
        assert before > 0 and count(found_in(server, "copy", "oven")) == 0
    assert b"oven" not in (cache_folder(copy) / INDEX).read_bytes()


def test_who_searches_leaves_the_index_to_the_thread_that_builds_it(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed = threading.Event()
    build = search._build_index

    def build_when_allowed(run: RunFolder) -> None:
        allowed.wait()
        build(run)

    monkeypatch.setattr(search, "_build_index", build_when_allowed)
    searches, run = search.Searches(), RunFolder(copy)
    try:
        early = searches.find_replies(run, "oven", wait=0)
        assert (early.total, early.indexed, early.why) == (0, 0.0, "")
        assert not (cache_folder(copy) / INDEX).exists()
    finally:
        allowed.set()
    found = searches.find_replies(run, "oven", wait=60)
    assert found.total > 0 and (found.indexed, found.why) == (1.0, "")


def everywhere(server: PageServer, query: str) -> str:
    """What is found in all runs, once all of them were searched."""
    pages, start = "", "0"
    while start:
        page = server.get(f"/search?q={quote(query)}&start={start}").text
        further = re.search(r'href="/search\?q=[^"]*start=(\d+)">Go on', page)
        start = further[1] if further else ""
        pages += page
    return pages


def test_all_runs_are_searched_at_once(outputs: Path, served: PageServer) -> None:
    found = everywhere(served, "the")
    for run in outputs.iterdir():
        own = count(found_in(served, run.name, "the"))
        assert f">{run.name}</a> <small>{own:,} repl" in found and own
    links = re.findall(r'href="([^"]*/said\?[^"]*)"', everywhere(served, "oven"))
    assert links and {link.split("/")[2] for link in links} == {"focus_group"}
    assert "oven" in served.get(html.unescape(links[0])).text.lower()
    assert "5 runs were searched" in everywhere(served, "wombat")
    assert "repl" not in everywhere(served, "wombat")


def test_a_run_that_cannot_be_searched_does_not_stop_the_others(outputs: Path, copy: Path) -> None:
    shutil.copytree(outputs / "town_hall", copy.parent / "z")
    (copy / JOURNAL).write_bytes(b"no journal" * 1000)
    with reader(copy.parent) as server:
        found = everywhere(server, "the")
        assert "Not all of it could be searched" in found and ">z</a>" in found


async def protocol(session: Session[StudyConfig]) -> None:
    await session.ask(Speaker("a"), "What?")
    await session.compute(len, [1, 2])


def test_what_comes_after_the_last_words_and_half_characters_do_not_stop_it(
    tmp_path: Path,
) -> None:
    model = ScriptedProvider(
        lambda _request, _address: '{"said": "half \\ud83d a wombat", "none": null}'
    )
    study = Study("half", "Half", StudyConfig, protocol)
    folkmoot.run(study, {}, provider=model, out=tmp_path / "outputs" / "half")
    with reader(tmp_path / "outputs") as server:
        assert count(found_in(server, "half", "wombat")) == 1
        assert count(found_in(server, "half", "null")) == 0
        assert server.get("/run/half/-/said?at=ask0").status == 200


def test_the_cache_is_outside_the_run_and_for_its_owner_alone(copy: Path) -> None:
    folder = open_overview_cache(copy)
    assert not folder.is_relative_to(copy) and folder.stat().st_mode & 0o077 == 0


def test_the_last_word_may_be_a_beginning() -> None:
    assert _query_expression('street "saf') == '"street" "saf"*'
    assert _query_expression("") == _query_expression('"" * -') == ""


def test_words_are_marked_and_the_rest_is_text() -> None:
    marked = str(_mark_matches("a <b>park</b> of parks", "park"))
    assert marked == "a &lt;b&gt;<mark>park</mark>&lt;/b&gt; of <mark>parks</mark>"
