"""`folkmoot show RUN [ID]` for workbooks: who sat where, one participant, or one whole session."""

from __future__ import annotations

import polars as pl
from rich.markup import escape

from folkmoot.errors import InputError
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.workbook.answers import Value
from folkmoot.studies.workbook.files import ExperimentRecord, PersonRecord, SessionRecord


def show(run: RunFolder, who: str | None) -> str:
    """Rich markup. `who` is a participant's ID, or `session:LABEL`; None lists all.

    Raises InputError for what the run does not have.
    """
    if who is None:
        return _overview(run)
    if who.startswith("session:"):
        return _session(run, who.removeprefix("session:"))
    return _participant(run, who)


def _experiments(run: RunFolder) -> list[ExperimentRecord]:
    names = run.table("sessions")["experiment_id"].unique(maintain_order=True).to_list()
    return [run.json(f"{name}.json") for name in names]


def _overview(run: RunFolder) -> str:
    lines: list[str] = []
    for experiment in _experiments(run):
        constants = ", ".join(f"{k} = {v}" for k, v in experiment["constants"].items())
        lines.append(f"[bold]{escape(experiment['experiment_id'])}[/bold]  {escape(constants)}")
        for session in experiment["sessions"]:
            ended = "" if session["ended"] == "completed" else f"  [red]{session['ended']}[/red]"
            lines.append(
                f"  session {escape(session['session_id'])} · {escape(session['treatment'])} · "
                f"{session['messages']} messages{ended}"
            )
            for person in session["participants"]:
                answers = ", ".join(
                    f"{name} {_short(answer['value'])}"
                    for name, answer in person["responses"].items()
                )
                lines.append(
                    f"    [bold]{escape(person['ID'])}[/bold]  {escape(person['name'])}: "
                    f"[dim]{escape(answers)}[/dim]"
                )
    lines.append("\nOne participant: its ID. One session: session:LABEL.")
    return "\n".join(lines)


def _short(value: Value | None) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:g}"
    text = " ".join(str(value).split())
    return text if len(text) <= 24 else f"“{text[:23].rstrip()}…”"


def _participant(run: RunFolder, who: str) -> str:
    blocks: list[str] = []
    for experiment in _experiments(run):
        for session in experiment["sessions"]:
            for person in session["participants"]:
                if person["ID"] == who:
                    blocks.append(_portrait(experiment, session, person))
    if not blocks:
        ids = run.table("assignment")["participant_id"].unique(maintain_order=True).to_list()
        raise InputError(f"{who}: no such participant; there are {', '.join(ids[:12])}")
    return "\n\n".join(blocks)


def _portrait(experiment: ExperimentRecord, session: SessionRecord, person: PersonRecord) -> str:
    lines = [
        f"[bold]{escape(person['ID'])}[/bold] · {escape(experiment['experiment_id'])} · session "
        f"{escape(session['session_id'])} · {escape(session['treatment'])} · "
        f"{escape(person['name'])}",
        "",
    ]
    for message in person["message_history"]:
        text = escape(message["content"])
        if message["role"] == "system":
            lines.append(f"[dim]{text}[/dim]\n")
        elif message["role"] == "assistant":
            lines.append(f"[bold cyan]{escape(person['name'])}[/bold cyan]: {text}\n")
        else:
            lines.append(f"[yellow]{escape(message['name'])}[/yellow]: {text}\n")
    for name, value in person["computed"].items():
        lines.append(f"{escape(name)} = {value}")
    return "\n".join(lines)


def _session(run: RunFolder, label: str) -> str:
    said = run.table("utterances").filter(pl.col("session") == label, pl.col("turn").is_not_null())
    if said.is_empty():
        labels = run.table("sessions")["session"].unique(maintain_order=True).to_list()
        raise InputError(f"there is no session {label}; sessions are {', '.join(labels[:20])}")
    lines: list[str] = []
    task: tuple[str, str] | None = None
    for row in said.to_dicts():
        if (row["experiment_id"], row["task_id"]) != task:
            task = (row["experiment_id"], row["task_id"])
            lines.append(f"\n[underline]{escape(' · task '.join(task))}[/underline]")
        words = escape(row["text"]) if row["missing"] is None else f"[red]{row['missing']}[/red]"
        lines.append(f"[bold]{escape(row['speaker_name'])}[/bold]: {words}")
    return "\n".join(lines).strip()
