"""The README and the other pages keep their word: commands run, links lead somewhere."""

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
from folkmoot.people.sources import persona_hub
from tests.fenced import block_with, blocks, run_python
from tests.servers.faults import FaultPlan
from tests.servers.thread import ServerThread
from tests.shown import shown

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
README = (ROOT / "README.md").read_text("utf-8")


def commands(text: str) -> list[str]:
    """Lines of shell blocks that call folkmoot, without their comments."""
    lines = [line for block in blocks(text, "sh") for line in block.splitlines()]
    return [line.split("#")[0].strip() for line in lines if line.startswith("folkmoot ")]


def run_line(line: str, *more: str) -> None:
    result = CliRunner().invoke(app, [*shlex.split(line)[1:], *more])
    assert result.exit_code == 0, f"{line}\n{result.output}"


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what the README's commands find in a checkout, and no network."""
    for name in ("config", "examples"):
        shutil.copytree(ROOT / name, tmp_path / name)
    (tmp_path / "second_thoughts.py").write_text(block_with(README, "python", "STUDY = Study("))
    (tmp_path / "my_question.yaml").write_text(block_with(README, "yaml", "second_thoughts.py"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    hub = persona_hub.cache_path()
    hub.parent.mkdir(parents=True)
    people = [f"A shopkeeper from town {k} who reads the local newspaper" for k in range(200)]
    hub.write_text("".join(json.dumps({"persona": p}) + "\n" for p in people))
    return tmp_path


def test_the_readmes_own_study_runs_as_it_stands(fresh: Path) -> None:
    run_line("folkmoot check my_question.yaml")
    run_line("folkmoot run my_question.yaml")
    votes = (fresh / "outputs" / "my_question" / "tables" / "votes.csv").read_text().splitlines()
    assert votes[0] == "id,first,second,changed"
    assert len(votes) == 41


def test_every_command_of_the_readme_works(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789abcdefghij")
    monkeypatch.setattr("uvicorn.Server.run", lambda *_, **__: None)  # would serve until Ctrl-C
    (fresh / "outputs").mkdir()
    run_line("folkmoot run examples/cross_pollination.yaml --out outputs/demo --limit 12")
    with ServerThread(FaultPlan()) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.openai)
        lines = commands(README)
        assert len(lines) >= 10
        for line in lines:
            small = (
                ("--limit", "20", "--set", "api_sleep_seconds=0") if " run config" in line else ()
            )
            run_line(line, *small)
    assert (fresh / "outputs" / "pilot_001" / "report.html").exists()
    assert run_python("README.md", "folkmoot.load(") == 1


@pytest.mark.nightly(part="pages")
def test_the_pages_show_what_the_example_prints_today(fresh: Path) -> None:
    run = folkmoot.run(ROOT / "examples" / "cross_pollination.yaml", out=fresh / "run")
    finding = next(f for f in run.findings if f.key == "position_change")
    console = Console(file=io.StringIO(), width=80)
    console.print(finding_view(finding))
    picture = (ROOT / "docs" / "images" / "position_change.svg").read_text("utf-8")
    assert finding.says in picture and "SYNTHETIC" in picture  # python docs/images/draw.py
    assert isinstance(console.file, io.StringIO)
    printed = [line.rstrip() for line in console.file.getvalue().splitlines()]
    page = (ROOT / "docs" / "cross_pollination.md").read_text("utf-8")
    for text in (README, page):
        block = block_with(text, "text", finding.title).splitlines()
        assert printed[: len(block)] == block
    who = re.search(r"`folkmoot show outputs/demo (p_\d+)`", page)
    quoted = re.findall(r"^> ?(.*)$", page, re.MULTILINE)
    assert who is not None and len(quoted) > 4
    spoken = " ".join(shown(run.folder, who[1]).split())
    assert " ".join(" ".join(quoted).replace("**", "").split()) in spoken


@pytest.mark.nightly(part="pages")
def test_the_respondent_still_says_what_its_transcripts_say(fresh: Path) -> None:
    page = (ROOT / "docs" / "transcripts.md").read_text("utf-8")
    talks = page.partition("## By the embedded respondent")[2].split("\n### ")[1:]
    assert len(talks) == 2
    for talk in talks:
        told = re.search(r"`(folkmoot run [^`]+)`, \w+ (\w+)\.", talk)
        assert told is not None
        run_line(told[1], "--out", told[2])
        shown = CliRunner().invoke(app, ["show", told[2], told[2]]).stdout
        quoted = " ".join(re.findall(r"^> ?(.*)$", talk, re.MULTILINE)).replace("**", "")
        pieces = [" ".join(piece.split()) for piece in quoted.split("[…]")]
        assert len(pieces) > 1
        for piece in pieces:
            assert piece in " ".join(shown.split())


def test_the_targets_that_the_pages_name_are_in_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text()
    named = {m for page in PAGES for m in re.findall(r"\bmake ([a-z]+)\b", _code(page))}
    assert {"demo", "test", "setup"} <= named
    for target in named:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    assert "make test" in (ROOT / ".ci" / "run").read_text()
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text("utf-8")):
        if not target.startswith(("http:", "https:")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_to_a_heading_find_it(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page.read_text("utf-8")):
        found = page.parent / target if target else page
        headings = re.findall(r"^#+ (.+)$", found.read_text("utf-8"), re.MULTILINE)
        assert anchor in map(_anchor, headings), f"{page.name}: {target}#{anchor}"


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


def test_the_page_on_writing_a_study_names_every_field(fresh: Path) -> None:
    from folkmoot.engine.study.study import Study

    page = (ROOT / "docs/writing_a_study.md").read_text()
    missing = [
        f for f in Study.__dataclass_fields__ if f"`{f}`" not in page and f"{f}," not in page
    ]
    assert missing == []
    for part in ("ScriptedProvider(", "who_changed("):
        assert run_python("docs/writing_a_study.md", part) > 0


def _anchor(heading: str) -> str:
    """The anchor of a heading, as the site and most readers of Markdown make it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


def _code(page: Path) -> str:
    text = page.read_text("utf-8")
    return "\n".join([*re.findall(r"`([^`\n]+)`", text), *blocks(text, "sh")])
