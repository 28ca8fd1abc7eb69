"""`folkmoot new KIND`: a study file to begin with, and the list of kinds."""

from __future__ import annotations

from pathlib import Path

from rich.markup import escape
from rich.table import Table

from folkmoot.cli.console import clean, out, warn
from folkmoot.engine.study import find_study, installed_studies
from folkmoot.errors import InputError, Problem
from folkmoot.whole_files import write_bytes


def new_command(kind: str | None, folder: Path) -> None:
    """Write the template of a study type into a folder. Nothing is ever overwritten."""
    if kind is None:
        _list_kinds()
        return
    study = find_study(kind)
    files = study.template()
    if not files:
        raise InputError(f"the study type {kind} has no template")
    there = [name for name in files if (folder / name).exists()]
    if there:
        raise InputError(
            [
                Problem("is there already", str(folder / n), mend="name another folder")
                for n in there
            ]
        )
    console = out()
    for name, content in files.items():
        data = content.encode() if isinstance(content, str) else content
        write_bytes(folder / name, data)
        console.print(f"wrote {escape(str(folder / name))}", soft_wrap=True)
    first = next((n for n in files if n.endswith((".yaml", ".yml", ".xlsx"))), next(iter(files)))
    path = escape(str(folder / first))
    console.print(f"\nCheck it: folkmoot check {path}\nRun it:   folkmoot run {path}")


def _list_kinds() -> None:
    studies, problems = installed_studies()
    table = Table.grid(padding=(0, 3))
    for study in studies:
        table.add_row(escape(study.name), escape(clean(study.title)))
    out().print(table)
    out().print("\nBegin with one: folkmoot new KIND [FOLDER]")
    for problem in problems:
        warn(str(problem))
