"""Rules of the code base that no linter checks."""

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
COMMON_MODULES = {
    *("__init__", "config", "exposure_design", "files", "findings", "participants"),
    *("preparation", "protocol", "respondent", "tables"),
}


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)
def test_study_packages_have_the_common_modules_and_few_others(study: Path) -> None:
    files = {path.stem for path in study.glob("*.py")}
    subpackages = {path.parent.name for path in study.glob("*/__init__.py")}
    assert files | subpackages >= COMMON_MODULES
    assert len(files) <= 16 and len(subpackages) <= 2
    for subpackage in subpackages:  # has a docstring
        assert (study / subpackage / "__init__.py").read_text("utf-8").startswith('"""')


def test_no_module_has_more_than_755_lines_and_no_folder_more_than_15_modules() -> None:
    line_counts = {path: len(path.read_text("utf-8").splitlines()) for path in SOURCE.rglob("*.py")}
    assert max(line_counts.values()) <= 755, max(line_counts, key=lambda path: line_counts[path])
    modules = Counter(path.parent for path in line_counts if path.name != "__init__.py")
    assert max(modules.values()) <= 15, max(modules, key=lambda path: modules[path])


def test_each_package_docstring_lists_contents_and_importers() -> None:
    """The packages of study types are documented together, in `studies`."""
    for path in SOURCE.glob("*/**/__init__.py"):
        documented_in = (
            path if path.parents[1].name != "studies" else path.parents[1] / "__init__.py"
        )
        docstring = ast.get_docstring(ast.parse(documented_in.read_text("utf-8"))) or ""
        assert len(docstring.splitlines()) >= 3 and re.search(r"\bimports?\b", docstring), path


def test_commands_start_without_the_libraries_of_statistics_and_charts() -> None:
    """scipy alone would double the time until a run begins."""
    code = (
        "import sys, folkmoot.cli.run, folkmoot.kit.controls.findings; "
        "print(*{'scipy', 'sklearn', 'statsmodels', 'altair', 'vl_convert'} & set(sys.modules))"
    )
    process = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    assert process.stdout.split() == []


STUDY = """
from pathlib import Path
from folkmoot import Choice, Session, Speaker, Study, StudyConfig

async def protocol(session: Session) -> None:
    asked = session.prompt("vote")
    said = await session.ask(Speaker("p1"), asked, answer_type=Choice(("plan", "plant")))
    session.record("votes", {"said": said})

STUDY = Study("vote", "A vote", StudyConfig, protocol, prompts=Path(__file__).parent / "prompts")
"""


def test_one_call_follows_the_steps_on_the_architecture_page(tmp_path: Path) -> None:
    page = (Path(__file__).parents[1] / "docs" / "architecture.md").read_text("utf-8")
    page = page.partition("## Life of a request")[2].partition("\n## ")[0]
    steps = re.findall(r"`([a-z_.]+:\w[\w.]*)`", page)
    called_functions: dict[str, None] = {}
    step_names, source = {step.rpartition(":")[2] for step in steps}, f"{SOURCE}/"

    def record_call(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if (
            event == "call"
            and code.co_qualname in step_names
            and code.co_filename.startswith(source)
        ):
            module = code.co_filename.removeprefix(source).removesuffix(".py").replace("/", ".")
            called_functions.setdefault(f"{module}:{code.co_qualname}")

    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / "vote.md").write_text("Which do you choose: plan or plant?")
    (tmp_path / "vote.py").write_text(STUDY)
    study = tmp_path / "study.yaml"
    with ServerThread(FaultPlan(), answers="respondent") as server:
        model = f"model: openai/m\nendpoints: {{openai/m: {server.openai}}}\n"
        study.write_text(f"study: ./vote.py\n{model}")
        previous_profiler = sys.getprofile()
        sys.setprofile(record_call)
        try:
            folkmoot.run(study, out=tmp_path / "run", trust=True)
        finally:
            sys.setprofile(previous_profiler)
    assert steps and [step for step in called_functions if step in steps] == steps
