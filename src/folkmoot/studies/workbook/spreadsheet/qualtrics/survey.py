"""Read a QSF file as a survey with questions, blocks and flow."""
# A QSF file is a JSON object with `SurveyEntry` (name, language) and the list `SurveyElements`. The
# key `Element` gives the kind of each element: BL blocks, FL flow, SQ question, SO options. QSF may
# replace a list by an object with numbers as keys, and an empty object by an empty list.

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from folkmoot.errors import InputError, Problem
from folkmoot.hidden_characters import without_hidden

MAX_BYTES = 50_000_000
TRASH = "Trash"
_HOW_TO_EXPORT = "in Qualtrics: Survey, Tools, Import/Export, Export Survey"
# Elements that hold nothing that a participant would see: options of translations and themes,
# counts, statistics, response sets, the project.
_SILENT = frozenset(("PROJ", "STAT", "QC", "RS", "PL", "PRV", "LP", "MP"))
_NAMED = {
    "NT": "notes of the survey's authors",
    "QO": "a quota; the number of respondents is the number of sessions",
    "QG": "a group of quotas; the number of respondents is the number of sessions",
    "QGO": "groups of quotas; the number of respondents is the number of sessions",
    "TR": "an action after the survey, such as an e-mail",
    "BR": "a branch that is not in the survey flow",
}


@dataclass(frozen=True)
class ImportNote:
    """A difference between the survey and its workbook."""

    # A part is left out, or asked in another form.

    # The id of the question or of the part of the survey.
    where: str
    text: str
    is_left_out: bool = True


@dataclass(frozen=True)
class Choice:
    """A choice, a statement or a scale point of a survey question."""

    id: str
    html: str
    # The other entries of the choice in the QSF file.
    keys: Mapping[str, Any]


@dataclass(frozen=True)
class SurveyQuestion:
    """A question of the survey."""

    id: str
    kind: str
    selector: str
    subselector: str
    name: str
    html: str
    # All keys of the question in the export.
    keys: Mapping[str, Any]

    def choices(self, of: str = "Choices", order: str = "ChoiceOrder") -> list[Choice]:
        """Return the choices of the question in the order shown.

        - `of`: the key under which the exported question lists the choices.
        - `order`: the key under which the exported question lists the order.
        """
        # With other keys, the entries are statements or scale points.
        return read_choices(self.keys, of, order)

    @property
    def validation(self) -> Mapping[str, Any]:
        return as_mapping(as_mapping(self.keys.get("Validation")).get("Settings"))

    @property
    def configuration(self) -> Mapping[str, Any]:
        return as_mapping(self.keys.get("Configuration"))


@dataclass(frozen=True)
class Block:
    """A block of the survey."""

    id: str
    kind: str
    title: str
    # Its questions and page breaks.
    elements: Sequence[Mapping[str, Any]]
    options: Mapping[str, Any]

    @property
    def question_ids(self) -> list[str]:
        return [
            as_text(element.get("QuestionID"))
            for element in self.elements
            if as_text(element.get("Type")) == "Question"
        ]


@dataclass(frozen=True)
class Survey:
    """A whole survey as read from a QSF file."""

    name: str
    questions: Mapping[str, SurveyQuestion]
    blocks: Mapping[str, Block]
    flow: Sequence[Mapping[str, Any]]
    # Parts that were left out in reading.
    notes: list[ImportNote] = field(default_factory=list)


def read_survey(path: Path) -> Survey:
    """Read a QSF file.

    Raises InputError if the file is not a QSF export.
    """
    document = _read_json(path)
    elements = nested_list(document.get("SurveyElements"))
    if not elements:
        raise _not_an_export(path, "it has no SurveyElements")
    entry = as_mapping(document.get("SurveyEntry"))
    notes: list[ImportNote] = []
    questions: dict[str, SurveyQuestion] = {}
    blocks: dict[str, Block] = {}
    flow: list[Mapping[str, Any]] = []
    for element in elements:
        kind, payload = as_text(element.get("Element")), element.get("Payload")
        if kind == "SQ":
            _add_question(element, questions, notes)
        elif kind == "BL":
            _add_blocks(payload, blocks, notes)
        elif kind == "FL":
            flow += nested_list(as_mapping(payload).get("Flow"))
        elif kind == "SO":
            _note_options(as_mapping(payload), notes)
        elif kind == "SCO":
            if as_mapping(payload).get("ScoringCategories"):
                notes.append(
                    ImportNote("SCO", "the scoring of its answers; compute scores from the results")
                )
        elif kind not in _SILENT:
            where = as_text(element.get("PrimaryAttribute")) or kind or "?"
            what = _NAMED.get(kind, f"a part of the file of the unknown kind {kind!r}")
            notes.append(ImportNote(where, what))
    if not questions:
        raise _not_an_export(path, "it has no questions")
    languages = {name for q in questions.values() for name in as_mapping(q.keys.get("Language"))}
    if languages:
        what = (
            f"the translations ({', '.join(sorted(map(without_hidden, languages)))}); the original "
            "is asked"
        )
        notes.append(ImportNote("SurveyEntry", what))
    if not flow:
        # Old exports have no flow: all blocks are shown in their order.
        flow = [{"Type": "Block", "ID": id} for id, block in blocks.items() if block.kind != TRASH]
    return Survey(as_text(entry.get("SurveyName")), questions, blocks, flow, notes)


def _read_json(path: Path) -> Mapping[str, Any]:
    try:
        if path.stat().st_size > MAX_BYTES:
            size = f"it has more than {MAX_BYTES // 1_000_000} MB"
            raise InputError(Problem(f"cannot be read: {size}", str(path)))
        content = path.read_bytes()
    except OSError as error:
        raise InputError(Problem(f"cannot be read: {error.strerror}", str(path))) from error
    try:
        document = json.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise _not_an_export(path, "it is not a text in UTF-8") from error
    except json.JSONDecodeError as error:
        what = f"it is not JSON (line {error.lineno}: {error.msg})"
        raise _not_an_export(path, what) from error
    except (RecursionError, ValueError) as error:
        raise _not_an_export(path, "its JSON is nested too deeply or not valid") from error
    if not isinstance(document, dict):
        raise _not_an_export(path, "it is not a JSON object")
    return document


def _not_an_export(path: Path, why: str) -> InputError:
    message = f"the file is not a survey exported from Qualtrics: {why}"
    return InputError(Problem(message, str(path), hint=_HOW_TO_EXPORT))


def _add_question(
    element: Mapping[str, Any], questions: dict[str, SurveyQuestion], notes: list[ImportNote]
) -> None:
    keys = as_mapping(element.get("Payload"))
    id = as_text(keys.get("QuestionID")) or as_text(element.get("PrimaryAttribute"))
    if not id:
        notes.append(ImportNote("?", "a question without an id; export the survey again"))
    elif id in questions:
        notes.append(ImportNote(id, "a second question with the same id; export the survey again"))
    else:
        questions[id] = read_question(id, keys)


def read_question(id: str, keys: Mapping[str, Any]) -> SurveyQuestion:
    """Return the question that a JSON object of the exported file describes."""
    return SurveyQuestion(
        id,
        as_text(keys.get("QuestionType")),
        as_text(keys.get("Selector")),
        as_text(keys.get("SubSelector")),
        as_text(keys.get("DataExportTag")) or id,
        as_text(keys.get("QuestionText")),
        keys,
    )


def _add_blocks(payload: object, blocks: dict[str, Block], notes: list[ImportNote]) -> None:
    for keys in nested_list(payload):
        id = as_text(keys.get("ID"))
        if not id or id in blocks:
            what = "a second block with the same id" if id else "a block without an id"
            notes.append(ImportNote(id or "?", what))
            continue
        title = as_text(keys.get("Description"))
        elements = nested_list(keys.get("BlockElements"))
        options = as_mapping(keys.get("Options"))
        blocks[id] = Block(id, as_text(keys.get("Type")), title, elements, options)


def _note_options(options: Mapping[str, Any], notes: list[ImportNote]) -> None:
    for key, what in (("Header", "the header of its pages"), ("Footer", "the footer of its pages")):
        if as_text(options.get(key)).strip():
            notes.append(ImportNote("SO", what))


# --- the forms of the JSON ---------------------------------------------------------------------


def as_mapping(value: object) -> Mapping[str, Any]:
    """Return a JSON object.

    Returns an empty mapping if the value is not an object.
    """
    return value if isinstance(value, dict) else {}


def as_text(value: object) -> str:
    """Return a text or number as text.

    Returns "" for any other value.
    """
    # Hidden characters that a workbook refuses are removed.
    if isinstance(value, bool):
        return str(value).lower()
    return without_hidden(str(value)) if isinstance(value, (str, int, float)) else ""


def as_number(value: object) -> float | None:
    """Return a number, or the number that a text contains.

    Returns None for any other value.
    """
    try:
        number = float(as_text(value))
    except ValueError:
        return None
    return number if abs(number) < 1e15 else None


def in_order(value: object) -> list[tuple[str, Any]]:
    """Return (key, entry) for each entry of a list or JSON object, in order.

    The key of an entry in a list is the entry's number as text, from 1. The result is empty for
    any other value.
    """
    # Entries of an object are in the order of their numeric keys.
    if isinstance(value, dict):
        entries = [(without_hidden(key), entry) for key, entry in value.items()]
        return sorted(entries, key=lambda entry: (_numeric_sort_key(entry[0]), entry[0]))
    return [(str(i), each) for i, each in enumerate(value, 1)] if isinstance(value, list) else []


def _numeric_sort_key(key: str) -> float:
    number = as_number(key)
    return float("inf") if number is None else number


def nested_list(value: object) -> list[Mapping[str, Any]]:
    """Return the JSON objects in a list, or in a JSON object with numbers as keys."""
    return [each for _, each in in_order(value) if isinstance(each, dict)]


def read_choices(keys: Mapping[str, Any], of: str, order: str) -> list[Choice]:
    """Return the choices of a question in the order shown.

    - `of`: the key under which the exported question lists the choices.
    - `order`: the key under which the exported question lists the order of the choices.

    Choices that the order does not list come last.
    """
    entries = dict(in_order(keys.get(of)))
    listed = [as_text(id) for _, id in in_order(keys.get(order))]
    names = dict.fromkeys((*(id for id in listed if id in entries), *entries))
    found = []
    for id in names:
        entry = entries[id]
        given = as_mapping(entry)
        found.append(Choice(id, as_text(given.get("Display")) if given else as_text(entry), given))
    return found
