"""`folkmoot show RUN [ID]`: who took part, or one whole conversation, in the terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from folkmoot.cli.console import clean, out, warn
from folkmoot.cli.tables import grid_view, synthetic_panel
from folkmoot.engine.journal import Entry, JournalReader
from folkmoot.engine.study import study_of_run
from folkmoot.errors import InputError, Problem, StorageError
from folkmoot.records.findings import Grid
from folkmoot.records.run_folder import JOURNAL, RunFolder

OUTPUTS = Path("outputs")
MOST_IDS = 12


def find_run(name: str) -> RunFolder:
    """The run folder of this path, or of this name under outputs/."""
    path = Path(name)
    if not path.exists() and (OUTPUTS / name).is_dir():
        path = OUTPUTS / name
    if path.is_file():
        raise StorageError(f"{path}: this is a file; name the run's folder, e.g. outputs/<id>")
    return RunFolder(path)


def show_command(name: str, participant: str | None) -> None:
    """Print the participants of a run, or the conversation of one."""
    run = find_run(name)
    console = out()
    if run.synthetic:
        console.print(synthetic_panel(note=run.synthetic_note))
    own = _own_show(run)
    if own is None:
        show_generic(run, participant, console)
        return
    try:
        text = own(run, participant)
    except StorageError:
        # A run that stopped half-way lacks the files that its own view is made from.
        if run.finished:
            raise
        show_generic(run, participant, console)
    else:
        console.print(clean(text))


def _own_show(run: RunFolder) -> Callable[[RunFolder, str | None], str] | None:
    try:
        return study_of_run(run).show
    except InputError as error:
        warn(f"{error} Shown without it.")
        return None


def show_generic(run: RunFolder, who: str | None, console: Console) -> None:
    """What can be shown of any study type: its tables, or all that one was asked and answered."""
    with _journal(run) as journal:
        entries = sorted(journal.entries("ask"), key=lambda e: (e.started_at, e.address))
    speakers = _speakers(run)
    if who is None:
        _overview(run, entries, speakers, console)
        return
    own = [e for e in entries if who in (speakers.get(e.address), *e.address.split("/"))]
    if not own:
        known = ", ".join(_ids(entries, speakers)[:MOST_IDS])
        raise InputError(Problem(f"{run.path}: {who} is not in this run", mend=f"ids: {known}, …"))
    _conversation(own, console)


def _overview(
    run: RunFolder, entries: list[Entry], speakers: Mapping[str, str], console: Console
) -> None:
    state = "" if run.finished else " · not finished"
    console.print(f"[bold]{escape(run.id)}[/] · {escape(run.study)}{state}")
    rows = [(name, run.table(name).height) for name in run.tables()]
    if rows:
        console.print(grid_view(Grid(("table", "rows"), tuple(rows))))
    ids = _ids(entries, speakers)
    if ids:
        more = f", … ({len(ids):,} in all)" if len(ids) > MOST_IDS else ""
        listed = escape(clean(", ".join(ids[:MOST_IDS])))
        console.print(
            f"Read one: folkmoot show {escape(str(run.path))} ID, with ID of {listed}{more}"
        )


def _conversation(entries: list[Entry], console: Console) -> None:
    system = stage = None
    for entry in entries:
        messages = entry.request.get("messages", [])
        told = next((m["content"] for m in messages if m["role"] == "system"), None)
        if told and told != system:
            system = told
            console.print(f"\n[dim]{escape(clean(told))}[/]")
        if entry.address.split("/")[0] != stage:
            stage = entry.address.split("/")[0]
            console.print(f"\n[underline]{escape(clean(stage))}[/]")
        asked = next((m["content"] for m in reversed(messages) if m["role"] == "user"), "")
        console.print(f"[cyan]{escape(clean(asked))}[/]")
        said = entry.reply or f"(no answer: {entry.finish})"
        console.print(f"[bold]→ {escape(clean(said))}[/]")


def _ids(entries: list[Entry], speakers: Mapping[str, str]) -> list[str]:
    if speakers:
        return list(dict.fromkeys(speakers.values()))
    return list(dict.fromkeys(e.address.split("/")[-2] for e in entries if "/" in e.address))


def _speakers(run: RunFolder) -> dict[str, str]:
    """Address → who was asked; empty while the run has no tables yet."""
    if not run.has_table("answers"):
        return {}
    return dict(run.table("answers").select("address", "speaker_id").iter_rows())


def _journal(run: RunFolder) -> JournalReader:
    path = run.path / JOURNAL
    if not path.exists():
        raise StorageError(f"{run.path}: there is no {JOURNAL}, so nothing was asked yet")
    return JournalReader(path)
