"""The conda recipe installs the package that `pyproject.toml` describes."""

from __future__ import annotations

import tomllib
from pathlib import Path

import yaml
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
RECIPE = yaml.safe_load((ROOT / "packaging" / "conda" / "recipe.yaml").read_text("utf-8"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def test_the_recipe_has_the_version_the_python_and_the_command_of_the_package() -> None:
    context = RECIPE["context"]
    assert context["version"] == PROJECT["version"]
    assert f">={context['python_min']}" == PROJECT["requires-python"]
    (entry_point,) = RECIPE["build"]["python"]["entry_points"]
    assert [entry_point] == [f"{name} = {path}" for name, path in PROJECT["scripts"].items()]
    assert RECIPE["about"]["license"] == PROJECT["license"]


def test_the_recipe_has_the_dependencies_of_the_package() -> None:
    requirements = [Requirement(text) for text in PROJECT["dependencies"]]
    recipe_dependencies = dict(text.split(" ", 1) for text in RECIPE["requirements"]["run"])
    assert recipe_dependencies.pop("python") == ">=${{ python_min }}"
    # conda-forge has no build of the pinned wheel, and the test of digests knows this version.
    assert recipe_dependencies.pop("wordllama") == "0.4.0.*"
    assert recipe_dependencies == {
        requirement.name: str(requirement.specifier)
        for requirement in requirements
        if requirement.name != "wordllama"
    }
