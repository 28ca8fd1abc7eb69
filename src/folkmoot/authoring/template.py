"""The study file that `folkmoot new` writes: every key of a study type, in groups.

Essential keys are set, and all others are commented out.
"""
# The `#` before a commented key has no space after it, and the `#` before an explanation has one.

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from folkmoot.authoring.keys import UNSET, Key, keys_of
from folkmoot.authoring.schema import schema_file_name, schema_text
from folkmoot.engine.settings.yaml_tree import dump_unwrapped
from folkmoot.engine.study.study import Study

WIDTH = 100
# The column at which the notes beside keys begin.
NOTE_COLUMN = 34

_HEADER = """\
# yaml-language-server: $schema={schema}
# {title}.
# A key after a # is not set: it shows its default, or an example. To set it, remove the #.
# Check it: folkmoot check {file}
# Run it:   folkmoot run {file}
"""


class _Line(NamedTuple):
    # `active` is False if the key is commented out.
    text: str
    note: str
    active: bool


def study_file_name(study: Study) -> str:
    """Return the name of the study file that `folkmoot new` writes."""
    return f"{study.name}.yaml"


def study_file_template(study: Study, study_name: str = "") -> str:
    """Return a study file with every key of a study type."""
    # `study_name` is the value of the key `study`.
    keys = keys_of(study.config)
    shown = {**study.config.TEMPLATE_VALUES, "study": study_name or study.name}
    sections = study.config.SECTIONS
    shared_names = {name for names in sections.values() for name in names}
    essential = sorted(
        filter(_is_essential, keys), key=lambda key: (key.name != "study", key.name in shared_names)
    )
    other_keys = [key for key in keys if key not in essential]
    keys_by_title = {
        "": essential,
        "Further settings": [key for key in other_keys if key.name not in shared_names],
    }
    keys_by_title |= {
        title: [key for key in other_keys if key.name in names] for title, names in sections.items()
    }
    text = _HEADER.format(
        schema=schema_file_name(study), title=study.title, file=study_file_name(study)
    )
    for title, title_keys in keys_by_title.items():
        if title_keys:
            text += f"\n# {title} ".ljust(WIDTH, "-") + "\n" if title else "\n"
        for key in title_keys:
            for line in _lines_of(key, shown.get(key.name, UNSET), active=key in essential):
                text += _format_line(line)
    return text


def new_files(study: Study, study_name: str = "") -> dict[str, str | bytes]:
    """Return the files of a new study, as a map from file name to content."""
    # Study file and JSON Schema are left out if the study type has its own study file or loader.
    template_files = study.template_files()
    name = study_file_name(study)
    if study.load_config is not None or name in template_files:
        return template_files
    return {
        name: study_file_template(study, study_name),
        schema_file_name(study): schema_text(study),
        **template_files,
    }


def _is_essential(key: Key) -> bool:
    inner = key.nesting == "group" and any(map(_is_essential, key.inner))
    return key.required or key.essential or inner


def _lines_of(key: Key, shown: Any, *, active: bool, start: str = "") -> Iterator[_Line]:
    # `shown` is the value to show, or UNSET for the default or example of the key. `start` is the
    # text before the key's name: indentation, and a dash in a list.
    value, note = shown, key.description
    if shown is UNSET:
        value = key.default
        if key.example is not UNSET and (active or not value or value is UNSET):
            value = key.example
            note += "" if active else "; example"
    key_text, inner_indent = f"{start}{key.name}:", " " * len(start) + "  "
    if key.inner and shown is None:
        yield _Line(
            key_text,
            f"{note}; its keys: {', '.join(inner_key.name for inner_key in key.inner)}",
            active,
        )
    elif key.inner and key.nesting == "group":
        group_values = value if isinstance(value, Mapping) and shown is not UNSET else {}
        yield _Line(key_text, note, active)
        yield from _group_lines(key.inner, group_values, active=active, start=inner_indent)
    elif key.inner and key.nesting == "names" and _are_groups(value):
        yield _Line(key_text, note, active)
        for name, group in value.items():
            yield _Line(f"{inner_indent}{write_value(name)}:", "", active)
            yield from _group_lines(key.inner, group, active=active, start=inner_indent + "  ")
    elif key.inner and key.nesting == "list" and isinstance(value, list) and value:
        yield _Line(key_text, note, active)
        for number, entry in enumerate(value):
            # The first entry shows all keys, the others only those that they set.
            inner = key.inner if number == 0 else [key for key in key.inner if key.name in entry]
            yield from _group_lines(inner, entry, active=active, start=inner_indent, dash=True)
    elif isinstance(value, str) and "\n" in value:
        yield _Line(f"{key_text} |", note, active)
        yield from (_Line(inner_indent + line, "", active) for line in value.splitlines())
    else:
        yield _Line(f"{key_text} {write_value(value)}".rstrip(), note, active)


def _group_lines(
    keys: Iterable[Key], values: Mapping[str, Any], *, active: bool, start: str, dash: bool = False
) -> Iterator[_Line]:
    for number, key in enumerate(keys):
        line_start = start
        # In YAML, the dash of a list entry precedes its first key only.
        if dash:
            line_start = start + ("  " if number else "- ")
        yield from _lines_of(
            key, values.get(key.name, UNSET), active=active and _is_essential(key), start=line_start
        )


def _are_groups(value: Any) -> bool:
    groups = value.values() if isinstance(value, Mapping) else ()
    return bool(groups) and all(isinstance(group, Mapping) for group in groups)


def write_value(value: Any) -> str:
    """Return a value as YAML on one line.

    Returns "" if the value is not set.
    """
    if value is None or value is UNSET:
        return ""
    # `3` is easier to read than `3.0` and means the same in a study file.
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return dump_unwrapped(value, flow=True).removesuffix("...\n").strip()


def _format_line(line: _Line) -> str:
    # The note is above the key if it does not fit on the same line.
    text = line.text if line.active else f"#{line.text}"
    if not line.note:
        return f"{text}\n"
    line_with_note = f"{text.ljust(NOTE_COLUMN)}  # {line.note}"
    if len(line_with_note) <= WIDTH:
        return f"{line_with_note}\n"
    indent = line.text[: len(line.text) - len(line.text.lstrip(" "))] if line.active else ""
    note_lines = textwrap.wrap(
        line.note, WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# "
    )
    return "".join(f"{line_text}\n" for line_text in (*note_lines, text))
