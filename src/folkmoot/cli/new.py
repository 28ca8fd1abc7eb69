"""`folkmoot new KIND`: a study file to begin with, and the list of kinds."""

from __future__ import annotations

from pathlib import Path

from rich.markup import escape
from rich.table import Table

from folkmoot.cli.console import clean, out, warn
from folkmoot.engine.study import Study, find_study, installed_studies
from folkmoot.engine.study_file import load_study_file
from folkmoot.errors import InputError, Problem
from folkmoot.files import write_bytes


def new_command(kind: str | None, folder: Path | None, old: Path | None = None) -> None:
    """Write the template of a study type into a folder. Nothing is ever overwritten."""
    if kind is None and old is not None:
        raise InputError("the study type is missing (folkmoot new workbook --from OLD.xlsx)")
    if kind is None:
        _list_kinds()
        return
    study = find_study(kind)
    if old is not None:
        _converted(study, old, folder)
        return
    folder = folder or Path()
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


def _converted(study: Study, old: Path, folder: Path | None) -> None:
    """Write an old study file anew beside it, list every guess, and what is left to mend."""
    if study.convert is None:
        raise InputError(f"the study type {study.name} converts no files")
    path = (folder or old.parent) / f"{old.stem}_converted{old.suffix}"
    if path.exists():
        raise InputError(Problem("already exists", str(path), mend="move it, or name a folder"))
    data, guesses = study.convert(old)
    write_bytes(path, data)
    console = out()
    console.print(f"wrote {escape(str(path))}", soft_wrap=True)
    for guess in guesses:
        console.print(f"[cyan]Guess:[/] {escape(clean(guess))}", soft_wrap=True)
    load_study_file(path)  # raises with what nobody could guess
    console.print(f"\nCheck it: folkmoot check {escape(str(path))}", soft_wrap=True)


def _list_kinds() -> None:
    studies, problems = installed_studies()
    table = Table.grid(padding=(0, 3))
    for study in studies:
        table.add_row(escape(study.name), escape(clean(study.title)))
    out().print(table)
    out().print("\nBegin with one: folkmoot new KIND [FOLDER]")
    for problem in problems:
        warn(str(problem))
