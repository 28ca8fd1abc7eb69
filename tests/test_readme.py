"""The README and the other pages are correct: commands run, and links have targets."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import shutil
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

import folkmoot
from folkmoot.cli.app import app
from folkmoot.cli.tables import finding_view
from folkmoot.engine.journal.journal import JournalEntry
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.people.sources import persona_hub
from folkmoot.storage.tables import CLUSTER_COLUMNS, PARTICIPANT_COLUMNS
from tests.fenced import find_block, find_blocks, run_python
from tests.servers.faults import FaultPlan
from tests.servers.thread import ServerThread
from tests.shown import render_run_text

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
README = (ROOT / "README.md").read_text("utf-8")


def list_commands(text: str) -> list[str]:
    """Lines of shell blocks that call folkmoot, without their comments."""
    lines = [line for block in find_blocks(text, "sh") for line in block.splitlines()]
    return [line.split("#")[0].strip() for line in lines if line.startswith("folkmoot ")]


def run_command_line(line: str, *options: str) -> None:
    result = CliRunner().invoke(app, [*shlex.split(line)[1:], *options])
    assert result.exit_code == 0, f"{line}\n{result.output}"


@pytest.fixture
def checkout_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files that the README's commands use. No network is needed."""
    for name in ("config", "examples"):
        shutil.copytree(ROOT / name, tmp_path / name)
    (tmp_path / "second_thoughts.py").write_text(find_block(README, "python", "STUDY = Study("))
    (tmp_path / "my_question.yaml").write_text(find_block(README, "yaml", "second_thoughts.py"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    hub = persona_hub.cache_path()
    hub.parent.mkdir(parents=True)
    personas = [f"A shopkeeper from town {i} who reads the local newspaper" for i in range(200)]
    hub.write_text("".join(json.dumps({"persona": persona}) + "\n" for persona in personas))
    return tmp_path


def test_the_study_of_the_readme_refuses_a_single_participant(checkout_copy: Path) -> None:
    words = ("my_question.yaml", "--trust", "--model", "synthetic", "--set", "people=1")
    result = CliRunner().invoke(app, ["run", *words], env={"COLUMNS": "300"})
    assert result.exit_code == 2, result.output
    assert "people: must be at least 2" in result.output
    assert not (checkout_copy / "outputs").exists()


def test_the_study_of_the_readme_runs_unchanged(checkout_copy: Path) -> None:
    run_command_line("folkmoot check my_question.yaml")
    run_command_line("folkmoot run my_question.yaml")
    votes = (
        (checkout_copy / "outputs" / "my_question" / "tables" / "votes.csv")
        .read_text()
        .splitlines()
    )
    assert votes[0] == "id,first,second,changed"
    assert len(votes) == 41


def test_the_study_of_the_readme_has_a_finding_without_any_vote(checkout_copy: Path) -> None:
    for reply in ("I am not sure.", ""):
        silent = ScriptedProvider(lambda *_, reply=reply: reply)
        run = folkmoot.run("my_question.yaml", provider=silent, trust=True, out=f"run{len(reply)}")
        assert run.findings[0].says == "0 of 0 changed their vote after a neighbour's reason."
        assert run.table("votes").columns == ["id", "first", "second", "changed"]


def test_every_command_of_the_readme_works(
    checkout_copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789abcdefghij")
    monkeypatch.setattr("uvicorn.Server.run", lambda *_, **__: None)  # would serve until Ctrl-C
    (checkout_copy / "outputs").mkdir()
    run_command_line("folkmoot run examples/cross_pollination.yaml --out outputs/demo --limit 12")
    with ServerThread(FaultPlan()) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.openai)
        lines = list_commands(README)
        assert len(lines) >= 10
        for line in lines:
            options = (
                ("--limit", "20", "--set", "api_sleep_seconds=0") if " run config" in line else ()
            )
            run_command_line(line, *options)
    assert (checkout_copy / "outputs" / "pilot_001" / "report.html").exists()
    assert run_python("README.md", "folkmoot.load(") == 1


@pytest.mark.nightly(part="pages")
def test_the_pages_quote_the_current_output_of_the_example(checkout_copy: Path) -> None:
    run = folkmoot.run(ROOT / "examples" / "cross_pollination.yaml", out=checkout_copy / "run")
    finding = next(candidate for candidate in run.findings if candidate.key == "position_change")
    console = Console(file=io.StringIO(), width=80)
    console.print(finding_view(finding))
    picture = (ROOT / "docs" / "images" / "position_change.svg").read_text("utf-8")
    assert finding.says in picture and "SYNTHETIC" in picture  # python docs/images/draw.py
    assert isinstance(console.file, io.StringIO)
    printed = [line.rstrip() for line in console.file.getvalue().splitlines()]
    page = (ROOT / "docs" / "cross_pollination.md").read_text("utf-8")
    for text in (README, page):
        block = find_block(text, "text", finding.title).splitlines()
        assert printed[: len(block)] == block
    participant = re.search(r"`folkmoot show outputs/demo (p_\d+)`", page)
    quoted_lines = re.findall(r"^> ?(.*)$", page, re.MULTILINE)
    assert participant is not None and len(quoted_lines) > 4
    run_text = " ".join(render_run_text(run.folder, participant[1]).split())
    assert " ".join(" ".join(quoted_lines).replace("**", "").split()) in run_text


@pytest.mark.nightly(part="pages")
def test_the_quoted_transcripts_equal_the_respondents_current_ones(checkout_copy: Path) -> None:
    page = (ROOT / "docs" / "transcripts.md").read_text("utf-8")
    sections = page.partition("## By the embedded respondent")[2].split("\n### ")[1:]
    assert len(sections) == 2
    for section in sections:
        command = re.search(r"`(folkmoot run [^`]+)`, \w+ (\w+)\.", section)
        assert command is not None
        run_command_line(command[1], "--out", command[2])
        output = CliRunner().invoke(app, ["show", command[2], command[2]]).stdout
        quoted = " ".join(re.findall(r"^> ?(.*)$", section, re.MULTILINE)).replace("**", "")
        pieces = [" ".join(piece.split()) for piece in quoted.split("[…]")]
        assert len(pieces) > 1
        for piece in pieces:
            assert piece in " ".join(output.split())


def test_make_targets_on_the_pages_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = {
        target_name
        for page in PAGES
        for target_name in re.findall(r"\bmake ([a-z]+)\b", _read_code(page))
    }
    assert {"demo", "test", "setup"} <= targets
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    assert "make test" in (ROOT / ".ci" / "run").read_text()
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_to_files_have_targets(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text("utf-8")):
        if not target.startswith(("http:", "https:")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_to_headings_have_targets(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page.read_text("utf-8")):
        target_page = page.parent / target if target else page
        headings = re.findall(r"^#+ (.+)$", target_page.read_text("utf-8"), re.MULTILINE)
        assert anchor in map(_make_anchor, headings), f"{page.name}: {target}#{anchor}"


def test_the_indexes_name_every_page() -> None:
    docs = ROOT / "docs"
    for index, pages in (
        (docs / "index.md", docs.glob("*.md")),
        (docs / "decisions" / "README.md", (docs / "decisions").glob("*.md")),
    ):
        text = index.read_text("utf-8")
        for page in pages:
            assert page == index or f"]({page.name})" in text, page.name
    for page in (docs / "decisions").glob("0*.md"):
        title = page.read_text("utf-8").splitlines()[0]
        assert title.startswith(f"# {page.name[:4]}: "), title
        assert title.removeprefix(f"# {page.name[:4]}: ") in text


def test_the_page_on_run_folders_explains_the_journal() -> None:
    page = (ROOT / "docs/run_folder.md").read_text("utf-8")
    for field in JournalEntry._fields:
        assert f"`{field}`" in page, field


def test_the_page_on_writing_a_study_lists_the_columns_of_independent_units() -> None:
    page = " ".join((ROOT / "docs/writing_a_study.md").read_text("utf-8").split())
    for columns in (CLUSTER_COLUMNS, PARTICIPANT_COLUMNS):
        assert f"{', '.join(f'`{column}`' for column in columns)}." in page


def test_the_page_on_writing_a_study_names_every_field(checkout_copy: Path) -> None:
    from folkmoot.engine.study.study import Study

    page = (ROOT / "docs/writing_a_study.md").read_text()
    missing = [
        field
        for field in Study.__dataclass_fields__
        if f"`{field}`" not in page and f"{field}," not in page
    ]
    assert missing == []
    for part in ("ScriptedProvider(", "who_changed("):
        assert run_python("docs/writing_a_study.md", part) > 0


def _make_anchor(heading: str) -> str:
    """Make the anchor of a heading like the site and most Markdown renderers."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


def _read_code(page: Path) -> str:
    text = page.read_text("utf-8")
    return "\n".join([*re.findall(r"`([^`\n]+)`", text), *find_blocks(text, "sh")])
