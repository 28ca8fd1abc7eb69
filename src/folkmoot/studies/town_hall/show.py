"""`folkmoot show RUN [ID]`: the discussions of a run, a transcript of one, or one resident.

ID is a discussion (`set01_lv4`) or a resident in one (`set01_lv4/A17`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.markup import escape

from folkmoot.conversation.answers import DECLINED
from folkmoot.errors import InputError
from folkmoot.kit import coding
from folkmoot.kit.findings import number, signed
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.town_hall.answers import WAYS_OUT
from folkmoot.studies.town_hall.stages import CONCERN

Lines = list[str]
Json = Mapping[str, Any]  # an object of the run's JSON files
SCORE = "weighted_inclusivity_score"


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
    lines = [
        f"[bold]{row['discussion_id']:<12}[/bold] "
        f"{row['items_passed']} of {row['total_vote_items']} items passed"
        f"   inclusivity of the vulnerable {number(row[f'vulnerable_{SCORE}'])}, "
        f"gap {signed(row[f'gap_{SCORE}'])}"
        for row in run.table("discussions").to_dicts()
    ]
    example = f"folkmoot show {run.id} {names[0]}"
    return [*lines, "", f"[dim]A transcript: {example} · one resident: {example}/A17[/dim]"]


def _transcript(run: RunFolder, discussion: str, log: Json) -> Lines:
    vulnerable = {r["id"]: r["label"] for r in log["residents"] if _is_vulnerable(r)}
    names = _names(log)
    lines = [f"[bold]{discussion}[/bold] · {escape(log['topic']['title'])}", ""]
    lines += [f"[dim]{names[i]} is the {escape(label)}[/dim]" for i, label in vulnerable.items()]
    for round_ in log["rounds"]:
        lines += ["", f"[underline]Round {round_['round']}[/underline]", ""]
        for who in round_["speaking_order"]:
            lines.append(_statement(_own(round_["turns"], who), names, who in vulnerable))
        if round_["moderator"]:
            spoken = escape(round_["moderator"]["spoken"] or "")
            lines += ["", f"[bold cyan]Moderator:[/bold cyan] {spoken}"]
    voting = run.json(f"{discussion}/voting_results.json")
    return [*lines, "", *_votes(voting, names), "", *_consensus(voting, names)]


def _statement(turn: Json, names: Mapping[str, str], vulnerable: bool) -> str:
    speaking, colour = turn["speaking"], "bold yellow" if vulnerable else "bold"
    words = escape(speaking["full_statement"] or "") or "[dim](keeps silent)[/dim]"
    if speaking.get("_declined"):
        words = "[red](declined to answer)[/red]"
    elif speaking.get("_parse_error") or speaking["full_statement"] is None:
        words = "[red](the answer could not be read)[/red]"
    kinds = [
        f"{_plain(r['interaction_type'] or 'refer to')} {names[r['target_agent']]}"
        for r in speaking["references"] or ()
    ]
    note = f" [dim]({escape(', '.join(kinds))})[/dim]" if kinds else ""
    return f"[{colour}]{names[turn['agent_id']]}:[/{colour}] {words}{note}"


def _votes(voting: Json, names: Mapping[str, str]) -> Lines:
    lines = ["[underline]Vote[/underline]"]
    for item in voting["items"]:
        word, colour = ("passed", "green") if item["passed"] else ("failed", "red")
        tie = ", a tie" if item["tie"] else ""
        origin = ", ".join(names[i] for i in item["originating_residents"]) or "nobody named"
        came_out = f"[{colour}]{word} {item['yes']}:{item['no']}{tie}[/{colour}]"
        lines += [
            f"[bold]{item['item_id']}[/bold] {came_out}  {escape(item['proposal'])}",
            f"    [dim]from {origin}[/dim]",
        ]
    return lines if voting["items"] else [*lines, "[red](no ballot could be read)[/red]"]


def _consensus(voting: Json, names: Mapping[str, str]) -> Lines:
    final = voting["final_consensus"]
    lines = ["[underline]Final consensus[/underline]", escape(final["text"] or "(none)")]
    by_concern: dict[str, Lines] = {}
    for concern in final["concerns_reflected"]:
        who = names[concern["resident"]]
        mark = f"[bold yellow]{who}[/bold yellow]" if concern["is_vulnerable"] else who
        by_concern.setdefault(concern["concern"], []).append(mark)
    return lines + [f"takes up: {escape(c)} ({', '.join(who)})" for c, who in by_concern.items()]


def _resident(run: RunFolder, discussion: str, log: Json, resident: Json) -> Lines:
    me, label, names = resident["id"], escape(resident["label"]), _names(log)
    lines = [
        f"[bold]{names[me]}[/bold] in {discussion}"
        + (f" · [yellow]{label}[/yellow]" if label else "")
    ]
    lines.append("")
    for part in ("demographics", "personality", "economic", "state", "context"):
        facts = ", ".join(f"{_plain(k)} {_word(v)}" for k, v in resident[part].items())
        lines.append(f"[dim]{part}: {escape(facts)}[/dim]")
    survey = _own(run.json(f"{discussion}/satisfaction.json")["agents"], me)
    before = survey["pre_satisfaction"], survey["pre_reason"], survey.get("pre_missing")
    lines += ["", _satisfied("Before", *before)]
    kept = run.json(f"{discussion}/reflection_log.json")["rounds"]
    reflections = {r["round"]: _own(r["reflections"], me) for r in kept}
    for round_ in log["rounds"]:
        turn = _own(round_["turns"], me)
        lines += ["", f"[underline]Round {round_['round']}[/underline]"]
        lines += _thoughts(turn["thinking"], names) if turn["thinking"] else []
        lines += [_statement(turn, names, _is_vulnerable(resident)), *_heard(round_, me, names)]
        lines += _reflection(reflections.get(round_["round"]))
    lines += _became(run, f"{discussion}/{me}")
    voting = run.json(f"{discussion}/voting_results.json")
    lines += ["", "[underline]Vote[/underline]"]
    texts = {i["item_id"]: escape(i["proposal"]) for i in voting["items"]}
    for vote in _own(voting["ballots"], me)["votes"]:
        word = vote["vote"] or f"({_missing(vote.get('missing'))})"
        lines.append(f"[bold]{word:<3}[/bold] {texts[vote['item_id']]}")
        lines.append(f"    [dim]{escape(vote['reason'] or '')}[/dim]")
    after = survey["post_satisfaction"], survey["post_reason"], survey.get("post_missing")
    return [*lines, "", _satisfied("After", *after)]


def _thoughts(thinking: Json, names: Mapping[str, str]) -> Lines:
    concerns = "; ".join(thinking["key_concerns"] or ())
    stance = thinking["overall_stance"] or f"({_missing(_why_missing(thinking, 'overall_stance'))})"
    said = f"thinks: {_plain(stance)}; {concerns}. {thinking['strategic_notes'] or ''}"
    replies = [
        f"  to {names[r['target_agent']]}: {r['my_feeling']}, agrees {r['agree_level']} of 5; "
        f"{r['reason']}"
        for r in thinking["reactions"] or ()
        if r["want_to_respond"]
    ]
    return [f"[dim italic]{escape(line)}[/dim italic]" for line in (said, *replies)]


def _heard(round_: Json, me: str, names: Mapping[str, str]) -> Lines:
    """Who took up the resident's words, and how."""
    found = [
        f"{names[t['agent_id']]} ({_plain(r['interaction_type'] or 'refer to')})"
        for t in round_["turns"]
        for r in t["speaking"]["references"] or ()
        if r["target_agent"] == me
    ]
    return [f"[cyan]answered by {', '.join(found)}[/cyan]"] if found else []


def _became(run: RunFolder, concern: str) -> Lines:
    """What a coder found had become of the resident's concern, with the words that show it."""
    read = coding.codings(run).get(CONCERN)
    codes = read.of(concern) if read else None
    if read is None or codes is None:
        return []
    by = " (by the embedded coder: no evidence)" * (not read.supports)
    quoted = [escape(f"{_plain(code)}: “{quote}”") for code, quote in codes.items()]
    return [
        "",
        f"[underline]What became of the concern[/underline]{by}",
        *(quoted or ["not heard"]),
    ]


def _reflection(found: Json | None) -> Lines:
    if not found or not (moved := found["stance_evolution"]):
        return []
    now = moved["current_stance"] or f"({_missing(_why_missing(moved, 'current_stance'))})"
    stances = _plain(f"{moved['previous_stance'] or '(not known)'} → {now}")
    change, then = moved["change_type"] or "not known", found["next_round_strategy"] or ""
    why = f"({change}): {moved['change_reason'] or ''} {then}"
    return [f"[dim italic]looks back: {escape(f'{stances} {why}')}[/dim italic]"]


def _names(log: Json) -> dict[str, str]:
    return {r["id"]: f"{r['id']} {r['name']}" for r in log["residents"]}


def _own(rows: list[Json], me: str) -> Json:
    return next(row for row in rows if row["agent_id"] == me)


def _is_vulnerable(resident: Json) -> bool:
    return bool(resident["classification"]["is_vulnerable"])


def _word(value: object) -> str:
    return ("no", "yes")[value] if isinstance(value, bool) else str(value)


def _plain(name: object) -> str:
    return str(name).replace("_", " ")


def _why_missing(answer: Json, field: str) -> str | None:
    if answer.get("_declined"):
        return DECLINED
    why: str | None = answer.get("_missing", {}).get(field)
    return why


def _missing(why: str | None) -> str:
    """A way out in words; what else leaves no answer was not read."""
    return _plain(why) if why in WAYS_OUT else "not read"


def _satisfied(when: str, score: int | None, reason: str, missing: str | None) -> str:
    said = f"({_missing(missing)})" if score is None else f"{score} of 10"
    return f"{when}: satisfied [bold]{said}[/bold]{':' * bool(reason)} [dim]{escape(reason)}[/dim]"
