"""The files of a focus group: transcript and statistics of each discussion, one topline.

A single discussion stands in the run folder itself; several stand under `groups/`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

from folkmoot.engine.session import Session
from folkmoot.measures.diversity import gini
from folkmoot.people.sources.grounded import Profile
from folkmoot.studies.focus_group import sycophancy, topline
from folkmoot.studies.focus_group.config import DiscussionConfig
from folkmoot.studies.focus_group.discussion import (
    DiscussionTranscript,
    When,
)
from folkmoot.studies.focus_group.participants import title_of
from folkmoot.studies.focus_group.remarks import Codes


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
    session: Session[DiscussionConfig], transcripts: Sequence[DiscussionTranscript], codes: Codes
) -> None:
    """topline.md and topline.json over all groups and concepts."""
    mark = session.synthetic_mark
    pages = {
        f"{t.group}/{t.stimulus}": f"{folder_of(session.config, t)}transcript.html"
        for t in transcripts
    }
    data = topline.topline(transcripts, pages, codes)
    session.write_json("topline.json", {"mark": mark, **data} if mark else data)
    session.write_text("topline.md", topline_page(data, mark))


def topline_page(data: dict[str, Any], mark: str = "") -> str:
    """The topline for readers, as Markdown."""
    return _page("topline.md", concepts=data["concepts"], mark=mark)


class TranscriptFormatter:
    """The source's formatter; every method is a function of the transcript alone."""

    @staticmethod
    def to_markdown(transcript: DiscussionTranscript, mark: str = "") -> str:
        """Readable Markdown: a heading per phase, a paragraph per message, speakers with age and
        occupation. `mark` is set under the title (SYNTHETIC).
        """
        names = {p.id: title_of(p) for p in transcript.personas}
        return _page("transcript.md", talk=transcript, mark=mark, names=names)

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
        return _page(
            "transcript.html",
            talk=transcript,
            mark=mark,
            names={p.id: title_of(p) for p in people},
            first_names={p.id: p.first_name for p in people},
            colors={p.id: f"hsl({i * 360 // len(people)} 45% 40%)" for i, p in enumerate(people)},
        )

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
        by_phase = {phase.value: messages for phase, messages in transcript.by_phase()}
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
            "mean_valence_before": _mean(transcript.positions(When.BEFORE).values()),
            "mean_valence_after": _mean(transcript.positions(When.AFTER).values()),
            "sycophancy": {
                "agree_share": _plain(check.agree),
                "disagree_share": _plain(check.disagree),
                "agree_slope_per_place": _plain(check.agree_slope),
                "agree_p": _plain(check.agree_p),
                "spread_before": _plain(check.spread_before),
                "spread_after": _plain(check.spread_after),
                "convergence_p": _plain(check.converge_p),
                "towards_the_group": _plain(check.towards.value),
                "beyond_alone": _plain(check.beyond_alone.value),
                "reading": check.reading(),
            },
        }


def _mean(values: Iterable[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return round(fmean(known), 3) if known else None


def _plain(value: float) -> float | None:
    """JSON has no NaN."""
    return round(value, 4) if math.isfinite(value) else None


# --- pages -------------------------------------------------------------------------------------


def _page(name: str, **variables: Any) -> str:
    return _templates().get_template(name).render(**variables).rstrip() + "\n"


@cache
def _templates() -> Environment:
    templates = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "pages"),
        autoescape=select_autoescape(["html"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters.update(
        about=_about, markdown=_escape, percent="{:.0%}".format, signed=_signed
    )
    return templates


def _about(p: Profile) -> str:
    return f"{p.age}, {p.occupation}, lives {p.household} in {p.location}"


def _escape(text: str) -> str:
    """Text that cannot turn into Markdown of its own (headings, emphasis, HTML)."""
    for mark in ("\\", "*", "_", "`", "<", "[", "#"):
        text = text.replace(mark, f"\\{mark}")
    return text


def _signed(value: float) -> str:
    """With its sign, minus as minus; what rounds to nothing has none."""
    shown = f"{value:+.2f}".replace("-", "−")
    return "0.00" if shown[1:] == "0.00" else shown
