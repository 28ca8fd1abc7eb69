"""`folkmoot show RUN [GROUP[/CONDITION[/SLOT]]]`: a negotiation as a reader would want it."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import wrap

import polars as pl
from rich.markup import escape

from folkmoot.errors import InputError, Problem
from folkmoot.hints import did_you_mean
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.negotiation.rules.strategies import CONDITIONS, SLOTS, slot_of
from folkmoot.studies.negotiation.tables import DecisionRow, read_table

WIDTH = 72  # leaves room for "(split)" on a narrow terminal


def show(run: RunFolder, which: str | None) -> str:
    """Rich markup. Without an id: the groups and what C5 (or the last condition) decided. With
    one: a group's dialogue; `family_01/C4` one condition, `family_01/C4/cuisine` one slot."""
    decisions = read_table(run, DecisionRow)
    if which is None:
        return _overview(decisions)
    group, _, rest = which.partition("/")
    condition, _, slot = rest.partition("/")
    _known(group, sorted(set(decisions["group_id"])), "group")
    have = decisions["condition"].unique(maintain_order=True).to_list()
    condition = condition.upper() or have[-1]
    _known(condition, have, "condition")
    if slot:
        slot = slot_of(slot)  # room_type and house_rule are talked over together
        _known(slot, list(SLOTS), "slot")
    return _session(run, group, condition, slot)


def _known(name: str, known: list[str], what: str) -> None:
    if name not in known:
        raise InputError(
            Problem(
                f"there is no {what} `{name}`",
                hint=did_you_mean(name, known, f"there are {', '.join(known)}"),
            )
        )


def _overview(decisions: pl.DataFrame) -> str:
    if decisions.is_empty():
        return "Nothing has been decided yet."
    last = decisions["condition"].unique(maintain_order=True)[-1]
    out = [f"[bold]What was decided under {last}[/bold] ({CONDITIONS[last].title})"]
    decided = decisions.filter(condition=last)
    columns = ("topic", "resolution_text", "subgrouping_required", "overridden", "undecided")
    for group in decisions["group_id"].unique(maintain_order=True):
        out += ["", f"[bold cyan]{escape(group)}[/bold cyan]"]
        for topic, text, parts, over, why in decided.filter(group_id=group)[columns].iter_rows():
            split = " [yellow](split)[/yellow]" if parts else ""
            split += f" [red](against a firm no: {escape(over)})[/red]" if over else ""
            words = text or f"undecided ({(why or 'unknown').replace('_', ' ')})"
            head, *more = wrap(words, WIDTH - 23)
            lines = [f"  {topic:<20} {escape(head)}"]
            lines += [" " * 23 + escape(rest) for rest in more]
            out.append("\n".join(lines) + split)
    return "\n".join([*out, "", "[dim]show RUN GROUP/CONDITION/SLOT for a dialogue[/dim]"])


def _session(run: RunFolder, group: str, condition: str, slot: str) -> str:
    dialogue = run.json(f"groups/{group}/{condition}/dialogue.json")
    out = [f"[bold]{escape(group)} under {condition}[/bold] ({CONDITIONS[condition].title})"]
    for name in [slot] if slot else list(dialogue):
        decision = ""
        out += ["", f"[bold cyan]── {name} ──[/bold cyan]"]
        for line in dialogue[name]:
            if line.get("decision", "") != decision:
                decision = line["decision"]
                out.append(f"[cyan]· {decision}[/cyan]")
            out.append(_line(line))
    return "\n".join(out)


def _line(line: Mapping[str, str]) -> str:
    style = "magenta" if line["speaker"] == "System" else "green"
    who, intent = f"[{style}]{escape(line['speaker'])}:[/{style}]", f"[dim]({line['intent']})[/dim]"
    text = escape(line["text"])
    if "\n" in text:
        return "\n    ".join([f"{who} {intent}", *text.splitlines()])
    return f"{who} {text} {intent}"
