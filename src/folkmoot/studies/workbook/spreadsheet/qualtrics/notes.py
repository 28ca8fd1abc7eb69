"""Name the parts of a survey in the notes of an import.

The author of a survey knows a question by its name and its words. The id is for a search in the
exported file.
"""

from __future__ import annotations

from functools import lru_cache

from folkmoot.hints import shorten
from folkmoot.studies.workbook.spreadsheet.qualtrics.survey import ImportNote, Survey
from folkmoot.studies.workbook.spreadsheet.qualtrics.texts import make_plain

LEFT_OUT, CHANGED = "Left out", "Changed"
# Characters of a question's text that a note repeats.
_MAX_TEXT = 60
# Parts of the exported file that are no question and no block.
_PARTS = {
    "SO": "design of the pages",
    "SCO": "scoring",
    "SurveyEntry": "languages",
}
_FLOW_PREFIX = "FL_"


class NoteWriter:
    """Writes the notes on one survey."""

    def __init__(self, survey: Survey) -> None:
        self._survey = survey
        # Many notes may be about one question, and its text may be long.
        self._name_place = lru_cache(maxsize=None)(self._find_name)

    def write(self, note: ImportNote) -> str:
        """Return a note as one line of text."""
        kind = LEFT_OUT if note.is_left_out else CHANGED
        name = self._name_place(note.where)
        return f"{kind}: {f'{name} ({note.where})' if name else note.where}: {note.text}"

    def _find_name(self, where: str) -> str:
        # `where` is an id, or an id with the ending of one of its tasks.
        if where in self._survey.blocks:
            title = shorten(make_plain(self._survey.blocks[where].title, in_one_line=True).text, 60)
            return f"block “{title}”" if title else "block"
        if where.startswith(_FLOW_PREFIX):
            return "step of the survey flow"
        question = self._survey.questions.get(where)
        for id in self._survey.questions if question is None else ():
            if where.startswith((f"{id}_", f"{id} ")):
                question = self._survey.questions[id]
        if question is None:
            return _PARTS.get(where, "")
        name = question.name if question.name != question.id else ""
        text = shorten(make_plain(question.html, in_one_line=True).text, _MAX_TEXT)
        return " ".join(filter(None, (name, f"“{text}”" if text else "")))
