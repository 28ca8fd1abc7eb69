"""Turn each kind of Qualtrics question into tasks of a workbook.

A question with several answers becomes several tasks, because a task has one answer.
"""
# Variables have the names of the columns in Qualtrics' data file.

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from folkmoot.conversation.choices import indistinguishable_pairs
from folkmoot.hints import number_text
from folkmoot.measures.inference.estimates import format_count
from folkmoot.studies.workbook.config import VarType
from folkmoot.studies.workbook.spreadsheet.qualtrics.conditions import text_literal
from folkmoot.studies.workbook.spreadsheet.qualtrics.survey import (
    Choice,
    ImportNote,
    SurveyQuestion,
    as_mapping,
    as_number,
    as_text,
    in_order,
    nested_list,
    read_question,
)
from folkmoot.studies.workbook.spreadsheet.qualtrics.texts import PlainText, make_plain

YES, NO = "yes", "no"
# A literal of the workbook's language has at most 200 characters.
_MAX_LITERAL = 150
_SINGLE = frozenset(("SAVR", "SAHR", "SACOL", "DL", "SB"))
_MULTIPLE = frozenset(("MAVR", "MAHR", "MACOL", "MSB"))
_LIKERT_SINGLE = frozenset(("", "SingleAnswer", "DL", "DND"))
_UNKNOWN_KINDS: Mapping[str, str] = {
    "Captcha": "a captcha",
    "DD": "a drill down",
    "Draw": "a signature or drawing",
    "FileUpload": "a file upload",
    "GAP": "a gap analysis",
    "HeatMap": "a heat map",
    "Highlight": "a highlight question",
    "HL": "a highlight question",
    "HotSpot": "a hot spot",
    "Meta": "information about the browser",
    "PGR": "pick, group and rank",
    "SS": "a graphic slider",
    "ScreenCapture": "a screen capture",
    "Timing": "a timer of the page",
    "TreeTesting": "a tree test",
}
# The keys of a constant sum's total, of which an export has one.
_TOTALS = ("ChoiceTotal", "TotalSum", "Total")
_ON = frozenset(("true", "on", "1", "yes"))

Key = tuple[str, ...]


@dataclass(frozen=True)
class Item:
    """One task made from a survey question, such as one row of a matrix."""

    # The ids of the choice, row or column, by which conditions and piped texts refer to the answer.
    key: Key
    # The ending of the variable, after the name of the question.
    suffix: str
    # Plain text, which may contain piped values.
    words: str
    # The texts of the options by id. Without choices, the answer is a number within `bounds` or a
    # text.
    choices: Mapping[str, str] = field(default_factory=dict)
    bounds: tuple[float, float] | None = None
    var_type: VarType | None = None
    is_shuffled: bool = False
    # (Key of another item, choice): the task is asked only if the choice was chosen.
    follows: tuple[Key, str] | None = None
    # The display logic of the item.
    logic: Mapping[str, Any] = field(default_factory=dict)

    def literal_of(self, choice: str) -> tuple[str, str] | None:
        """Return the operator and the value that test whether a choice was made.

        Returns None if no test identifies the choice.
        """
        # The operator is `==` or `in`.
        text = self.choices.get(choice)
        if text is None:
            number = as_number(choice)
            in_bounds = self.bounds and number is not None
            return ("==", number_text(number)) if in_bounds and number is not None else None
        if len(text) <= _MAX_LITERAL:
            return "==", text_literal(text)
        start = text[:_MAX_LITERAL]
        others = sum(start in other for other in self.choices.values())
        return ("in", text_literal(start)) if others == 1 else None


@dataclass(frozen=True)
class QuestionForm:
    """The tasks of one question."""

    # A descriptive text has no tasks, only `words`.

    items: tuple[Item, ...] = ()
    words: str = ""
    # The value in the data, by id of the choice or scale point.
    recodes: Mapping[str, str] = field(default_factory=dict)
    # True if the tasks come in random order.
    items_shuffled: bool = False

    def item(self, *key: str) -> Item | None:
        """Return the task with this key.

        Returns None if no task has this key.
        """
        return next((item for item in self.items if item.key == key), None)


class FormMaker:
    """A converter of survey questions into tasks. It writes notes on what is left out."""

    # If the workbook cannot ask a question, the methods add a note and return None.

    def __init__(self, questions: Mapping[str, SurveyQuestion], notes: list[ImportNote]) -> None:
        self.questions, self.notes = questions, notes

    def leave_out(self, question: SurveyQuestion, what: str) -> None:
        self.notes.append(ImportNote(question.id, what))

    def change(self, question: SurveyQuestion, what: str) -> None:
        self.notes.append(ImportNote(question.id, what, is_left_out=False))

    def make_form(self, question: SurveyQuestion) -> QuestionForm | None:
        """Return the tasks of a question.

        Returns None and adds a note if the workbook cannot ask the question.
        """
        make = _MAKERS.get(question.kind)
        form = make(self, question) if make else None
        if form is None:
            if make is None:
                what = _UNKNOWN_KINDS.get(
                    question.kind, f"a question of the unknown kind {question.kind or '?'}"
                )
                self._no_form(question, what)
            return None
        self._note_extras(question)
        return form

    def _no_form(self, question: SurveyQuestion, what: str) -> QuestionForm | None:
        what = f"{what} is not supported; if you need it, ask it in words or with choices"
        self.leave_out(question, what)
        return None

    def _plain_text(self, question: SurveyQuestion, html: str, *, in_one_line: bool = False) -> str:
        return self._note_losses(question, make_plain(html, in_one_line=in_one_line))

    def _note_losses(self, question: SurveyQuestion, plain: PlainText) -> str:
        for lost in plain.lost:
            self.leave_out(question, f"{lost} in its text")
        return plain.text

    def _question_text(self, question: SurveyQuestion) -> str:
        words = self._plain_text(question, question.html)
        if not words and question.kind != "DB":
            self.change(question, f"it has no text; it is asked as “{question.name}”")
        return words or ("" if question.kind == "DB" else question.name)

    # --- parts of questions --------------------------------------------------------------------

    def _choices_of(self, question: SurveyQuestion) -> list[Choice]:
        if source := _choice_source(question):
            if source in self.questions:
                what = f"it offers all choices of {source}, and not only those that were chosen"
                self.change(question, f"{what} there")
            else:
                what = f"choices that it takes over from {source}, which is not in the file"
                self.leave_out(question, what)
        return self.all_choices(question)

    def all_choices(self, question: SurveyQuestion) -> list[Choice]:
        """Return the choices of a question, with those that it takes over from another question."""
        return self._collect_choices(question, frozenset())

    def _collect_choices(self, question: SurveyQuestion, above: frozenset[str]) -> list[Choice]:
        # `above`: the questions that take over the choices of this one.
        source = _choice_source(question)
        if not source:
            return question.choices()
        own = [choice for choice in question.choices() if not choice.id.startswith("x")]
        # The source may take over choices itself.
        if source not in self.questions or source in above | {question.id}:
            return own
        offered = self._collect_choices(self.questions[source], above | {question.id})
        # In the data, choices that are taken over have an x before the id of their source.
        return [*(Choice(f"x{each.id}", each.html, each.keys) for each in offered), *own]

    def _options_by_id(
        self,
        question: SurveyQuestion,
        choices: Sequence[Choice],
        *,
        numbered: bool = False,
        asked_one_by_one: bool = False,
    ) -> dict[str, str]:
        # The texts are distinct. With `numbered`, each text begins with its number.
        texts: list[str] = []
        for number, choice in enumerate(choices, 1):
            text = self._plain_text(question, choice.html, in_one_line=True)
            if "${" in text:
                what = (
                    f"the value piped into choice {choice.id}; a choice has a fixed text, so write "
                    "words there"
                )
                self.leave_out(question, what)
            if not text:
                self.change(question, f"choice {choice.id} has no text; it is called {number}")
            if choice.keys.get("DisplayLogic") and not asked_one_by_one:
                what = f"the display logic of choice {choice.id}; the choice is always offered"
                self.leave_out(question, what)
            texts.append((f"{number}: {text}" if numbered and text else text) or str(number))
        # Words in parentheses tell options apart; numbers before them would not.
        for number in sorted({n for pair in indistinguishable_pairs(texts) for n in pair}):
            texts[number] += f" (choice {number + 1})"
            what = f"choice {choices[number].id} reads like another; it is called {texts[number]!r}"
            self.change(question, what)
        return dict(zip((choice.id for choice in choices), texts, strict=True))

    def _shows_in_random_order(
        self, question: SurveyQuestion, *, can_be_shuffled: bool = True
    ) -> bool:
        given = as_mapping(question.keys.get("Randomization"))
        kind = as_text(given.get("Type"))
        if kind in ("", "None"):
            return False
        advanced = as_mapping(given.get("Advanced")) if kind == "Advanced" else {}
        fixed = [as_text(id) for _, id in in_order(advanced.get("FixedOrder"))]
        is_subset = kind == "Subset" or bool(
            in_order(advanced.get("RandomSubSet")) or in_order(advanced.get("Undisplayed"))
        )
        # The export writes the places that are drawn as {~Randomized~}.
        is_whole = kind == "All" or (fixed and all(id.startswith("{~") for id in fixed))
        if is_whole and not is_subset and can_be_shuffled:
            return True
        what = f"the random order of {'its choices' if is_whole else 'some of its choices'}"
        if is_subset:
            what = "the random draw of its choices; all are offered"
        self.leave_out(question, f"{what} ({kind}); the order is that of the survey")
        return False

    def _follow_ups(
        self,
        question: SurveyQuestion,
        choices: Sequence[Choice],
        options: Mapping[str, str],
        *,
        many: bool,
    ) -> Iterator[Item]:
        # The text field is that of a choice such as "Other: ___".
        for choice in choices:
            if not has_text_field(choice):
                continue
            words = f"You chose “{options[choice.id]}”. Please say what you mean in a few words."
            chosen = ((choice.id,), YES) if many else ((), choice.id)
            yield Item(("text", choice.id), f"_{choice.id}_TEXT", words, follows=chosen)
            self.change(question, f"the text field of choice {choice.id} is a question of its own")

    def _note_extras(self, question: SurveyQuestion) -> None:
        keys = question.keys
        if as_text(keys.get("QuestionJS")).strip():
            self.leave_out(
                question, "its program (JavaScript); check that the question works without it"
            )
        if as_mapping(keys.get("ChoiceGroups")):
            self.leave_out(question, "the headings of its groups of choices")
        if as_mapping(keys.get("DefaultChoices")):
            self.leave_out(question, "its preselected answers; nothing is selected beforehand")
        check = as_text(question.validation.get("Type"))
        if check not in ("", "None") and not _is_number_check(question) and question.kind != "CS":
            content = as_text(question.validation.get("ContentType"))
            detail = f"{check}: {content}" if content else check
            self.leave_out(
                question, f"the check of its answer ({detail}); any answer of its kind is accepted"
            )
        if as_text(question.configuration.get("NotApplicable")) in _ON:
            self.leave_out(
                question, "the box “not applicable”; add it as a choice or in words if you need it"
            )

    # --- kinds of questions --------------------------------------------------------------------

    def descriptive_text(self, question: SurveyQuestion) -> QuestionForm | None:
        """Return a descriptive text as a `QuestionForm` without tasks.

        Returns None if the text is empty.
        """
        words = self._question_text(question)
        if question.selector == "GRB":
            self._no_form(question, "a graphic")
            return QuestionForm(words=words) if words else None
        if not words:
            self.leave_out(question, "a descriptive text without words")
            return None
        return QuestionForm(words=words)

    def multiple_choice(self, question: SurveyQuestion) -> QuestionForm | None:
        """Return the tasks of a multiple-choice question.

        Returns None if the question lacks choices, or if the question's format is unknown.
        """
        # It has one answer, several answers, or a score of 0–10.
        stem = self._question_text(question)
        recodes = _recoded_values(question.keys)
        if question.selector == "NPS":
            labels = [
                self._plain_text(question, as_text(label.get("Display")), in_one_line=True)
                for label in nested_list(question.keys.get("ColumnLabels"))
            ]
            scale = (
                f"\n\nThe scale runs from 0 ({labels[0]}) to 10 ({labels[-1]})." if labels else ""
            )
            whole = Item((), "", stem + scale, bounds=(0, 10), var_type="integer")
            return QuestionForm((whole,), recodes=recodes)
        if question.selector not in _SINGLE | _MULTIPLE:
            return self._no_form(
                question, f"a choice question of the form {question.selector or '?'}"
            )
        choices = self._choices_of(question)
        if not choices:
            return self._no_form(question, "a question without choices")
        is_single = question.selector in _SINGLE
        options = self._options_by_id(question, choices, asked_one_by_one=not is_single)
        is_shuffled = self._shows_in_random_order(question)
        if is_single:
            item = Item((), "", stem, options, var_type="category", is_shuffled=is_shuffled)
            more = self._follow_ups(question, choices, options, many=False)
            return QuestionForm((item, *more), recodes=recodes)
        what = format_count(len(choices), "choice")
        self.change(question, f"its {what}, each asked as a question with yes or no")
        for choice in choices:
            if as_text(choice.keys.get("ExclusiveAnswer")).lower() in _ON:
                what = f"that choice {choice.id} excludes the others; both can be answered with yes"
                self.leave_out(question, what)
        logic = {choice.id: as_mapping(choice.keys.get("DisplayLogic")) for choice in choices}
        items = (
            replace(
                _yes_or_no((id,), f"_{id}", f"{stem}\n\nDoes this apply: “{text}”?"),
                logic=logic[id],
            )
            for id, text in options.items()
        )
        more = self._follow_ups(question, choices, options, many=True)
        return QuestionForm((*items, *more), recodes=recodes, items_shuffled=is_shuffled)

    def matrix(self, question: SurveyQuestion) -> QuestionForm | None:
        """Return the tasks of a matrix question.

        Returns None if the matrix lacks statements or scale points, or if the question's format is
        unknown.
        """
        # Each statement, or each cell, is a task.
        stem = self._question_text(question)
        return self._matrix(question, question, stem, self._choices_of(question), "")

    def _matrix(
        self,
        question: SurveyQuestion,
        table: SurveyQuestion,
        stem: str,
        rows: Sequence[Choice],
        before: str,
    ) -> QuestionForm | None:
        # In a side-by-side question, `table` is one of its columns and `before` is the number of
        # the column.
        form = (table.selector, table.subselector)
        answers = table.choices("Answers", "AnswerOrder")
        is_text = table.selector == "TE"
        is_single = table.selector in ("Likert", "Bipolar") and form[1] in _LIKERT_SINGLE
        is_multiple = table.selector == "Likert" and form[1] == "MultipleAnswer"
        if not (is_text or is_single or is_multiple):
            return self._no_form(question, f"a matrix of the form {'/'.join(filter(None, form))}")
        if not rows or not answers:
            return self._no_form(question, "a matrix without statements or scale points")
        start: Key = (before,) if before else ()
        lead = f"#{before}" if before else ""
        is_blank = any(not make_plain(answer.html, in_one_line=True).text for answer in answers)
        options = self._options_by_id(question, answers, numbered=is_single and is_blank)
        items: list[Item] = []
        for number, row in enumerate(rows, 1):
            statement = self._plain_text(question, row.html, in_one_line=True)
            if not statement:
                self.change(question, f"statement {row.id} has no text; it is called {number}")
                statement = f"statement {number}"
            logic = as_mapping(row.keys.get("DisplayLogic"))
            if has_text_field(row):
                self.leave_out(
                    question,
                    f"the text field of statement {row.id}; ask for it in a further question",
                )
            if table.selector == "Bipolar":
                statement = _name_poles(statement, list(options.values()))
            words, suffix = f"{stem}\n\n{statement}", f"{lead}_{row.id}"
            if is_single:
                key = (*start, row.id)
                whole = Item(key, suffix, words, options, var_type="category", logic=logic)
                items.append(whole)
                continue
            for id, text in options.items():
                key, name = (*start, row.id, id), f"{suffix}_{id}"
                cell = f"{words}: {text}" if is_text else f"{words}\n\nDoes this apply: “{text}”?"
                item = Item(key, name, cell) if is_text else _yes_or_no(key, name, cell)
                items.append(replace(item, logic=logic))
        if is_multiple:
            what = format_count(len(items), "cell")
            self.change(question, f"its {what}, each asked as a question with yes or no")
        # A workbook shuffles single tasks, and a row of cells is several.
        is_shuffled = not before and self._shows_in_random_order(
            question, can_be_shuffled=is_single
        )
        return QuestionForm(
            tuple(items), recodes=_recoded_values(table.keys), items_shuffled=is_shuffled
        )

    def side_by_side(self, question: SurveyQuestion) -> QuestionForm | None:
        """Return the tasks of several matrices with the same statements.

        Returns None if no matrix can be asked.
        """
        stem, rows = self._question_text(question), self._choices_of(question)
        items: list[Item] = []
        for number, keys in in_order(question.keys.get("AdditionalQuestions")):
            table = read_question(f"{question.id}#{number}", as_mapping(keys))
            heading = self._plain_text(question, table.html, in_one_line=True)
            words = f"{stem}\n\n{heading}" if heading else stem
            form = self._matrix(question, table, words, rows, number)
            items += form.items if form else ()
        if not items:
            return self._no_form(question, "a side by side table without columns")
        self._shows_in_random_order(question, can_be_shuffled=False)
        return QuestionForm(tuple(items))

    def slider(self, question: SurveyQuestion) -> QuestionForm | None:
        """Return a task for each slider of a question. The answer to a task is a number.

        Returns None if the question lacks items, or if the scale is impossible.
        """
        stem, configuration = self._question_text(question), question.configuration
        low, high = as_number(configuration.get("CSSliderMin")), None
        if question.selector == "STAR":
            low, high = 0.0, as_number(configuration.get("NumStars"))
            high = high or as_number(configuration.get("StarCount"))
        high = high or as_number(configuration.get("CSSliderMax"))
        low, high = low or 0.0, 100.0 if high is None else high
        if not low < high:
            return self._no_form(question, f"a slider from {low:g} to {high:g}")
        is_whole = (as_number(configuration.get("NumDecimals")) or 0) == 0
        labels = [
            self._plain_text(question, as_text(label.get("Display")), in_one_line=True)
            for label in nested_list(question.keys.get("Labels"))
        ]
        scale = f"\n\nThe scale from {number_text(low)} to {number_text(high)} is labelled: "
        scale = scale + " | ".join(labels) if any(labels) else ""
        return self._numbers(
            question, lambda text: (f"{stem}\n\n{text}" if text else stem) + scale,
            (low, high), is_whole=is_whole and low.is_integer() and high.is_integer(),
        )  # fmt: skip

    def constant_sum(self, question: SurveyQuestion) -> QuestionForm | None:
        """Return a task for each item of a constant-sum question.

        Returns None if the question lacks items, or if the total is impossible.
        """
        stem, settings = self._question_text(question), question.validation
        listed = self._listed_choices(question)
        given = next((text for key in _TOTALS if (text := as_text(settings.get(key)).strip())), "")
        total = as_number(given)
        # Without this check, Qualtrics adds the numbers up and accepts any of them.
        if as_text(settings.get("Type")) != "ChoicesTotal" or total is None:
            if "${" in given:
                self.leave_out(
                    question, f"its total, the piped value {given}; any number is accepted"
                )
            # Only a slider has bounds of its own.
            sides = [
                as_number(question.configuration.get(f"CSSlider{side}")) for side in ("Min", "Max")
            ]
            low, high = sides if question.selector in ("HSLIDER", "HBAR") else (None, None)
            bounds = (low, high) if low is not None and high is not None and low < high else None
            return self._numbers(
                question, lambda text: f"{stem}\n\n{listed}\n\nHow much is it for “{text}”?",
                bounds, is_whole=False,
            )  # fmt: skip
        if total <= 0:
            return self._no_form(question, f"a constant sum of {total:g}")
        self.change(question, f"its total of {total:g} is stated in the text, and not checked")
        told = f"All numbers together must add up to {number_text(total)}."
        return self._numbers(
            question, lambda text: f"{stem}\n\n{listed}\n\n{told} How much is it for “{text}”?",
            (0.0, total), is_whole=total.is_integer(),
        )  # fmt: skip

    def rank_order(self, question: SurveyQuestion) -> QuestionForm | None:
        """Return a task for each item of a ranking. The answer to a task is the item's rank.

        Returns None if the question has no items.
        """
        stem, count = self._question_text(question), len(self._choices_of(question))
        self.change(question, "its ranks are asked item by item; equal ranks are not refused")
        listed = self._listed_choices(question)
        asked = (
            f"Which rank do you give to “{{}}”? 1 is the first place, {count} the last; each rank "
        )
        return self._numbers(
            question,
            lambda text: f"{stem}\n\n{listed}\n\n{asked.replace('{}', text)}is given once.",
            (1.0, float(count)), is_whole=True,
        )  # fmt: skip

    def _listed_choices(self, question: SurveyQuestion) -> str:
        texts = (
            make_plain(choice.html, in_one_line=True).text for choice in self._choices_of(question)
        )
        return "\n".join(f"- {text}" for text in texts)

    def _numbers(
        self, question: SurveyQuestion, words: Callable[[str], str],
        bounds: tuple[float, float] | None, *, is_whole: bool,
    ) -> QuestionForm | None:  # fmt: skip
        choices = self._choices_of(question)
        if not choices:
            return self._no_form(question, "a question without items")
        kind: VarType = "integer" if is_whole else "float"
        items = []
        for choice in choices:
            text = self._plain_text(question, choice.html, in_one_line=True)
            if has_text_field(choice):
                self.leave_out(
                    question,
                    f"the text field of item {choice.id}; ask for it in a further question",
                )
            items.append(
                Item(
                    (choice.id,),
                    f"_{choice.id}",
                    words(text),
                    bounds=bounds,
                    var_type=kind,
                    logic=as_mapping(choice.keys.get("DisplayLogic")),
                )
            )
        return QuestionForm(tuple(items), items_shuffled=self._shows_in_random_order(question))

    def text_entry(self, question: SurveyQuestion) -> QuestionForm | None:
        """Return the tasks of a question that participants answer by typing.

        Returns None if the question should have text fields but has none.
        """
        stem = self._question_text(question)
        if question.selector == "FORM":
            items = []
            for choice in question.choices():
                text = self._plain_text(question, choice.html, in_one_line=True)
                items.append(Item((choice.id,), f"_{choice.id}", f"{stem}\n\n{text}"))
            if not items:
                return self._no_form(question, "an empty form")
            is_shuffled = self._shows_in_random_order(question)
            return QuestionForm(tuple(items), items_shuffled=is_shuffled)
        if not _is_number_check(question):
            return QuestionForm((Item((), "", stem),))
        given = as_mapping(question.validation.get("ValidNumber"))
        low, high = as_number(given.get("Min")), as_number(given.get("Max"))
        decimals = as_number(given.get("NumDecimals"))
        kind: VarType = "integer" if decimals == 0 else "float"
        bounds = (low, high) if low is not None and high is not None and low <= high else None
        if bounds is None and (low is not None or high is not None):
            self.leave_out(
                question,
                "the one bound of its number, because a range needs both; any number is accepted",
            )
        return QuestionForm((Item((), "", stem, bounds=bounds, var_type=kind),))


_MAKERS: Mapping[str, Callable[[FormMaker, SurveyQuestion], QuestionForm | None]] = {
    "DB": FormMaker.descriptive_text,
    "MC": FormMaker.multiple_choice,
    "Matrix": FormMaker.matrix,
    "SBS": FormMaker.side_by_side,
    "Slider": FormMaker.slider,
    "CS": FormMaker.constant_sum,
    "RO": FormMaker.rank_order,
    "TE": FormMaker.text_entry,
}


def _name_poles(statement: str, points: Sequence[str]) -> str:
    # Qualtrics shows the words before the colon left of the scale, and those after it on the right.
    # The colon of a piped value, such as `${e://Field/brand}`, is none between poles.
    poles = [part.strip() for part in re.split(r":(?!//)", statement, maxsplit=1)]
    if len(poles) < 2 or not all(poles):
        return statement
    return f"From “{poles[0]}” ({points[0]}) to “{poles[1]}” ({points[-1]})"


def _choice_source(question: SurveyQuestion) -> str:
    # The id of the question whose choices this question takes over, or "".
    dynamic = as_mapping(question.keys.get("DynamicChoices"))
    if not dynamic:
        return ""
    return as_text(dynamic.get("Locator")).removeprefix("q://").partition("/")[0] or "?"


def has_text_field(choice: Choice) -> bool:
    """Return whether participants can type a text beside a choice."""
    return as_text(choice.keys.get("TextEntry")).lower() in _ON


def _yes_or_no(key: Key, suffix: str, words: str) -> Item:
    return Item(key, suffix, words, {YES: YES, NO: NO}, var_type="category")


def _is_number_check(question: SurveyQuestion) -> bool:
    return as_text(question.validation.get("ContentType")) == "ValidNumber"


def _recoded_values(keys: Mapping[str, Any]) -> dict[str, str]:
    return {id: as_text(value) for id, value in as_mapping(keys.get("RecodeValues")).items()}
