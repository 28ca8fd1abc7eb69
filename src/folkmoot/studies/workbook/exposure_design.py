"""What participants have before them when they answer a task, and where the words are recorded."""

from __future__ import annotations

from collections.abc import Iterator

from folkmoot.kit.exposure import Decision, Exposure, Text
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.workbook.config import WorkbookConfig
from folkmoot.studies.workbook.participants import experiments

TREATMENT = "treatment"


def texts(run: RunFolder) -> Iterator[Text]:
    """The treatments of each experiment, and what was said in each session."""
    config = WorkbookConfig.model_validate(run.config)
    for experiment in experiments(config.workbook):
        for label, treatment in experiment.treatments.items():
            scope = f"{experiment.id}/treatment/{label}"
            yield Text(TREATMENT, label, treatment.description, scope=scope)
    for row in run.table("utterances").iter_rows(named=True):
        scope = f"{row['experiment_id']}/session/{row['session']}"
        kind = "others' words" if row["speaker_role"] == "participant" else "questions"
        words, who = row["text"] or "", row["speaker_id"]
        if len(words.split()) > 3:  # an answer of a word or a number stands everywhere
            yield Text(kind, f"{scope}/{row['turn']}", words, scope=scope, by=who)


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
    for row in run.table("answers").filter(role="participant").iter_rows(named=True):
        stage, where, task, *_ = row["address"].split("/")
        experiment, who = where.rpartition(".")[0], row["speaker_id"]
        seat = seats.get((experiment, who))
        if stage != "sessions" or seat is None:
            continue
        treatment = seat["treatment"]
        scopes = (f"{experiment}/session/{seat['session']}", f"{experiment}/treatment/{treatment}")
        shows = {TREATMENT: told[experiment, treatment]} if (experiment, treatment) in told else {}
        yield Decision(row["address"], who, treatment, f"task {task}", frozenset(scopes), shows)


EXPOSURE = Exposure(texts, decisions)
