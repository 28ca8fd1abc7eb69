"""The notes of an import, by kind, as the page of a study shows them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from folkmoot.hints import capitalise
from folkmoot.studio.labels import FormWords

# The task of the researcher for each kind of note. A note begins with its kind and a colon.
KINDS = {
    "Kept": "This is in the study.",
    "To do": "Do this before a run with a model.",
    "Left out": "No participant reads or answers this. If you need it, write it into the form "
    "below, or change the survey in its own program and open it here again.",
    "Changed": "This is asked in another form. Read these questions once in the form below.",
}
# The title of notes without a known kind.
OTHER = "Notes"


@dataclass(frozen=True, slots=True)
class NoteGroup:
    """All notes of one kind."""

    title: str
    explanation: str
    lines: list[str] = field(default_factory=list)


def group_notes(lines: Iterable[str], words: FormWords) -> list[NoteGroup]:
    """Return the notes of an import by kind, in the words of the form.

    - `lines`: the lines of the file with the notes.
    """
    groups = {kind: NoteGroup(kind, explanation) for kind, explanation in KINDS.items()}
    groups[OTHER] = NoteGroup(OTHER, "")
    for line in lines:
        kind, _, text = line.partition(": ")
        if kind in KINDS:
            groups[kind].lines.append(capitalise(words.rewrite(text)))
        else:
            groups[OTHER].lines.append(words.rewrite(line))
    return [group for group in groups.values() if group.lines]
