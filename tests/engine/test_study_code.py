"""The code that a study file names: what was read is what runs, whatever lies beside it on disk."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import marshal
import os
import struct
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

import pytest

from folkmoot.child_process import run_in_child
from folkmoot.engine.study.consent import TRUST_ENV_VARIABLE, Consent
from folkmoot.engine.study.study import find_study_of_run, load_study
from folkmoot.engine.study.study_code import agreement_for_workers
from folkmoot.engine.study.study_file import load_study_file
from folkmoot.errors import InputError
from folkmoot.storage.run_folder import RunFolder

STUDY = """
import sys
from pathlib import Path
from folkmoot.engine.settings.config import StudyConfig
from folkmoot.engine.study.study import Study
sys.path.insert(0, str(Path(__file__).parent))
async def protocol(session): ...
STUDY = Study({title!r}, {title!r}, StudyConfig, protocol)
"""
AGREED = STUDY.format(title="agreed")
GIVEN = Consent(granted=True)
MTIME, UNCHECKED_HASH = 0, 0b01  # flags of a compiled file: what Python compares before it runs it


@pytest.fixture(autouse=True)
def strange(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A user who trusts no file unasked; modules and paths of a test are forgotten after it."""
    monkeypatch.delenv(TRUST_ENV_VARIABLE)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in str(
            sys.modules[name].__file__
        ):
            del sys.modules[name]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "stranger"
    folder.mkdir()
    (folder / "own.py").write_text(AGREED)
    (folder / "own.yaml").write_text("study: ./own.py\n")
    return folder


def plant_compiled(source: Path, code: str, flags: int) -> None:
    """Put other code where Python looks for the compiled form of a file, and make it look right."""
    compiled = compile(code, str(source), "exec")
    status = source.stat()
    if flags == MTIME:
        head = struct.pack("<III", MTIME, int(status.st_mtime), status.st_size & 0xFFFFFFFF)
    else:
        head = struct.pack("<I", flags) + b"\0" * 8
    cached = Path(importlib.util.cache_from_source(str(source)))
    cached.parent.mkdir(exist_ok=True)
    cached.write_bytes(importlib.util.MAGIC_NUMBER + head + marshal.dumps(compiled))
    assert SourceFileLoader("any", str(source)).get_code("any") == compiled  # Python falls for it


def marking(mark: Path) -> str:
    return f"open({str(mark)!r}, 'a').close()\n"


def title_of(path: Path, consent: Consent = GIVEN) -> str:
    return load_study_file(path, consent=consent).study.title


@pytest.mark.parametrize("flags", [MTIME, UNCHECKED_HASH])
def test_a_planted_compiled_file_is_never_loaded(folder: Path, flags: int) -> None:
    plant_compiled(folder / "own.py", STUDY.format(title="planted"), flags)
    assert title_of(folder / "own.yaml") == "agreed"
    run = folder / "outputs" / "r1"
    run.mkdir(parents=True)
    (run / "study.yaml").write_text("study: ./own.py\n")
    assert find_study_of_run(RunFolder(run)).title == "agreed"  # agreed to above


@pytest.mark.parametrize("flags", [MTIME, UNCHECKED_HASH])
@pytest.mark.parametrize("module", ["helper", "nested", "nested.inner", "nested.inner.helper"])
def test_nor_is_that_of_a_module_beside_it(folder: Path, module: str, flags: int) -> None:
    inner = folder / "nested" / "inner"
    inner.mkdir(parents=True)
    for path in (folder / "nested", inner):
        (path / "__init__.py").write_text("TITLE = 'read'\n")
    for path in (folder, inner):
        (path / "helper.py").write_text("TITLE = 'read'\n")
    study = AGREED + f"import {module} as beside\nSTUDY = Study(beside.TITLE, beside.TITLE, "
    (folder / "own.py").write_text(f"{study}StudyConfig, protocol)\n")
    path = folder.joinpath(*module.split("."))
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    plant_compiled(source, "TITLE = 'planted'", flags)
    assert title_of(folder / "own.yaml") == "read"


@pytest.mark.parametrize("linked", ["file", "folder", "study"])
def test_links_lead_around_no_consent(folder: Path, linked: str, tmp_path: Path) -> None:
    """Python has the compiled form where the link lies, which is in the stranger's folder."""
    mark, away = tmp_path / "mark", tmp_path / "away"
    away.mkdir()
    (away / "harmless.py").write_text("TITLE = 'read'\n")
    (away / "__init__.py").write_text("TITLE = 'read'\n")
    planted = marking(mark) + "TITLE = 'planted'"
    if linked == "folder":
        (folder / "helper").symlink_to(away)
        plant_compiled(folder / "helper" / "__init__.py", planted, UNCHECKED_HASH)
    else:
        (folder / "helper.py").symlink_to(away / "harmless.py")
        plant_compiled(folder / "helper.py", planted, UNCHECKED_HASH)
    study = AGREED + "import helper\nSTUDY = Study(helper.TITLE, 'x', StudyConfig, protocol)\n"
    if linked == "study":  # the study file is a link itself, and its own folder is on the path
        sys.path.insert(0, str(folder))
        (folder / "own.py").unlink()
        (away / "own.py").write_text(study)
        (folder / "own.py").symlink_to(away / "own.py")
    else:
        (folder / "own.py").write_text(study)
    with pytest.raises(InputError, match="Python code"):
        load_study_file(folder / "own.yaml", consent=Consent(versions=versions(folder / "own.py")))
    assert load_study_file(folder / "own.yaml", consent=GIVEN).study.name == "read"
    assert not mark.exists()


def versions(path: Path) -> dict[str, str]:
    """Consent to this file alone."""
    return {str(path.resolve()): hashlib.sha256(path.read_bytes()).hexdigest()}


def test_a_study_that_is_a_package_imports_its_own_modules_as_they_were_read(folder: Path) -> None:
    package = folder / "study"
    package.mkdir()
    (package / "__init__.py").write_text(
        AGREED + "from .words import TITLE\nSTUDY = Study(TITLE, TITLE, StudyConfig, protocol)\n"
    )
    (package / "words.py").write_text("TITLE = 'read'\n")
    plant_compiled(package / "words.py", "TITLE = 'planted'", MTIME)
    (folder / "own.yaml").write_text("study: ./study/__init__.py\n")
    asked: list[str] = []

    def agree(wishes: Sequence[str]) -> bool:
        asked.extend(wishes)
        return True

    assert title_of(folder / "own.yaml", Consent(ask_user=agree)) == "read"
    assert [text.partition(":")[0] for text in asked] == [
        str(package / "__init__.py"),
        str(package / "words.py"),
    ]


@pytest.mark.parametrize("late", [False, True], ids=["at the top", "in the protocol"])
def test_a_module_beside_it_is_asked_about_too(folder: Path, late: bool, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    indent = "def late():\n    " if late else ""
    (folder / "own.py").write_text(AGREED.replace("STUDY =", f"{indent}import helper\nSTUDY ="))
    (folder / "helper.py").write_text("fine = 1\n")
    study = load_study_file(folder / "own.yaml", consent=GIVEN).study
    if late:
        study.protocol.__globals__["late"]()
    assert title_of(folder / "own.yaml", Consent()) == "agreed"  # both are remembered
    del sys.modules["helper"]
    (folder / "helper.py").write_text(marking(mark))
    (folder / "own.py").write_text((folder / "own.py").read_text() + "# new\n")
    own = (folder / "own.py").read_bytes()
    Consent(granted=True).require_code_execution(folder / "own.py", own)
    with pytest.raises(InputError, match=r"helper\.py.*Python code"):
        again = load_study_file(folder / "own.yaml", consent=Consent()).study
        again.protocol.__globals__["late"]()
    assert not mark.exists()


def test_a_module_that_takes_a_name_of_this_program_is_asked_about(
    folder: Path, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    (folder / "rarely_used_library.py").write_text(marking(mark))
    Consent(granted=True).require_code_execution(folder / "own.py", AGREED.encode())
    assert title_of(folder / "own.yaml", Consent()) == "agreed"  # it puts its folder on the path
    with pytest.raises(InputError, match=r"rarely_used_library\.py"):
        importlib.import_module("rarely_used_library")
    assert not mark.exists()


@pytest.mark.parametrize("linked", [False, True], ids=["file", "link"])
def test_what_was_agreed_to_runs_though_the_file_changes_meanwhile(
    folder: Path, linked: bool, tmp_path: Path
) -> None:
    mark, path = tmp_path / "mark", folder / "own.py"
    other = tmp_path / "elsewhere.py"
    other.write_text(marking(mark) + STUDY.format(title="other"))
    if linked:
        target = tmp_path / "target.py"
        path.rename(target)
        path.symlink_to(target)

    def exchange_and_agree(wishes: Sequence[str]) -> bool:
        path.unlink()
        path.symlink_to(other) if linked else path.write_bytes(other.read_bytes())
        return True

    assert title_of(folder / "own.yaml", Consent(ask_user=exchange_and_agree)) == "agreed"
    with pytest.raises(InputError, match="Python code"):
        load_study_file(folder / "own.yaml", consent=Consent())
    assert not mark.exists()


def test_a_changed_file_that_is_agreed_to_runs_anew(folder: Path) -> None:
    assert title_of(folder / "own.yaml") == "agreed"
    (folder / "own.py").write_text(STUDY.format(title="second"))
    assert title_of(folder / "own.yaml") == "second"


def test_a_module_without_source_is_refused(folder: Path, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    source = tmp_path / "helper.py"
    source.write_text(marking(mark))
    plant_compiled(source, marking(mark), MTIME)
    Path(importlib.util.cache_from_source(str(source))).rename(folder / "helper.pyc")
    (folder / "own.py").write_text(AGREED + "import helper\n")
    with pytest.raises(InputError, match=r"helper.*compiled"):
        title_of(folder / "own.yaml")
    assert not mark.exists()


def test_a_worker_runs_the_version_of_the_head_alone(folder: Path) -> None:
    (folder / "helper.py").write_text("TITLE = 'head'\n")
    (folder / "own.py").write_text(AGREED + "import helper\n")
    title_of(folder / "own.yaml")
    consent = agreement_for_workers(folder / "own.py")
    del sys.modules["helper"]
    assert load_study(folder / "own.py", consent).title == "agreed"
    for name in ("helper.py", "own.py"):
        (folder / name).write_text((folder / name).read_text() + "# changed\n")
        sys.modules.pop("helper", None)
        stale: dict[str, Any] = {"versions": {**consent.versions}}
        if name == "helper.py":  # own.py must run again to import it
            (folder / "own.py").write_text((folder / "own.py").read_text() + "# newer\n")
            stale["versions"].pop(str(folder / "own.py"))
        with pytest.raises(InputError, match=rf"{name} differs from the file"):
            load_study(folder / "own.py", Consent(granted=True, **stale))


def test_lines_of_errors_are_those_that_were_read(folder: Path) -> None:
    (folder / "own.py").write_text("first = 1\nbroken = 1 / 0\n")
    with pytest.raises(InputError, match=r"own\.py:2: .*division by zero"):
        title_of(folder / "own.yaml")
    (folder / "own.py").write_text("first = 1\nbroken = (\n")
    with pytest.raises(InputError, match=r"own\.py:2: .*never closed"):
        title_of(folder / "own.yaml")


def test_a_file_that_ends_the_process_is_a_mistake(folder: Path) -> None:
    (folder / "own.py").write_text(f"{AGREED}sys.exit(0)\n")
    with pytest.raises(InputError, match="SystemExit"):
        load_study(folder / "own.py", GIVEN)


def test_a_process_of_its_own_takes_no_module_from_the_current_folder(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "mark"
    for name in ("pickle", "numpy", "polars", "tempfile"):
        (folder / f"{name}.py").write_text(marking(mark))
    monkeypatch.chdir(folder)
    assert run_in_child(os.path.basename, ("a/b",), folder=tmp_path) == "b"
    assert not mark.exists()
