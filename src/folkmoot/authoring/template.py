"""The study file that `folkmoot new` writes: every key of a study type, grouped.

Essential keys are set. The others are behind a `#` with their default, or with an example where
there is none. A comment in words has a space after its `#`, so that the two can be told apart.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import yaml

from folkmoot.authoring.keys import UNSET, Key, keys_of
from folkmoot.authoring.schema import schema_file_name, schema_text
from folkmoot.engine.study.study import Study

WIDTH = 100
NOTE_COLUMN = 34

_BEGINNING = """\
# yaml-language-server: $schema={schema}
# {title}.
# To set a key that is behind a #, remove the #. It shows its default, or else an example.
# Check it: folkmoot check {file}
# Run it:   folkmoot run {file}
"""


class _Line(NamedTuple):
    """One line of a study file: its text, and what the key is for."""

    text: str
    note: str
    active: bool


def study_file_name(study: Study) -> str:
    """The name of the study file that `folkmoot new` writes."""
    return f"{study.name}.yaml"


def study_file_template(study: Study, named: str = "") -> str:
    """A study file with every key of a study type. `named`: the value of its key `study`."""
    keys = keys_of(study.config)
    shown = {**study.config.SHOWN, "study": named or study.name}
    sections = study.config.SECTIONS
    shared = {name for names in sections.values() for name in names}
    essential = sorted(
        filter(_is_essential, keys), key=lambda key: (key.name != "study", key.name in shared)
    )
    rest = [key for key in keys if key not in essential]
    parts = {"": essential, "Further settings": [key for key in rest if key.name not in shared]}
    parts |= {
        title: [key for key in rest if key.name in names] for title, names in sections.items()
    }
    text = _BEGINNING.format(
        schema=schema_file_name(study), title=study.title, file=study_file_name(study)
    )
    for title, listed in parts.items():
        if listed:
            text += f"\n# {title} ".ljust(WIDTH, "-") + "\n" if title else "\n"
        for key in listed:
            for line in _lines_of(key, shown.get(key.name, UNSET), active=key in essential):
                text += _format_line(line)
    return text


def new_files(study: Study, named: str = "") -> dict[str, str | bytes]:
    """The files of a new study: the study file with its JSON Schema, and those that the study type
    brings. A type that reads files of another kind, or brings a study file, has no template here.
    """
    more = study.template_files()
    name = study_file_name(study)
    if study.load_config is not None or name in more:
        return more
    return {
        name: study_file_template(study, named),
        schema_file_name(study): schema_text(study),
        **more,
    }


def set_all_keys(template: str) -> str:
    """A template with every key set to the value that it shows."""
    lines = template.splitlines(keepends=True)
    return "".join(line[1:] if _is_unset_key(line) else line for line in lines)


def _is_unset_key(line: str) -> bool:
    return line.startswith("#") and (line[1] != " " or line[2] == " ")


def _is_essential(key: Key) -> bool:
    inner = key.nesting == "group" and any(map(_is_essential, key.inner))
    return key.required or key.essential or inner


def _lines_of(key: Key, shown: Any, *, active: bool, start: str = "") -> Iterator[_Line]:
    """The lines of a key and of those inside. `shown`: its value, or UNSET for the key's own.

    `start` is what stands before the key's name: its indentation, with a dash in a list.
    """
    value, note = shown, key.description
    if shown is UNSET:
        value = key.default
        if key.example is not UNSET and (active or not value or value is UNSET):
            value = key.example
            note += "" if active else "; example"
    head, below = f"{start}{key.name}:", " " * len(start) + "  "
    if key.inner and shown is None:
        yield _Line(head, f"{note}; its keys: {', '.join(each.name for each in key.inner)}", active)
    elif key.inner and key.nesting == "group":
        given = value if isinstance(value, Mapping) and shown is not UNSET else {}
        yield _Line(head, note, active)
        yield from _group_lines(key.inner, given, active=active, start=below)
    elif key.inner and key.nesting == "names" and _are_groups(value):
        yield _Line(head, note, active)
        for name, group in value.items():
            yield _Line(f"{below}{write_value(name)}:", "", active)
            yield from _group_lines(key.inner, group, active=active, start=below + "  ")
    elif key.inner and key.nesting == "list" and isinstance(value, list) and value:
        yield _Line(head, note, active)
        for number, entry in enumerate(value):
            inner = key.inner if number == 0 else [key for key in key.inner if key.name in entry]
            yield from _group_lines(inner, entry, active=active, start=below, dash=True)
    elif isinstance(value, str) and "\n" in value:
        yield _Line(f"{head} |", note, active)
        yield from (_Line(below + line, "", active) for line in value.splitlines())
    else:
        yield _Line(f"{head} {write_value(value)}".rstrip(), note, active)


def _group_lines(
    keys: Iterable[Key], given: Mapping[str, Any], *, active: bool, start: str, dash: bool = False
) -> Iterator[_Line]:
    for number, key in enumerate(keys):
        before = start
        if dash:
            before = start + ("  " if number else "- ")
        yield from _lines_of(
            key, given.get(key.name, UNSET), active=active and _is_essential(key), start=before
        )


def _are_groups(value: Any) -> bool:
    groups = value.values() if isinstance(value, Mapping) else ()
    return bool(groups) and all(isinstance(group, Mapping) for group in groups)


def write_value(value: Any) -> str:
    """A value on one line, as YAML; nothing for what is not set."""
    if value is None or value is UNSET:
        return ""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = yaml.safe_dump(
        value, default_flow_style=True, width=float("inf"), allow_unicode=True, sort_keys=False
    )
    return text.removesuffix("...\n").strip()


def _format_line(line: _Line) -> str:
    """A line with its note: behind the key if there is room, else above it."""
    text = line.text if line.active else f"#{line.text}"
    if not line.note:
        return f"{text}\n"
    beside = f"{text.ljust(NOTE_COLUMN)}  # {line.note}"
    if len(beside) <= WIDTH:
        return f"{beside}\n"
    indent = line.text[: len(line.text) - len(line.text.lstrip(" "))] if line.active else ""
    above = textwrap.wrap(
        line.note, WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# "
    )
    return "".join(f"{words}\n" for words in (*above, text))
