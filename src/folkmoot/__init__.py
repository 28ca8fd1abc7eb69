"""Folkmoot: a laboratory for simulated deliberation.

    import folkmoot

    run = folkmoot.run("study.yaml", model="synthetic")
    run.findings, run.tables["participants"], run.report()
    folkmoot.load("outputs/pilot_001")       # an earlier run

A study type is an async function with a `Session` as argument (see docs/writing_a_study.md).
"""

from __future__ import annotations

from folkmoot.lazy_names import lazy_names

# As `typing` states it. That module takes 20 ms to import, in which the command line could not
# handle Ctrl-C yet.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from pydantic import BaseModel, Field

    from folkmoot.conversation.answer_types import (
        AnswerType,
        FieldForPeople,
        Json,
        JsonList,
        Missing,
        Text,
        with_ways_out,
    )
    from folkmoot.conversation.choices import Choice, Number
    from folkmoot.conversation.transcript import EMPTY_TRANSCRIPT, Speaker, Transcript, Utterance
    from folkmoot.engine.run.execution import RunOptions
    from folkmoot.engine.session.session import AskResult, Scope, Session
    from folkmoot.engine.settings.config import StudyConfig
    from folkmoot.engine.study.study import Study
    from folkmoot.models.call_llm import call_llm
    from folkmoot.people.persona import Persona
    from folkmoot.people.sources import find_persona_source
    from folkmoot.provenance import join_texts
    from folkmoot.python_api import Run, arun, fork, load, run
    from folkmoot.storage.findings import Finding, ResultTable
    from folkmoot.storage.rows import Row, column
    from folkmoot.storage.run_folder import RunFolder

__version__ = "0.1.0"

__all__ = [
    "EMPTY_TRANSCRIPT",
    "AnswerType",
    "AskResult",
    "BaseModel",
    "Choice",
    "Field",
    "FieldForPeople",
    "Finding",
    "Json",
    "JsonList",
    "Missing",
    "Number",
    "Persona",
    "ResultTable",
    "Row",
    "Run",
    "RunFolder",
    "RunOptions",
    "Scope",
    "Session",
    "Speaker",
    "Study",
    "StudyConfig",
    "Text",
    "Transcript",
    "Utterance",
    "arun",
    "call_llm",
    "column",
    "find_persona_source",
    "fork",
    "join_texts",
    "load",
    "run",
    "with_ways_out",
]

# These names are imported when they are first used, so that `folkmoot --help` does not wait for the
# scientific libraries.
__getattr__ = lazy_names(
    __name__,
    {
        "conversation.answer_types": (
            "AnswerType",
            "FieldForPeople",
            "Json",
            "JsonList",
            "Missing",
            "Text",
            "with_ways_out",
        ),
        "conversation.choices": ("Choice", "Number"),
        "conversation.transcript": ("EMPTY_TRANSCRIPT", "Speaker", "Transcript", "Utterance"),
        "engine.settings.config": ("BaseModel", "Field", "StudyConfig"),
        "engine.run.execution": ("RunOptions",),
        "engine.session.session": ("AskResult", "Scope", "Session"),
        "engine.study.study": ("Study",),
        "models.call_llm": ("call_llm",),
        "people.sources": ("find_persona_source",),
        "people.persona": ("Persona",),
        "provenance": ("join_texts",),
        "python_api": ("Run", "arun", "fork", "load", "run"),
        "storage.findings": ("Finding", "ResultTable"),
        "storage.rows": ("Row", "column"),
        "storage.run_folder": ("RunFolder",),
    },
)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
