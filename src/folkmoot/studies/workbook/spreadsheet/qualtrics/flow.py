"""Visit a survey in the order of its flow and plan the tasks of the workbook."""
# The condition of a task combines random draws, branches, display logic, skips and early ends.

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from keyword import iskeyword
from typing import Any

from folkmoot.hints import shorten
from folkmoot.studies.workbook.checks import FIXED_COLUMNS
from folkmoot.studies.workbook.language.expressions import (
    AGGREGATES,
    FUNCTIONS,
    NAMESPACES,
    ExpressionProblem,
)
from folkmoot.studies.workbook.language.placeholders import OPTIONS, names_in
from folkmoot.studies.workbook.sessions import PERSONAL_NAMES, SHARED_NAMES
from folkmoot.studies.workbook.spreadsheet.qualtrics.conditions import (
    Condition,
    all_of,
    any_of,
    holds_only_if_asked,
    negate,
    without_known,
    write_condition,
)
from folkmoot.studies.workbook.spreadsheet.qualtrics.embedded_data import EmbeddedData, Setting
from folkmoot.studies.workbook.spreadsheet.qualtrics.logic import (
    Locator,
    LogicReader,
    PlacedQuestion,
    read_locator,
)
from folkmoot.studies.workbook.spreadsheet.qualtrics.questions import (
    YES,
    FormMaker,
    Item,
    QuestionForm,
)
from folkmoot.studies.workbook.spreadsheet.qualtrics.survey import (
    TRASH,
    Block,
    ImportNote,
    Survey,
    SurveyQuestion,
    as_mapping,
    as_text,
    in_order,
    nested_list,
)
from folkmoot.studies.workbook.spreadsheet.qualtrics.texts import (
    Pipe,
    escape_braces,
    make_plain,
    split_pipes,
)
from folkmoot.studies.workbook.spreadsheet.qualtrics.treatments import (
    ArmKey,
    Treatments,
    hidden_questions,
    shown_count,
)

_TAKEN_NAMES = (
    *FIXED_COLUMNS, *NAMESPACES, *PERSONAL_NAMES, *SHARED_NAMES, *AGGREGATES, *FUNCTIONS, OPTIONS,
    "id", "others",
)  # fmt: skip
_ORDERED = ("", "false", "Advanced", "RandomWithOnlyX")
_MAX_NAME = 60
_SERVICES = {
    "Authenticator": "a login (authenticator); all participants are asked what follows it",
    "Conjoint": "a conjoint analysis",
    "QuotaCheck": "a check of quotas; all participants are let in",
    "ReferenceSurvey": "another survey that is shown here; import it as a study as well",
    "SupplementalData": "data from outside the survey (supplemental data)",
    "TableOfContents": "a table of contents; its questions are asked in order",
    "WebService": "a request to a web service; its values are not known",
}


class Names:
    """The names in use in one workbook, to make each new name unique."""

    # Names that differ only in case count as equal.

    def __init__(self) -> None:
        self._taken = {name.casefold() for name in _TAKEN_NAMES}

    def new_name(self, wanted: str) -> str:
        """Return an unused name that resembles `wanted` and is valid in expressions."""
        name = re.sub(r"\W", "_", wanted)[:_MAX_NAME]
        if not name.isidentifier() or iskeyword(name):
            name = f"q_{name}"
        tries = itertools.chain([name], (f"{name}_{number}" for number in itertools.count(2)))
        found = next(each for each in tries if each.casefold() not in self._taken)
        self._taken.add(found.casefold())
        return found


@dataclass
class PlannedTask:
    """A planned task, before it is written to the workbook."""

    task_id: str
    question_id: str
    variable: str
    item: Item
    text: str
    human_text: str
    condition: Condition
    # (Condition, text) pairs of descriptive texts that the task shows first.
    before: list[tuple[Condition, str]] = field(default_factory=list)
    # Tasks with the same number are asked in random order. None if the order is fixed.
    group: int | None = None


@dataclass
class _PendingText:
    # A descriptive text that participants read together with the next question.
    where: str
    condition: Condition
    text: str
    # The participants to whom an earlier task has already shown the text.
    shown_if: Condition = False


class SurveyFlow:
    """The planner that visits the flow of a survey and plans the tasks of the workbook."""

    def __init__(self, survey: Survey) -> None:
        self.survey, self.notes = survey, survey.notes
        self.treatments = Treatments(survey, self.notes)
        self.tasks: list[PlannedTask] = []
        self._names = Names()
        self._forms = FormMaker(survey.questions, self.notes)
        self._made: dict[str, QuestionForm | None] = {}
        self._asked: dict[str, list[PlacedQuestion]] = {}
        self._pending: list[_PendingText] = []
        self._ended: Condition = False
        self._groups = itertools.count()
        self._task_ids: set[str] = set()
        # The row of the loop that is unrolled now, and its fields.
        self._loop, self._loop_fields = "", dict[str, str]()
        self._shown: set[str] = set()
        self._shuffled: list[tuple[str, int]] = []
        # Whether the walk is within a branch with an unknown condition.
        self._is_uncertain = False
        self._question_names = {q.name.casefold() for q in survey.questions.values()}
        self.data = EmbeddedData(self._name_column)
        self._logic = LogicReader(self._find_asked, self.data.compare, self._leave_out)

    def plan_tasks(self) -> None:
        """Visit the whole flow and fill `tasks` and `notes`."""
        self.data.plan_columns(self.survey, self.treatments)
        self._walk(self.survey.flow, (), True)
        for pending in self._pending:
            self._leave_out(
                pending.where, "a text after the last question, which no answer could depend on"
            )
        self._dissolve_dependent_groups()
        self._note_unshown()

    def _name_column(self, wanted: str) -> str:
        # Questions keep their names, because the data file has them.
        is_taken = wanted.casefold() in self._question_names
        return self._names.new_name(f"data_{wanted}" if is_taken else wanted)

    def _leave_out(self, where: str, what: str) -> None:
        self.notes.append(ImportNote(where, what))

    def _change(self, where: str, what: str) -> None:
        self.notes.append(ImportNote(where, what, is_left_out=False))

    # --- elements of the flow ------------------------------------------------------------------

    def _walk(
        self, elements: Sequence[Mapping[str, Any]], place: ArmKey, condition: Condition
    ) -> None:
        for number, element in enumerate(elements):
            key = (*place, str(number))
            here = all_of(condition, self.treatments.condition_of(key))
            self._visit(element, key, here)

    def _visit(self, element: Mapping[str, Any], key: ArmKey, condition: Condition) -> None:
        kind, where = as_text(element.get("Type")), as_text(element.get("FlowID")) or "?"
        children = nested_list(element.get("Flow"))
        if kind in ("Block", "Standard"):
            self._show_block(as_text(element.get("ID")), where, condition)
        elif kind in ("EmbeddedData", "EndSurvey") and self._is_uncertain:
            # An end without its condition would leave out the rest of the survey for all.
            what = "a value that it sets" if kind == "EmbeddedData" else "an end of the survey"
            self._leave_out(where, f"{what}, because the condition of its branch is not known")
        elif kind == "EmbeddedData":
            self._set_fields(element, where, condition)
        elif kind == "EndSurvey":
            self._ended = any_of(self._ended, condition)
        elif kind == "Branch":
            found = self._logic.read_logic(element.get("BranchLogic"), where)
            self._take_branch(children, key, where, condition, found)
        elif kind == "BlockRandomizer" and shown_count(element) == len(children) > 1:
            parts = [
                partial(self._visit, child, (*key, str(number)), condition)
                for number, child in enumerate(children)
            ]
            self._shuffle(where, parts)
        else:
            if kind not in ("Group", "BlockRandomizer", "Root"):
                what = _SERVICES.get(kind, f"a step of the unknown kind {kind or '?'}")
                self._leave_out(where, what)
            self._walk(children, key, condition)

    def _take_branch(
        self, children: Sequence[Mapping[str, Any]], key: ArmKey, where: str, condition: Condition,
        found: Condition | None,
    ) -> None:  # fmt: skip
        # `key` is the branch's position, and `where` is its name in notes. If the condition `found`
        # is unknown, all participants are asked the branch's questions.
        if found is not None:
            self._walk(children, key, all_of(condition, found))
            return
        self._leave_out(
            where, "the condition of this branch; its questions are asked of all participants"
        )
        outer, self._is_uncertain = self._is_uncertain, True
        self._walk(children, key, condition)
        self._is_uncertain = outer

    def _set_fields(self, element: Mapping[str, Any], where: str, condition: Condition) -> None:
        for given in nested_list(element.get("EmbeddedData")):
            name, value = as_text(given.get("Field")).strip(), as_text(given.get("Value"))
            # A field without a value is only declared.
            if not name or not value or not self.data.is_set_by_flow(name):
                continue
            plain = make_plain(value, in_one_line=True).text
            is_fixed = "${" not in plain and "$e{" not in plain
            template = self._resolve(plain, f"{where} {name}")
            self.data.set_value(name, Setting(condition, template, plain if is_fixed else None))

    # --- blocks --------------------------------------------------------------------------------

    def _show_block(self, id: str, where: str, condition: Condition) -> None:
        block = self.survey.blocks.get(id)
        if block is None:
            self._leave_out(
                where,
                f"the block {id or '?'}, which is missing in the file; export the survey again",
            )
            return
        if block.kind == TRASH:
            self._leave_out(where, f"the block {id}, which is in the trash of the survey")
            return
        looping = as_text(block.options.get("Looping"))
        if looping in ("", "None", "false"):
            self._ask_block(block, condition)
            return
        options = as_mapping(block.options.get("LoopingOptions"))
        rows = in_order(options.get("Static"))
        if looping != "Static" or not rows:
            for question in block.question_ids:
                what = (
                    f"the question, because it is repeated for earlier answers (a loop over "
                    f"{looping}); write the repetitions out in the survey"
                )
                self._leave_out(question, what)
                self._shown.add(question)
            return
        self._change(
            block.id, f"its loop is written out; its questions are asked {len(rows)} times"
        )
        if as_text(options.get("Randomization")) not in ("", "None"):
            self._leave_out(
                block.id, "the random order of its loop; the order is that of the survey"
            )
        for row, fields in rows:
            texts = {
                n: make_plain(as_text(text), in_one_line=True).text for n, text in in_order(fields)
            }
            self._loop, self._loop_fields = row, texts
            self._ask_block(block, condition)
        self._loop, self._loop_fields = "", {}

    def _ask_block(self, block: Block, condition: Condition) -> None:
        skips: list[tuple[Condition, str]] = []
        places = {id: place for place, id in enumerate(block.question_ids)}
        parts: list[Callable[[], None]] = []
        hidden = hidden_questions(block)
        for element in block.elements:
            if as_text(element.get("Type")) != "Question":
                continue  # page breaks
            if (id := as_text(element.get("QuestionID"))) in hidden:
                self._leave_out(id, f"the question, because the block {block.id} does not show it")
                self._shown.add(id)
                continue
            visit = partial(self._visit_question, block, element, condition, skips, places)
            parts.append(visit)
        order = as_text(block.options.get("RandomizeQuestions"))
        if order in _ORDERED:
            for part in parts:
                part()
            if order == "Advanced" or (order == "RandomWithOnlyX" and len(parts) > 1):
                self._leave_out(
                    block.id, "the random order of its questions; the order is that of the survey"
                )
        else:
            self._shuffle(block.id, parts)

    def _visit_question(
        self, block: Block, element: Mapping[str, Any], condition: Condition,
        skips: list[tuple[Condition, str]], places: Mapping[str, int],
    ) -> None:  # fmt: skip
        id = as_text(element.get("QuestionID"))
        skips[:] = [skip for skip in skips if skip[1] != id]
        drawn = self.treatments.condition_of(("block", block.id, id))
        skipped = any_of(*(skip[0] for skip in skips))
        here = all_of(condition, drawn, negate(skipped), negate(self._ended))
        self._ask_question(id, block, here)
        for skip in nested_list(element.get("SkipLogic")):
            self._skip(id, skip, here, skips, places)

    def _skip(
        self, id: str, skip: Mapping[str, Any], condition: Condition,
        skips: list[tuple[Condition, str]], places: Mapping[str, int],
    ) -> None:  # fmt: skip
        # The answer that was just given decides, not one from an earlier place of the flow.
        reader = LogicReader(
            lambda other: self._asked.get(id, [])[-1:] if other == id else self._find_asked(other),
            self.data.compare,
            self._leave_out,
        )
        found = reader.read_expression(skip, id, operator_key="Condition")
        if found is None:
            return
        to = as_text(skip.get("SkipToDestination"))
        # Whoever answered so was asked, so the condition of the question needs no repetition.
        condition = found if holds_only_if_asked(found) else all_of(condition, found)
        if to == "ENDOFSURVEY":
            self._ended = any_of(self._ended, condition)
        elif to == "ENDOFBLOCK" or places.get(to, -1) > places[id]:
            skips.append((condition, to))
        else:
            self._leave_out(
                id,
                f"its skip to {to or '?'}, which does not come after it in its block; the next "
                "question follows",
            )

    # --- questions -----------------------------------------------------------------------------

    def _find_asked(self, id: str) -> Sequence[PlacedQuestion] | None:
        if id not in self.survey.questions or (id in self._made and self._made[id] is None):
            return None
        asked = self._asked.get(id, [])
        # Within a loop, an answer of the same row is meant.
        return [place for place in asked if self._loop and place.loop == self._loop] or asked

    def _ask_question(self, id: str, block: Block, condition: Condition) -> None:
        question = self.survey.questions.get(id)
        if question is None:
            what = f"a question that is missing in the file; the block {block.id} names it"
            self._leave_out(id or "?", what)
            return
        is_first = id not in self._shown
        self._shown.add(id)
        if id not in self._made:
            self._made[id] = self._forms.make_form(question)
        form = self._made[id]
        if form is None:
            return
        for key in ("DisplayLogic", "InPageDisplayLogic"):
            if as_mapping(question.keys.get(key)):
                found = self._logic.read_logic(question.keys[key], id)
                if found is None:
                    self._leave_out(id, "its display logic; it is asked of all participants")
                else:
                    condition = all_of(condition, found)
        if condition is False:
            shown = shorten(make_plain(question.html, in_one_line=True).text, 60)
            self._leave_out(
                id, f"the question, because no participant would be asked it: {shown!r}"
            )
            return
        if not form.items:
            text = self._resolve(form.words, id, condition)
            self._pending.append(_PendingText(id, condition, text))
            return
        self._plan(question, form, condition, is_first=is_first)

    def _plan(
        self, question: SurveyQuestion, form: QuestionForm, condition: Condition, *, is_first: bool
    ) -> None:
        name = f"{question.name}_{self._loop}" if self._loop else question.name
        variables = {item.key: self._names.new_name(f"{name}{item.suffix}") for item in form.items}
        asked = PlacedQuestion(question, form, variables, condition, self._loop)
        if not is_first and not self._loop:
            column = variables[form.items[0].key]
            what = f"it is asked a second time; that answer is in the column {column}"
            self._change(question.id, what)
        group = next(self._groups) if form.items_shuffled else None
        for item in form.items:
            here = condition
            if item.logic:
                found = self._logic.read_logic(item.logic, question.id)
                what = f"the display logic of its item {item.suffix.strip('_')}; it is always asked"
                if found is None:
                    self._leave_out(question.id, what)
                here = all_of(condition, True if found is None else found)
            if item.follows is not None:
                chosen, choice = item.follows
                here = all_of(condition, self._is_chosen(asked, chosen, choice))
            self._add_task(
                question, item, variables[item.key], here, None if item.follows else group
            )
        if group is not None:
            self._shuffled.append((question.id, group))
        self._asked.setdefault(question.id, []).append(asked)

    def _is_chosen(self, asked: PlacedQuestion, key: tuple[str, ...], choice: str) -> Condition:
        ids = key if choice == YES and key else (choice,)
        reader = LogicReader(lambda _id: [asked], self.data.compare, self._leave_out)
        locator = f"q://{asked.question.id}/SelectableChoice/{'/'.join(ids)}"
        found = reader.read_expression(
            {"ChoiceLocator": locator, "Operator": "Selected"}, asked.question.id
        )
        return False if found is None else found

    def _add_task(
        self,
        question: SurveyQuestion,
        item: Item,
        variable: str,
        condition: Condition,
        group: int | None,
    ) -> None:
        wanted = f"{question.id}{item.suffix}" + (f"_{self._loop}" if self._loop else "")
        tries = itertools.chain([wanted], (f"{wanted} ({number})" for number in itertools.count(2)))
        task_id = next(each for each in tries if each not in self._task_ids)
        self._task_ids.add(task_id)
        text = self._resolve(item.words, question.id, condition)
        task = PlannedTask(
            task_id, question.id, variable, item, text, item.words, condition, group=group
        )
        task.before = list(self._take_pending(condition))
        self.tasks.append(task)

    def _take_pending(self, condition: Condition) -> Iterator[tuple[Condition, str]]:
        # A text that some participants do not see in this task stays pending for the next task.
        waiting: list[_PendingText] = []
        for pending in self._pending:
            shown = all_of(pending.condition, negate(pending.shown_if))
            if all_of(shown, condition) is False:
                waiting.append(pending)
                continue
            yield without_known(shown, condition), pending.text
            pending.shown_if = any_of(pending.shown_if, condition)
            if all_of(pending.condition, negate(pending.shown_if)) is not False:
                waiting.append(pending)
        self._pending = waiting

    # --- random order --------------------------------------------------------------------------

    def _shuffle(self, where: str, parts: Sequence[Callable[[], None]]) -> None:
        # A workbook can only shuffle single tasks. Otherwise the order is fixed, and a note says
        # so.
        starts, ended = [len(self.tasks)], self._ended
        settings = sum(map(len, self.data.settings.values()))
        for part in parts:
            part()
            starts.append(len(self.tasks))
        counts = [after - before for before, after in itertools.pairwise(starts)]
        is_plain = ended == self._ended and settings == sum(map(len, self.data.settings.values()))
        if len(parts) < 2 or sum(counts) < 2:
            return
        if max(counts) > 1 or not is_plain:
            self._leave_out(where, "the random order of its parts; the order is that of the survey")
            return
        group = next(self._groups)
        for task in self.tasks[starts[0] :]:
            task.group = group
        self._shuffled.append((where, group))

    def _dissolve_dependent_groups(self) -> None:
        # Tasks that depend on each other cannot be shuffled.
        members: dict[int, list[PlannedTask]] = {}
        for task in self.tasks:
            if task.group is not None:
                members.setdefault(task.group, []).append(task)
        for where, group in self._shuffled:
            tasks = members.get(group, [])
            # Words of a question that are also a name, such as "age", depend on nothing.
            used = {name for task in tasks for name in self._names_in_task(task)}
            if any(task.before for task in tasks) or used & {task.variable for task in tasks}:
                what = (
                    "the random order of its parts, because they depend on each other; the order "
                    "is that of the survey"
                )
                self._leave_out(where, what)
                for task in tasks:
                    task.group = None

    def _names_in_task(self, task: PlannedTask) -> Iterable[str]:
        try:
            return names_in(self._choose(task.condition, task.text, ""))
        except ExpressionProblem:
            # The task is left out later.
            return ()

    def write_condition(self, condition: Condition) -> str:
        """Return a condition as an expression of the workbook."""
        return write_condition(condition, self.treatments.write_numbers)

    # --- piped texts ---------------------------------------------------------------------------

    def _resolve(self, words: str, where: str, known: Condition = True) -> str:
        # `known`: the condition of the text, which the pipes in it need not repeat.
        return "".join(
            self._resolve_pipe(part, where, known)
            if isinstance(part, Pipe)
            else escape_braces(part)
            for part in split_pipes(words)
        )

    def _resolve_pipe(self, pipe: Pipe, where: str, known: Condition) -> str:
        found: str | None = None
        field = pipe.path.removeprefix("Field/").strip()
        if pipe.scheme == "e" and field:
            found = self._show_field(field)
        elif pipe.scheme == "lm" and self._loop:
            value = self._loop_fields.get(field)
            found = None if value is None else escape_braces(value)
        elif pipe.scheme == "q" and (locator := read_locator(f"q://{pipe.path}")):
            found = self._show_answer(locator, known)
        if found is not None:
            return found
        self._leave_out(
            where,
            (
                f"the piped text {shorten(pipe.written, 120)}; its place has its address, so "
                "write words there"
            ),
        )
        shown = shorten(f"{pipe.scheme}://{pipe.path}" if pipe.scheme else pipe.written, 120)
        return escape_braces(f"[{shown}]")

    def _show_field(self, name: str) -> str:
        template = self.data.template_of(name)
        for setting in self.data.value_settings(name):
            template = self._choose(setting.condition, setting.template, template)
        return template

    def _choose(self, condition: Condition, text: str, otherwise: str) -> str:
        if isinstance(condition, bool):
            return text if condition else otherwise
        rest = f"{{% else %}}{otherwise}" if otherwise else ""
        return f"{{% if {self.write_condition(condition)} %}}{text}{rest}{{% endif %}}"

    def _show_answer(self, locator: Locator, known: Condition) -> str | None:
        # Returns None if the workbook cannot show the answer.
        question = self.survey.questions.get(locator.question)
        if question is None:
            return None
        if locator.selector == "QuestionText":
            return escape_braces(make_plain(question.html, in_one_line=True).text)
        if locator.selector == "ChoiceDescription" and len(locator.ids) == 1:
            choices = {choice.id: choice.html for choice in self._forms.all_choices(question)}
            html = choices.get(locator.ids[0])
            return None if html is None else escape_braces(make_plain(html, in_one_line=True).text)
        places = self._find_asked(locator.question)
        shown = [(place.condition, self._show_at(place, locator)) for place in places or ()]
        if not shown or any(text is None for _, text in shown):
            return None
        # A survey pipes nothing from a question that was not asked.
        return "".join(
            self._choose(without_known(condition, known), text or "", "")
            for condition, text in shown
        )

    def _show_at(self, asked: PlacedQuestion, locator: Locator) -> str | None:
        if locator.selector != "ChoiceGroup":
            entry = asked.entry(locator)
            if entry is None:
                return None
            item, variable = entry
            is_asked = self._is_chosen(asked, *item.follows) if item.follows else True
            return self._choose(is_asked, f"{{{{ {variable} }}}}", "")
        start = (locator.column,) if locator.column else ()
        ids = locator.ids[1:]
        if locator.ids[:1] != ("SelectedChoices",) and locator.ids[:1] != ("SelectedAnswers",):
            return None
        if found := asked.variable(*start, *ids):
            return f"{{{{ {found[1]} }}}}"
        chosen = [item for item in asked.form.items if YES in item.choices and not item.follows]
        return self._list_chosen(asked, chosen) if chosen and not ids else None

    def _list_chosen(self, asked: PlacedQuestion, items: Sequence[Item]) -> str:
        choices = {choice.id: choice.html for choice in self._forms.all_choices(asked.question)}
        written, before = "", list[str]()
        for item in items:
            is_chosen = f'{asked.variables[item.key]} == "{YES}"'
            html = choices.get(item.key[-1], item.key[-1])
            text = escape_braces(make_plain(html, in_one_line=True).text)
            comma = f"{{% if {' or '.join(before)} %}}, {{% endif %}}" if before else ""
            written += f"{{% if {is_chosen} %}}{comma}{text}{{% endif %}}"
            before.append(is_chosen)
        return written

    # --- what is not shown ---------------------------------------------------------------------

    def _note_unshown(self) -> None:
        places = {id: block for block in self.survey.blocks.values() for id in block.question_ids}
        for id, question in self.survey.questions.items():
            if id in self._shown:
                continue
            block = places.get(id)
            where = "the question, because it is in no block"
            if block is not None and block.kind == TRASH:
                where = "the question, because it is in the trash of the survey"
            elif block is not None:
                where = f"the question, because its block {block.id} is not in the survey flow"
            shown = shorten(make_plain(question.html, in_one_line=True).text, 60)
            self._leave_out(id, f"{where}: {shown!r}")
