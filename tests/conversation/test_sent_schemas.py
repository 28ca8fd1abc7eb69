"""What is sent of an answer model does not depend on how the code is named or documented."""

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


def calls(*names: str) -> Iterator[tuple[str, ast.Call]]:
    """Module and node of each call of a function or method of these names in the package."""
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text("utf-8")
        if not any(f"{name}(" in text for name in names):
            continue
        module = ".".join(("folkmoot", *path.relative_to(SOURCE).with_suffix("").parts))
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call):
                called = getattr(node.func, "id", getattr(node.func, "attr", ""))
                if called in names:
                    yield module.removesuffix(".__init__"), node


@cache
def answer_models() -> list[type[BaseModel]]:
    """The models that the package gives to an answer type, without a schema beside them."""
    models = list[type[BaseModel]]()
    for module, call in calls("Json", "JsonList"):
        given = call.args[0]
        if isinstance(given, ast.Name) and not any(k.arg == "schema" for k in call.keywords):
            found = getattr(importlib.import_module(module), given.id, None)
            if isinstance(found, type) and issubclass(found, BaseModel):
                models.append(found)
    return models


def models_of_the_package() -> list[type[BaseModel]]:
    answer_models()  # imports the modules
    found, waiting = list[type[BaseModel]](), BaseModel.__subclasses__()
    while waiting:
        model = waiting.pop()
        waiting += model.__subclasses__()
        if model.__module__.startswith("folkmoot."):
            found.append(model)
    return found


def has_own_title(model: type[BaseModel]) -> bool:
    above = [b.model_config.get("title") for b in model.__mro__[1:] if issubclass(b, BaseModel)]
    title = model.model_config.get("title")
    return title is not None and title not in above


def objects_in(schema: object) -> Iterator[tuple[str, frozenset[str]]]:
    """Title and properties of every object in a schema."""
    if isinstance(schema, list):
        for part in schema:
            yield from objects_in(part)
    elif isinstance(schema, dict):
        if schema.get("type") == "object" and isinstance(schema.get("title"), str):
            yield schema["title"], frozenset(schema.get("properties", ()))
        for part in schema.values():
            yield from objects_in(part)


def print_schemas() -> None:
    """Print what is sent of every model with a title, before and after all of them got other names
    and docstrings."""
    models = sorted(filter(has_own_title, models_of_the_package()), key=repr)
    keys = [f"{m.__module__}.{m.__qualname__}" for m in models]

    def list_sent() -> dict[str, object]:
        return {k: (json_schema(m), JsonList(m).schema) for k, m in zip(keys, models, strict=True)}

    before = json.dumps(list_sent())
    for number, model in enumerate(models):
        model.__name__ = model.__qualname__ = f"Renamed{number}"
        model.__doc__ = "Documented in other words."
    for _ in range(3):  # until what is nested in nested models is rebuilt
        for model in models:
            model.model_rebuild(force=True)
    sys.stdout.write(f"[{before}, {json.dumps(list_sent())}]")


def test_no_class_name_and_no_docstring_of_an_answer_model_is_sent() -> None:
    code = f"from {__name__} import print_schemas; print_schemas()"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    before, after = json.loads(done.stdout)
    assert len(before) > 20
    assert [name for name in before if before[name] != after[name]] == []
    assert "Renamed" not in json.dumps(after) and "other words" not in json.dumps(after)


def test_every_answer_model_of_the_package_has_a_title_of_its_own() -> None:
    named = answer_models()
    assert len(named) > 10
    assert [m for m in named if not has_own_title(m)] == []
    titled = [m.model_config.get("title") for m in models_of_the_package() if has_own_title(m)]
    assert [t for m in named for t, _ in objects_in(json_schema(m)) if t not in titled] == []


@pytest.mark.parametrize("study", sorted(registered_studies()))
def test_no_request_of_a_study_names_a_class(
    study: str, run_of_small_study: Callable[[str], Path]
) -> None:
    classes = {
        (m.__name__, frozenset(m.model_fields))
        for m in models_of_the_package()
        if not has_own_title(m)
    }
    with JournalReader(run_of_small_study(study) / JOURNAL) as journal:
        sent = [e.request.get("schema") for e in journal.read_entries("ask")]
    assert [o for schema in sent for o in objects_in(schema) if o in classes] == []


def test_computations_of_the_package_have_names() -> None:
    computed = [call for _, call in calls("compute") if isinstance(call.func, ast.Attribute)]
    assert computed
    assert [call.lineno for call in computed if "name" not in {k.arg for k in call.keywords}] == []


def test_a_model_of_a_stranger_is_sent_under_its_class_or_its_title() -> None:
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
