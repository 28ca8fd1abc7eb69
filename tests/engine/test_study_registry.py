"""Study types from entry points and files: found, suggested, and isolated from broken types."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path
from typing import ClassVar, Literal

import pytest
from pydantic import Field

from folkmoot.engine.session.session import Session
from folkmoot.engine.settings.config import StudyConfig
from folkmoot.engine.study import study as registry
from folkmoot.engine.study.study import (
    Study,
    check_study,
    find_study,
    find_study_of_run,
    load_installed_studies,
)
from folkmoot.errors import InputError
from folkmoot.registry import STUDIES
from folkmoot.storage.run_folder import RunFolder

SOURCE = """
from folkmoot.engine.settings.config import StudyConfig
from folkmoot.engine.study.study import Study
async def protocol(session): ...
STUDY = Study("own", "Own", StudyConfig, protocol)
"""


@pytest.fixture
def patch_entry_points(monkeypatch: pytest.MonkeyPatch) -> None:
    types = {
        "json": EntryPoint("json", "json:dumps", STUDIES),
        "gone": EntryPoint("gone", "folkmoot_gone:STUDY", STUDIES),
    }
    monkeypatch.setattr(registry, "registered_studies", lambda: types)


@pytest.mark.usefixtures("patch_entry_points")
def test_study_types_that_fail_to_load_are_reported_on_use() -> None:
    with pytest.raises(InputError, match="gone cannot be loaded"):
        find_study("gone")
    with pytest.raises(InputError, match="not a Study"):
        find_study("json")
    studies, problems = load_installed_studies()
    assert studies == []
    assert len(problems) == 2


@pytest.mark.usefixtures("patch_entry_points")
def test_unknown_type_suggests_similar_names() -> None:
    with pytest.raises(InputError, match=r"did you mean json\?"):
        find_study("jsn")
    with pytest.raises(InputError, match="known are: json, gone"):
        find_study("qqqqq")


def test_file_is_a_study_type_and_is_run_once(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(SOURCE)
    study_type = find_study("./own.py", tmp_path)
    assert isinstance(study_type, Study)
    assert find_study("own.py", tmp_path) is study_type


def test_a_study_type_may_narrow_a_key_of_all_studies_and_not_replace_it() -> None:
    class Narrow(StudyConfig):
        """A study file that names one of two models."""

        model: Literal["synthetic", "openai/gpt-4o"] = "synthetic"
        temperature: int = 1
        concurrency: int = Field(4, ge=1)
        embedding_model: ClassVar[str | None] = None

    class Other(StudyConfig):
        """A study file with another meaning of a shared key."""

        concurrency: str = "many"  # type: ignore[assignment]

    async def protocol(session: Session[StudyConfig]) -> None: ...

    check_study(Study("narrow", "Narrow", Narrow, protocol))
    with pytest.raises(InputError, match="config= gives concurrency, a key of all studies"):
        check_study(Study("other", "Other", Other, protocol))


def test_functions_of_a_study_type_take_the_arguments_that_they_are_called_with(
    tmp_path: Path,
) -> None:
    fields = """claims=lambda config, extra=None: [],
        size=lambda config: None,
        with_limit=lambda config: config,
        conditions={"condition": {}},
        importers={},"""
    source = SOURCE.replace("StudyConfig, protocol)", f"StudyConfig, protocol, {fields})")
    (tmp_path / "own.py").write_text(source)
    line = 1 + source[: source.index("size=")].count("\n")
    with pytest.raises(InputError) as error:
        find_study("./own.py", tmp_path)
    text = str(error.value)
    assert f"own.py:{line}: size= must take 2 arguments: config and folder" in text
    assert "with_limit= must take 2 arguments: config and limit (write `with_limit=lambda" in text
    assert "conditions= is not a function" in text and "claims=" not in text


def test_type_of_a_run_is_found_beside_its_outputs(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(SOURCE)
    run = tmp_path / "outputs" / "r1"
    run.mkdir(parents=True)
    (run / "study.yaml").write_text("study: ./own.py\n")
    assert find_study_of_run(RunFolder(run)).name == "own"
    (tmp_path / "own.py").unlink()
    (run / "study.yaml").write_text("study: ./other.py\n")
    with pytest.raises(InputError, match="there is no file"):
        find_study_of_run(RunFolder(run))
