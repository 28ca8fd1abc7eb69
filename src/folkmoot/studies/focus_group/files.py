"""The files of a focus group: transcript and statistics of each discussion, and one topline.

A single discussion stands in the run folder itself; several stand under `groups/`. The topline
holds intent, what moved, objections, needs and themes with quotes, and what holds across groups.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from statistics import fmean

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

from folkmoot.engine.session.session import Session
from folkmoot.kit.calls import JournalReader
from folkmoot.kit.coding import EMBEDDED_NOTE, codings
from folkmoot.measures.diversity import gini
from folkmoot.measures.inference.clustered import clustered_share
from folkmoot.measures.inference.estimates import FEWEST_UNITS
from folkmoot.people.sources.grounded import Profile
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.focus_group import sycophancy
from folkmoot.studies.focus_group.config import DiscussionConfig, DiscussionPhase
from folkmoot.studies.focus_group.discussion import (
    INTENTS,
    DiscussionMessage,
    DiscussionTranscript,
    When,
)
from folkmoot.studies.focus_group.participants import title_of
from folkmoot.studies.focus_group.positions import describe_position, has_moved
from folkmoot.studies.focus_group.talk.reading import answer_id, kind_and_name


def folder_of(config: DiscussionConfig, group: str, stimulus: str) -> str:
    """Where the files of one discussion stand, with a slash at the end; empty for the root."""
    if len(config.concepts) > 1:
        return f"groups/{group}/{stimulus}/"
    return f"groups/{group}/" if config.replications > 1 else ""


def write_discussion(session: Session[DiscussionConfig], transcript: DiscussionTranscript) -> None:
    """transcript.md, .json, .html and statistics.json of one discussion."""
    at = folder_of(session.config, transcript.group, transcript.stimulus)
    mark = session.synthetic_mark
    session.write_text(f"{at}transcript.md", TranscriptFormatter.to_markdown(transcript, mark))
    session.write_text(f"{at}transcript.json", TranscriptFormatter.to_json(transcript))
    session.write_text(f"{at}transcript.html", TranscriptFormatter.to_html(transcript, mark))
    session.write_json(f"{at}statistics.json", TranscriptFormatter.summary_stats(transcript))


def derived(run: RunFolder, _journal: JournalReader) -> Iterator[tuple[str, object]]:
    """Yield topline.md and topline.json over all discussions that have ended."""
    config = DiscussionConfig.model_validate(run.config)
    ended = set(run.rows("statements", "group", "stimulus"))
    order = ((group, concept.id) for group in config.groups for concept in config.concepts)
    folders = {at: folder_of(config, *at) for at in order if at in ended}
    transcripts = [
        TranscriptFormatter.from_json(run.text(f"{folder}transcript.json"))
        for folder in folders.values()
    ]
    pages = {f"{g}/{s}": f"{folder}transcript.html" for (g, s), folder in folders.items()}
    mark, read = run.mark_of_files, codings(run).get("remarks")
    # Codes of the embedded coder are in the table `codes`; laid out here they would look like
    # findings.
    codes = {id: read.of(id) or {} for id in read.by_text} if read and read.supports else {}
    data = topline(transcripts, pages, codes)
    if read is not None and read.coder is not None and read.coder.embedded:
        data["coding_note"] = EMBEDDED_NOTE
    marked = {"mark": mark, **data} if mark else data
    yield "topline.json", marked
    yield "topline.md", topline_page(data, mark)


def topline_page(data: dict[str, object], mark: str = "") -> str:
    """The topline for readers, as Markdown."""
    note = data.get("coding_note", "")
    concepts = data["concepts"]
    return _page("topline.md", concepts=concepts, mark=mark, note=note, fewest=FEWEST_UNITS)


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
    def summary_stats(transcript: DiscussionTranscript) -> dict[str, object]:
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
            "possibly_out_of_character": sum(m.out_of_character for m in transcript.messages),
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
                "agree_slope_per_place": _plain(check.agree_slope.value),
                "agree_p": _plain(check.agree_slope.p),
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


def _page(name: str, **variables: object) -> str:
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
    place = f" in {p.location}" if p.location else ""
    return f"{p.age}, {p.occupation}, lives {p.household}{place}"


def _escape(text: str) -> str:
    """Text that cannot turn into Markdown of its own (headings, emphasis, HTML)."""
    for mark in ("\\", "*", "_", "`", "<", "[", "#"):
        text = text.replace(mark, f"\\{mark}")
    return text


def _signed(value: float) -> str:
    """With its sign, minus as minus; what rounds to nothing has none."""
    shown = f"{value:+.2f}".replace("-", "−")
    return "0.00" if shown[1:] == "0.00" else shown


Codes = Mapping[str, Mapping[str, str]]  # text → code → quote
QUOTES = 3
WOULD_BUY = INTENTS[3:]


def topline(
    transcripts: Sequence[DiscussionTranscript], pages: dict[str, str], codes: Codes
) -> dict[str, object]:
    """All of it as JSON, concept by concept. `pages`: "group/stimulus" → HTML transcript."""
    stimuli = list(dict.fromkeys(t.stimulus for t in transcripts))
    return {
        "concepts": [
            _concept([t for t in transcripts if t.stimulus == s], pages, codes) for s in stimuli
        ]
    }


def _concept(
    group: Sequence[DiscussionTranscript], pages: dict[str, str], codes: Codes
) -> dict[str, object]:
    first = group[0]
    found: dict[str, object] = {
        "stimulus": first.stimulus,
        "product_concept": first.config.product_concept,
        "groups": len(group),
        "participants": sum(len(t.personas) for t in group),
        "purchase_intent": _intent(group),
        "positions": _positions(group),
        "coded": bool(codes),
        **_remarks(group, pages, codes),
        "sycophancy": sycophancy.of(group).reading(),
    }
    if len(group) == 1:
        found["who_said_what"] = _voices(first, pages)
    else:
        found["across_groups"] = _across(group)
    return found


def _intent(group: Sequence[DiscussionTranscript]) -> dict[str, object]:
    given = [(t.group, answer) for t in group for answer in t.would_buy(When.AFTER).values()]
    before = [answer for t in group for answer in t.would_buy(When.BEFORE).values()]
    counts = Counter(answer for _, answer in given)
    out: dict[str, object] = {
        "price": group[0].config.price,
        "counts": {o: counts[o] for o in INTENTS},
        "answered": len(given),
        "unanswered": dict(
            Counter(
                i.missing or "unknown"
                for t in group
                for i in t.intents
                if i.when is When.AFTER and not i.ladder and i.answer is None
            )
        ),
        "would_buy_share_before": _share(before),
    }
    if given:
        # People of one group heard each other, so groups are the units.
        share = clustered_share([a in WOULD_BUY for _, a in given], [g for g, _ in given])
        out |= {
            "would_buy_share": round(share.value, 4),
            "interval": [round(share.low, 4), round(share.high, 4)] if share.has_interval else None,
        }
    return out


def _share(answers: Sequence[str]) -> float | None:
    return round(fmean(a in WOULD_BUY for a in answers), 4) if answers else None


def _positions(group: Sequence[DiscussionTranscript]) -> dict[str, object]:
    both = [pair for t in group for pair in t.moved().values()]
    moved = [m for t in group for m in _moved(t)]
    return {
        "planted": any(s.planted for t in group for s in t.statements),
        "mean_before": round(fmean(b for b, _ in both), 3) if both else None,
        "mean_after": round(fmean(a for _, a in both), 3) if both else None,
        "people_who_moved": len(moved),
        "people": len(both),
        "moved": moved if len(group) == 1 else [],
    }


def _moved(t: DiscussionTranscript) -> list[dict[str, object]]:
    """Those whose position changed, and the turns in which a coder read a change."""
    people = {p.id: p for p in t.personas}
    return [
        {
            "group": t.group,
            "name": title_of(people[who]),
            "from": before,
            "to": after,
            "turns": [
                m.turn_number for m in t.by_participants() if m.speaker_id == who and m.changed_mind
            ],
        }
        for who, (before, after) in t.moved().items()
        if has_moved(before, after)
    ]


def _remarks(
    group: Sequence[DiscussionTranscript], pages: dict[str, str], codes: Codes
) -> dict[str, list[dict[str, object]]]:
    """Objections, needs and themes by the number of people who raised them, with quotes and where
    they stand. Of one group each quote is another person's, of several groups another group's.
    """
    people: dict[str, set[tuple[str, str]]] = {}
    quotes: dict[str, dict[str, dict[str, object]]] = {}
    for t in group:
        names = {p.id: title_of(p) for p in t.personas}
        page = pages[f"{t.group}/{t.stimulus}"]
        for m in t.by_participants():
            for code, quote in codes.get(answer_id(t, m), {}).items():
                seen, kept = people.setdefault(code, set()), quotes.setdefault(code, {})
                heard = {who for g, who in seen if g == t.group}
                fresh = m.speaker_id not in heard if len(group) == 1 else not heard
                seen.add((t.group, m.speaker_id))
                if fresh and len(kept) < QUOTES and quote not in kept:
                    kept[quote] = {
                        "quote": quote,
                        "who": names[m.speaker_id],
                        "group": t.group,
                        "turn": m.turn_number,
                        "link": f"{page}#turn-{m.turn_number}",
                    }
    found_of: dict[str, list[dict[str, object]]] = {"objections": [], "needs": [], "themes": []}
    for code in sorted(people, key=lambda code: (-len(people[code]), code)):
        kind, name = kind_and_name(code)
        found_of[f"{kind}s"].append(
            {
                "theme": name,
                "people": len(people[code]),
                "groups": len({g for g, _ in people[code]}),
                "quotes": list(quotes[code].values()),
            }
        )
    return found_of


def _voices(t: DiscussionTranscript, pages: dict[str, str]) -> list[dict[str, object]]:
    """For each person: position at start and end, share of the words, and a line that sums up."""
    first, last = t.positions(When.BEFORE), t.positions(When.AFTER)
    intents = t.would_buy(When.AFTER)
    page = pages[f"{t.group}/{t.stimulus}"]
    total = sum(m.words for m in t.by_participants()) or 1
    out = []
    for p in t.personas:
        own = [m for m in t.by_participants() if m.speaker_id == p.id]
        later = [m for m in own if m.phase is not DiscussionPhase.WARMUP]
        telling = max(later, key=partial(_telling, last.get(p.id, 0.0)), default=None)
        out.append(
            {
                "name": title_of(p),
                "began": _leaning(first.get(p.id)),
                "ended": _leaning(last.get(p.id)),
                "share_of_words": round(sum(m.words for m in own) / total, 3),
                "purchase_intent": intents.get(p.id),
                "quote": telling.content if telling else None,
                "turn": telling.turn_number if telling else None,
                "link": f"{page}#turn-{telling.turn_number}" if telling else None,
            }
        )
    return out


def _leaning(position: float | None) -> str:
    return "of unknown opinion" if position is None else describe_position(position)


def _telling(position: float, message: DiscussionMessage) -> float:
    """How well a message sums up somebody who stands here: its tone, on the side of a position."""
    tone = message.sentiment or 0.0
    return abs(tone) if abs(position) < 0.2 else math.copysign(1.0, position) * tone


def _across(group: Sequence[DiscussionTranscript]) -> dict[str, object]:
    """What holds across groups: in how many of them each thing came out the same way."""
    drift, majority = [], 0
    for t in group:
        both = t.moved().values()
        drift += [fmean(a - b for b, a in both)] if both else []
        answers = list(t.would_buy(When.AFTER).values())
        majority += 2 * sum(answer in WOULD_BUY for answer in answers) > len(answers)
    return {
        "groups": len(group),
        "mean_shift_per_group": [round(d, 3) for d in drift],
        "groups_that_warmed": sum(d > 0.02 for d in drift),
        "groups_that_cooled": sum(d < -0.02 for d in drift),
        "groups_where_most_would_buy": majority,
    }
