"""The files of a focus group: transcript and statistics of each discussion, one topline.

A single discussion stands in the run folder itself; several stand under `groups/`.
"""

from __future__ import annotations

import html
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any

from folkmoot.engine.session import Session
from folkmoot.measures.diversity import gini
from folkmoot.people.sources.grounded import Profile
from folkmoot.studies.focus_group import sycophancy, topline
from folkmoot.studies.focus_group.config import DiscussionConfig, DiscussionPhase
from folkmoot.studies.focus_group.discussion import (
    DiscussionMessage,
    DiscussionTranscript,
)
from folkmoot.studies.focus_group.participants import title_of


def folder_of(config: DiscussionConfig, transcript: DiscussionTranscript) -> str:
    """Where the files of one discussion stand, with a slash at the end; empty for the root."""
    if len(config.concepts) > 1:
        return f"groups/{transcript.group}/{transcript.stimulus}/"
    return f"groups/{transcript.group}/" if config.replications > 1 else ""


def write_discussion(session: Session[DiscussionConfig], transcript: DiscussionTranscript) -> None:
    """transcript.md, .json, .html and statistics.json of one discussion."""
    at = folder_of(session.config, transcript)
    mark = session.synthetic_mark
    session.write_text(f"{at}transcript.md", TranscriptFormatter.to_markdown(transcript, mark))
    session.write_text(f"{at}transcript.json", TranscriptFormatter.to_json(transcript))
    session.write_text(f"{at}transcript.html", TranscriptFormatter.to_html(transcript, mark))
    session.write_json(f"{at}statistics.json", TranscriptFormatter.summary_stats(transcript))


def write_topline(
    session: Session[DiscussionConfig], transcripts: Sequence[DiscussionTranscript]
) -> None:
    """topline.md and topline.json over all groups and concepts."""
    mark = session.synthetic_mark
    pages = {
        f"{t.group}/{t.stimulus}": f"{folder_of(session.config, t)}transcript.html"
        for t in transcripts
    }
    data = topline.topline(transcripts, pages)
    session.write_json("topline.json", {"mark": mark, **data} if mark else data)
    session.write_text("topline.md", topline.to_markdown(data, mark))


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
        people = transcript.personas
        names = {p.id: title_of(p) for p in people}
        colors = {p.id: f"hsl({i * 360 // len(people)} 45% 40%)" for i, p in enumerate(people)}
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
                for p in people
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
        said = list(transcript.by_participants())
        words = dict.fromkeys(names, 0)
        turns = dict.fromkeys(names, 0)
        for m in said:
            words[m.speaker_id] += m.words
            turns[m.speaker_id] += 1
        all_words = sum(m.words for m in transcript.messages)
        replies = Counter((m.speaker_id, m.replied_to) for m in said if m.replied_to)
        check = sycophancy.of([transcript])
        ranked = sorted(turns, key=lambda who: -turns[who])
        shifts = [m for m in said if m.changed_mind]
        by_phase: dict[str, list[DiscussionMessage]] = {}
        for m in transcript.messages:
            by_phase.setdefault(m.phase.value, []).append(m)
        return {
            "messages": len(transcript.messages),
            "messages_by_role": dict(Counter(m.role.value for m in transcript.messages)),
            "messages_per_phase": {p: len(ms) for p, ms in by_phase.items()},
            "messages_per_participant": {names[who]: n for who, n in turns.items()},
            "words_per_participant": {names[who]: n for who, n in words.items()},
            "average_sentiment_by_phase": {
                p: _mean(m.sentiment for m in ms if m.by_participant) for p, ms in by_phase.items()
            },
            "sentiment_source": said[0].sentiment_source if said else None,
            "opinion_shifts": len(shifts),
            "people_who_shifted": len({m.speaker_id for m in shifts}),
            "most_active": names[ranked[0]] if ranked else None,
            "least_active": names[ranked[-1]] if ranked else None,
            "probes": sum(m.probe and not m.by_participant for m in transcript.messages),
            "gini_of_words": _plain(gini(list(words.values()))),
            "moderator_share_of_words": (
                round(1 - sum(words.values()) / all_words, 4) if all_words else 0.0
            ),
            "replies": [
                {"from": names[a], "to": names.get(b, "Moderator"), "times": n}
                for (a, b), n in replies.items()
            ],
            "mean_valence_before": _mean(
                p.opinion.valence for p in transcript.personas if p.opinion
            ),
            "mean_valence_after": _mean(transcript.final_positions().values()),
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
    role = "say" if m.by_participant else "mod"
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


def _mean(values: Iterable[float | None]) -> float | None:
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
