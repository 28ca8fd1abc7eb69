"""Count the questions that a human will get, and find check questions that have no effect."""

# The numbers and the stages come from a dry run with the embedded respondent, as the cost does.

from __future__ import annotations

from collections.abc import Sequence

from folkmoot.engine.run.counting_provider import QuestionLog
from folkmoot.engine.run.dry_run import RunEstimate, embedded_provider, small_part
from folkmoot.engine.run.execution import RunOptions
from folkmoot.engine.run.runner import open_dry_run, run_study
from folkmoot.engine.seats.seats import SeatSettings
from folkmoot.engine.settings.yaml_tree import KeyPath, format_path
from folkmoot.engine.study.study_file import StudyFile, locate_problem
from folkmoot.errors import FolkmootError, Problem
from folkmoot.hints import did_you_mean
from folkmoot.models.request import Completion, FloatArray, ModelRequest, Provider, Usage

# Bounds the work before a run to a few seconds. A larger study has no expected number of questions.
MAX_CALLS = 250
# Participants or sessions of the part that is run.
MIN_UNITS = 2


class _QuestionCounter(Provider):
    def __init__(self, inner: Provider, question_log: QuestionLog) -> None:
        self._inner = inner
        self._question_log = question_log

    async def complete_request(self, request: ModelRequest, *, address: str) -> Completion:
        self._question_log.note_request(request, address)
        return await self._inner.complete_request(request, address=address)

    async def embed_texts(
        self, model: str, texts: Sequence[str], *, address: str
    ) -> tuple[FloatArray, Usage]:
        return await self._inner.embed_texts(model, texts, address=address)

    async def close(self) -> None:
        await self._inner.close()


def count_questions(study_file: StudyFile) -> int | None:
    """Return the largest number of questions to a participant.

    Returns None if counting fails.
    """
    part, _ = small_part(study_file, MIN_UNITS)
    changes = {"seats": None, "budget_usd": None, "budget_calls": MAX_CALLS, "batch": False}
    with open_dry_run(part, changes) as (dry_file, folder):
        seats = part.study.seats(dry_file.config, part.study_folder)
        question_log = QuestionLog(seats)
        counter = _QuestionCounter(embedded_provider(part), question_log)
        options = RunOptions(out=folder, custom_provider=counter, is_dry_run=True)
        try:
            run_study(dry_file, options)
        # A study that cannot be run dry, or is too large for that, has no expected number. The run
        # itself reports its errors.
        except FolkmootError:
            return None
    counts = [len(questions) for questions in question_log.stages.values()]
    if not counts:
        return None
    speaks_as_self = study_file.config.seats is not None and study_file.config.seats.as_ == "self"
    # Conditions may ask different numbers. A human must not be told too few.
    return max(counts) + speaks_as_self


def find_check_problems(
    study_file: StudyFile, estimate: RunEstimate
) -> tuple[list[Problem], list[Problem]]:
    """Return problems and warnings about check questions that would have no effect.

    Check questions have a right answer, to find inattentive participants.
    """
    # A check that is to exclude parts of the run is a problem if the run has no parts. A check in a
    # stage without questions is a problem, but a warning if the dry run was only a sample. A check
    # after a number of questions is a warning if no participant had so many in the dry run.
    settings = study_file.config.seats
    if settings is None:
        return [], []
    problems, warnings = _find_exclusion_problems(study_file, settings, estimate), list[Problem]()
    if not estimate.questions or estimate.incomplete:
        return problems, warnings
    # A stage occurs several times in a path, and once in the list, in the order of the protocol.
    stages = list(
        dict.fromkeys(
            stage
            for questions in estimate.questions.values()
            for stages_of_question in questions
            for stage in stages_of_question
        )
    )
    max_questions = max(map(len, estimate.questions.values()))
    for index, check in enumerate(settings.checks):
        path: KeyPath = ("seats", "checks", index)
        if check.after_stage is not None and check.after_stage not in stages:
            message = f"no human is asked anything in a stage {check.after_stage!r}"
            hint = did_you_mean(check.after_stage, stages, f"the stages are: {', '.join(stages)}")
            key = format_path((*path, "after_stage"))
            problem = locate_problem(study_file, Problem(message, key=key, hint=hint))
            (problems if estimate.sampled is None else warnings).append(problem)
        if check.after_questions is not None and check.after_questions > max_questions:
            message = f"a human gets about {max_questions} questions, so the check is not asked"
            hint = f"lower it to at most {max_questions}, or set `after_stage`"
            key = format_path((*path, "after_questions"))
            warnings.append(locate_problem(study_file, Problem(message, key=key, hint=hint)))
    return problems, warnings


def _find_exclusion_problems(
    study_file: StudyFile, settings: SeatSettings, estimate: RunEstimate
) -> list[Problem]:
    if estimate.parts and all(seat.analysed_part in estimate.parts for seat in estimate.questions):
        return []
    return [
        locate_problem(
            study_file,
            Problem(
                "this study type does not say which part of the analysis to leave out with a human",
                key=format_path(("seats", "checks", index, "on_failure")),
                hint="use `note`, and the report lists who failed, or `end`; or let the study type "
                "name its parts (`part=` of `ExpectedRows`)",
            ),
        )
        for index, check in enumerate(settings.checks)
        if check.on_failure == "exclude"
    ]
