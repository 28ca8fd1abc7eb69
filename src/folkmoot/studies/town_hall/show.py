"""The lines that `folkmoot show` adds for a town hall."""

# For a discussion, the lines give the votes and the closing text. For a resident, they give
# responses, the outcome of the resident's concern, and votes.

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from rich.markup import escape

from folkmoot.kit import coding
from folkmoot.kit.findings import format_mean_value, format_signed
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.town_hall.measures import find_vulnerable, read_concerns
from folkmoot.studies.town_hall.recording import CONCERN
from folkmoot.studies.town_hall.tables import ReferenceRow, TypedAnswerRow

# One row of a table, column → cell.
Row = Mapping[str, Any]
SCORE = "weighted_inclusivity_score"
# The outcome of an item and its colour, by the column `passed`.
OUTCOME_STYLES = {
    True: ("passed", "green"),
    False: ("failed", "red"),
    None: ("undecided", "yellow"),
}


def render_lines(run: RunFolder, key: Sequence[str]) -> Iterator[str]:
    """Yield the lines for a run, discussion or resident, as rich markup.

    An empty `key` means the run.
    """
    if not key:
        yield from _list_discussions(run)
        return
    # A discussion that did not end has no row in this table.
    if key[0] not in run.read_table("discussions")["discussion_id"]:
        return
    portraits = run.read_table("portraits").filter(discussion_id=key[0])
    residents = run.read_table("residents").filter(set=portraits["set"][0])
    names = {id: f"{id} {name}" for id, name in residents.select("id", "name").iter_rows()}
    items = run.read_table("items").filter(discussion_id=key[0]).to_dicts()
    if len(key) > 1 and key[1] in names:
        yield from _list_responses(run, key, names)
        yield from _describe_concern(run, "/".join(key))
        votes = run.read_table("votes").filter(discussion_id=key[0], agent_id=key[1]).to_dicts()
        yield from _list_own_votes(votes, {item["item_id"]: item["text"] for item in items})
    if len(key) > 1:
        return
    vulnerable = find_vulnerable({"rounds": run.read_table("rounds").filter(discussion_id=key[0])})
    for resident_id, label in portraits.select("agent_id", "label").iter_rows():
        if resident_id in vulnerable:
            yield f"[dim]{names[resident_id]} is the {escape(label)}[/dim]"
    yield from _list_items(items, names)
    yield from _describe_consensus(run, key[0], names, vulnerable)


def _list_discussions(run: RunFolder) -> Iterator[str]:
    for row in run.read_table("discussions").to_dicts():
        yield (
            f"[bold]{row['discussion_id']:<12}[/bold] "
            f"{row['items_passed']} of {row['total_vote_items']} items passed"
            f"   inclusivity of the vulnerable {format_mean_value(row[f'vulnerable_{SCORE}'])}, "
            f"gap {format_signed(row[f'gap_{SCORE}'])}"
        )


def _list_items(items: Sequence[Row], names: Mapping[str, str]) -> Iterator[str]:
    yield "\n[underline]Vote[/underline]"
    for item in items:
        outcome, colour = OUTCOME_STYLES[item["passed"]]
        tie = ", a tie" if item["tie"] else ""
        origin = (
            ", ".join(
                names[resident_id] for resident_id in item["origin"].split("|") if resident_id
            )
            or "no resident named"
        )
        result = f"[{colour}]{outcome} {item['yes']}:{item['no']}{tie}[/{colour}]"
        yield f"[bold]{item['item_id']}[/bold] {result}  {escape(item['text'])}"
        yield f"    [dim]from {origin}[/dim]"
    if not items:
        yield "[red](no ballot could be read)[/red]"


def _describe_consensus(
    run: RunFolder, discussion: str, names: Mapping[str, str], vulnerable: Collection[str]
) -> Iterator[str]:
    consensus_rows = run.read_table("utterances").filter(
        discussion_id=discussion, stage="consensus"
    )
    text = "".join(consensus_rows["text"])
    yield f"\n[underline]Final consensus[/underline]\n{escape(text or '(none)')}"
    # List each concern once with all its residents, because several residents often share one.
    by_concern: dict[str, list[str]] = {}
    answers = run.read_rows(TypedAnswerRow).filter(discussion_id=discussion)
    for concern in read_concerns({"typed_answers": answers}):
        name = names[concern["resident"]]
        display_name = (
            f"[bold yellow]{name}[/bold yellow]" if concern["resident"] in vulnerable else name
        )
        by_concern.setdefault(concern["concern"], []).append(display_name)
    for concern_text, residents in by_concern.items():
        yield f"reflects: {escape(concern_text)} ({', '.join(residents)})"


def _list_responses(run: RunFolder, key: Sequence[str], names: Mapping[str, str]) -> Iterator[str]:
    rows = run.read_rows(ReferenceRow).filter(discussion_id=key[0], target=key[1]).to_dicts()
    responses = (
        f"{names[row['speaker']]} ({row['interaction_type'] or 'refer to'})" for row in rows
    )
    if rows:
        yield f"\n[cyan]answered by {', '.join(responses).replace('_', ' ')}[/cyan]"


def _describe_concern(run: RunFolder, concern: str) -> Iterator[str]:
    codings = coding.read_codings(run).get(CONCERN)
    codes = codings.codes_of(concern) if codings else None
    if codings is None or codes is None:
        return
    coder_note = " (by the embedded coder: no evidence)" * (not codings.supports_findings)
    yield f"\n[underline]What became of the concern[/underline]{coder_note}"
    yield from (
        (escape(f"{code.replace('_', ' ')}: “{quote}”") for code, quote in codes.items())
        if codes
        else ("not heard",)
    )


def _list_own_votes(votes: Sequence[Row], texts: Mapping[str, str]) -> Iterator[str]:
    yield "\n[underline]Vote[/underline]"
    for vote in votes:
        word = vote["vote"] or f"({(vote['missing'] or 'not read').replace('_', ' ')})"
        yield f"[bold]{word:<3}[/bold] {escape(texts[vote['item_id']])}"
        yield f"    [dim]{escape(vote['reason'] or '')}[/dim]"
