"""The transcript for readers: Markdown, JSON, HTML, and its statistics."""

from __future__ import annotations

import html
import math
from statistics import fmean
from typing import Any

from folkmoot.people.sources.grounded import Profile
from folkmoot.studies.focus_group import balance, sycophancy
from folkmoot.studies.focus_group.config import DiscussionPhase
from folkmoot.studies.focus_group.discussion import DiscussionMessage, DiscussionTranscript


def title_of(profile: Profile) -> str:
    """`Emma (27, Marketing Coordinator)`."""
    return f"{profile.first_name} ({profile.age}, {_titled(profile.occupation)})"


def _titled(text: str) -> str:
    small = {"of", "and", "the", "in", "for", "at", "between"}
    words = [w if w in small else w[:1].upper() + w[1:] for w in text.split()]
    return " ".join(words)


class TranscriptFormatter:
    """The source's formatter; every method is a function of the transcript alone."""

    @staticmethod
    def to_markdown(transcript: DiscussionTranscript, mark: str = "") -> str:
        """Readable Markdown: a heading per phase, a paragraph per message, speakers with age and
        occupation. `mark` is set under the title (SYNTHETIC).
        """
        names = {p.id: title_of(p) for p in transcript.personas}
        lines = [f"# Focus group: {transcript.config.product_concept}", ""]
        lines += [f"*{mark}*", ""] if mark else []
        lines += ["At the table:", ""]
        lines += [f"- **{_escape(p.name)}**, {_about(p)}" for p in transcript.personas]
        phase = None
        for m in transcript.messages:
            if m.phase is not phase:
                phase = m.phase
                lines += ["", f"## Phase: {phase.heading}"]
                if phase is DiscussionPhase.REACTION and transcript.config.stimulus_material:
                    shown = " ".join(transcript.config.stimulus_material.split())
                    lines += ["", f"> Shown to the group: {_escape(shown)}"]
            speaker = names.get(m.speaker_id, "Moderator")
            lines += ["", f"**{_escape(speaker)}:** {_escape(m.content)}"]
        return "\n".join(lines) + "\n"

    @staticmethod
    def to_json(transcript: DiscussionTranscript) -> str:
        """JSON that `from_json` reads back to an equal transcript."""
        return transcript.model_dump_json(indent=1)

    @staticmethod
    def from_json(text: str) -> DiscussionTranscript:
        """The transcript of `to_json`'s text. Raises pydantic's ValidationError."""
        return DiscussionTranscript.model_validate_json(text)

    @staticmethod
    def to_html(transcript: DiscussionTranscript, mark: str = "") -> str:
        """One self-contained page; each turn has an anchor (`#turn-12`), replies link to theirs."""
        names = {p.id: title_of(p) for p in transcript.personas}
        colors = {
            p.id: f"hsl({i * 360 // len(names)} 45% 40%)" for i, p in enumerate(transcript.personas)
        }
        concept = html.escape(str(transcript.config.product_concept))
        parts = [
            "<!doctype html><html lang=en><meta charset=utf-8>",
            "<meta name=viewport content='width=device-width,initial-scale=1'>",
            f"<title>Focus group: {concept}</title><style>{_STYLE}</style><main>",
            f"<h1>{concept}</h1>",
            f"<p class=mark>{html.escape(mark)}</p>" if mark else "",
            "<ul class=table>",
            *(
                f"<li style='--c:{colors[p.id]}'><b>{html.escape(p.name)}</b> "
                f"{html.escape(_about(p))}</li>"
                for p in transcript.personas
            ),
            "</ul>",
        ]
        phase = None
        for m in transcript.messages:
            if m.phase is not phase:
                phase = m.phase
                parts.append(f"<h2>{phase.heading}</h2>")
                if phase is DiscussionPhase.REACTION and transcript.config.stimulus_material:
                    shown = html.escape(transcript.config.stimulus_material)
                    parts.append(f"<blockquote>{shown}</blockquote>")
            parts.append(_turn_html(m, names, colors))
        return "\n".join(p for p in parts if p) + "</main></html>\n"

    @staticmethod
    def summary_stats(transcript: DiscussionTranscript) -> dict[str, Any]:
        """Counts and means: by role, phase and participant; sentiment, shifts, most and least
        active; balance of the talk; the sycophancy check.
        """
        names = {p.id: p.name for p in transcript.personas}
        shares = balance.of(transcript)
        check = sycophancy.of([transcript])
        turns = shares.turns
        ranked = sorted(turns, key=lambda who: -turns[who])
        shifts = [m for m in transcript.by_participants() if m.changed_mind]
        by_phase: dict[str, list[DiscussionMessage]] = {}
        for m in transcript.messages:
            by_phase.setdefault(m.phase.value, []).append(m)
        return {
            "messages": len(transcript.messages),
            "messages_by_role": _counts(m.role.value for m in transcript.messages),
            "messages_per_phase": {p: len(ms) for p, ms in by_phase.items()},
            "messages_per_participant": {names[who]: n for who, n in turns.items()},
            "words_per_participant": {names[who]: n for who, n in shares.words.items()},
            "average_sentiment_by_phase": {
                p: _mean([m.sentiment for m in ms if m.by_participant])
                for p, ms in by_phase.items()
            },
            "sentiment_source": next(
                (m.sentiment_source for m in transcript.by_participants()), None
            ),
            "opinion_shifts": len(shifts),
            "people_who_shifted": len({m.speaker_id for m in shifts}),
            "most_active": names[ranked[0]] if ranked else None,
            "least_active": names[ranked[-1]] if ranked else None,
            "probes": sum(m.probe and not m.by_participant for m in transcript.messages),
            "gini_of_words": _plain(shares.gini_words),
            "moderator_share_of_words": _plain(shares.moderator_share),
            "replies": [
                {"from": names[a], "to": names.get(b, "Moderator"), "times": n}
                for (a, b), n in shares.replies.items()
            ],
            "mean_valence_before": _mean(
                [p.opinion.valence for p in transcript.personas if p.opinion]
            ),
            "mean_valence_after": _mean(list(final_positions(transcript).values())),
            "sycophancy": {
                "agree_share": _plain(check.agree),
                "disagree_share": _plain(check.disagree),
                "agree_slope_per_place": _plain(check.agree_slope),
                "agree_p": _plain(check.agree_p),
                "spread_before": _plain(check.spread_before),
                "spread_after": _plain(check.spread_after),
                "convergence_p": _plain(check.converge_p),
                "reading": check.reading(),
            },
        }


def final_positions(transcript: DiscussionTranscript) -> dict[str, float]:
    """Where each person stood at the end, by id."""
    last = {p.id: p.opinion.valence if p.opinion else 0.0 for p in transcript.personas}
    for m in transcript.by_participants():
        if m.valence is not None:
            last[m.speaker_id] = m.valence
    return last


def _about(p: Profile) -> str:
    return f"{p.age}, {p.occupation}, lives {p.household} in {p.location}"


def _escape(text: str) -> str:
    """Text that cannot turn into Markdown of its own (headings, emphasis, HTML)."""
    for mark in ("\\", "*", "_", "`", "<", "[", "#"):
        text = text.replace(mark, f"\\{mark}")
    return text


def _turn_html(m: DiscussionMessage, names: dict[str, str], colors: dict[str, str]) -> str:
    who = html.escape(names.get(m.speaker_id, "Moderator"))
    color = colors.get(m.speaker_id, "#555")
    role = "mod" if not m.by_participant else "say"
    notes = []
    if m.replied_to_turn:
        to = html.escape(names.get(m.replied_to or "", "the moderator").split(" (")[0])
        notes.append(f"<a href='#turn-{m.replied_to_turn}'>to {to}</a>")
    if m.changed_mind and m.valence is not None:
        notes.append(f"position now {m.valence:+.2f}")
    small = f"<small>{' · '.join(notes)}</small>" if notes else ""
    return (
        f"<article class={role} id=turn-{m.turn_number} style='--c:{color}'>"
        f"<header><b>{who}</b> {small}<a class=n href='#turn-{m.turn_number}'>{m.turn_number}</a>"
        f"</header><p>{html.escape(m.content)}</p></article>"
    )


def _counts(items: Any) -> dict[str, int]:
    out: dict[str, int] = {}
    for item in items:
        out[item] = out.get(item, 0) + 1
    return out


def _mean(values: list[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return round(fmean(known), 3) if known else None


def _plain(value: float) -> float | None:
    """JSON has no NaN."""
    return round(value, 4) if math.isfinite(value) else None


_STYLE = """
:root{color-scheme:light dark}body{font:16px/1.55 system-ui,sans-serif;margin:0;
background:Canvas;color:CanvasText}main{max-width:44rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.5rem;line-height:1.25}h2{font-size:1.05rem;margin:2.2rem 0 .6rem;padding-top:.8rem;
border-top:1px solid color-mix(in srgb,CanvasText 20%,Canvas)}.mark{color:#a33;font-weight:600}
.table{list-style:none;padding:0;font-size:.9rem}.table li{margin:.15rem 0}
.table b,.say b{color:var(--c)}article{margin:.8rem 0;padding-left:.8rem;
border-left:3px solid var(--c)}
article p{margin:.1rem 0}.mod{border-color:transparent;font-style:italic}
small{opacity:.7;margin-left:.4rem}
a{color:inherit}.n{float:right;opacity:.35;text-decoration:none;font-size:.8rem}
article:target{background:color-mix(in srgb,var(--c) 14%,Canvas)}
"""
