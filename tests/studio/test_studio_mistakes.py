"""Responses of the studio to unusual names, files and amounts, and to buttons pressed twice."""

from __future__ import annotations

import html
import http.client
import io
import json
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote, urlencode
from urllib.request import urlopen

import openpyxl
import pytest
from playwright.sync_api import Page, expect

import folkmoot
from folkmoot.authoring.template import new_files
from folkmoot.engine.study.study import find_study
from folkmoot.errors import BudgetReachedError, StorageError
from folkmoot.studio.pages import Studio
from folkmoot.studio.processes import Keys, Processes
from folkmoot.view.site import READING, Guard, create_app
from tests.servers.faults import FaultPlan
from tests.servers.pages import PageServer
from tests.servers.thread import ServerThread
from tests.studio.conftest import StudioProcess
from tests.studio.test_studio import make_study, page
from tests.sweeps import sample_daily
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("read_workbooks_in_process")

__all__ = ["page"]

STUDY = """\
study: focus_group
category: kitchen appliances
product_concept: An oven that reads barcodes
num_personas: 3
coding: {enabled: false}
"""
OVENS_ADDRESS = "/study/ovens/ovens.yaml/-"
BOUNDARY = "boundary-of-the-form"


@dataclass
class Client:
    """A client for the pages and forms of a studio over `folder`."""

    studio: Studio
    server: PageServer

    @property
    def folder(self) -> Path:
        return self.studio.projects.root

    def get(self, path: str) -> str:
        return self.server.get(quote(path, safe="/?=")).text

    def send(self, path: str, body: bytes, kind: str) -> tuple[int, str]:
        """Send a form. Return the status and the redirect address, or the page if there is none."""
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
        connection.request("POST", quote(path), body, {"Content-Type": kind})
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, unquote(answer.headers["Location"] or text)

    def fill_in(self, path: str, **values: str) -> tuple[int, str]:
        body = urlencode({"form_token": self.studio.form_token, **values}).encode()
        return self.send(path, body, "application/x-www-form-urlencoded")

    def upload(self, path: str, name: str, content: bytes) -> tuple[int, str]:
        disposition = f"--{BOUNDARY}\r\nContent-Disposition: form-data; name="
        token = f'{disposition}"form_token"\r\n\r\n{self.studio.form_token}\r\n'
        file = f'{disposition}"file"; filename="{name}"\r\n\r\n'
        body = f"{token}{file}".encode() + content + f"\r\n--{BOUNDARY}--\r\n".encode()
        return self.send(path, body, f"multipart/form-data; boundary={BOUNDARY}")


def read_version(text: str) -> str:
    match = re.search(r'name="version" id="version" value="([0-9a-f]+)"', text)
    assert match is not None
    return match[1]


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    (tmp_path / "ovens").mkdir()
    (tmp_path / "ovens" / "ovens.yaml").write_text(STUDY, "utf-8")
    studio = Studio(tmp_path)
    app = create_app(studio.routes(), Guard(methods=READING | {"POST"}))
    with PageServer(app) as server:
        yield Client(studio, server)


@pytest.mark.parametrize("name", ["O'Brien & Söhne (2)", "日本語", "50 % off", "naïve.v2"])
def test_a_study_may_have_any_valid_folder_name(client: Client, name: str) -> None:
    status, address = client.fill_in("/new", kind="focus_group", name=name)
    folder = name.replace(" ", "_")
    assert (status, address) == (303, f"/study/{folder}/focus_group.yaml/-/")
    assert "Product concept" in client.get(address)


@pytest.mark.parametrize("name", ["before/after", "What now?", "..", "~a", "x" * 81])
def test_a_refused_name_stays_in_the_form_with_the_study_type(client: Client, name: str) -> None:
    status, text = client.fill_in("/new", kind="town_hall", name=name)
    assert status == 422
    assert "cannot be the name of a file or folder" in text
    assert f'value="{name}"' in text
    assert 'value="town_hall" required checked' in text
    # The address of the form stays in the browser and can be opened again.
    assert "New study" in client.get("/new")
    assert {path.name for path in client.folder.iterdir()} == {"ovens", "outputs"}


def test_a_file_that_a_browser_saved_twice_can_be_uploaded(client: Client) -> None:
    status, _ = client.upload(f"{OVENS_ADDRESS}/upload", "people (1).csv", b"name,age\nAnn,40\n")
    assert status == 303
    assert (client.folder / "ovens" / "people (1).csv").is_file()


@pytest.mark.parametrize("name", ["own.py", "own.PY"])
def test_no_page_stores_code(client: Client, name: str) -> None:
    _, text = client.upload(f"{OVENS_ADDRESS}/upload", name, b"print()")
    assert f"{name} is not taken here" in text
    assert not (client.folder / "ovens" / name).exists()


def test_a_file_that_is_not_a_study_is_refused_with_the_reason(client: Client) -> None:
    for name, content, reason in (
        ("notes.docx", b"PK", "notes.docx is no study file"),
        ("küche.yaml", "study: focus_group\ncategory: Küche\n".encode("latin-1"), "is not UTF-8"),
    ):
        status, text = client.upload("/open", name, content)
        assert status == 422
        assert name in text
        assert reason in text
    assert {path.name for path in client.folder.iterdir()} == {"ovens", "outputs"}


def test_a_study_in_utf_16_has_a_form(client: Client) -> None:
    content = STUDY.replace("kitchen", "Küchen").encode("utf-16")
    status, address = client.upload("/open", "küche.yaml", content)
    assert (status, address) == (303, "/study/küche/küche.yaml/-/")
    assert 'value="Küchen appliances"' in client.get(address)
    assert "Küchen appliances" in client.get(f"{address}text")


def test_a_form_says_that_its_check_is_still_running(client: Client) -> None:
    text = client.get(f"{OVENS_ADDRESS}/")
    assert "No mistake in the fields so far" in text and "check is still running" in text
    assert "check is still running" in client.get(f"{OVENS_ADDRESS}/run")


def read_problem(text: str, field_id: str) -> str:
    """Return the problem that a page shows at a field."""
    match = re.search(rf'<span class="mistake" id="m-{field_id}">(.*?)</span>', text, re.DOTALL)
    assert match is not None
    return match[1]


@pytest.mark.parametrize(
    ("study", "key", "field_id"),
    [
        ("negotiation", "groups: {}", "groups"),
        ("negotiation", "personas: {}", "personas"),
        ("negotiation", "trip: {{file: {}}}", "trip-file"),
        ("focus_group", "panel: {}", "panel"),
        ("focus_group", "prompts: {}", "prompts"),
        ("focus_group", "coding: {{codebooks: {}}}", "coding-codebooks"),
    ],
)
def test_a_too_long_file_name_is_a_problem_at_its_field(
    client: Client, study: str, key: str, field_id: str
) -> None:
    text = STUDY.partition("coding")[0] if study == "focus_group" else f"study: {study}\n"
    file = client.folder / "ovens" / "ovens.yaml"
    file.write_text(f"{text}{key.format('x' * 5000)}\n", "utf-8")
    text = client.get(f"{OVENS_ADDRESS}/")
    assert "File name too long" in read_problem(text, f"f-{field_id}")
    assert f'<li><a href="#f-{field_id}">' in text


def test_a_problem_in_a_file_is_shown_at_the_field_with_its_name(client: Client) -> None:
    file = client.folder / "ovens" / "ovens.yaml"
    file.write_text("study: negotiation\ngroups: ours.csv\n", "utf-8")
    groups_text = "group_id,group_type,role,size\ng1,family,parent,2\n"
    (client.folder / "ovens" / "ours.csv").write_text(groups_text, "utf-8")
    mistake = read_problem(client.get(f"{OVENS_ADDRESS}/"), "f-groups")
    assert mistake.startswith("line 1: unknown column <code>size</code>")


def upload_workbook(client: Client, change: Callable[[openpyxl.Workbook], None]) -> str:
    """Return the page of the example workbook after a change by a spreadsheet program."""
    content = new_files(find_study("workbook"))["public_goods.xlsx"]
    assert isinstance(content, bytes)
    book = openpyxl.load_workbook(io.BytesIO(content))
    change(book)
    changed_file = io.BytesIO()
    book.save(changed_file)
    status, address = client.upload("/open", "goods.xlsx", changed_file.getvalue())
    assert status == 303
    return html.unescape(client.get(address))


def test_problems_name_sheets_as_in_a_spreadsheet_program(client: Client) -> None:
    def rename(book: openpyxl.Workbook) -> None:
        book["agent_roles"].title = "agent_rolex"
        book.copy_worksheet(book["agent_profiles"])

    text = upload_workbook(client, rename)
    assert "rename 'agent_rolex' to 'agent_roles'" in text
    assert "the sheet 'agent_profiles Copy' does not belong here" in text
    assert "sheets are 'experimental_setting', 'treatments', 'agent_roles'," in text


def test_a_workbook_without_roles_has_only_that_problem(client: Client) -> None:
    text = upload_workbook(client, lambda book: book["agent_roles"].delete_rows(2, 100))
    assert "there is no role " in read_problem(text, "f-agent_roles")
    assert re.findall(r'<li><a href="#([^"]*)">', text) == ["f-agent_roles"]


def create_workbook_bytes(*sheets: str) -> bytes:
    book, file = openpyxl.Workbook(), io.BytesIO()
    for sheet in sheets:
        book.create_sheet(sheet)
    book.save(file)
    return file.getvalue()


def test_a_file_that_is_not_a_version_of_the_workbook_does_not_replace_it(client: Client) -> None:
    client.fill_in("/new", kind="workbook", name="prices")
    workbook = client.folder / "prices" / "experiment.xlsx"
    original_bytes = workbook.read_bytes()
    for content, reason in (
        (b"", "save it as .xlsx"),
        (b"PK", "save it as .xlsx"),
        (b"\xd0\xcf\x11\xe0 an old file", "save it as .xlsx"),
        (create_workbook_bytes("people"), "has no sheet of this study"),
    ):
        status, text = client.upload("/study/prices/experiment.xlsx/-/upload", "new.xlsx", content)
        assert status == 200
        assert reason in text
        assert workbook.read_bytes() == original_bytes
    # A new version of the workbook replaces it, also with mistakes.
    version = create_workbook_bytes("treatments")
    status, _ = client.upload("/study/prices/experiment.xlsx/-/upload", "new.xlsx", version)
    assert status == 303
    assert workbook.read_bytes() == version


@pytest.mark.parametrize("name", ["prices", "Bürger & Preise (2)"])
def test_an_empty_workbook_leads_to_the_example_beside_it(client: Client, name: str) -> None:
    _, address = client.fill_in("/new", kind="workbook", name=name)
    text = client.get(address)
    assert "to correct" in text
    match = re.search(r'<a href="([^"]+)">public_goods\.xlsx</a>', text)
    assert match is not None
    example = client.server.get(html.unescape(match[1])).text
    assert "public_goods.xlsx</title>" in example or "public_goods.xlsx –" in example
    assert "to correct" not in example


def test_a_study_with_a_mistake_keeps_its_tabs(client: Client) -> None:
    client.fill_in("/new", kind="workbook", name="prices")
    for tab in ("prompts", "run"):
        text = client.get(f"/study/prices/experiment.xlsx/-/{tab}")
        assert "The study file must be corrected first." in text
        assert "“Experiment ID” is blank" in text
        assert 'aria-label="This study"' in text
        assert "Line experimental_setting" not in text


def test_a_prompt_with_a_mistake_stays_in_the_field(client: Client) -> None:
    prompt_text = "My own words, long thought about. {{ nope"
    page_before = client.get(f"{OVENS_ADDRESS}/prompts?prompt=coder_system")
    _, text = client.fill_in(
        f"{OVENS_ADDRESS}/prompts",
        prompt="coder_system",
        action="save",
        text=prompt_text,
        version=read_version(page_before),
    )
    assert "Line 1" in text
    assert prompt_text in text
    assert not (client.folder / "ovens" / "prompts" / "coder_system.md").exists()


def test_two_tabs_do_not_overwrite_the_same_prompt(client: Client) -> None:
    address = f"{OVENS_ADDRESS}/prompts?prompt=coder_system"
    version = read_version(client.get(address))
    form = {"prompt": "coder_system", "action": "save", "version": version}
    status, _ = client.fill_in(f"{OVENS_ADDRESS}/prompts", text="Of the first tab.", **form)
    assert status == 303
    status, text = client.fill_in(f"{OVENS_ADDRESS}/prompts", text="Of the second tab.", **form)
    assert status == 200
    assert "was changed by another program in the meantime, so it was not saved" in text
    assert "Of the second tab." in text
    assert "Of the first tab." in client.get(address)
    # The page with this message can save, because its reader knows of the change.
    form["version"] = read_version(text)
    status, _ = client.fill_in(f"{OVENS_ADDRESS}/prompts", text="Of the second tab.", **form)
    assert status == 303
    assert "Of the second tab." in client.get(address)


def test_the_prompts_of_a_workbook_can_only_be_read(client: Client) -> None:
    """A workbook names no folder of prompts, so no run would read a saved one."""
    upload_workbook(client, lambda _book: None)
    address = "/study/goods/goods.xlsx/-/prompts"
    text = client.get(address)
    assert "readonly" in text
    assert "--set prompts=FOLDER" in text
    assert "Save as your own" not in text
    form = {"prompt": "system", "action": "save", "version": read_version(text)}
    status, _ = client.fill_in(address, text="Of mine.", **form)
    assert status == 404
    assert list(client.folder.rglob("*.md")) == []
    assert "Save as your own" in client.get(f"{OVENS_ADDRESS}/prompts")


@pytest.mark.parametrize(
    "amount",
    sample_daily(["1,5", "-1", "much", "1000000000000", "0", "½"], daily=2, part="pages"),
)
@pytest.mark.parametrize("button", ["try", "run"])
def test_an_invalid_amount_starts_no_run(client: Client, button: str, amount: str) -> None:
    _, text = client.fill_in(f"{OVENS_ADDRESS}/{button}", budget=amount)
    assert "Enter the most that the run may cost, in US dollars, such as 2.50." in text
    assert list((client.folder / "outputs").iterdir()) == []


@pytest.mark.parametrize(
    ("in_file", "shown"),
    [("12345.67", "12345.67"), ("2000000", "2000000"), ("0.00001", "0.00001"), ("0", ""),
     ("1e-7", "0.0000001"), ("250000.125", "250000.125"), ("20", "20")],
)  # fmt: skip
def test_the_budget_of_a_file_is_shown_exactly_and_accepted(
    client: Client, monkeypatch: pytest.MonkeyPatch, in_file: str, shown: str
) -> None:
    path = client.folder / "ovens" / "ovens.yaml"
    path.write_text(f"{STUDY}budget_usd: {in_file}\n", "utf-8")
    started: list[Sequence[str]] = []
    monkeypatch.setattr(Processes, "_start", lambda _self, _run, words: started.append(words))
    field = re.search(r'name="budget" value="([^"]*)"', client.get(f"{OVENS_ADDRESS}/run"))
    assert field is not None
    assert field[1] == shown
    status, _ = client.fill_in(f"{OVENS_ADDRESS}/run", budget=field[1])
    assert (status, started) == ((303, [[str(path), "--budget", shown]]) if shown else (422, []))


@pytest.mark.parametrize("record", [None, ["--budget", "9"], ["--resume", "--budget", "9"]])
@pytest.mark.parametrize(("entered", "limit"), [("", "0.002"), ("3.5", "3.5")])
def test_a_resumed_run_keeps_the_budget_of_its_last_start(
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
    record: list[str] | None,
    entered: str,
    limit: str,
) -> None:
    """Also if it was started, or resumed with another budget, at the command line."""
    path = client.folder / "ovens" / "ovens.yaml"
    run = client.folder / "outputs" / "ovens"
    path.write_text(f"{STUDY}max_tokens: 300\n", "utf-8")
    with ServerThread(FaultPlan(), answers="respondent") as server:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
        monkeypatch.setenv("OPENAI_BASE_URL", server.openai)
        with pytest.raises(BudgetReachedError):
            folkmoot.run(path, model="openai/gpt-4o-mini", out=run, budget=0.002)
    processes = client.studio.processes
    if record is not None:
        processes._records.mkdir()
        processes._record(run, "json").write_text(json.dumps([str(path), *record]), "utf-8")
    started: list[Sequence[str]] = []
    monkeypatch.setattr(Processes, "_start", lambda _self, _run, words: started.append(words))
    assert "Empty: 0.002 as before." in client.get("/run/ovens/-/")
    assert client.fill_in("/run/ovens/-/resume", budget=entered)[0] == 303
    assert started == [[str(path), "--resume", "--budget", limit]]


def test_a_button_pressed_twice_starts_one_run(tmp_path: Path) -> None:
    run_folders: list[Path] = []
    processes = Processes(tmp_path, tmp_path / "outputs", Keys())
    # The study file is missing: the process ends after a second and creates no folder.
    arguments = ["missing.yaml", "--budget", "1"]
    threads = [
        threading.Thread(target=lambda: run_folders.append(processes.start_new("ovens", arguments)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(run_folders) == {tmp_path / "outputs" / "ovens"}
    # A different study or budget starts another run.
    other_run_folder = processes.start_new("ovens", ["other.yaml"])
    assert other_run_folder == tmp_path / "outputs" / "ovens_2"


def test_cells_of_two_grids_share_no_arguments_and_no_messages(tmp_path: Path) -> None:
    """Otherwise the studio would resume a cell with the study file and model of another."""
    outputs = tmp_path / "outputs"
    processes = Processes(tmp_path, outputs, Keys())
    cell, other_cell = outputs / "first" / "seed1", outputs / "second" / "seed1"
    processes.resume(cell, Path("missing.yaml"), "1")
    wait_until(lambda: processes.messages_of(cell).exit_code is not None)
    assert processes.started_with(cell)[0] == "missing.yaml"
    assert "missing.yaml" in processes.messages_of(cell).text
    assert processes.started_with(other_cell) == []
    assert processes.messages_of(other_cell).text == ""


def test_the_page_of_a_run_that_waits_for_people_has_their_links(client: Client) -> None:
    """Whoever closed the page of the start still reaches the page on which to begin."""
    path = client.folder / "ovens" / "ovens.yaml"
    path.write_text(f"{STUDY}model: synthetic\nseats: open\n", "utf-8")
    assert client.fill_in(f"{OVENS_ADDRESS}/run", budget="1") == (303, "/starting/ovens")
    process = client.studio.processes._started["ovens"]
    try:
        wait_until(lambda: "for you alone" in client.get("/starting/ovens"))
        text = client.get("/run/ovens/-/")
        links = re.findall(r'<a href="(http://[^"]+/(enter|seats)/[^"]+)"', text)
        assert [kind for _, kind in links] == ["enter", "seats"]
        assert urlopen(links[1][0]).status == 200
        assert "the run stopped" not in text
    finally:
        process.terminate()
        process.wait()
    assert 'aria-label="Links for participants"' not in client.get("/run/ovens/-/")


@pytest.mark.nightly(part="pages")
def test_pause_and_resume_on_an_outdated_page_change_nothing(client: Client) -> None:
    _, address = client.fill_in(f"{OVENS_ADDRESS}/try", budget="0.5")
    assert address == "/starting/try_ovens"
    run = client.folder / "outputs" / "try_ovens"
    process = client.studio.processes._started["try_ovens"]
    process.wait()
    assert (run / "manifest.json").is_file()
    assert client.fill_in("/run/try_ovens/-/pause") == (303, "/run/try_ovens/-/")
    status, text = client.fill_in("/run/try_ovens/-/resume", budget="1,5")
    assert status == 422
    assert "All runs" in text
    assert "Not possible" in text


@pytest.mark.nightly(part="pages")
def test_the_form_shows_not_saved_when_the_studio_has_stopped(page: Page, tmp_path: Path) -> None:
    with StudioProcess(tmp_path / "studies") as studio:
        make_study(page, studio, "focus_group", "ovens")
        studio.process.kill()
        studio.process.wait()
        page.get_by_label("Price", exact=True).fill("499 dollars")
        expect(page.locator("#status")).to_contain_text("Not saved.")
        # A link would lose the entered text.
        page.get_by_role("link", name="Prompts").click()
        expect(page.get_by_label("Price", exact=True)).to_have_value("499 dollars")


@pytest.mark.nightly(part="pages")  # one run is stopped and one is resumed
def test_the_page_of_a_resumed_run_shows_its_end(
    page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ovens").mkdir()
    study = STUDY.replace("coding", "questions_per_phase: 1\nphases: [warmup]\ncoding")
    path = tmp_path / "ovens" / "ovens.yaml"
    path.write_text(f"{study}model: openai/gpt-4o-mini\n", "utf-8")
    with ServerThread(FaultPlan(), answers="respondent") as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.openai)
        with StudioProcess(tmp_path) as studio:
            page.goto(studio.link)
            page.goto(f"{studio.url}{OVENS_ADDRESS}/run")
            # Less than the maximum cost of the first call.
            page.get_by_label("Budget").fill("0.0004")
            page.get_by_role("button", name="Run", exact=True).click()
            page.wait_for_url("**/run/ovens/**")
            page.get_by_label("Budget").fill("1")
            page.get_by_role("button", name="Resume").click()
            expect(page.get_by_role("link", name="Read the report")).to_be_visible()
            # The state, the calls and the buttons are updated together.
            expect(page.locator("#progress")).to_contain_text("finished")
            expect(page.locator("#progress")).not_to_contain_text("used up")


def test_a_text_stays_on_its_page_if_the_disk_refuses_it(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk may be full, or the folder of someone else."""

    def refuse(path: Path, *_: object) -> None:
        raise StorageError(f"{path}: this location is not writable")

    version = read_version(client.get(f"{OVENS_ADDRESS}/text"))
    prompt_version = read_version(client.get(f"{OVENS_ADDRESS}/prompts?prompt=coder_system"))
    monkeypatch.setattr("folkmoot.studio.pages.write_bytes", refuse)
    monkeypatch.setattr("folkmoot.studio.study_forms.write_bytes", refuse)
    words = "# My own words, long thought about."
    _, text_page = client.fill_in(f"{OVENS_ADDRESS}/text", text=words, version=version)
    _, prompt_page = client.fill_in(
        f"{OVENS_ADDRESS}/prompts", prompt="coder_system", action="save", text=words,
        version=prompt_version,
    )  # fmt: skip
    _, form_page = client.fill_in(f"{OVENS_ADDRESS}/", version=version, **{'["num_personas"]': "7"})
    for shown in (text_page, prompt_page, form_page):
        assert "not saved" in shown and "this location is not writable" in shown
    assert words in text_page and words in prompt_page
