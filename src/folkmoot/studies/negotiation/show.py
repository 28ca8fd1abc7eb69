"""`folkmoot show RUN [GROUP[/CONDITION[/SLOT]]]`: a negotiation as a reader would want it."""

from __future__ import annotations

from textwrap import wrap
from typing import Any

from rich.markup import escape

from folkmoot.errors import InputError, Problem
from folkmoot.hints import did_you_mean
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.negotiation.strategies import CONDITIONS, SLOTS, slot_of

WIDTH = 72  # leaves room for "(split)" on a narrow terminal


def show(run: RunFolder, which: str | None) -> str:
    """Rich markup. Without an id: the groups and what C5 (or the last condition) decided. With
    one: a group's dialogue; `family_01/C4` one condition, `family_01/C4/cuisine` one slot."""
    rows = run.table("decisions").to_dicts()
    if which is None:
        return _overview(rows)
    group, _, rest = which.partition("/")
    condition, _, slot = rest.partition("/")
    _known(group, sorted({r["group_id"] for r in rows}), "group")
    have = list(dict.fromkeys(r["condition"] for r in rows))
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


def _overview(rows: list[dict[str, Any]]) -> str:
    last = list(dict.fromkeys(r["condition"] for r in rows))[-1]
    out = [f"[bold]What was decided under {last}[/bold] ({CONDITIONS[last].title})"]
    for group in dict.fromkeys(r["group_id"] for r in rows):
        out += ["", f"[bold cyan]{escape(group)}[/bold cyan]"]
        for r in rows:
            if r["group_id"] == group and r["condition"] == last:
                split = " [yellow](split)[/yellow]" if r["subgrouping_required"] else ""
                head, *more = wrap(r["resolution_text"], WIDTH - 23) or [""]
                lines = [f"  {r['topic']:<20} {escape(head)}"]
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


def _line(line: dict[str, Any]) -> str:
    style = "magenta" if line["speaker"] == "System" else "green"
    who, intent = f"[{style}]{escape(line['speaker'])}:[/{style}]", f"[dim]({line['intent']})[/dim]"
    text = escape(line["text"])
    if "\n" in text:
        return "\n    ".join([f"{who} {intent}", *text.splitlines()])
    return f"{who} {text} {intent}"
