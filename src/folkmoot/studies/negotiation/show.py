"""What `folkmoot show RUN` adds for a negotiation: what the groups decided."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap

from rich.markup import escape

from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.negotiation.rules.strategies import CONDITIONS
from folkmoot.studies.negotiation.tables import DecisionRow, read_table

WIDTH = 72  # leaves room for "(split)" on a narrow terminal


def show(run: RunFolder, key: Sequence[str]) -> Iterator[str]:
    """Yield the decisions under C5 (or the last condition) for the whole run."""
    if key:
        return
    decisions = read_table(run, DecisionRow)
    if decisions.is_empty():
        yield "\nNothing has been decided yet."
        return
    last = decisions["condition"].unique(maintain_order=True)[-1]
    yield f"\n[bold]What was decided under {last}[/bold] ({CONDITIONS[last].title})"
    decided = decisions.filter(condition=last)
    columns = ("topic", "resolution_text", "subgrouping_required", "overridden", "undecided")
    for group in decisions["group_id"].unique(maintain_order=True):
        yield f"\n[bold cyan]{escape(group)}[/bold cyan]"
        for topic, text, parts, over, why in decided.filter(group_id=group)[columns].iter_rows():
            split = " [yellow](split)[/yellow]" if parts else ""
            split += f" [red](against a firm no: {escape(over)})[/red]" if over else ""
            words = text or f"undecided ({(why or 'unknown').replace('_', ' ')})"
            head, *more = wrap(words, WIDTH - 23)
            lines = [f"  {topic:<20} {escape(head)}"]
            lines += [" " * 23 + escape(rest) for rest in more]
            yield "\n".join(lines) + split
