"""`folkmoot show RUN [ID]`: who took part, or one whole conversation, in the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
from rich.console import Console
from rich.markup import escape

from folkmoot.cli.console import clean, out, warn
from folkmoot.cli.tables import grid_view, synthetic_panel
from folkmoot.engine.study import study_of_run
from folkmoot.errors import InputError, Problem, StorageError
from folkmoot.records.findings import Grid
from folkmoot.records.run_folder import RunFolder

OUTPUTS = Path("outputs")
TRANSCRIPTS = ("utterances", "transcript", "transcripts", "turns", "messages")
WHO = ("participant_id", "speaker_id", "session_id", "session", "scope")


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
        console.print(synthetic_panel())
    try:
        study = study_of_run(run)
    except InputError as error:
        warn(f"{error} Shown without it.")
        show_generic(run, participant, console)
        return
    if study.show is None:
        show_generic(run, participant, console)
    else:
        console.print(clean(study.show(run, participant)))


def show_generic(run: RunFolder, who: str | None, console: Console) -> None:
    """What can be shown of any study type: its tables, or all utterances and answers of one."""
    if who is None:
        console.print(f"[bold]{escape(run.id)}[/] · {escape(run.study)}")
        rows = [(name, run.table(name).height) for name in run.tables()]
        console.print(grid_view(Grid(("table", "rows"), tuple(rows))))
        ids = _ids(run)
        if ids:
            console.print(f"Show one with its id: {escape(', '.join(ids[:12]))}", end="")
            console.print(f", … ({len(ids):,} in all)" if len(ids) > 12 else "")
        return
    shown = False
    for table in (*TRANSCRIPTS, "answers"):
        if run.has_table(table) and not (shown and table == "answers"):
            shown = _show_rows(_rows_of(run.table(table), who), console) or shown
    if not shown:
        known = ", ".join(_ids(run)[:20])
        raise InputError(Problem(f"{run.path}: {who} is not in this run", mend=f"ids: {known}"))


def _ids(run: RunFolder) -> list[str]:
    for table in (*TRANSCRIPTS, "answers"):
        if not run.has_table(table):
            continue
        data = run.table(table)
        column = next((c for c in WHO if c in data.columns), None)
        if column is not None:
            return [str(v) for v in data[column].unique(maintain_order=True).drop_nulls()]
    return []


def _rows_of(data: pl.DataFrame, who: str) -> list[dict[str, Any]]:
    columns = [c for c in WHO if c in data.columns]
    if not columns:
        return []
    wanted = pl.any_horizontal(
        *(pl.col(c).cast(pl.String) == who for c in columns),
        *(pl.col(c).cast(pl.String).str.contains(f"/{who}/", literal=True) for c in columns),
    )
    return data.filter(wanted).to_dicts()


def _show_rows(rows: list[dict[str, Any]], console: Console) -> bool:
    stage = None
    for row in rows:
        if row.get("stage") and row["stage"] != stage:
            stage = row["stage"]
            console.print(f"\n[underline]{escape(clean(str(stage)))}[/]")
        name = row.get("speaker_name") or row.get("speaker_id") or row.get("role") or ""
        said = row.get("text") or row.get("value")
        if said is None:
            said = f"(missing: {row.get('missing') or 'no text kept'})"
        console.print(f"[bold]{escape(clean(str(name)))}:[/] {escape(clean(str(said)))}")
    return bool(rows)
