"""What the package promises by name is there, typed, and found by entry point."""

from __future__ import annotations

import importlib
import pkgutil
from importlib.metadata import entry_points, version
from pathlib import Path

import pytest

import folkmoot
from folkmoot.engine.study.study import load_installed_studies

EXTRAS = {"ray"}  # imported by modules of their own, which nobody needs without them


def modules() -> list[str]:
    found = pkgutil.walk_packages(folkmoot.__path__, "folkmoot.")
    return [m.name for m in found if not m.name.endswith("__main__")]


@pytest.mark.parametrize("name", folkmoot.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(folkmoot, name) is not None
    assert name in dir(folkmoot)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        folkmoot.nothing  # noqa: B018


def test_every_module_says_what_it_is_for() -> None:
    silent = []
    for name in modules():
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name in EXTRAS:
                continue
            raise
        source = Path(module.__file__ or "").read_text("utf-8").strip()
        if source and not (module.__doc__ or "").strip():
            silent.append(name)
    assert silent == []


def test_every_study_type_and_provider_loads() -> None:
    studies, problems = load_installed_studies()
    assert problems == []
    names = [point.name for point in entry_points(group="folkmoot.studies")]
    assert sorted(s.name for s in studies) == sorted(names)
    for point in entry_points(group="folkmoot.providers"):
        assert callable(point.load())


def test_the_version_is_one() -> None:
    assert folkmoot.__version__ == version("folkmoot")
    citation = (Path(__file__).parents[1] / "CITATION.cff").read_text()
    assert f"version: {folkmoot.__version__}" in citation


def test_a_scope_offers_no_more_than_the_page_on_writing_a_study_says() -> None:
    scope = {name for name in dir(folkmoot.Scope) if not name.startswith("_")}
    effects = {"ask", "ask_detailed", "map", "take_turns", "embed", "compute", "record", "say"}
    files = {"prompt", "write_json", "write_text", "log", "warn"}
    values = {
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
    assert scope == effects | files | values
