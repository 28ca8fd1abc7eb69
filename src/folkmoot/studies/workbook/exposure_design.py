"""What participants have before them when they answer a task, and where the words are recorded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from folkmoot.kit.exposure import Decision, Exposure, Text
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.workbook.config import FACILITATOR, WorkbookConfig
from folkmoot.studies.workbook.participants import experiments

TREATMENT, OTHERS = "treatment", "others' words"
Spoken = Mapping[str, object]  # a row of `utterances`
SHORT = 3  # an answer of so few words, or a number, stands everywhere


def texts(run: RunFolder) -> Iterator[Text]:
    """The treatments of each experiment, and what was said in each session, each answer with a
    scope of its own: who heard it depends on the kind of task."""
    config = WorkbookConfig.model_validate(run.config)
    for experiment in experiments(config.workbook):
        for label, treatment in experiment.treatments.items():
            scope = f"{experiment.id}/treatment/{label}"
            yield Text(TREATMENT, label, treatment.description, scope=scope)
    seats = run.table("assignment").select("experiment_id", "participant_id", "name")
    names = {(experiment, who): name for experiment, who, name in seats.iter_rows()}
    for row in run.table("utterances").iter_rows(named=True):
        turn, words, who = _turn(row), row["text"] or "", row["speaker_id"]
        kind = OTHERS if row["speaker_role"] == "participant" else "questions"
        if len(words.split()) > SHORT:
            name = names.get((row["experiment_id"], who), row["speaker_name"])
            yield Text(kind, turn, words, scope=turn, by=who, name=name)


def decisions(run: RunFolder) -> Iterator[Decision]:
    """Every answer of a participant to a task."""
    config = WorkbookConfig.model_validate(run.config)
    in_system = config.workbook.settings.treatment_in_system
    told = {
        (e.id, label): in_system and bool(treatment.description)
        for e in experiments(config.workbook)
        for label, treatment in e.treatments.items()
    }
    seats = {
        (row["experiment_id"], row["participant_id"]): row
        for row in run.table("assignment").iter_rows(named=True)
    }
    said: dict[tuple[str, str], list[Spoken]] = {}
    for row in run.table("utterances").iter_rows(named=True):
        said.setdefault((row["experiment_id"], row["session"]), []).append(row)
    private = {t.task_id for t in config.workbook.tasks if t.type == "private_question"}
    for row in run.table("answers").filter(role="participant").iter_rows(named=True):
        stage, where, task, *_ = row["address"].split("/")
        experiment, who = where.rpartition(".")[0], row["speaker_id"]
        seat = seats.get((experiment, who))
        if stage != "sessions" or seat is None:
            continue
        treatment = seat["treatment"]
        session = said.get((experiment, seat["session"]), [])
        heard = list(_heard(session, who, task, private, config.workbook.settings.reveal_private))
        shows = {TREATMENT: told[experiment, treatment]} if (experiment, treatment) in told else {}
        others = (r for r in heard if r["speaker_role"] == "participant" and r["speaker_id"] != who)
        shows[OTHERS] = any(len(str(r["text"]).split()) > SHORT for r in others)
        scopes = {_turn(r) for r in heard} | {f"{experiment}/treatment/{treatment}"}
        yield Decision(row["address"], who, treatment, f"task {task}", frozenset(scopes), shows)


def _turn(row: Spoken) -> str:
    return f"{row['experiment_id']}/session/{row['session']}/{row['turn']}"


def _heard(
    session: Sequence[Spoken], who: str, task: str, private: set[str], revealed: bool
) -> Iterator[Spoken]:
    """What was said in a session until somebody answered a task, without private answers: those of
    this task are hidden until it ends, and of earlier ones where the layout keeps them so."""
    for row in session:
        own = row["speaker_id"] == who
        asked = row["speaker_id"] == FACILITATOR and row["finish"] is None
        hidden = row["task_id"] == task or (not revealed and row["speaker_role"] == "participant")
        if own or asked or row["task_id"] not in private or not hidden:
            yield row
        if own and row["task_id"] == task:  # which is in view where it is asked for again
            return


EXPOSURE = Exposure(texts, decisions)
