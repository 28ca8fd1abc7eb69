"""The texts that the prompt of each answer should contain."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from folkmoot.engine.study.decision_design import DecisionDesign, QuestionOf
from folkmoot.kit.exposure import Decision, ExposureTable
from folkmoot.provenance import Source, cell_id
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.workbook.config import SPECIAL_ROLES, Workbook, WorkbookConfig, measures_of
from folkmoot.studies.workbook.language.placeholders import names_in

TREATMENT, OTHERS, QUESTIONS = "treatment", "others' words", "questions"
# A sentence that ends in a question mark, and a number.
_QUESTION, _NUMBER = re.compile(r"[^.!?？\n]+[?？]"), re.compile(r"\d+")
# The ids of treatments start with this.
TREATMENTS = "treatments.description/"
# A row of `utterances`.
Spoken = Mapping[str, object]


def label_source(source: Source) -> str:
    """Return the kind of text that comes from a source, for example `QUESTIONS`.

    Returns "" for a text that the exposure analysis ignores.
    """
    if source.id.startswith(TREATMENTS):
        return TREATMENT
    if source.kind != "utterance":
        return ""
    return OTHERS if source.address and source.speaker not in SPECIAL_ROLES else QUESTIONS


def exposure_decisions(run: RunFolder) -> Iterator[Decision]:
    """Yield a `Decision` for each answer of a participant."""
    # The exposure results check which texts the prompt held.
    workbook = run.read_settings(WorkbookConfig).workbook
    treatments = {
        (experiment, treatment): {cell_id("treatments.description", experiment, treatment)}
        if text
        else set()
        for experiment, treatment, text in run.rows(
            "treatments", "experiment_id", "treatment", "description"
        )
    }
    seats = {
        (row["experiment_id"], row["participant_id"]): row
        for row in run.read_table("assignment").iter_rows(named=True)
    }
    utterances: dict[tuple[str, str], list[Spoken]] = {}
    for row in run.read_table("utterances").iter_rows(named=True):
        utterances.setdefault((row["experiment_id"], row["session"]), []).append(row)
    private = {task.task_id for task in workbook.tasks if task.type == "private_question"}
    for row in run.read_table("answers").filter(role="participant").iter_rows(named=True):
        stage, session_id, task, place, *_ = row["address"].split("/")
        experiment, participant_id = session_id.rpartition(".")[0], row["speaker_id"]
        seat = seats.get((experiment, participant_id))
        if stage != "sessions" or seat is None:
            continue
        session = utterances.get((experiment, seat["session"]), [])
        history = list(
            _heard_utterances(
                session, participant_id, task, private, workbook.settings.reveal_private
            )
        )
        # Private utterances of this participant: the own question, and the reply as written.
        prompt_rows = [
            row
            for row in session
            if row["turn"] is None and str(row["scope"]).endswith(f"/{place}")
        ]
        others = {
            str(row["utterance_id"])
            for row in history
            if row["speaker_role"] == "participant"
            and row["speaker_id"] != participant_id
            and row["text"]
        }
        treatment_ids = treatments.get((experiment, seat["treatment"]))
        shows = {OTHERS: others}
        allowed_ids = {str(row["utterance_id"]) for row in (*history, *prompt_rows)}
        if treatment_ids is not None and workbook.settings.treatment_in_system:
            shows = {TREATMENT: treatment_ids, **shows}
        elif treatment_ids is not None and _names_treatment(workbook):
            # Only some prompts name the treatment by a placeholder, so it may occur, and need not.
            allowed_ids |= treatment_ids
        elif treatment_ids is not None:
            shows = {TREATMENT: set(), **shows}
        unit = f"{experiment}/{seat['session']}"
        yield Decision(
            row["address"],
            participant_id,
            seat["treatment"],
            f"task {task}",
            shows,
            allowed_ids,
            unit,
            part=str(seat["session"]),
        )


def _names_treatment(workbook: Workbook) -> bool:
    texts = [role.description for role in workbook.roles]
    for task in workbook.tasks:
        by_role = [task.llm_text] if isinstance(task.llm_text, str) else task.llm_text.values()
        texts += by_role
    return any("treatment.description" in names_in(text) for text in texts)


def _heard_utterances(
    session: Sequence[Spoken], who: str, task: str, private: set[str], revealed: bool
) -> Iterator[Spoken]:
    # Participants hear private answers to a task only after the task ends. Some layouts keep
    # private answers to earlier tasks private too.
    for row in session:
        if row["turn"] is None:
            continue
        is_own = row["speaker_id"] == who
        is_question = row["speaker_role"] == "facilitator" and not row["address"]
        is_hidden = row["task_id"] == task or (
            not revealed and row["speaker_role"] == "participant"
        )
        if is_own or is_question or row["task_id"] not in private or not is_hidden:
            yield row
        # The participant's own answer comes last. A re-ask shows it again.
        if is_own and row["task_id"] == task:
            return


def _session_of_unit(unit: str) -> str:
    # All experiments have the same participants in the same sessions, so a session is one
    # independent unit in however many experiments it is played.
    return unit.rpartition("/")[2]


def _questions(run: RunFolder) -> QuestionOf:
    # Rounds of a measure are one question if the column `measure` says so, or if their questions
    # differ in numbers alone. Names such as `q1` and `q2` may belong to different questions.
    book = run.read_settings(WorkbookConfig).workbook
    measures = measures_of([(task.var_name, False) for task in book.tasks], book)
    rounds = {name: measure.name for measure in measures for name in measure.variable_names}
    questions = {
        f"task {task.task_id}": rounds[task.var_name]
        + ("" if task.measure else f": {_question_in(task.llm_text)}")
        for task in book.tasks
    }
    return lambda name, _address: questions.get(name, name)


def _question_in(text: str | Mapping[str, str]) -> str:
    # The sentences that ask something, because a round often begins with the result of the last
    # one. The whole text if it asks nothing.
    whole = text if isinstance(text, str) else "\n".join(text.values())
    asked = " ".join(_QUESTION.findall(whole)) or whole
    return " ".join(_NUMBER.sub(" ", asked).casefold().split())


EXPOSURE = ExposureTable(exposure_decisions, label_source)
DECISION_DESIGN = DecisionDesign(
    kind_of_text=EXPOSURE.label, independent_unit=_session_of_unit, questions=_questions
)
