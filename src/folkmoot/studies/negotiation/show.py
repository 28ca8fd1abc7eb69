"""The lines that `folkmoot show` adds for a negotiation."""

# Without an id, the lines list the decisions of the groups. With an id such as
# `family_01/C5/cuisine`, the lines are the dialogue about that topic.

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from textwrap import wrap

import polars as pl
from rich.markup import escape

from folkmoot.errors import InputError, Problem
from folkmoot.hints import did_you_mean
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.negotiation.rules.strategies import CONDITIONS, SLOTS, slot_of
from folkmoot.studies.negotiation.tables import DecisionRow

# Characters of a line. 72 of the usual 80 leave room for "(split)".
WIDTH = 72


def render_lines(run: RunFolder, key: Sequence[str]) -> Iterator[str]:
    """Yield the lines for all decisions of a run, or for one dialogue.

    `key`: the group, the condition and the slot (part of the trip) of the dialogue. An empty `key`
    selects all decisions.

    Raises InputError if the run has no such group, condition or slot.
    """
    decisions = run.read_rows(DecisionRow)
    if not key:
        yield from _list_decisions(decisions)
        return
    group, condition, slot = (*key, "", "")[:3]
    members = run.read_table("members").filter(group_id=group)["member_id"].to_list()
    # The command itself prints speakers, and the preferences that hold under all conditions.
    if condition in ("", "all", *members):
        return
    conditions = decisions["condition"].unique(maintain_order=True).to_list()
    _check_known_name(group, sorted(set(decisions["group_id"])), "group")
    _check_known_name(condition.upper(), conditions, "condition")
    if slot:
        # The file of dialogues has one entry for both topics of lodging.
        slot = slot_of(slot)
        _check_known_name(slot, list(SLOTS), "slot")
    elif run.read_table("utterances").filter(group_id=group, condition=condition.upper()).height:
        yield f"\n[dim]To read the dialogue on one topic, add its name: /{SLOTS[0]}[/dim]"
        return
    yield from _list_dialogue(run, group, condition.upper(), slot)


def _check_known_name(name: str, known: list[str], kind: str) -> None:
    if name not in known:
        hint = did_you_mean(name, known, f"known: {', '.join(known)}")
        raise InputError(Problem(f"there is no {kind} `{name}`", hint=hint))


def _list_decisions(decisions: pl.DataFrame) -> Iterator[str]:
    if decisions.is_empty():
        yield "\nNo decision has been made yet."
        return
    last_condition = decisions["condition"].unique(maintain_order=True)[-1]
    yield (f"\n[bold]Decisions under {last_condition}[/bold] ({CONDITIONS[last_condition].title})")
    decided = decisions.filter(condition=last_condition)
    columns = ("topic", "resolution_text", "subgrouping_required", "overridden", "undecided")
    for group in decisions["group_id"].unique(maintain_order=True):
        yield f"\n[bold cyan]{escape(group)}[/bold cyan]"
        for topic, text, is_split, overridden, reason in decided.filter(group_id=group)[
            columns
        ].iter_rows():
            split = " [yellow](split)[/yellow]" if is_split else ""
            split += f" [red](against a firm no: {escape(overridden)})[/red]" if overridden else ""
            decision_text = text or f"undecided ({(reason or 'unknown').replace('_', ' ')})"
            first_line, *other_lines = wrap(decision_text, WIDTH - 23)
            lines = [f"  {topic:<20} {escape(first_line)}"]
            lines += [" " * 23 + escape(line) for line in other_lines]
            yield "\n".join(lines) + split


def _list_dialogue(run: RunFolder, group: str, condition: str, slot: str) -> Iterator[str]:
    yield f"[bold]{escape(group)} under {condition}[/bold] ({CONDITIONS[condition].title})"
    dialogue = run.read_json(f"groups/{group}/{condition}/dialogue.json")
    for name in [slot] if slot else list(dialogue):
        decision = ""
        yield f"\n[bold cyan]── {name} ──[/bold cyan]"
        for line in dialogue[name]:
            if line.get("decision", "") != decision:
                decision = line["decision"]
                yield f"[cyan]· {decision}[/cyan]"
            yield _format_line(line)


def _format_line(line: Mapping[str, str]) -> str:
    style = "magenta" if line["speaker"] == "System" else "green"
    head = f"[{style}]{escape(line['speaker'])}:[/{style}]"
    intent, text = f"[dim]({line['intent']})[/dim]", escape(line["text"])
    if "\n" in text:
        return "\n    ".join([f"{head} {intent}", *text.splitlines()])
    return f"{head} {text} {intent}"
