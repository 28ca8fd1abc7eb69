"""The topline for readers: the data of `topline` as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def to_markdown(data: dict[str, Any], mark: str = "") -> str:
    """The topline for readers."""
    lines = ["# Topline", ""]
    lines += [f"*{mark}*", ""] if mark else []
    lines += _side_by_side(data["concepts"])
    for concept in data["concepts"]:
        lines += _concept_markdown(concept)
    return "\n".join(lines).rstrip() + "\n"


def _side_by_side(concepts: Sequence[dict[str, Any]]) -> list[str]:
    """The concepts of a concept test against each other; nothing for a single one."""
    if len(concepts) < 2:
        return []
    lines = [
        "## The concepts side by side",
        "",
        "The same people discussed each of them, each time from a fresh start.",
        "",
        "| Concept | Would buy | Position at the end | Most frequent objection |",
        "|---|---:|---:|---|",
    ]
    for c in concepts:
        share = c["purchase_intent"].get("would_buy_share")
        theme = c["objections"][0]["theme"] if c["objections"] else "none"
        name = c["product_concept"].replace("|", "\\|")
        lines.append(
            f"| {name} | {'no answers' if share is None else f'{share:.0%}'} | "
            f"{_signed(c['positions']['mean_after'])} | {theme} |"
        )
    return [*lines, ""]


def _concept_markdown(c: dict[str, Any]) -> list[str]:
    where = f"{c['participants']} people" + (
        f" in {c['groups']} groups" if c["groups"] > 1 else " in one group"
    )
    lines = [f"## {c['product_concept']}", "", f"{where}.", "", "### Would they buy it?", ""]
    intent = c["purchase_intent"]
    if intent["answered"]:
        spread = "{:.0%}–{:.0%}, ".format(*intent["interval"]) if intent["interval"] else ""
        units = ", groups as units" if c["groups"] > 1 else ""
        lines += [
            f"**{intent['would_buy_share']:.0%}** would definitely or probably buy it "
            f"({spread}n = {intent['answered']}{units}, asked in private at the end).",
            "",
            "| Answer | People |",
            "|---|---:|",
            *(f"| {o} | {n} |" for o, n in intent["counts"].items()),
            "",
        ]
    lines += _moved_markdown(c) + _objections_markdown(c) + _across_markdown(c)
    lines += ["### Did they only please each other?", "", c["sycophancy"], ""]
    return lines + _voices_markdown(c)


def _signed(value: float) -> str:
    """With its sign, minus as minus; what rounds to nothing has none."""
    shown = f"{value:+.2f}".replace("-", "−")
    return "0.00" if shown[1:] == "0.00" else shown


def _moved_markdown(c: dict[str, Any]) -> list[str]:
    p = c["positions"]
    lines = [
        "### What moved?",
        "",
        f"The mean position went from {_signed(p['mean_before'])} to {_signed(p['mean_after'])} "
        f"on a scale from −1 to +1; {p['people_who_moved']} of {p['people']} people ended "
        "somewhere else than they began.",
        "",
    ]
    for m in p["moved"]:
        turns = f"turn{'s' if len(m['turns']) > 1 else ''} {', '.join(map(str, m['turns']))}"
        lines.append(f"- {m['name']}: {_signed(m['from'])} → {_signed(m['to'])} ({turns})")
    return [*lines, ""] if p["moved"] else lines


def _objections_markdown(c: dict[str, Any]) -> list[str]:
    if not c["objections"]:
        return ["### Objections", "", "None were found.", ""]
    lines = ["### Objections", ""]
    for o in c["objections"]:
        people = f"{o['people']} {'person' if o['people'] == 1 else 'people'}"
        in_groups = f" in {o['groups']} of {c['groups']} groups" if c["groups"] > 1 else ""
        lines += [f"**{o['theme'].capitalize()}** ({people}{in_groups})", ""]
        lines += [
            f"- “{q['quote']}” ({q['who']}, [turn {q['turn']}]({q['link']}))" for q in o["quotes"]
        ]
        lines.append("")
    return lines


def _across_markdown(c: dict[str, Any]) -> list[str]:
    a = c.get("across_groups")
    if not a:
        return []
    n = a["groups"]
    return [
        "### What holds across groups?",
        "",
        f"- In {a['groups_where_most_would_buy']} of {n} groups most would buy it.",
        f"- {a['groups_that_warmed']} groups warmed to it in the course of the talk, "
        f"{a['groups_that_cooled']} cooled.",
        *(
            f"- Objections about {o['theme']} came up in {o['groups']} of {n} groups."
            for o in c["objections"][:4]
        ),
        "",
    ]


def _voices_markdown(c: dict[str, Any]) -> list[str]:
    voices = c.get("who_said_what")
    if not voices:
        return []
    lines = ["### Who said what?", ""]
    for v in voices:
        path = v["began"] if v["began"] == v["ended"] else f"{v['began']} → {v['ended']}"
        said = f" “{v['quote']}” ([turn {v['turn']}]({v['link']}))" if v["quote"] else ""
        lines.append(
            f"- **{v['name']}**, {path}; {v['share_of_words']:.0%} of the words; "
            f"{(v['purchase_intent'] or 'no answer').lower()}.{said}"
        )
    return [*lines, ""]
