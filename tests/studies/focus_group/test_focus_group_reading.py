"""Results of a discussion: references, objections, balance, sycophancy, and the transcript."""

from __future__ import annotations

import json
import math
import re
from html.parser import HTMLParser

import pytest
from scipy.stats import t as student

from folkmoot.conversation.sentiment import sentiment_score
from folkmoot.measures.diversity import gini
from folkmoot.studies.focus_group.discussion import INTENTS
from folkmoot.studies.focus_group.files import TranscriptFormatter, topline_data, topline_page
from folkmoot.studies.focus_group.participants import title_of
from folkmoot.studies.focus_group.talk.reading import answer_id, rate_tone
from tests.studies.focus_group.at_hand import (
    ANSWER_TEXTS,
    AskedQuestion,
    answer_plainly,
    discuss,
    write_codes,
)


async def test_take_up_and_stance_are_the_coders_reading() -> None:
    """A reference names a speaker. The name of a silent participant refers to no utterance."""
    told: list[tuple[str | None, str]] = []

    def coding(asked: AskedQuestion) -> str:
        if asked.kind != "coder":
            return answer_plainly(asked)
        before = re.search(r"^Just before, (\w+) said: ", asked.prompt, re.MULTILINE)
        listed = re.search(r"^The others who have spoken are: (.+)$", asked.prompt, re.MULTILINE)
        told.append((before and before[1], listed[1] if listed else ""))
        takes_up = listed[1].split(", ")[0] if listed else "Nobody"
        return write_codes(takes_up=takes_up, stance="agree")

    t = await discuss(3, coding)
    said = list(t.by_participants())
    for i, m in enumerate(said):
        earlier = [x for x in said[:i] if x.speaker_id != m.speaker_id]
        names = list(dict.fromkeys(x.speaker_name for x in earlier))
        assert told[i] == (earlier[-1].speaker_name if earlier else None, ", ".join(names))
        if earlier:
            latest = [x for x in earlier if x.speaker_name == names[0]][-1]
            assert (m.replied_to_turn, m.stance) == (latest.turn_number, "agree")
        else:
            assert (m.replied_to_turn, m.stance) == (None, None)  # no participant has spoken yet


def test_sentiment_has_the_sign_of_the_words() -> None:
    assert sentiment_score("I love it, it is wonderful.") > 0.5
    assert sentiment_score("I hate it, it is terrible.") < -0.5
    assert sentiment_score("It is a box.") == 0


def test_the_lexicon_rates_english_texts_only() -> None:
    for text in ("It is a box.", "I would never buy such a thing.", "Great!"):
        assert rate_tone(text) == sentiment_score(text)
    for text in (
        "我觉得太贵了，但是很方便。",
        "Die Idee war gut, aber zu teuer.",
        "Me gusta mucho.",
    ):
        assert rate_tone(text) is None


async def test_balance_counts_every_word_and_reply() -> None:
    t = await discuss(3)
    stats = TranscriptFormatter.summary_stats(t)
    words = list(stats["words_per_participant"].values())
    assert sum(words) == sum(m.words for m in t.by_participants())
    assert stats["gini_of_words"] == pytest.approx(gini(words), abs=1e-4)
    total = sum(m.words for m in t.messages)
    moderator = sum(m.words for m in t.messages if not m.by_participant)
    assert stats["moderator_share_of_words"] == pytest.approx(moderator / total, abs=1e-4)
    replied = sum(bool(m.replied_to) for m in t.by_participants())
    assert sum(reply["times"] for reply in stats["replies"]) == replied


async def test_markdown_has_headings_names_and_every_word() -> None:
    t = await discuss(1)
    text = TranscriptFormatter.to_markdown(t, "MARK")
    headings = [line for line in text.splitlines() if line.startswith("## ")]
    assert headings == [
        f"## Phase: {p}" for p in ("Warm-Up", "Exploration", "Deep Dive", "Reaction", "Synthesis")
    ]
    assert "*MARK*" in text
    assert "> Shown to the group: Meet the oven that reads." in text
    for p in t.personas:
        assert f"**{title_of(p)}:** " in text
    assert text.count("\n**Moderator:** ") == sum(not m.by_participant for m in t.messages)
    assert all(m.content in text for m in t.messages)


async def test_markup_in_what_was_said_stays_text() -> None:
    t = await discuss(1)
    nasty = t.messages[1].model_copy(update={"content": "# *No* <script>alert(1)</script> [x](y)"})
    t = t.model_copy(update={"messages": (t.messages[0], nasty)})
    assert "<script>" not in TranscriptFormatter.to_html(t)
    assert "\\# \\*No\\* \\<script>" in TranscriptFormatter.to_markdown(t)


async def test_json_round_trip() -> None:
    t = await discuss(1)
    assert TranscriptFormatter.from_json(TranscriptFormatter.to_json(t)) == t


class Page(HTMLParser):
    """The ids and links of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.ids.add(values.get("id") or "")
        if values.get("href"):
            self.links.add(str(values["href"]))


async def test_html_has_an_anchor_for_every_turn_and_no_dead_link() -> None:
    def coding(asked: AskedQuestion) -> str:
        listed = re.search(r"others who have spoken are: (\w+)", asked.prompt)
        return (
            write_codes(takes_up=listed[1])
            if asked.kind == "coder" and listed
            else answer_plainly(asked)
        )

    t = await discuss(1, coding)
    text = TranscriptFormatter.to_html(t)
    page = Page(text)
    assert {f"turn-{m.turn_number}" for m in t.messages} <= page.ids
    assert all(link.startswith("#") and link[1:] in page.ids for link in page.links)
    assert any(m.replied_to_turn for m in t.messages)
    assert "http" not in text


async def test_statistics_count_what_is_there() -> None:
    t = await discuss(4)
    stats = TranscriptFormatter.summary_stats(t)
    assert stats["messages"] == len(t.messages)
    assert sum(stats["messages_by_role"].values()) == len(t.messages)
    assert sum(stats["messages_per_phase"].values()) == len(t.messages)
    assert (
        sum(stats["messages_per_participant"].values()) == stats["messages_by_role"]["participant"]
    )
    turns = stats["messages_per_participant"]
    assert turns[stats["most_active"]] == max(turns.values())
    assert turns[stats["least_active"]] == min(turns.values())
    assert stats["opinion_shifts"] == sum(m.changed_mind for m in t.messages)
    assert set(stats["average_sentiment_by_phase"]) == set(stats["messages_per_phase"])
    json.dumps(stats, allow_nan=False)


async def test_topline_quotes_are_in_the_transcript_at_the_turn_they_link_to() -> None:
    code = {
        ANSWER_TEXTS[1]: {"objection_fit": "I don't need that"},
        ANSWER_TEXTS[2]: {"price": "the"},
    }
    transcripts = [await discuss(s) for s in (1, 2, 3)]
    for i, t in enumerate(transcripts):
        transcripts[i] = t.model_copy(update={"group": f"group_{i + 1:03d}"})
    pages = {f"{t.group}/concept": f"groups/{t.group}/transcript.html" for t in transcripts}
    for several in (transcripts, transcripts[:1]):
        codes = {
            answer_id(t, m): code[m.content]
            for t in several
            for m in t.by_participants()
            if m.content in code
        }
        data = topline_data(several, pages, codes)
        (concept,) = data["concepts"]
        said = {(t.group, m.turn_number): m.content for t in several for m in t.messages}
        assert concept["objections"] and concept["themes"] and not concept["needs"]
        for theme in concept["objections"] + concept["themes"]:
            for quote in theme["quotes"]:
                assert quote["quote"] in said[quote["group"], quote["turn"]]
                assert quote["link"] == f"{pages[quote['group'] + '/concept']}#turn-{quote['turn']}"
        assert sum(concept["purchase_intent"]["counts"].values()) == 8 * len(several)
        assert ("across_groups" in concept) == (len(several) > 1)
        text = topline_page(data)
        assert "### Objections" in text and "](groups/" in text
        assert "[turn]" not in text and " -0." not in text
        quotes = [q["quote"] for theme in concept["objections"] for q in theme["quotes"]]
        assert len(set(quotes)) == len(quotes)
        json.dumps(data, allow_nan=False)


async def test_intent_over_groups_has_an_interval_with_groups_as_units() -> None:
    """The interval depends on the number of groups if participants of a group agree."""
    talks = [await discuss(1), await discuss(2)] * 6
    for i, t in enumerate(talks):
        buys = INTENTS[4] if i % 2 else INTENTS[0]
        same = tuple(intent.model_copy(update={"answer": buys}) for intent in t.intents)
        talks[i] = t.model_copy(update={"group": f"g{i}", "intents": same})
    pages = {f"{t.group}/concept": "x.html" for t in talks}
    (many,) = topline_data(talks, pages, {})["concepts"]
    (one,) = topline_data(talks[1:2], pages, {})["concepts"]
    assert many["purchase_intent"]["would_buy_share"] == 0.5
    low, high = many["purchase_intent"]["interval"]
    reach = student.ppf(0.975, 11) * (3 / 11 / 12) ** 0.5 / (0.5 * 0.5)  # on the scale of log odds
    assert low == pytest.approx(1 / (1 + math.exp(reach)), abs=1e-3)
    assert low + high == pytest.approx(1)
    assert "groups as units" in topline_page({"concepts": [many]})
    assert one["purchase_intent"]["interval"] is None  # they heard each other: nothing to tell
    (alike,) = topline_data(talks[1::2], pages, {})["concepts"]
    # Wilson's interval of six groups of six.
    assert alike["purchase_intent"]["interval"] == pytest.approx([0.6097, 1.0])
    assert "**100%** would" in topline_page({"concepts": [alike]})


async def test_the_topline_shows_a_position_without_a_value_as_unknown() -> None:
    """As in the report, the mean of no values has no sign and no number."""
    talk = await discuss(1)
    data = topline_data([talk], {f"{talk.group}/concept": "x.html"}, {})
    (concept,) = data["concepts"]
    assert concept["positions"]["people"]
    concept["positions"] |= {"mean_before": math.nan, "mean_after": -0.004}
    page = topline_page(data)
    assert "The mean position went from unknown to 0.00 on a scale" in page
    assert "nan" not in page


async def test_several_concepts_are_shown_side_by_side() -> None:
    talks = [await discuss(1), (await discuss(2)).model_copy(update={"stimulus": "other"})]
    pages = {f"{t.group}/{t.stimulus}": "x.html" for t in talks}
    both, one = (topline_page(topline_data(several, pages, {})) for several in (talks, talks[:1]))
    assert "side by side" in both
    assert "side by side" not in one
