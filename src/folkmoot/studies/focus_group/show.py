"""`folkmoot show RUN [ID]` for a focus group: the tables, one conversation, or one person."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
from rich.markup import escape

from folkmoot.errors import InputError
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.focus_group.tables import read_talk

_COLORS = ("cyan", "green", "magenta", "yellow", "blue", "red", "bright_cyan", "bright_magenta")


def show(run: RunFolder, who: str | None) -> str:
    """Rich markup. `who`: a group (`group_001`, `group_001/oven`), or a person (`p_0003`,
    `group_002/p_0003`). Raises InputError for what the run does not have.
    """
    said, people = read_talk(run), run.table("personas")
    talks = said.select("group", "stimulus").unique(maintain_order=True).rows()
    if who is None:
        if len(talks) == 1:
            return _talk(said, people, *talks[0])
        return "\n".join(_line(said, people, group, stimulus) for group, stimulus in talks)
    for group, stimulus in talks:
        if who in (f"{group}/{stimulus}", group):
            return _talk(said, people, group, stimulus)
    group, _, person = who.rpartition("/")
    found = people.filter(
        (pl.col("persona_id") == person) & (pl.col("group") == (group or talks[0][0]))
    )
    if found.is_empty():
        known = ", ".join(f"{g}/{s}" for g, s in talks[:4])
        raise InputError(
            f"{who}: no such group or person; there are {known} and persons like "
            f"{talks[0][0]}/{people['persona_id'][0]}"
        )
    return _person(said, run.table("opinions"), found.row(0, named=True))


def _line(said: pl.DataFrame, people: pl.DataFrame, group: str, stimulus: str) -> str:
    talk = said.filter((pl.col("group") == group) & (pl.col("stimulus") == stimulus))
    names = people.filter(pl.col("group") == group)["name"].to_list()
    shifts = int(talk["changed_mind"].sum())
    first = ", ".join(n.split(" ", 1)[0] for n in names)
    return (
        f"[bold]{escape(group)}/{escape(stimulus)}[/bold]  {talk.height} messages, {shifts} "
        f"shift{'' if shifts == 1 else 's'}  [dim]{escape(first)}[/dim]"
    )


def _talk(said: pl.DataFrame, people: pl.DataFrame, group: str, stimulus: str) -> str:
    talk = said.filter((pl.col("group") == group) & (pl.col("stimulus") == stimulus))
    at_table = people.filter(pl.col("group") == group).to_dicts()
    color = {p["persona_id"]: _COLORS[i % len(_COLORS)] for i, p in enumerate(at_table)}
    lines = [
        f"[{color[p['persona_id']]}]{escape(p['name'])}[/] [dim]{p['persona_id']}, {p['age']}, "
        f"{escape(', '.join(filter(None, (p['occupation'], p['location']))))}[/dim]"
        for p in at_table
    ]
    phase = None
    for row in talk.iter_rows(named=True):
        if row["phase"] != phase:
            phase = row["phase"]
            lines += ["", f"[underline]{escape(str(phase)).replace('_', ' ')}[/underline]"]
        style = color.get(row["speaker_id"], "dim")
        moved = f" [dim]→ {row['valence']:+.2f}[/dim]" if row["changed_mind"] else ""
        lines.append(
            f"[dim]{row['turn']:>3}[/dim] [{style}]{escape(row['speaker_name'])}:[/] "
            f"{escape(row['text'])}{moved}"
        )
    return "\n".join(lines)


def _place(person: Mapping[str, str]) -> str:
    return f" in {escape(person['location'])}" if person["location"] else ""


def _person(said: pl.DataFrame, opinions: pl.DataFrame, p: Mapping[str, str]) -> str:
    mine = pl.col("group") == p["group"]
    own = said.filter(mine & (pl.col("speaker_id") == p["persona_id"]))
    path = opinions.filter(mine & (pl.col("persona_id") == p["persona_id"]))
    lines = [
        f"[bold]{escape(p['name'])}[/bold], {p['age']}, {escape(p['occupation'])}",
        f"[dim]lives {escape(p['household'])}{_place(p)}; "
        f"{escape(p['education'])}; {escape(p['income'])}; {p['vals']}; {p['adoption']}[/dim]",
    ]
    for stimulus in path["stimulus"].unique(maintain_order=True):
        steps = path.filter(pl.col("stimulus") == stimulus)
        trail = " → ".join(
            f"{v:+.2f}"
            for v, c in zip(steps["valence"], [True, *steps["changed"][1:]], strict=True)
            if c
        )
        # Where somebody stands after the talk is asked in private and is not on this path.
        read = "; the first stated before the talk, then as a coder reads the answers"
        told = f"position {trail} [dim](from −1 to 1{read})[/dim]"
        lines += ["", f"[underline]{escape(str(stimulus))}[/underline]  {told}"]
        for row in own.filter(pl.col("stimulus") == stimulus).iter_rows(named=True):
            lines.append(f"[dim]{row['turn']:>3}[/dim] {escape(row['text'])}")
    return "\n".join(lines)
