"""The public names of the package exist, and entry points load."""

from __future__ import annotations

import importlib
import pkgutil
from importlib.metadata import entry_points, version
from pathlib import Path

import pytest

import folkmoot
from folkmoot.engine.study.study import load_installed_studies

EXTRAS = {"ray"}  # optional dependencies; the modules that import them are used only with them


def list_modules() -> list[str]:
    modules = pkgutil.walk_packages(folkmoot.__path__, "folkmoot.")
    return [module.name for module in modules if not module.name.endswith("__main__")]


@pytest.mark.parametrize("name", folkmoot.__all__)
def test_every_public_name_exists(name: str) -> None:
    assert getattr(folkmoot, name) is not None
    assert name in dir(folkmoot)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        folkmoot.nothing  # noqa: B018


def test_every_module_has_a_docstring() -> None:
    undocumented = []
    for name in list_modules():
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name in EXTRAS:
                continue
            raise
        source = Path(module.__file__ or "").read_text("utf-8").strip()
        if source and not (module.__doc__ or "").strip():
            undocumented.append(name)
    assert undocumented == []


def test_every_study_type_and_provider_loads() -> None:
    studies, problems = load_installed_studies()
    assert problems == []
    names = [entry_point.name for entry_point in entry_points(group="folkmoot.studies")]
    assert sorted(study.name for study in studies) == sorted(names)
    for entry_point in entry_points(group="folkmoot.providers"):
        assert callable(entry_point.load())


def test_package_and_citation_have_the_same_version() -> None:
    assert folkmoot.__version__ == version("folkmoot")
    citation = (Path(__file__).parents[1] / "CITATION.cff").read_text()
    assert f"version: {folkmoot.__version__}" in citation


def test_the_public_members_of_a_scope_are_the_documented_ones() -> None:
    members = {name for name in dir(folkmoot.Scope) if not name.startswith("_")}
    effect_methods = {
        "ask",
        "ask_detailed",
        "map",
        "take_turns",
        "embed",
        "compute",
        "record",
        "say",
    }
    file_methods = {"prompt", "write_json", "write_text", "log", "warn"}
    other_members = {
        "child",
        "at_row",
        "path",
        "address",
        "rng",
        "seed",
        "root",
        "finish",
        "store",
        "speaks_as_self",
        "is_human",
    }
    assert members == effect_methods | file_methods | other_members
