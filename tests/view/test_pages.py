"""What the pages show, and that nothing said by anybody becomes more than text."""

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
from tests.servers.pages import PageServer
from tests.view import hostile
from tests.view.conftest import made_in, reader

OF_A_KIND = 4  # pages with the same path, whatever their query


class Page(HTMLParser):
    """The links of a page, and whatever in it could run."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.runs: list[str] = []
        self.ids: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "a" and given.get("href"):
            self.links.append(str(given["href"]))
        if given.get("hx-get"):
            self.links.append(str(given["hx-get"]))
        if "id" in given:
            self.ids.append(str(given["id"]))
        inline = tag == "script" and not str(given.get("src", "")).startswith("/static/")
        handlers = [n for n, _ in attrs if n.startswith("on") or n == "style"]
        if inline or handlers or tag in ("img", "iframe", "style", "object", "base"):
            self.runs.append(f"<{tag} {attrs}>")


SLOW = ("/-/findings", "/-/report")  # made in a process of their own


def crawl(
    server: PageServer, start: str, without: tuple[str, ...] = ()
) -> Iterator[tuple[str, Page, str]]:
    """Pages that can be reached from one, each once; of those of one path only some."""
    waiting, met = [start], {start}
    visited: Counter[str] = Counter()
    while waiting:
        path = waiting.pop(0)
        visited[path.partition("?")[0]] += 1
        if visited[path.partition("?")[0]] > OF_A_KIND or path.endswith(without):
            continue
        got = made_in(server, path) if path.endswith(SLOW) else server.get(path)
        assert got.status in (200, 303), (path, got.status, got.text[:300])
        if "text/html" not in got.headers.get("Content-Type", ""):
            continue
        found = Page(got.text)
        yield path, found, got.text
        if path.partition("?")[0].endswith("/-/report"):
            continue
        for link in found.links:
            there = urlsplit(urljoin(path, link))
            assert not there.netloc, f"{path} leads away to {link}"
            address = there.path + (f"?{there.query}" if there.query else "")
            if address not in met and "/-/file" not in address:
                met.add(address)
                waiting.append(address)


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


def test_nothing_that_was_said_becomes_markup(hostile_run: RunFolder) -> None:
    seen = {}
    with reader(hostile_run.path.parent) as server:
        run = quote("bad 'run'")
        for path, page, text in crawl(server, "/"):
            if path.endswith("/-/report"):
                continue
            assert page.runs == [], path
            assert "62710561" not in text, path
            seen[path.partition("?")[0].removeprefix(f"/run/{run}/-/")] = html.unescape(text)
        found = server.get(f"/run/{run}/-/search?q=alert").text
        assert Page(found).runs == [] and "2 replies" not in found
    said = "<script>alert(1)</script>"
    for name in ("", "people", "person", "rooms", "room", "said", "call", "findings"):
        assert said in seen[name], (name, sorted(seen))


def test_ids_of_any_letters_lead_to_their_page(hostile_run: RunFolder) -> None:
    with reader(hostile_run.path.parent) as server:
        run = quote("bad 'run'")
        people = Page(server.get(f"/run/{run}/-/people").text)
        persons = [link for link in people.links if "/person?" in link]
        assert len(persons) == 2
        for link in persons:
            page = html.unescape(server.get(link).text)
            assert page.count("You are") == 0 and "alert(1)" in page
            assert "No call of this participant" not in page


def test_every_page_of_every_study_type_can_be_reached(served: PageServer) -> None:
    met = {}
    for path, page, _ in crawl(served, "/", without=SLOW):
        assert page.runs == [], path
        met[path.partition("?")[0]] = True
    for study in ("cross_pollination", "town_hall", "focus_group", "negotiation", "workbook"):
        for name in ("", "people", "person", "rooms", "said", "call"):
            assert f"/run/{study}/-/{name}" in met
        assert (f"/run/{study}/-/room" in met) == (study != "cross_pollination")


@pytest.mark.nightly(part="pages")
def test_findings_of_every_study_type_hold_no_style_or_script(served: PageServer) -> None:
    for study in ("cross_pollination", "town_hall", "focus_group", "negotiation", "workbook"):
        found = made_in(served, f"/run/{study}/-/findings")
        assert found.status == 200 and Page(found.text).runs == []
        assert "How far to trust it" in found.text and "Main findings" in found.text


def test_participants_are_filtered_by_what_the_page_shows(served: PageServer) -> None:
    def counted(query: str) -> str:
        text = served.get(f"/run/cross_pollination/-/people?q={quote(query)}").text
        found = re.search(r'role="status">([^<]*)<', text)
        assert found is not None
        return found[1]

    own = counted("condition=acp")
    assert not own.startswith("0 ")
    assert counted("Condition=ACP") == own
    assert counted("position_changed=yes") == counted("position_changed=true")
    assert counted("position_changed=no") == counted("position_changed=false")
    assert not counted("position_changed!=x").startswith("0 ")
    # A misspelt column is no result without a participant.
    text = served.get("/run/cross_pollination/-/people?q=conditon=acp").text
    assert "This run has no column <code>conditon</code>" in text
    assert "has no column" not in served.get("/run/cross_pollination/-/people?q=acp").text


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
def test_what_is_not_there_is_said(served: PageServer, path: str) -> None:
    got = served.get(path)
    assert got.status == 404
    assert "Traceback" not in got.text


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
    with reader(outputs) as server:
        assert server.get(f"/run/town_hall/-/file?name={quote(name)}").status == 404
        saved = server.get("/run/town_hall/-/file?name=run.log")
        assert saved.status == 200 and saved.text == (run / "run.log").read_text("utf-8")
        assert saved.headers["Content-Disposition"].startswith("attachment")


@pytest.mark.parametrize(
    "name", ["study.yaml", "plan.json", "journal.sqlite", "log.jsonl", "tables/answers.parquet"]
)
def test_a_run_whose_files_lead_out_of_its_folder_is_not_read(
    outputs: Path, copy: Path, tmp_path: Path, name: str
) -> None:
    (copy / name).unlink()
    (copy / name).symlink_to(outputs / "town_hall" / name)
    with reader(copy.parent) as server:
        for page in ("", "people", "rooms", "findings", "search?q=block", "file?name=run.log"):
            got = server.get(f"/run/copy/-/{page}")
            assert got.status == 404 and f"{name} is a link" in got.text, page
            assert "redeveloped" not in got.text
        assert server.get("/").status == server.get("/search?q=block").status == 200


def test_a_run_may_lie_elsewhere_itself(outputs: Path, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "pilot").symlink_to(outputs / "town_hall")
    with reader(tmp_path / "here") as server:
        assert server.get("/run/pilot/-/people").status == 200


@pytest.mark.parametrize(
    "name", [b"\xff\xfe", b"a\\b", b"a b", b"-", b"%2e", b"a\nb", b"?#", b"\xc3\xbc"]
)
def test_a_run_is_listed_under_any_name(copy: Path, name: bytes) -> None:
    copy.rename(copy.parent / os.fsdecode(name))
    with reader(copy.parent) as server:
        runs = server.get("/")
        assert runs.status == 200 and runs.text.count("data-item") == 1
        links = [link for link in Page(runs.text).links if link.startswith("/run/")]
        if name in (b"\xff\xfe", b"a\nb"):  # which no address can hold
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
    with reader(tmp_path / "outputs") as server:
        assert server.get(f"/run/x/-/file?name={name}").status == 404
        assert name not in server.get("/run/x/-/").text


def test_a_file_that_was_made_a_link_leads_nowhere(outputs: Path, tmp_path: Path) -> None:
    run = tmp_path / "outputs" / "moved"
    shutil.copytree(outputs / "focus_group", run)
    (tmp_path / "secret").write_text("secret")
    (run / "run.log").unlink()
    (run / "run.log").symlink_to(tmp_path / "secret")
    with reader(tmp_path / "outputs") as server:
        got = server.get("/run/moved/-/file?name=run.log")
        assert got.status == 404 and "secret" not in got.text


def test_reading_changes_nothing_in_the_run_folder(outputs: Path, tmp_path: Path) -> None:
    shutil.copytree(outputs / "focus_group", tmp_path / "outputs" / "x")
    before = _bytes(tmp_path / "outputs")
    with reader(tmp_path / "outputs") as server:
        paths = [path for path, _, _ in crawl(server, "/", without=SLOW)]
        server.get("/run/x/-/search?q=oven")
    assert len(paths) > 20
    assert _bytes(tmp_path / "outputs") == before


def _bytes(folder: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


ASKED = (
    "/run/{run}/-/people?q={a}&sort={b}&start={a}", "/run/{run}/-/person?id={a}",
    "/run/{run}/-/room?id={a}&id={b}", "/run/{run}/-/said?at={a}", "/run/{run}/-/call?at={a}",
    "/run/{run}/-/search?q={a}&start={b}", "/run/{run}/-/file?name={a}", "/search?q={a}&start={b}",
    "/beside?a={run}&x={a}&b={b}&y={a}", "/run/{a}/-/", "/run/{a}/{b}/-/people", "/{a}",
)  # fmt: skip
# What was typed with a purpose, and what nobody would think of.
TYPED = st.one_of(
    st.sampled_from(
        ["age>1", "persona_id", "-intents.score", "statements.opinion=x", "utterances.text!=",
         "group_001/p_0001", "..", "../../etc/passwd", "%2e%2e", "a" * 5000, "\x00", "(", "[", "'",
         "who", "-who", "99999999999999999999", "intents.score>nan", "n>1e999", "\ud800"]
    ),
    st.text(max_size=12),
)  # fmt: skip


@given(TYPED, TYPED)
@settings(max_examples=40)
def test_whatever_is_typed_into_an_address_is_answered(
    served: PageServer, one: str, other: str
) -> None:
    a, b = (quote(text, safe="", errors="surrogatepass") for text in (one, other))
    for path in ASKED:
        got = served.get(path.format(run="focus_group", a=a, b=b))
        assert got.status in (200, 303, 404), (path, one, other, got.text)
