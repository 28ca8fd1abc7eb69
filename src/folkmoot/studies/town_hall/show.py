"""What `folkmoot show RUN [ID]` adds for a town hall: the votes and the final consensus of a
discussion; who responded to a resident, what became of the concern, and the resident's votes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.markup import escape

from folkmoot.kit import coding
from folkmoot.kit.findings import number, signed
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.town_hall.stages import CONCERN

Json = Mapping[str, Any]  # an object of the run's JSON files
SCORE = "weighted_inclusivity_score"


def show(run: RunFolder, key: Sequence[str]) -> Iterator[str]:
    """Yield what the run, a discussion or a resident has beyond what was said."""
    if not key:
        yield from _list_discussions(run)
        return
    if key[0] not in run.table("discussions")["discussion_id"]:
        return
    voting = run.json(f"{key[0]}/voting_results.json")
    residents = run.json(f"{key[0]}/discussion_log.json")["residents"]
    names = {r["id"]: f"{r['id']} {r['name']}" for r in residents}
    if len(key) > 1 and key[1] in names:
        yield from _list_responses(run, key, names)
        yield from _describe_concern(run, "/".join(key))
        yield from _list_own_votes(voting, key[1])
    if len(key) > 1:
        return
    for resident in residents:
        if resident["classification"]["is_vulnerable"]:
            yield f"[dim]{names[resident['id']]} is the {escape(resident['label'])}[/dim]"
    yield from _list_items(voting, names)
    yield from _describe_consensus(voting["final_consensus"], names)


def _list_discussions(run: RunFolder) -> Iterator[str]:
    for row in run.table("discussions").to_dicts():
        yield (
            f"[bold]{row['discussion_id']:<12}[/bold] "
            f"{row['items_passed']} of {row['total_vote_items']} items passed"
            f"   inclusivity of the vulnerable {number(row[f'vulnerable_{SCORE}'])}, "
            f"gap {signed(row[f'gap_{SCORE}'])}"
        )


def _list_items(voting: Json, names: Mapping[str, str]) -> Iterator[str]:
    yield "\n[underline]Vote[/underline]"
    for item in voting["items"]:
        word, colour = ("passed", "green") if item["passed"] else ("failed", "red")
        tie = ", a tie" if item["tie"] else ""
        origin = ", ".join(names[i] for i in item["originating_residents"]) or "nobody named"
        result = f"[{colour}]{word} {item['yes']}:{item['no']}{tie}[/{colour}]"
        yield f"[bold]{item['item_id']}[/bold] {result}  {escape(item['proposal'])}"
        yield f"    [dim]from {origin}[/dim]"
    if not voting["items"]:
        yield "[red](no ballot could be read)[/red]"


def _describe_consensus(final: Json, names: Mapping[str, str]) -> Iterator[str]:
    yield f"\n[underline]Final consensus[/underline]\n{escape(final['text'] or '(none)')}"
    by_concern: dict[str, list[str]] = {}
    for concern in final["concerns_reflected"]:
        name = names[concern["resident"]]
        mark = f"[bold yellow]{name}[/bold yellow]" if concern["is_vulnerable"] else name
        by_concern.setdefault(concern["concern"], []).append(mark)
    for concern, residents in by_concern.items():
        yield f"reflects: {escape(concern)} ({', '.join(residents)})"


def _list_responses(run: RunFolder, key: Sequence[str], names: Mapping[str, str]) -> Iterator[str]:
    if not run.has_table("references"):  # a run of an earlier version
        return
    rows = run.table("references").filter(discussion_id=key[0], target=key[1]).to_dicts()
    kinds = (f"{names[r['speaker']]} ({r['interaction_type'] or 'refer to'})" for r in rows)
    if rows:
        yield f"\n[cyan]answered by {', '.join(kinds).replace('_', ' ')}[/cyan]"


def _describe_concern(run: RunFolder, concern: str) -> Iterator[str]:
    """What became of the resident's concern by the coder, with the words that show it."""
    read = coding.codings(run).get(CONCERN)
    codes = read.of(concern) if read else None
    if read is None or codes is None:
        return
    by = " (by the embedded coder: no evidence)" * (not read.supports)
    yield f"\n[underline]What became of the concern[/underline]{by}"
    yield from (
        (escape(f"{code.replace('_', ' ')}: “{quote}”") for code, quote in codes.items())
        if codes
        else ("not heard",)
    )


def _list_own_votes(voting: Json, resident: str) -> Iterator[str]:
    yield "\n[underline]Vote[/underline]"
    texts = {item["item_id"]: escape(item["proposal"]) for item in voting["items"]}
    own = next(ballot for ballot in voting["ballots"] if ballot["agent_id"] == resident)
    for vote in own["votes"]:
        word = vote["vote"] or f"({(vote.get('missing') or 'not read').replace('_', ' ')})"
        yield f"[bold]{word:<3}[/bold] {texts[vote['item_id']]}"
        yield f"    [dim]{escape(vote['reason'] or '')}[/dim]"
