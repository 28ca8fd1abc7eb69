"""Write the files of a focus group: transcripts, statistics and one summary.

The files of a single discussion are in the run folder. Several discussions have
one folder each below `groups/`.
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
from folkmoot.kit.coding import EMBEDDED_NOTE, read_codings
from folkmoot.measures.diversity import gini
from folkmoot.measures.inference.clustered import clustered_share
from folkmoot.measures.inference.estimates import FEWEST_UNITS, format_percent, format_signed
from folkmoot.people.sources.grounded import Profile
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.focus_group import sycophancy
from folkmoot.studies.focus_group.config import DiscussionConfig, DiscussionPhase
from folkmoot.studies.focus_group.discussion import (
    INTENTS,
    DiscussionMessage,
    DiscussionTranscript,
    InterviewTime,
)
from folkmoot.studies.focus_group.participants import title_of
from folkmoot.studies.focus_group.positions import describe_position, has_moved
from folkmoot.studies.focus_group.talk.reading import answer_id, kind_and_name


def folder_of(config: DiscussionConfig, group: str, stimulus: str) -> str:
    """Return the folder of a discussion's files, relative to the run folder.

    The folder ends with a slash. Returns "" for the run folder itself.
    """
    if len(config.concepts) > 1:
        return f"groups/{group}/{stimulus}/"
    return f"groups/{group}/" if config.replications > 1 else ""


def write_discussion(session: Session[DiscussionConfig], transcript: DiscussionTranscript) -> None:
    """Write `transcript.md`, `.json`, `.html` and `statistics.json` of one discussion."""
    prefix = folder_of(session.config, transcript.group, transcript.stimulus)
    provenance_label = session.provenance_label
    session.write_text(
        f"{prefix}transcript.md", TranscriptFormatter.to_markdown(transcript, provenance_label)
    )
    session.write_text(f"{prefix}transcript.json", TranscriptFormatter.to_json(transcript))
    session.write_text(
        f"{prefix}transcript.html", TranscriptFormatter.to_html(transcript, provenance_label)
    )
    session.write_json(f"{prefix}statistics.json", TranscriptFormatter.summary_stats(transcript))


def derived_files(run: RunFolder, _journal: JournalReader) -> Iterator[tuple[str, object]]:
    """Yield `topline.json` and `topline.md`, a short summary of all discussions that have ended."""
    config = run.read_settings(DiscussionConfig)
    recorded_talks = set(run.rows("statements", "group", "stimulus"))
    talk_keys = ((group, concept.id) for group in config.groups for concept in config.concepts)
    folders = {
        talk_key: folder_of(config, *talk_key)
        for talk_key in talk_keys
        if talk_key in recorded_talks
    }
    transcripts = [
        TranscriptFormatter.from_json(run.text(f"{folder}transcript.json"))
        for folder in folders.values()
    ]
    pages = {
        f"{group}/{stimulus}": f"{folder}transcript.html"
        for (group, stimulus), folder in folders.items()
    }
    provenance_label, codings = run.provenance_sentence, read_codings(run).get("remarks")
    # The codes of the embedded coder stay in the table `codes`. In the topline they would look like
    # findings.
    codes = (
        {text_id: codings.codes_of(text_id) or {} for text_id in codings.codes_by_text}
        if codings and codings.supports_findings
        else {}
    )
    data = topline_data(transcripts, pages, codes)
    if (
        codings is not None
        and codings.primary_coder is not None
        and codings.primary_coder.is_embedded
    ):
        data["coding_note"] = EMBEDDED_NOTE
    labelled_data = {"mark": provenance_label, **data} if provenance_label else data
    yield "topline.json", labelled_data
    yield "topline.md", topline_page(data, provenance_label)


def topline_page(data: dict[str, object], mark: str = "") -> str:
    """Return the summary of all discussions as Markdown.

    `mark`: the provenance label that the page shows, such as SYNTHETIC.
    """
    note = data.get("coding_note", "")
    concepts = data["concepts"]
    return _render_page("topline.md", concepts=concepts, mark=mark, note=note, fewest=FEWEST_UNITS)


class TranscriptFormatter:
    """Formats a transcript as Markdown, JSON or HTML."""

    @staticmethod
    def to_markdown(transcript: DiscussionTranscript, mark: str = "") -> str:
        """Return the transcript as Markdown: a heading per phase and a paragraph per message."""
        # The name of a speaker is followed by age and occupation. `mark` is the provenance label,
        # such as SYNTHETIC, and appears under the title.
        names = {profile.id: title_of(profile) for profile in transcript.personas}
        return _render_page("transcript.md", talk=transcript, mark=mark, names=names)

    @staticmethod
    def to_json(transcript: DiscussionTranscript) -> str:
        """Return the transcript as JSON."""
        # `from_json` restores an equal transcript from it.
        return transcript.model_dump_json(indent=1)

    @staticmethod
    def from_json(text: str) -> DiscussionTranscript:
        """Return the transcript in a text that `to_json` wrote.

        Raises ValidationError for any other text.
        """
        return DiscussionTranscript.model_validate_json(text)

    @staticmethod
    def to_html(transcript: DiscussionTranscript, mark: str = "") -> str:
        """Return the transcript as a self-contained HTML page.

        `mark`: a label that the page shows, such as SYNTHETIC. It says who answered.
        """
        # Each turn has an anchor (`#turn-12`), to which replies link.
        people = transcript.personas
        return _render_page(
            "transcript.html",
            talk=transcript,
            mark=mark,
            names={profile.id: title_of(profile) for profile in people},
            first_names={profile.id: profile.first_name for profile in people},
            colors={
                profile.id: f"hsl({i * 360 // len(people)} 45% 40%)"
                for i, profile in enumerate(people)
            },
        )

    @staticmethod
    def summary_stats(transcript: DiscussionTranscript) -> dict[str, object]:
        """Return counts and means of the discussion, in the form of `statistics.json`."""
        names = {profile.id: profile.name for profile in transcript.personas}
        messages = list(transcript.by_participants())
        words = dict.fromkeys(names, 0)
        turns = dict.fromkeys(names, 0)
        for message in messages:
            words[message.speaker_id] += message.words
            turns[message.speaker_id] += 1
        all_words = sum(message.words for message in transcript.messages)
        replies = Counter(
            (message.speaker_id, message.replied_to) for message in messages if message.replied_to
        )
        check = sycophancy.check_transcripts([transcript])
        # The sort is stable, so ties keep the order of the participants.
        most_active_first = sorted(turns, key=lambda persona_id: -turns[persona_id])
        shifts = [message for message in messages if message.changed_mind]
        positions = transcript.positions_before_and_after().values()
        by_phase = {phase.value: messages for phase, messages in transcript.by_phase()}
        return {
            "messages": len(transcript.messages),
            "messages_by_role": dict(
                Counter(discussion_message.role.value for discussion_message in transcript.messages)
            ),
            "messages_per_phase": {phase: len(messages) for phase, messages in by_phase.items()},
            "messages_per_participant": {
                names[persona_id]: count for persona_id, count in turns.items()
            },
            "words_per_participant": {
                names[persona_id]: count for persona_id, count in words.items()
            },
            "average_sentiment_by_phase": {
                phase: _mean_or_none(
                    discussion_message.sentiment
                    for discussion_message in messages
                    if discussion_message.by_participant
                )
                for phase, messages in by_phase.items()
            },
            "sentiment_source": next(
                (message.sentiment_source for message in messages if message.sentiment_source), None
            ),
            "opinion_shifts": len(shifts),
            "people_who_shifted": len({message.speaker_id for message in shifts}),
            "most_active": names[most_active_first[0]] if most_active_first else None,
            "least_active": names[most_active_first[-1]] if most_active_first else None,
            "possibly_out_of_character": sum(
                discussion_message.out_of_character for discussion_message in transcript.messages
            ),
            "probes": sum(
                discussion_message.probe and not discussion_message.by_participant
                for discussion_message in transcript.messages
            ),
            "gini_of_words": _nan_to_none(gini(list(words.values()))),
            "moderator_share_of_words": (
                round(1 - sum(words.values()) / all_words, 4) if all_words else 0.0
            ),
            "replies": [
                {
                    "from": names[speaker_id],
                    "to": names.get(replied_to, "Moderator"),
                    "times": count,
                }
                for (speaker_id, replied_to), count in replies.items()
            ],
            # Only of participants with both positions, as in the report. Otherwise the difference
            # would also be one of other participants.
            "mean_valence_before": _mean_or_none(before for before, _ in positions),
            "mean_valence_after": _mean_or_none(after for _, after in positions),
            "sycophancy": {
                "agree_share": _nan_to_none(check.agree),
                "disagree_share": _nan_to_none(check.disagree),
                "agree_slope_per_place": _nan_to_none(check.agree_slope.value),
                "agree_p": _nan_to_none(check.agree_slope.p),
                "spread_before": _nan_to_none(check.spread_before),
                "spread_after": _nan_to_none(check.spread_after),
                "convergence_p": _nan_to_none(check.converge_p),
                "towards_the_group": _nan_to_none(check.towards.value),
                "beyond_alone": _nan_to_none(check.beyond_alone.value),
                "closer_than_alone": _nan_to_none(check.closer.value),
                "reading": check.describe_check(),
            },
        }


def _mean_or_none(values: Iterable[float | None]) -> float | None:
    known_values = [value for value in values if value is not None]
    return round(fmean(known_values), 3) if known_values else None


def _nan_to_none(value: float) -> float | None:
    return round(value, 4) if math.isfinite(value) else None


# --- pages -------------------------------------------------------------------------------------


def _render_page(name: str, **variables: object) -> str:
    return _page_templates().get_template(name).render(**variables).rstrip() + "\n"


@cache
def _page_templates() -> Environment:
    templates = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "pages"),
        autoescape=select_autoescape(["html"]),
        # A page that names a missing variable fails in the tests and does not print a gap.
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters.update(
        about=_describe_participant,
        markdown=_escape_markdown,
        percent=lambda share: format_percent(share).replace(" ", ""),
        signed=format_signed,
    )
    return templates


def _describe_participant(profile: Profile) -> str:
    location = f" in {profile.location}" if profile.location else ""
    return f"{profile.age}, {profile.occupation}, lives {profile.household}{location}"


def _escape_markdown(text: str) -> str:
    # The backslash comes first. Later it would escape the backslashes that were just added.
    for mark in ("\\", "*", "_", "`", "<", "[", "#"):
        text = text.replace(mark, f"\\{mark}")
    return text


# Text id → code → quote.
Codes = Mapping[str, Mapping[str, str]]
# Maximum number of quotes per code in the topline.
MAX_QUOTES = 3
WOULD_BUY = INTENTS[3:]


def topline_data(
    transcripts: Sequence[DiscussionTranscript], pages: dict[str, str], codes: Codes
) -> dict[str, object]:
    """Return the data of `topline.json`.

    - `pages`: the path of the HTML transcript, by "group/stimulus".
    """
    stimuli = list(dict.fromkeys(transcript.stimulus for transcript in transcripts))
    return {
        "concepts": [
            _concept_data(
                [
                    discussion_transcript
                    for discussion_transcript in transcripts
                    if discussion_transcript.stimulus == stimulus
                ],
                pages,
                codes,
            )
            for stimulus in stimuli
        ]
    }


def _concept_data(
    group: Sequence[DiscussionTranscript], pages: dict[str, str], codes: Codes
) -> dict[str, object]:
    first = group[0]
    data: dict[str, object] = {
        "stimulus": first.stimulus,
        "product_concept": first.config.product_concept,
        "groups": len(group),
        "participants": sum(len(discussion_transcript.personas) for discussion_transcript in group),
        "purchase_intent": _intent_data(group),
        "positions": _position_data(group),
        "coded": bool(codes),
        # False if all answers are of the warm-up, which is not coded.
        "codable": any(
            message.phase is not DiscussionPhase.WARMUP
            for discussion_transcript in group
            for message in discussion_transcript.by_participants()
        ),
        **_remark_data(group, pages, codes),
        "sycophancy": sycophancy.check_transcripts(group).describe_check(),
    }
    if len(group) == 1:
        data["who_said_what"] = _participant_summaries(first, pages)
    else:
        data["across_groups"] = _across_groups(group)
    return data


def _intent_data(group: Sequence[DiscussionTranscript]) -> dict[str, object]:
    answers_after = [
        (discussion_transcript.group, answer)
        for discussion_transcript in group
        for answer in discussion_transcript.intents_by_participant(InterviewTime.AFTER).values()
    ]
    before = [
        answer
        for discussion_transcript in group
        for answer in discussion_transcript.intents_by_participant(InterviewTime.BEFORE).values()
    ]
    counts = Counter(answer for _, answer in answers_after)
    data: dict[str, object] = {
        "price": group[0].config.price,
        "counts": {intent: counts[intent] for intent in INTENTS},
        "answered": len(answers_after),
        "unanswered": dict(
            Counter(
                purchase_intent.missing or "unknown"
                for discussion_transcript in group
                for purchase_intent in discussion_transcript.intents
                if purchase_intent.when is InterviewTime.AFTER
                and not purchase_intent.ladder
                and purchase_intent.answer is None
            )
        ),
        "would_buy_share_before": _share_who_would_buy(before),
    }
    if answers_after:
        # Participants of one group heard each other, so groups are the independent units.
        would_buy = clustered_share(
            [answer in WOULD_BUY for _, answer in answers_after],
            [group for group, _ in answers_after],
        )
        data |= {
            "would_buy_share": round(would_buy.value, 4),
            "interval": [round(would_buy.low, 4), round(would_buy.high, 4)]
            if would_buy.has_interval
            else None,
        }
    return data


def _share_who_would_buy(answers: Sequence[str]) -> float | None:
    return round(fmean(answer in WOULD_BUY for answer in answers), 4) if answers else None


def _position_data(group: Sequence[DiscussionTranscript]) -> dict[str, object]:
    position_pairs = [
        pair
        for discussion_transcript in group
        for pair in discussion_transcript.positions_before_and_after().values()
    ]
    movers = [
        message for discussion_transcript in group for message in _movers(discussion_transcript)
    ]
    return {
        "planted": any(
            statement.planted
            for discussion_transcript in group
            for statement in discussion_transcript.statements
        ),
        "mean_before": _mean_or_none(before for before, _ in position_pairs),
        "mean_after": _mean_or_none(after for _, after in position_pairs),
        "people_who_moved": len(movers),
        "people": len(position_pairs),
        "moved": movers if len(group) == 1 else [],
    }


def _movers(discussion_transcript: DiscussionTranscript) -> list[dict[str, object]]:
    # The participants with a changed private position, and the turns of the changes.
    profiles = {profile.id: profile for profile in discussion_transcript.personas}
    return [
        {
            "group": discussion_transcript.group,
            "name": title_of(profiles[persona_id]),
            "from": before,
            "to": after,
            "turns": [
                discussion_message.turn_number
                for discussion_message in discussion_transcript.by_participants()
                if discussion_message.speaker_id == persona_id and discussion_message.changed_mind
            ],
        }
        for persona_id, (
            before,
            after,
        ) in discussion_transcript.positions_before_and_after().items()
        if has_moved(before, after)
    ]


def _remark_data(
    group: Sequence[DiscussionTranscript], pages: dict[str, str], codes: Codes
) -> dict[str, list[dict[str, object]]]:
    # Objections, needs and themes with quotes. Those that most participants raised come first.
    speakers_by_code: dict[str, set[tuple[str, str]]] = {}
    quotes_by_code: dict[str, dict[str, dict[str, object]]] = {}
    for discussion_transcript in group:
        names = {profile.id: title_of(profile) for profile in discussion_transcript.personas}
        page = pages[f"{discussion_transcript.group}/{discussion_transcript.stimulus}"]
        for discussion_message in discussion_transcript.by_participants():
            for code, quote in codes.get(
                answer_id(discussion_transcript, discussion_message), {}
            ).items():
                speakers, quotes = (
                    speakers_by_code.setdefault(code, set()),
                    quotes_by_code.setdefault(code, {}),
                )
                # A quote is kept only if it adds a voice: a new participant with one group, a new
                # group with several.
                heard_speakers = {
                    speaker_id
                    for group, speaker_id in speakers
                    if group == discussion_transcript.group
                }
                is_new = (
                    discussion_message.speaker_id not in heard_speakers
                    if len(group) == 1
                    else not heard_speakers
                )
                speakers.add((discussion_transcript.group, discussion_message.speaker_id))
                if is_new and len(quotes) < MAX_QUOTES and quote not in quotes:
                    quotes[quote] = {
                        "quote": quote,
                        "who": names[discussion_message.speaker_id],
                        "group": discussion_transcript.group,
                        "turn": discussion_message.turn_number,
                        "link": f"{page}#turn-{discussion_message.turn_number}",
                    }
    themes: dict[str, list[dict[str, object]]] = {"objections": [], "needs": [], "themes": []}
    for code in sorted(speakers_by_code, key=lambda code: (-len(speakers_by_code[code]), code)):
        kind, name = kind_and_name(code)
        themes[f"{kind}s"].append(
            {
                "theme": name,
                "people": len(speakers_by_code[code]),
                "groups": len({group for group, _ in speakers_by_code[code]}),
                "quotes": list(quotes_by_code[code].values()),
            }
        )
    return themes


def _participant_summaries(
    discussion_transcript: DiscussionTranscript, pages: dict[str, str]
) -> list[dict[str, object]]:
    positions_before, positions_after = (
        discussion_transcript.positions(InterviewTime.BEFORE),
        discussion_transcript.positions(InterviewTime.AFTER),
    )
    intents = discussion_transcript.intents_by_participant(InterviewTime.AFTER)
    page = pages[f"{discussion_transcript.group}/{discussion_transcript.stimulus}"]
    total_words = (
        sum(
            discussion_message.words
            for discussion_message in discussion_transcript.by_participants()
        )
        # A discussion without words must not divide by zero.
        or 1
    )
    summaries = []
    for profile in discussion_transcript.personas:
        own_messages = [
            discussion_message
            for discussion_message in discussion_transcript.by_participants()
            if discussion_message.speaker_id == profile.id
        ]
        later_messages = [
            discussion_message
            for discussion_message in own_messages
            # Participants introduce themselves in the warm-up, so its messages say nothing about
            # the concept.
            if discussion_message.phase is not DiscussionPhase.WARMUP
        ]
        representative = max(
            later_messages,
            key=partial(_representativeness, positions_after.get(profile.id, 0.0)),
            default=None,
        )
        summaries.append(
            {
                "name": title_of(profile),
                "began": _describe_leaning(positions_before.get(profile.id)),
                "ended": _describe_leaning(positions_after.get(profile.id)),
                "share_of_words": round(
                    sum(discussion_message.words for discussion_message in own_messages)
                    / total_words,
                    3,
                ),
                "purchase_intent": intents.get(profile.id),
                "quote": representative.content if representative else None,
                "turn": representative.turn_number if representative else None,
                "link": f"{page}#turn-{representative.turn_number}" if representative else None,
            }
        )
    return summaries


def _describe_leaning(position: float | None) -> str:
    return "of unknown opinion" if position is None else describe_position(position)


def _representativeness(position: float, message: DiscussionMessage) -> float:
    # How typical a message is for a participant with this position: its tone (−1 to 1), with the
    # opposite sign for a negative position. Near position 0, it is the strength of the tone.
    tone = message.sentiment or 0.0
    return abs(tone) if abs(position) < 0.2 else math.copysign(1.0, position) * tone


def _across_groups(group: Sequence[DiscussionTranscript]) -> dict[str, object]:
    mean_shifts, majority_count = [], 0
    for discussion_transcript in group:
        position_pairs = discussion_transcript.positions_before_and_after().values()
        mean_shifts += (
            [fmean(after - before for before, after in position_pairs)] if position_pairs else []
        )
        answers = list(discussion_transcript.intents_by_participant(InterviewTime.AFTER).values())
        majority_count += 2 * sum(answer in WOULD_BUY for answer in answers) > len(answers)
    return {
        "groups": len(group),
        "mean_shift_per_group": [round(shift, 3) for shift in mean_shifts],
        # A mean shift within ±0.02 counts as neither, so that rounding does not decide.
        "groups_that_warmed": sum(shift > 0.02 for shift in mean_shifts),
        "groups_that_cooled": sum(shift < -0.02 for shift in mean_shifts),
        "groups_where_most_would_buy": majority_count,
    }
