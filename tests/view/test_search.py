"""Search finds all replies that contain the words, no others, and no withdrawn ones."""

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
from folkmoot.view.search import INDEX, PER_PAGE, _mark_matches, _query_expression
from tests.servers.pages import PageServer
from tests.view.conftest import create_viewer_server, wait_for_search_results


def read_reply_count(page: str) -> int:
    match = re.search(r">([\d,]+) repl", page)
    assert match, page
    return int(match[1].replace(",", ""))


def test_search_finds_all_matching_replies_of_the_journal(run_copy: Path) -> None:
    with JournalReader(run_copy / JOURNAL) as journal:
        replies = [
            entry.reply
            for entry in journal.read_entries("ask")
            if not entry.address.startswith("coding/")
        ]
    with create_viewer_server(run_copy.parent) as server:
        for word in ("price", "oven", "agree", "Moderator"):
            word_pattern = re.compile(rf"\b{word}", re.IGNORECASE)
            fields = [" ".join(list_reply_texts(reply)) for reply in replies]
            assert read_reply_count(wait_for_search_results(server, "copy", word)) == sum(
                bool(word_pattern.search(field_text)) for field_text in fields
            )
        assert read_reply_count(
            wait_for_search_results(server, "copy", '"the oven"')
        ) <= read_reply_count(wait_for_search_results(server, "copy", "the oven"))
        assert read_reply_count(wait_for_search_results(server, "copy", "wombat")) == 0


@pytest.mark.parametrize(
    ("run", "word"),
    [("negotiation", "Moderator"), ("workbook", "facilitator"), ("town_hall", "plan")],
)
def test_search_finds_speakers_by_their_name_or_role(
    run: str, word: str, page_server: PageServer
) -> None:
    page = wait_for_search_results(page_server, run, word)
    (link,) = re.findall(rf'href="(/run/{run}/-/search\?by=[^"]*)"', page)
    said = page_server.get(html.unescape(link)).text
    count = re.search(r'role="status">(\d+) utterance', said)
    assert count is not None and int(count[1]) > 0
    texts = re.findall(r'<p class="text">([^<]*)</p>', said)
    assert len(texts) == min(int(count[1]), PER_PAGE) and all(texts)


def list_reply_texts(reply: str) -> list[str]:
    try:
        parsed = json.loads(reply)
    except ValueError:
        return [reply]
    return list(list_nested_texts(parsed)) if isinstance(parsed, dict) else [reply]


def list_nested_texts(value: object) -> list[str]:
    if isinstance(value, dict):
        return [text for item in value.values() for text in list_nested_texts(item)]
    if isinstance(value, list):
        return [text for item in value for text in list_nested_texts(item)]
    return [str(value)]


@pytest.mark.parametrize(
    "query", ['"', "*", "a OR", "NEAR(", "text:x", "'; DROP", "(", '""', "-x", "ünï", "a\0b"]
)
def test_no_query_is_an_error(run_copy: Path, query: str) -> None:
    with create_viewer_server(run_copy.parent) as server:
        page = wait_for_search_results(server, "copy", query)
        assert 'id="find"' in page
        search_page = server.get(f"/search?q={quote(query)}").text
        assert "could be searched" not in page + search_page


def test_a_hit_leads_to_its_utterance(run_copy: Path) -> None:
    with create_viewer_server(run_copy.parent) as server:
        page = wait_for_search_results(server, "copy", "oven")
        links = re.findall(r'href="([^"]*/said\?[^"]*)"', page)
        assert links
        assert "oven" in server.get(html.unescape(links[0])).text.lower()


def test_withdrawn_replies_are_not_found_and_not_in_the_index(run_copy: Path) -> None:
    with create_viewer_server(run_copy.parent) as server:
        before = read_reply_count(wait_for_search_results(server, "copy", "oven"))
        database = sqlite3.connect(run_copy / JOURNAL)
        with database:
            database.execute("UPDATE entries SET reply = '[withdrawn]'")
        database.close()
        (run_copy / "amendments.jsonl").write_text("{}\n")
        assert before > 0 and read_reply_count(wait_for_search_results(server, "copy", "oven")) == 0
    assert b"oven" not in (cache_folder(run_copy) / INDEX).read_bytes()


def test_a_search_does_not_build_the_index_itself(
    run_copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed = threading.Event()
    build = search._build_index

    def build_when_allowed(run: RunFolder) -> None:
        allowed.wait()
        build(run)

    monkeypatch.setattr(search, "_build_index", build_when_allowed)
    searches, run = search.Searches(), RunFolder(run_copy)
    try:
        early_results = searches.find_replies(run, "oven", wait=0)
        assert (early_results.total, early_results.indexed, early_results.why) == (0, 0.0, "")
        assert not (cache_folder(run_copy) / INDEX).exists()
    finally:
        allowed.set()
    results = searches.find_replies(run, "oven", wait=60)
    assert results.total > 0 and (results.indexed, results.why) == (1.0, "")


def search_all_runs(server: PageServer, query: str) -> str:
    """Return the search results of all runs, page after page."""
    pages, start = "", "0"
    while start:
        page = server.get(f"/search?q={quote(query)}&start={start}").text
        further = re.search(r'href="/search\?q=[^"]*start=(\d+)">Go on', page)
        start = further[1] if further else ""
        pages += page
    return pages


def test_all_runs_are_searched_at_once(outputs: Path, page_server: PageServer) -> None:
    page_text = search_all_runs(page_server, "the")
    for run in outputs.iterdir():
        reply_count = read_reply_count(wait_for_search_results(page_server, run.name, "the"))
        assert f">{run.name}</a> <small>{reply_count:,} repl" in page_text and reply_count
    links = re.findall(r'href="([^"]*/said\?[^"]*)"', search_all_runs(page_server, "oven"))
    assert links and {link.split("/")[2] for link in links} == {"focus_group"}
    assert "oven" in page_server.get(html.unescape(links[0])).text.lower()
    assert "5 runs were searched" in search_all_runs(page_server, "wombat")
    assert "repl" not in search_all_runs(page_server, "wombat")


def test_speakers_of_all_runs_are_listed_with_what_they_said(page_server: PageServer) -> None:
    page_text = search_all_runs(page_server, "moderator")
    links = re.findall(r'href="([^"]*/search\?by=[^"]*)"', page_text)
    assert {link.split("/")[2] for link in links} >= {"focus_group", "town_hall"}
    for link in links:
        assert "<h1>Said by" in page_server.get(html.unescape(link)).text


def test_a_run_that_cannot_be_searched_does_not_stop_the_others(
    outputs: Path, run_copy: Path
) -> None:
    shutil.copytree(outputs / "town_hall", run_copy.parent / "z")
    (run_copy / JOURNAL).write_bytes(b"no journal" * 1000)
    with create_viewer_server(run_copy.parent) as server:
        page_text = search_all_runs(server, "the")
        assert "Not all of it could be searched" in page_text and ">z</a>" in page_text


async def protocol(session: Session[StudyConfig]) -> None:
    await session.ask(Speaker("a"), "What?")
    await session.compute(len, [1, 2])


def test_computed_entries_and_lone_surrogates_do_not_stop_the_search(
    tmp_path: Path,
) -> None:
    model = ScriptedProvider(
        lambda _request, _address: '{"said": "half \\ud83d a wombat", "none": null}'
    )
    study = Study("half", "Half", StudyConfig, protocol)
    folkmoot.run(study, {}, provider=model, out=tmp_path / "outputs" / "half")
    with create_viewer_server(tmp_path / "outputs") as server:
        assert read_reply_count(wait_for_search_results(server, "half", "wombat")) == 1
        assert read_reply_count(wait_for_search_results(server, "half", "null")) == 0
        assert server.get("/run/half/-/said?at=ask0").status == 200


def test_the_cache_is_outside_the_run_and_readable_only_by_its_owner(run_copy: Path) -> None:
    folder = open_overview_cache(run_copy)
    assert not folder.is_relative_to(run_copy) and folder.stat().st_mode & 0o077 == 0


def test_the_last_word_may_be_a_prefix() -> None:
    assert _query_expression('street "saf') == '"street" "saf"*'
    assert _query_expression("") == _query_expression('"" * -') == ""


def test_words_are_marked_and_the_rest_is_text() -> None:
    marked = str(_mark_matches("a <b>park</b> of parks", "park"))
    assert marked == "a &lt;b&gt;<mark>park</mark>&lt;/b&gt; of <mark>parks</mark>"
