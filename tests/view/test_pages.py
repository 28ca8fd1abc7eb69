"""What the pages show, and that no text of a speaker or a study becomes markup."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote, urljoin, urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import folkmoot
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.storage.run_folder import RunFolder
from folkmoot.view.people import count_of
from tests.servers.pages import PageServer
from tests.view import hostile
from tests.view.conftest import create_viewer_server, wait_for_computed_page

MAX_PAGES_PER_PATH = 4  # pages with the same path and different queries


class Page(HTMLParser):
    """The links of a page, and the parts of it that could run code."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.executable_parts: list[str] = []
        self.ids: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if tag == "a" and attributes.get("href"):
            self.links.append(str(attributes["href"]))
        if attributes.get("hx-get"):
            self.links.append(str(attributes["hx-get"]))
        if "id" in attributes:
            self.ids.append(str(attributes["id"]))
        is_inline = tag == "script" and not str(attributes.get("src", "")).startswith("/static/")
        handlers = [
            attribute_name
            for attribute_name, _ in attrs
            if attribute_name.startswith("on") or attribute_name == "style"
        ]
        if is_inline or handlers or tag in ("img", "iframe", "style", "object", "base"):
            self.executable_parts.append(f"<{tag} {attrs}>")


SLOW = ("/-/findings", "/-/report")  # computed in a separate process


def crawl(
    server: PageServer, start: str, excluded_endings: tuple[str, ...] = ()
) -> Iterator[tuple[str, Page, str]]:
    """Yield the pages that can be reached from `start`, at most MAX_PAGES_PER_PATH of each path."""
    paths_to_visit, known_paths = [start], {start}
    visit_counts: Counter[str] = Counter()
    while paths_to_visit:
        path = paths_to_visit.pop(0)
        visit_counts[path.partition("?")[0]] += 1
        if visit_counts[path.partition("?")[0]] > MAX_PAGES_PER_PATH or path.endswith(
            excluded_endings
        ):
            continue
        response = wait_for_computed_page(server, path) if path.endswith(SLOW) else server.get(path)
        assert response.status in (200, 303), (path, response.status, response.text[:300])
        if "text/html" not in response.headers.get("Content-Type", ""):
            continue
        page = Page(response.text)
        yield path, page, response.text
        if path.partition("?")[0].endswith("/-/report"):
            continue
        for link in page.links:
            target = urlsplit(urljoin(path, link))
            assert not target.netloc, f"{path} leads away to {link}"
            target_path = target.path + (f"?{target.query}" if target.query else "")
            if target_path not in known_paths and "/-/file" not in target_path:
                known_paths.add(target_path)
                paths_to_visit.append(target_path)


@pytest.fixture(scope="module")
def hostile_run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    folder = tmp_path_factory.mktemp("hostile")
    code = folder / "hostile.py"
    shutil.copy(Path(hostile.__file__), code)
    (folder / "study.yaml").write_text("study: ./hostile.py\n", "utf-8")
    model = ScriptedProvider(hostile.answer)
    return folkmoot.run(
        folder / "study.yaml", provider=model, out=folder / "outputs" / "bad 'run'", trust=True
    ).folder


def test_texts_of_a_study_never_become_markup(hostile_run: RunFolder) -> None:
    texts_by_page = {}
    with create_viewer_server(hostile_run.path.parent) as server:
        run_name = quote("bad 'run'")
        for path, page, text in crawl(server, "/"):
            if path.endswith("/-/report"):
                continue
            assert page.executable_parts == [], path
            assert "62710561" not in text, path
            texts_by_page[path.partition("?")[0].removeprefix(f"/run/{run_name}/-/")] = (
                html.unescape(text)
            )
        search_page = server.get(f"/run/{run_name}/-/search?q=alert").text
        assert Page(search_page).executable_parts == [] and "2 replies" not in search_page
    markup = "<script>alert(1)</script>"
    for name in ("", "people", "person", "rooms", "room", "said", "call", "findings"):
        assert markup in texts_by_page[name], (name, sorted(texts_by_page))


def test_ids_with_arbitrary_characters_lead_to_their_page(hostile_run: RunFolder) -> None:
    with create_viewer_server(hostile_run.path.parent) as server:
        run_name = quote("bad 'run'")
        people_page = Page(server.get(f"/run/{run_name}/-/people").text)
        persons = [link for link in people_page.links if "/person?" in link]
        assert len(persons) == 2
        for link in persons:
            page = html.unescape(server.get(link).text)
            assert page.count("You are") == 0 and "alert(1)" in page
            assert "No call of this participant" not in page


def test_every_page_of_every_study_type_can_be_reached(page_server: PageServer) -> None:
    visited_paths = {}
    for path, page, _ in crawl(page_server, "/", excluded_endings=SLOW):
        assert page.executable_parts == [], path
        visited_paths[path.partition("?")[0]] = True
    for study in ("cross_pollination", "town_hall", "focus_group", "negotiation", "workbook"):
        for name in ("", "people", "person", "rooms", "said", "call"):
            assert f"/run/{study}/-/{name}" in visited_paths
        assert (f"/run/{study}/-/room" in visited_paths) == (study != "cross_pollination")


@pytest.mark.nightly(part="pages")
def test_findings_of_every_study_type_hold_no_style_or_script(page_server: PageServer) -> None:
    for study in ("cross_pollination", "town_hall", "focus_group", "negotiation", "workbook"):
        response = wait_for_computed_page(page_server, f"/run/{study}/-/findings")
        assert response.status == 200 and Page(response.text).executable_parts == []
        assert "How far to trust it" in response.text and "Main findings" in response.text


def test_a_participant_of_several_conversations_counts_once(
    outputs: Path, page_server: PageServer
) -> None:
    """The residents of a town hall are the same at all levels."""
    residents = RunFolder(outputs / "town_hall").read_table("residents").height
    assert count_of(RunFolder(outputs / "town_hall")) == residents
    text = page_server.get("/run/town_hall/-/people").text
    assert f"{residents} people, in {2 * residents} rows: one for each conversation" in text
    page = page_server.get("/run/town_hall/-/person?id=set01_lv1/A01").text
    assert "Also takes part in" in page and "/person?id=set01_lv4%2FA01" in page


def test_participants_are_filtered_by_displayed_values(page_server: PageServer) -> None:
    def get_count_text(query: str) -> str:
        text = page_server.get(f"/run/cross_pollination/-/people?q={quote(query)}").text
        match = re.search(r'role="status">([^<]*)<', text)
        assert match is not None
        return match[1]

    acp_count = get_count_text("condition=acp")
    assert not acp_count.startswith("0 ")
    assert get_count_text("Condition=ACP") == acp_count
    assert get_count_text("position_changed=yes") == get_count_text("position_changed=true")
    assert get_count_text("position_changed=no") == get_count_text("position_changed=false")
    assert not get_count_text("position_changed!=x").startswith("0 ")
    # A misspelt column is a problem, not an empty result.
    text = page_server.get("/run/cross_pollination/-/people?q=conditon=acp").text
    assert "This run has no column <code>conditon</code>" in text
    assert "has no column" not in page_server.get("/run/cross_pollination/-/people?q=acp").text


@pytest.mark.parametrize(
    "path",
    [
        "/run/../-/", "/run/%2e%2e/-/", "/run/town_hall/../../-/", "/run//-/", "/run/.git/-/",
        "/run/town_hall%00/-/", "/run/town_hall%2f..%2ffocus_group/-/", "/run/town_hall/tables/-/",
        "/run/nobody/-/people", "/run/town_hall/-/person?id=nobody",
        "/run/town_hall/-/person", "/run/town_hall/-/room?id=nowhere", "/run/town_hall/-/room",
        "/run/town_hall/-/said?at=nothing", "/run/town_hall/-/call", "/static/../site.py",
        "/run/town_hall/-/nothing", "/beside?a=town_hall&x=A01&b=../x&y=A01", "/nothing",
    ],
)  # fmt: skip
def test_a_missing_page_is_not_found(page_server: PageServer, path: str) -> None:
    response = page_server.get(path)
    assert response.status == 404
    assert "Traceback" not in response.text


@pytest.mark.parametrize(
    "name",
    [
        "../focus_group/run.log", "/etc/passwd", "tables/../../focus_group/run.log", ".lock",
        "", ".", "tables", "secrets.csv", "link.csv", "run.log%00",
    ],
)  # fmt: skip
def test_only_files_that_the_run_wrote_can_be_saved(outputs: Path, name: str) -> None:
    run = outputs / "town_hall"
    (run / "secrets.csv").write_text("prolific ids")
    (run / "link.csv").unlink(missing_ok=True)
    (run / "link.csv").symlink_to(outputs / "focus_group" / "run.log")
    with create_viewer_server(outputs) as server:
        assert server.get(f"/run/town_hall/-/file?name={quote(name)}").status == 404
        saved = server.get("/run/town_hall/-/file?name=run.log")
        assert saved.status == 200 and saved.text == (run / "run.log").read_text("utf-8")
        assert saved.headers["Content-Disposition"].startswith("attachment")


@pytest.mark.parametrize(
    "name", ["study.yaml", "plan.json", "journal.sqlite", "log.jsonl", "tables/answers.parquet"]
)
def test_a_run_with_files_linked_out_of_its_folder_is_not_read(
    outputs: Path, run_copy: Path, tmp_path: Path, name: str
) -> None:
    (run_copy / name).unlink()
    (run_copy / name).symlink_to(outputs / "town_hall" / name)
    with create_viewer_server(run_copy.parent) as server:
        for page in ("", "people", "rooms", "findings", "search?q=block", "file?name=run.log"):
            response = server.get(f"/run/copy/-/{page}")
            assert response.status == 404 and f"{name} is a link" in response.text, page
            assert "redeveloped" not in response.text
        assert server.get("/").status == server.get("/search?q=block").status == 200


def test_a_linked_run_folder_is_served(outputs: Path, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "pilot").symlink_to(outputs / "town_hall")
    with create_viewer_server(tmp_path / "here") as server:
        assert server.get("/run/pilot/-/people").status == 200


@pytest.mark.parametrize(
    "name", [b"\xff\xfe", b"a\\b", b"a b", b"-", b"%2e", b"a\nb", b"?#", b"\xc3\xbc"]
)
def test_a_run_is_listed_under_any_name(run_copy: Path, name: bytes) -> None:
    run_copy.rename(run_copy.parent / os.fsdecode(name))
    with create_viewer_server(run_copy.parent) as server:
        runs = server.get("/")
        assert runs.status == 200 and runs.text.count("data-item") == 1
        links = [link for link in Page(runs.text).links if link.startswith("/run/")]
        if name in (b"\xff\xfe", b"a\nb"):  # names that cannot occur in a URL
            assert "cannot be read" in runs.text
        else:
            assert server.get(links[0]).status == 200


@pytest.mark.parametrize("name", ["seats.json", "people.json"])
def test_links_and_names_of_people_are_never_served(
    outputs: Path, tmp_path: Path, name: str
) -> None:
    run = tmp_path / "outputs" / "x"
    shutil.copytree(outputs / "focus_group", run)
    (run / name).write_text("{}")
    manifest = json.loads((run / "manifest.json").read_text("utf-8"))
    manifest["hashes"][name] = "0"
    (run / "manifest.json").write_text(json.dumps(manifest))
    with create_viewer_server(tmp_path / "outputs") as server:
        assert server.get(f"/run/x/-/file?name={name}").status == 404
        assert name not in server.get("/run/x/-/").text


def test_a_file_that_is_a_link_is_not_served(outputs: Path, tmp_path: Path) -> None:
    run = tmp_path / "outputs" / "moved"
    shutil.copytree(outputs / "focus_group", run)
    (tmp_path / "secret").write_text("secret")
    (run / "run.log").unlink()
    (run / "run.log").symlink_to(tmp_path / "secret")
    with create_viewer_server(tmp_path / "outputs") as server:
        response = server.get("/run/moved/-/file?name=run.log")
        assert response.status == 404 and "secret" not in response.text


def test_reading_changes_nothing_in_the_run_folder(outputs: Path, tmp_path: Path) -> None:
    shutil.copytree(outputs / "focus_group", tmp_path / "outputs" / "x")
    before = read_all_files(tmp_path / "outputs")
    with create_viewer_server(tmp_path / "outputs") as server:
        paths = [path for path, _, _ in crawl(server, "/", excluded_endings=SLOW)]
        server.get("/run/x/-/search?q=oven")
    assert len(paths) > 20
    assert read_all_files(tmp_path / "outputs") == before


def read_all_files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


PATHS = (
    "/run/{run}/-/people?q={a}&sort={b}&start={a}", "/run/{run}/-/person?id={a}",
    "/run/{run}/-/room?id={a}&id={b}", "/run/{run}/-/said?at={a}", "/run/{run}/-/call?at={a}",
    "/run/{run}/-/search?q={a}&start={b}", "/run/{run}/-/file?name={a}", "/search?q={a}&start={b}",
    "/beside?a={run}&x={a}&b={b}&y={a}", "/run/{a}/-/", "/run/{a}/{b}/-/people", "/{a}",
)  # fmt: skip
# Plausible input, and random text.
INPUT_TEXT = st.one_of(
    st.sampled_from(
        ["age>1", "persona_id", "-intents.score", "statements.opinion=x", "utterances.text!=",
         "group_001/p_0001", "..", "../../etc/passwd", "%2e%2e", "a" * 5000, "\x00", "(", "[", "'",
         "who", "-who", "99999999999999999999", "intents.score>nan", "n>1e999", "\ud800"]
    ),
    st.text(max_size=12),
)  # fmt: skip


@given(INPUT_TEXT, INPUT_TEXT)
@settings(max_examples=40)
def test_any_text_in_an_address_is_answered(
    page_server: PageServer, first: str, second: str
) -> None:
    first_quoted, second_quoted = (
        quote(text, safe="", errors="surrogatepass") for text in (first, second)
    )
    for path in PATHS:
        response = page_server.get(path.format(run="focus_group", a=first_quoted, b=second_quoted))
        assert response.status in (200, 303, 404), (path, first, second, response.text)
