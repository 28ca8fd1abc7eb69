"""`folkmoot show RUN [ID]`: the discussions of a run, a transcript of one, or one resident.

ID is a discussion (`set01_lv4`) or a resident in one (`set01_lv4/A17`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.markup import escape

from folkmoot.errors import InputError
from folkmoot.records.run_folder import RunFolder

Lines = list[str]


def show(run: RunFolder, what: str | None) -> str:
    """Rich markup. Raises InputError for an id that the run does not have."""
    names = run.table("discussions")["discussion_id"].to_list()
    if what is None:
        return "\n".join(_list(run, names))
    discussion, _, resident = what.partition("/")
    if discussion not in names:
        raise InputError(f"{what}: no such discussion; they are {', '.join(names)}")
    log = run.json(f"{discussion}/discussion_log.json")
    if not resident:
        return "\n".join(_transcript(run, discussion, log))
    known = {r["id"]: r for r in log["residents"]}
    if resident not in known:
        raise InputError(f"{resident}: no such resident; they are {', '.join(known)}")
    return "\n".join(_resident(run, discussion, log, known[resident]))


def _list(run: RunFolder, names: list[str]) -> Lines:
    lines = []
    for row in run.table("discussions").to_dicts():
        score, gap = (
            row["vulnerable_weighted_inclusivity_score"],
            row["gap_weighted_inclusivity_score"],
        )
        lines.append(
            f"[bold]{row['discussion_id']:<12}[/bold] "
            f"{row['items_passed']} of {row['total_vote_items']} items passed"
            f"   inclusivity of the vulnerable {_number(score)}, gap {_number(gap, sign=True)}"
        )
    example = names[0]
    lines += [
        "",
        f"[dim]A transcript: folkmoot show {run.id} {example} · "
        f"one resident: folkmoot show {run.id} {example}/A17[/dim]",
    ]
    return lines


def _transcript(run: RunFolder, discussion: str, log: Mapping[str, Any]) -> Lines:
    vulnerable = {r["id"]: r["label"] for r in log["residents"] if _is_vulnerable(r)}
    lines = [f"[bold]{discussion}[/bold] · {escape(log['topic']['title'])}", ""]
    lines += [f"[dim]{i} is the {escape(label)}[/dim]" for i, label in vulnerable.items()]
    for round_ in log["rounds"]:
        lines += ["", f"[underline]Round {round_['round']}[/underline]", ""]
        turns = {t["agent_id"]: t["speaking"] for t in round_["turns"]}
        for resident in round_["speaking_order"]:
            lines += _statement(resident, turns[resident], resident in vulnerable)
        if round_["moderator"]:
            spoken = escape(round_["moderator"]["spoken"])
            lines += ["", f"[bold cyan]Moderator:[/bold cyan] {spoken}"]
    voting = run.json(f"{discussion}/voting_results.json")
    return [*lines, "", *_votes(voting), "", *_consensus(voting)]


def _statement(resident: str, speaking: Mapping[str, Any], vulnerable: bool) -> Lines:
    colour = "bold yellow" if vulnerable else "bold"
    if speaking.get("_parse_error"):
        words = "[red](the answer could not be read)[/red]"
    elif not speaking["full_statement"]:
        words = "[dim](keeps silent)[/dim]"
    else:
        words = escape(speaking["full_statement"])
    kinds = ", ".join(
        f"{r['interaction_type'].replace('_', ' ')} {r['target_agent']}"
        for r in speaking["references"]
    )
    note = f" [dim]({escape(kinds)})[/dim]" if kinds else ""
    return [f"[{colour}]{resident}:[/{colour}] {words}{note}"]


def _votes(voting: Mapping[str, Any]) -> Lines:
    lines = ["[underline]Vote[/underline]"]
    for item in voting["items"]:
        word, colour = ("passed", "green") if item["passed"] else ("failed", "red")
        tie = ", a tie" if item["tie"] else ""
        origin = ", ".join(item["originating_residents"]) or "nobody named"
        came_out = f"[{colour}]{word} {item['yes']}:{item['no']}{tie}[/{colour}]"
        lines += [
            f"[bold]{item['item_id']}[/bold] {came_out}  {escape(item['proposal'])}",
            f"    [dim]from {origin}[/dim]",
        ]
    return lines if voting["items"] else [*lines, "[red](no ballot could be read)[/red]"]


def _consensus(voting: Mapping[str, Any]) -> Lines:
    final = voting["final_consensus"]
    lines = ["[underline]Final consensus[/underline]", escape(final["text"] or "(none)")]
    by_concern: dict[str, Lines] = {}
    for concern in final["concerns_reflected"]:
        who = concern["resident"]
        mark = f"[bold yellow]{who}[/bold yellow]" if concern["is_vulnerable"] else who
        by_concern.setdefault(concern["concern"], []).append(mark)
    return lines + [f"takes up: {escape(c)} ({', '.join(who)})" for c, who in by_concern.items()]


def _resident(
    run: RunFolder, discussion: str, log: Mapping[str, Any], resident: Mapping[str, Any]
) -> Lines:
    me = resident["id"]
    lines = [f"[bold]{me}[/bold] in {discussion}" + _label(resident), ""]
    for part in ("demographics", "personality", "economic", "state", "context"):
        facts = ", ".join(f"{k.replace('_', ' ')} {_word(v)}" for k, v in resident[part].items())
        lines.append(f"[dim]{part}: {escape(facts)}[/dim]")
    survey = _own(run.json(f"{discussion}/satisfaction.json")["agents"], me)
    lines += ["", _mark("Before", survey["pre_satisfaction"], survey["pre_reason"])]
    reflections = {
        r["round"]: _own(r["reflections"], me)
        for r in run.json(f"{discussion}/reflection_log.json")["rounds"]
    }
    for round_ in log["rounds"]:
        lines += ["", f"[underline]Round {round_['round']}[/underline]"]
        turn = _own(round_["turns"], me)
        lines += _thoughts(turn["thinking"]) if turn["thinking"] else []
        lines += _statement(me, turn["speaking"], _is_vulnerable(resident))
        lines += _heard(round_, me)
        lines += _reflection(reflections.get(round_["round"]))
    voting = run.json(f"{discussion}/voting_results.json")
    lines += ["", "[underline]Vote[/underline]"]
    texts = {i["item_id"]: i["proposal"] for i in voting["items"]}
    for vote in _own(voting["ballots"], me)["votes"]:
        said = vote["vote"] or "(not read)"
        lines += [
            f"[bold]{said:<3}[/bold] {escape(texts[vote['item_id']])}",
            f"    [dim]{escape(vote['reason'] or '')}[/dim]",
        ]
    return [*lines, "", _mark("After", survey["post_satisfaction"], survey["post_reason"])]


def _thoughts(thinking: Mapping[str, Any]) -> Lines:
    concerns = "; ".join(thinking["key_concerns"])
    lines = [
        f"[dim italic]thinks: {escape(str(thinking['overall_stance']).replace('_', ' '))}; "
        f"{escape(concerns)}. {escape(thinking['strategic_notes'])}[/dim italic]"
    ]
    wanted = [r for r in thinking["reactions"] if r["want_to_respond"]]
    for r in wanted:
        lines.append(
            f"[dim italic]  to {r['target_agent']}: {r['my_feeling']}, agrees "
            f"{r['agree_level']} of 5; {escape(r['reason'])}[/dim italic]"
        )
    return lines


def _heard(round_: Mapping[str, Any], me: str) -> Lines:
    """Who took up the resident's words, and how."""
    found = [
        f"{t['agent_id']} ({r['interaction_type'].replace('_', ' ')})"
        for t in round_["turns"]
        for r in t["speaking"]["references"]
        if r["target_agent"] == me
    ]
    return [f"[cyan]answered by {', '.join(found)}[/cyan]"] if found else []


def _reflection(found: Mapping[str, Any] | None) -> Lines:
    evolution = found["stance_evolution"] if found else None
    if not found or not evolution:
        return []
    words = (
        f"{evolution['previous_stance']} → {evolution['current_stance']} "
        f"({evolution['change_type']}): {evolution['change_reason']} {found['next_round_strategy']}"
    )
    return [f"[dim italic]looks back: {escape(words.replace('_', ' '))}[/dim italic]"]


def _own(rows: list[Any], me: str) -> Any:
    return next(row for row in rows if row["agent_id"] == me)


def _is_vulnerable(resident: Mapping[str, Any]) -> bool:
    return bool(resident["classification"]["is_vulnerable"])


def _word(value: Any) -> str:
    return ("no", "yes")[value] if isinstance(value, bool) else str(value)


def _label(resident: Mapping[str, Any]) -> str:
    return f" · [yellow]{escape(resident['label'])}[/yellow]" if resident["label"] else ""


def _mark(when: str, score: int | None, reason: str) -> str:
    said = "(not read)" if score is None else f"{score} of 10"
    colon = ":" if reason else ""
    return f"{when}: satisfied [bold]{said}[/bold]{colon} [dim]{escape(reason)}[/dim]"


def _number(value: float | None, *, sign: bool = False) -> str:
    if value is None:
        return "unknown"
    return f"{value:+.2f}" if sign else f"{value:.2f}"
