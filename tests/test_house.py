"""What the house promises of itself and no linter holds."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import FrameType

import pytest

import folkmoot
from tests.servers.faults import FaultPlan
from tests.servers.thread import ServerThread

SOURCE = Path(folkmoot.__file__).parent
STUDIES = [p.parent for p in sorted(SOURCE.glob("studies/*/protocol.py"))]
SAME = {
    *("__init__", "config", "exposure_design", "files", "findings", "participants"),
    *("preparation", "protocol", "respondent", "tables"),
}


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)
def test_a_study_is_a_dozen_files_of_the_same_names_and_a_few_of_its_own(study: Path) -> None:
    files = {p.stem for p in study.glob("*.py")}
    rooms = {p.parent.name for p in study.glob("*/__init__.py")}
    assert files | rooms >= SAME
    assert len(files) <= 16 and len(rooms) <= 2
    for room in rooms:  # says what it is for
        assert (study / room / "__init__.py").read_text("utf-8").startswith('"""')


def test_no_module_has_more_than_755_lines_and_no_folder_more_than_15_modules() -> None:
    lines = {p: len(p.read_text("utf-8").splitlines()) for p in SOURCE.rglob("*.py")}
    assert max(lines.values()) <= 755, max(lines, key=lambda p: lines[p])
    modules = Counter(p.parent for p in lines if p.name != "__init__.py")
    assert max(modules.values()) <= 15, max(modules, key=lambda p: modules[p])


def test_each_folder_says_what_is_in_it_and_who_imports_it() -> None:
    """The folders of study types are described together, in `studies`."""
    for path in SOURCE.glob("*/**/__init__.py"):
        described = path if path.parents[1].name != "studies" else path.parents[1] / "__init__.py"
        said = ast.get_docstring(ast.parse(described.read_text("utf-8"))) or ""
        assert len(said.splitlines()) >= 3 and re.search(r"\bimports?\b", said), path


def test_commands_start_without_the_libraries_of_statistics_and_charts() -> None:
    """scipy alone would double the time until a run begins."""
    code = (
        "import sys, folkmoot.cli.run, folkmoot.kit.controls.findings; "
        "print(*{'scipy', 'sklearn', 'statsmodels', 'altair', 'vl_convert'} & set(sys.modules))"
    )
    started = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    assert started.stdout.split() == []


STUDY = """
from pathlib import Path
from folkmoot import Choice, Session, Speaker, Study, StudyConfig

async def protocol(session: Session) -> None:
    asked = session.prompt("vote")
    said = await session.ask(Speaker("p1"), asked, answer_type=Choice(("plan", "plant")))
    session.record("votes", {"said": said})

STUDY = Study("vote", "A vote", StudyConfig, protocol, prompts=Path(__file__).parent / "prompts")
"""


def test_one_question_goes_the_way_that_the_page_on_architecture_says(tmp_path: Path) -> None:
    told = (Path(__file__).parents[1] / "docs" / "architecture.md").read_text("utf-8")
    told = told.partition("## The way of one question")[2].partition("\n## ")[0]
    steps = re.findall(r"`([a-z_.]+:\w[\w.]*)`", told)
    called: dict[str, None] = {}
    named, source = {step.rpartition(":")[2] for step in steps}, f"{SOURCE}/"

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_qualname in named and code.co_filename.startswith(source):
            module = code.co_filename.removeprefix(source).removesuffix(".py").replace("/", ".")
            called.setdefault(f"{module}:{code.co_qualname}")

    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / "vote.md").write_text("Which do you choose: plan or plant?")
    (tmp_path / "vote.py").write_text(STUDY)
    study = tmp_path / "study.yaml"
    with ServerThread(FaultPlan(), answers="respondent") as server:
        model = f"model: openai/m\nendpoints: {{openai/m: {server.openai}}}\n"
        study.write_text(f"study: ./vote.py\n{model}")
        before = sys.getprofile()
        sys.setprofile(note)
        try:
            folkmoot.run(study, out=tmp_path / "run", trust=True)
        finally:
            sys.setprofile(before)
    assert steps and [step for step in called if step in steps] == steps
