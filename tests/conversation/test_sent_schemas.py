"""The sent schemas of answer models do not depend on names and docstrings of the code."""

from __future__ import annotations

import ast
import importlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from pydantic import BaseModel, create_model

import folkmoot
from folkmoot.conversation.answer_types import JsonList, pin_schema
from folkmoot.conversation.json_schemas import json_schema
from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.engine.study.study import registered_studies
from folkmoot.storage.run_folder import JOURNAL

SOURCE = Path(folkmoot.__file__).parent
ROOT = SOURCE.parents[1]


def find_calls(*names: str) -> Iterator[tuple[str, ast.Call]]:
    """Yield module and node of each call of a function with one of these names in the package."""
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text("utf-8")
        if not any(f"{name}(" in text for name in names):
            continue
        module = ".".join(("folkmoot", *path.relative_to(SOURCE).with_suffix("").parts))
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call):
                function_name = getattr(node.func, "id", getattr(node.func, "attr", ""))
                if function_name in names:
                    yield module.removesuffix(".__init__"), node


@cache
def find_answer_models() -> list[type[BaseModel]]:
    """Return the models that the package passes to an answer type without an explicit schema."""
    models = list[type[BaseModel]]()
    for module, call in find_calls("Json", "JsonList"):
        argument = call.args[0]
        if isinstance(argument, ast.Name) and not any(
            keyword.arg == "schema" for keyword in call.keywords
        ):
            model = getattr(importlib.import_module(module), argument.id, None)
            if isinstance(model, type) and issubclass(model, BaseModel):
                models.append(model)
    return models


def list_package_models() -> list[type[BaseModel]]:
    find_answer_models()  # imports the modules
    models, models_to_visit = list[type[BaseModel]](), BaseModel.__subclasses__()
    while models_to_visit:
        model = models_to_visit.pop()
        models_to_visit += model.__subclasses__()
        if model.__module__.startswith("folkmoot."):
            models.append(model)
    return models


def has_own_title(model: type[BaseModel]) -> bool:
    inherited_titles = [
        base.model_config.get("title") for base in model.__mro__[1:] if issubclass(base, BaseModel)
    ]
    title = model.model_config.get("title")
    return title is not None and title not in inherited_titles


def find_objects(schema: object) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield title and properties of every object in a schema."""
    if isinstance(schema, list):
        for schema_part in schema:
            yield from find_objects(schema_part)
    elif isinstance(schema, dict):
        if schema.get("type") == "object" and isinstance(schema.get("title"), str):
            yield schema["title"], frozenset(schema.get("properties", ()))
        for schema_part in schema.values():
            yield from find_objects(schema_part)


def print_schemas() -> None:
    """Print the sent schemas of all models with a title, before and after all names and docstrings
    are changed."""
    models = sorted(filter(has_own_title, list_package_models()), key=repr)
    keys = [f"{model.__module__}.{model.__qualname__}" for model in models]

    def list_schemas() -> dict[str, object]:
        return {
            key: (json_schema(model), JsonList(model).schema)
            for key, model in zip(keys, models, strict=True)
        }

    before = json.dumps(list_schemas())
    for number, model in enumerate(models):
        model.__name__ = model.__qualname__ = f"Renamed{number}"
        model.__doc__ = "Documented in other words."
    for _ in range(3):  # until models in nested models are rebuilt as well
        for model in models:
            model.model_rebuild(force=True)
    sys.stdout.write(f"[{before}, {json.dumps(list_schemas())}]")


def test_no_class_name_and_no_docstring_of_an_answer_model_is_sent() -> None:
    code = f"from {__name__} import print_schemas; print_schemas()"
    command = [sys.executable, "-c", code]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    before, after = json.loads(process.stdout)
    assert len(before) > 20
    assert [name for name in before if before[name] != after[name]] == []
    assert "Renamed" not in json.dumps(after) and "other words" not in json.dumps(after)


def test_every_answer_model_of_the_package_has_its_own_title() -> None:
    models = find_answer_models()
    assert len(models) > 10
    assert [model for model in models if not has_own_title(model)] == []
    known_titles = [
        model.model_config.get("title") for model in list_package_models() if has_own_title(model)
    ]
    assert [
        title
        for model in models
        for title, _ in find_objects(json_schema(model))
        if title not in known_titles
    ] == []


@pytest.mark.parametrize("study", sorted(registered_studies()))
def test_no_request_of_a_study_names_a_class(
    study: str, run_of_small_study: Callable[[str], Path]
) -> None:
    classes = {
        (model.__name__, frozenset(model.model_fields))
        for model in list_package_models()
        if not has_own_title(model)
    }
    with JournalReader(run_of_small_study(study) / JOURNAL) as journal:
        schemas = [entry.request.get("schema") for entry in journal.read_entries("ask")]
    assert [
        schema_object
        for schema in schemas
        for schema_object in find_objects(schema)
        if schema_object in classes
    ] == []


def test_computations_of_the_package_have_names() -> None:
    compute_calls = [
        call for _, call in find_calls("compute") if isinstance(call.func, ast.Attribute)
    ]
    assert compute_calls
    assert [
        call.lineno
        for call in compute_calls
        if "name" not in {keyword.arg for keyword in call.keywords}
    ] == []


def test_a_model_of_another_package_is_sent_under_its_class_name_or_title() -> None:
    class Stance(BaseModel):
        """How sure one is."""

        sure: bool

    class Pinned(Stance):
        """How the code reads it."""

        model_config = pin_schema("Answer", "How sure you are.")

    holder = create_model("Holder", one=(Stance, ...), other=(Pinned, ...))
    assert json_schema(Stance)["title"] == "Stance"
    assert json_schema(Stance)["description"] == "How sure one is."
    assert json_schema(Pinned)["title"] == "Answer"
    assert json_schema(Pinned)["description"] == "How sure you are."
    nested = json_schema(holder)
    assert list(nested["$defs"]) == ["Answer", "Stance"]
    assert nested["properties"]["other"] == {"$ref": "#/$defs/Answer"}
