"""Free words, coded blind as a check: what a talk decided for whom, whether wishes conflict, and
whether C3's mediator speaks the language of theory. Decisions rest on none of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from folkmoot.engine.session import Session
from folkmoot.kit import coding
from folkmoot.measures.estimates import percent, plural
from folkmoot.storage.findings import Finding, Grid
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.negotiation.config import NegotiationConfig
from folkmoot.studies.negotiation.decision import (
    SYSTEM,
    Line,
    Negotiation,
    SlotDecision,
    parts_of,
    theory_words,
)

CODEBOOKS = Path(__file__).parent / "codebooks"
GIVES = frozenset({"chosen", "later"})  # codes of `decision` by which a member gets an option


class Talks(NamedTuple):
    """The texts of some sessions: stated preferences, what C3's mediator wrote, talks."""

    wishes: tuple[coding.Text, ...] = ()
    mediators: tuple[coding.Text, ...] = ()
    talks: tuple[coding.Text, ...] = ()


def texts_of(case: Negotiation, decisions: Sequence[SlotDecision]) -> Talks:
    """What is coded of one session. C5 without feedback is C4's talk, which is coded there."""
    wishes, mediators, talks = [], [], []
    for d in decisions:
        place = f"{case.group.id}/{case.condition.id}/{d.topic}"
        if case.condition.id == next((c for c in case.config.conditions if c != "C1"), ""):
            stated = [x for x in d.lines if x.phase == "preference"]
            wishes.append(coding.Text(f"{case.group.id}/{d.topic}", _aloud(stated)))
        if d.said and case.condition.synthesis == "raw":
            mediators.append(coding.Text(place, d.said))
        own = case.condition.id != "C5" or d.feedback or "C4" not in case.config.conditions
        if d.said and own and d.options:
            slots = {"option": d.options, "member": [m.name for m in case.members]}
            talks.append(coding.Text(place, _aloud(d.lines), slots=slots))
    return Talks(tuple(wishes), tuple(mediators), tuple(talks))


async def code_talks(session: Session[NegotiationConfig], held: Sequence[Talks]) -> None:
    """Code what was said (or only record the texts, where coding is off)."""
    for name, texts, rule in (
        ("conflict", [t for each in held for t in each.wishes], None),
        ("mediator", [t for each in held for t in each.mediators], _listed_terms),
        ("decision", [t for each in held for t in each.talks], None),
    ):
        if texts:
            await coding.code(session, CODEBOOKS / f"{name}.yaml", texts, rule=rule)


def _aloud(lines: Sequence[Line]) -> str:
    """A talk as a coder reads it: what was decided and why, without the form of C4's and C5's turns
    and the strategy's name, which would tell the condition."""
    return "\n".join(f"{x.speaker}: {_plain(x)}" for x in lines)


def _plain(line: Line) -> str:
    parts = parts_of(line.text) if line.speaker == SYSTEM else {}
    text = " ".join((parts["Decision"], parts["Reason"])) if parts else line.text
    return " ".join(text.split())


def _listed_terms(text: coding.Text) -> Iterator[coding.Coded]:
    return (coding.Coded("names_theory", term) for term in theory_words(text.text))


# --- afterwards --------------------------------------------------------------------------------


def coded_findings(run: RunFolder) -> Iterator[Finding]:
    """What the codes say beside the record; nothing where the coder supports no finding."""
    read = coding.codings(run)
    if (talks := read.get("decision")) and talks.supports and talks.by_text:
        yield _against_the_record(talks, run.table("portions"), run.table("members"))
    if (words := read.get("mediator")) and words.supports and words.by_text:
        yield _purity(words)
    if (wishes := read.get("conflict")) and wishes.supports and wishes.by_text:
        yield _conflict(wishes, run.table("decisions"))


def _against_the_record(
    read: coding.Codings, portions: pl.DataFrame, members: pl.DataFrame
) -> Finding:
    """Whether each member gets each option, by the coder and on record."""
    ids = {(g, name): m for g, name, m in _rows(members, "group_id", "member_name", "member_id")}
    keys = ("group_id", "condition", "topic", "member_id", "option")
    on_record = set(_rows(portions, *keys))
    seen: dict[str, list[tuple[bool, bool]]] = {}
    for place in read.by_text:
        group, condition, topic = place.split("/")
        for of, code, _ in read.said_of(place):
            member = ids[group, of["member"]]
            given = (group, condition, topic, member, of["option"]) in on_record
            if code != "open":
                seen.setdefault(condition, []).append((code in GIVES, given))
    rows: list[dict[str, Any]] = [
        {
            "condition": condition,
            "coded": len(pairs),
            "as_recorded_rate": sum(a == b for a, b in pairs) / len(pairs),
            "only_coded": sum(a and not b for a, b in pairs),
            "only_recorded": sum(b and not a for a, b in pairs),
        }
        for condition, pairs in sorted(seen.items())
    ]
    told = "; ".join(f"{r['condition']} {percent(r['as_recorded_rate'])}" for r in rows)
    return Finding(
        "coded_decisions",
        "What the talk decided, coded blind",
        f"Codes of who gets what agree with the record: {told or 'nothing was coded'}.",
        Grid.of(rows, "Pairs of a member and an option, open ones left out."),
        notes=(
            "The record is the mediator's statement (C3, C5) or the operator's (C4).",
            read.note,
        ),
        section="Process",
    )


def _purity(read: coding.Codings) -> Finding:
    impure = {place: codes for place in read.by_text if (codes := read.of(place))}
    rows = [
        {"group": place.split("/")[0], "topic": place.split("/")[2], "code": code, "quote": quote}
        for place, codes in impure.items()
        for code, quote in codes.items()
    ]
    return Finding(
        "coded_purity",
        "Theory in what C3's mediator says",
        f"{len(impure)} of {plural(len(read.by_text), 'proposal')} speak of rules, figures of "
        "support, theory or procedure.",
        Grid.of(rows),
        notes=("As the mediator wrote it; members' words are not looked at.", read.note),
        section="Process",
    )


def _conflict(read: coding.Codings, decisions: pl.DataFrame) -> Finding:
    """Where a coder, the stated preferences and the mediator see a conflict."""
    rows = []
    judged = decisions.filter(~pl.col("parse_error"))
    for (condition,), some in judged.group_by("condition", maintain_order=True):
        if condition == "C1":
            continue
        keys = _rows(some, "group_id", "topic", "has_conflict")
        pairs = [(read.one(f"{g}/{t}") == "conflict", has) for g, t, has in keys]
        same = sum(a == b for a, b in pairs)
        rows.append(
            {"condition": condition, "decisions": len(pairs), "as_coded_rate": same / len(pairs)}
        )
    most = sum(read.one(place) == "conflict" for place in read.by_text)
    return Finding(
        "coded_conflict",
        "Conflict in the stated preferences, coded blind",
        f"{most} of {plural(len(read.by_text), 'set')} of preferences are coded as a conflict.",
        Grid.of(
            rows,
            "Share of decisions whose conflict (C2 by the texts, else the mediator's word) "
            "is as coded.",
        ),
        notes=(read.note,),
        section="Process",
    )


def _rows(table: pl.DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    return table.select(columns).rows()
