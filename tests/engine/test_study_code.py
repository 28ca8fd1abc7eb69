"""Code that a study file names: the version that was read runs, whatever else is on disk."""

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
APPROVED_STUDY = STUDY.format(title="agreed")
FULL_CONSENT = Consent(granted=True)
MTIME, UNCHECKED_HASH = 0, 0b01  # flags of a compiled file: the check before Python runs it


@pytest.fixture(autouse=True)
def reset_consent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Trust no file, and reset modules and paths after the test."""
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
    (folder / "own.py").write_text(APPROVED_STUDY)
    (folder / "own.yaml").write_text("study: ./own.py\n")
    return folder


def plant_compiled(source: Path, code: str, flags: int) -> None:
    """Put other code at the path of the compiled form of a file, with a valid header."""
    compiled = compile(code, str(source), "exec")
    status = source.stat()
    if flags == MTIME:
        head = struct.pack("<III", MTIME, int(status.st_mtime), status.st_size & 0xFFFFFFFF)
    else:
        head = struct.pack("<I", flags) + b"\0" * 8
    cached = Path(importlib.util.cache_from_source(str(source)))
    cached.parent.mkdir(exist_ok=True)
    cached.write_bytes(importlib.util.MAGIC_NUMBER + head + marshal.dumps(compiled))
    assert SourceFileLoader("any", str(source)).get_code("any") == compiled  # Python would run it


def create_file_statement(mark: Path) -> str:
    return f"open({str(mark)!r}, 'a').close()\n"


def load_title(path: Path, consent: Consent = FULL_CONSENT) -> str:
    return load_study_file(path, consent=consent).study.title


@pytest.mark.parametrize("flags", [MTIME, UNCHECKED_HASH])
def test_planted_compiled_file_is_never_loaded(folder: Path, flags: int) -> None:
    plant_compiled(folder / "own.py", STUDY.format(title="planted"), flags)
    assert load_title(folder / "own.yaml") == "agreed"
    run = folder / "outputs" / "r1"
    run.mkdir(parents=True)
    (run / "study.yaml").write_text("study: ./own.py\n")
    assert find_study_of_run(RunFolder(run)).title == "agreed"  # the consent was given above


@pytest.mark.parametrize("flags", [MTIME, UNCHECKED_HASH])
@pytest.mark.parametrize("module", ["helper", "nested", "nested.inner", "nested.inner.helper"])
def test_planted_compiled_module_beside_the_study_is_never_loaded(
    folder: Path, module: str, flags: int
) -> None:
    inner = folder / "nested" / "inner"
    inner.mkdir(parents=True)
    for path in (folder / "nested", inner):
        (path / "__init__.py").write_text("TITLE = 'read'\n")
    for path in (folder, inner):
        (path / "helper.py").write_text("TITLE = 'read'\n")
    study = (
        APPROVED_STUDY + f"import {module} as beside\nSTUDY = Study(beside.TITLE, beside.TITLE, "
    )
    (folder / "own.py").write_text(f"{study}StudyConfig, protocol)\n")
    path = folder.joinpath(*module.split("."))
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    plant_compiled(source, "TITLE = 'planted'", flags)
    assert load_title(folder / "own.yaml") == "read"


@pytest.mark.parametrize("linked", ["file", "folder", "study"])
def test_links_do_not_bypass_consent(folder: Path, linked: str, tmp_path: Path) -> None:
    """Python stores the compiled form beside the link, which is in the folder of a stranger."""
    mark, target_folder = tmp_path / "mark", tmp_path / "away"
    target_folder.mkdir()
    (target_folder / "harmless.py").write_text("TITLE = 'read'\n")
    (target_folder / "__init__.py").write_text("TITLE = 'read'\n")
    planted = create_file_statement(mark) + "TITLE = 'planted'"
    if linked == "folder":
        (folder / "helper").symlink_to(target_folder)
        plant_compiled(folder / "helper" / "__init__.py", planted, UNCHECKED_HASH)
    else:
        (folder / "helper.py").symlink_to(target_folder / "harmless.py")
        plant_compiled(folder / "helper.py", planted, UNCHECKED_HASH)
    study = (
        APPROVED_STUDY + "import helper\nSTUDY = Study(helper.TITLE, 'x', StudyConfig, protocol)\n"
    )
    if linked == "study":  # the study file is a link, and the folder of the link is on the path
        sys.path.insert(0, str(folder))
        (folder / "own.py").unlink()
        (target_folder / "own.py").write_text(study)
        (folder / "own.py").symlink_to(target_folder / "own.py")
    else:
        (folder / "own.py").write_text(study)
    with pytest.raises(InputError, match="Python code"):
        load_study_file(
            folder / "own.yaml", consent=Consent(versions=build_consent_versions(folder / "own.py"))
        )
    assert load_study_file(folder / "own.yaml", consent=FULL_CONSENT).study.name == "read"
    assert not mark.exists()


def build_consent_versions(path: Path) -> dict[str, str]:
    """Return the versions of a consent to this file only."""
    return {str(path.resolve()): hashlib.sha256(path.read_bytes()).hexdigest()}


def test_package_study_imports_its_modules_as_they_were_read(folder: Path) -> None:
    package = folder / "study"
    package.mkdir()
    (package / "__init__.py").write_text(
        APPROVED_STUDY
        + "from .words import TITLE\nSTUDY = Study(TITLE, TITLE, StudyConfig, protocol)\n"
    )
    (package / "words.py").write_text("TITLE = 'read'\n")
    plant_compiled(package / "words.py", "TITLE = 'planted'", MTIME)
    (folder / "own.yaml").write_text("study: ./study/__init__.py\n")
    questions: list[str] = []

    def approve(wishes: Sequence[str]) -> bool:
        questions.extend(wishes)
        return True

    assert load_title(folder / "own.yaml", Consent(ask_user=approve)) == "read"
    assert [text.partition(":")[0] for text in questions] == [
        str(package / "__init__.py"),
        str(package / "words.py"),
    ]


@pytest.mark.parametrize("late", [False, True], ids=["at the top", "in the protocol"])
def test_module_beside_the_study_needs_consent(folder: Path, late: bool, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    indent = "def late():\n    " if late else ""
    (folder / "own.py").write_text(
        APPROVED_STUDY.replace("STUDY =", f"{indent}import helper\nSTUDY =")
    )
    (folder / "helper.py").write_text("fine = 1\n")
    study = load_study_file(folder / "own.yaml", consent=FULL_CONSENT).study
    if late:
        study.protocol.__globals__["late"]()
    # The consent to both files is remembered.
    assert load_title(folder / "own.yaml", Consent()) == "agreed"
    del sys.modules["helper"]
    (folder / "helper.py").write_text(create_file_statement(mark))
    (folder / "own.py").write_text((folder / "own.py").read_text() + "# new\n")
    study_bytes = (folder / "own.py").read_bytes()
    Consent(granted=True).require_code_execution(folder / "own.py", study_bytes)
    with pytest.raises(InputError, match=r"helper\.py.*Python code"):
        loaded_study = load_study_file(folder / "own.yaml", consent=Consent()).study
        loaded_study.protocol.__globals__["late"]()
    assert not mark.exists()


def test_module_with_the_name_of_a_program_module_needs_consent(
    folder: Path, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    (folder / "rarely_used_library.py").write_text(create_file_statement(mark))
    Consent(granted=True).require_code_execution(folder / "own.py", APPROVED_STUDY.encode())
    # The study puts its folder on the path.
    assert load_title(folder / "own.yaml", Consent()) == "agreed"
    with pytest.raises(InputError, match=r"rarely_used_library\.py"):
        importlib.import_module("rarely_used_library")
    assert not mark.exists()


@pytest.mark.parametrize("linked", [False, True], ids=["file", "link"])
def test_approved_code_runs_although_the_file_changes(
    folder: Path, linked: bool, tmp_path: Path
) -> None:
    mark, path = tmp_path / "mark", folder / "own.py"
    other_file = tmp_path / "elsewhere.py"
    other_file.write_text(create_file_statement(mark) + STUDY.format(title="other"))
    if linked:
        target = tmp_path / "target.py"
        path.rename(target)
        path.symlink_to(target)

    def exchange_and_approve(wishes: Sequence[str]) -> bool:
        path.unlink()
        path.symlink_to(other_file) if linked else path.write_bytes(other_file.read_bytes())
        return True

    assert load_title(folder / "own.yaml", Consent(ask_user=exchange_and_approve)) == "agreed"
    with pytest.raises(InputError, match="Python code"):
        load_study_file(folder / "own.yaml", consent=Consent())
    assert not mark.exists()


def test_changed_file_with_consent_runs_again(folder: Path) -> None:
    assert load_title(folder / "own.yaml") == "agreed"
    (folder / "own.py").write_text(STUDY.format(title="second"))
    assert load_title(folder / "own.yaml") == "second"


def test_module_without_source_is_refused(folder: Path, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    source = tmp_path / "helper.py"
    source.write_text(create_file_statement(mark))
    plant_compiled(source, create_file_statement(mark), MTIME)
    Path(importlib.util.cache_from_source(str(source))).rename(folder / "helper.pyc")
    (folder / "own.py").write_text(APPROVED_STUDY + "import helper\n")
    with pytest.raises(InputError, match=r"helper.*compiled"):
        load_title(folder / "own.yaml")
    assert not mark.exists()


def test_worker_runs_only_the_version_of_the_head(folder: Path) -> None:
    (folder / "helper.py").write_text("TITLE = 'head'\n")
    (folder / "own.py").write_text(APPROVED_STUDY + "import helper\n")
    load_title(folder / "own.yaml")
    consent = agreement_for_workers(folder / "own.py")
    del sys.modules["helper"]
    assert load_study(folder / "own.py", consent).title == "agreed"
    for name in ("helper.py", "own.py"):
        (folder / name).write_text((folder / name).read_text() + "# changed\n")
        sys.modules.pop("helper", None)
        stale: dict[str, Any] = {"versions": {**consent.versions}}
        if name == "helper.py":  # own.py must run again to import the helper
            (folder / "own.py").write_text((folder / "own.py").read_text() + "# newer\n")
            stale["versions"].pop(str(folder / "own.py"))
        with pytest.raises(InputError, match=rf"{name} differs from the file"):
            load_study(folder / "own.py", Consent(granted=True, **stale))


def test_line_numbers_of_errors_match_the_code_that_was_read(folder: Path) -> None:
    (folder / "own.py").write_text("first = 1\nbroken = 1 / 0\n")
    with pytest.raises(InputError, match=r"own\.py:2: .*division by zero"):
        load_title(folder / "own.yaml")
    (folder / "own.py").write_text("first = 1\nbroken = (\n")
    with pytest.raises(InputError, match=r"own\.py:2: .*never closed"):
        load_title(folder / "own.yaml")


def test_file_that_exits_the_process_is_a_mistake(folder: Path) -> None:
    (folder / "own.py").write_text(f"{APPROVED_STUDY}sys.exit(0)\n")
    with pytest.raises(InputError, match="SystemExit"):
        load_study(folder / "own.py", FULL_CONSENT)


def test_new_process_imports_no_module_from_the_current_folder(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "mark"
    for name in ("pickle", "numpy", "polars", "tempfile"):
        (folder / f"{name}.py").write_text(create_file_statement(mark))
    monkeypatch.chdir(folder)
    assert run_in_child(os.path.basename, ("a/b",), folder=tmp_path) == "b"
    assert not mark.exists()
