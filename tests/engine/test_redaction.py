"""Redaction finds a recorded text in every spelling of a file and removes nothing else."""

from __future__ import annotations

import html
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.engine.seats.redaction import WITHDRAWAL_MARK, Quotable, Redaction, find_quotable

TEXT = 'It\'s "too dear" for us.\n\nWe *never* had £5 & a café_bar.'
ESCAPED = "".join(f"\\{c}" if c in "*_" else c for c in TEXT)


def redact(recorded: str, text: str, **how: bool) -> str:
    redaction = Redaction()
    redaction.learn_text(recorded)
    return WITHDRAWAL_MARK.sub("#", redaction.redact_text(text, **how))


@pytest.mark.parametrize(
    "spelled",
    [
        TEXT,
        " ".join(TEXT.split()),
        TEXT.replace("\n\n", "\r\n\t").replace(" ", "\u00a0"),
        TEXT.upper(),
        html.escape(TEXT),
        json.dumps(TEXT)[1:-1],
        json.dumps(TEXT, ensure_ascii=False)[1:-1],
        TEXT.replace('"', '""'),
        # Prompts quote a text in double quotation marks.
        TEXT.replace('"', "'"),
        TEXT.replace('"too dear"', "«too dear»"),
        ESCAPED,
    ],
)
def test_long_text_is_found_in_every_file_spelling(spelled: str) -> None:
    around = "Ann said: {} (Monday). We never had much."
    assert redact(TEXT, around.format(spelled)) in (around.format("#"), around.format("#\n\n#"))


# Characters that may surround the words of a text: punctuation, tags, Markdown and escapes.
EDGES = st.text(".,!?…;:'\"“”«»*_`~()[]{}<>/\\#=+-|€🙂\n", max_size=6)


@given(before=EDGES, after=EDGES, tag=st.sampled_from(["", "b", "em"]))
def test_characters_around_the_words_of_a_text_are_removed_with_it(
    before: str, after: str, tag: str
) -> None:
    """No tag, quotation mark or full stop of the text remains, in whatever file it is."""
    opening, closing = (f"<{tag}>", f"</{tag}>") if tag else ("", "")
    text = f"{before}{opening}We never had £5 for it{closing}{after}".strip()
    for spell in (
        str,
        lambda text: json.dumps(text)[1:-1],
        lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
        html.escape,
        lambda text: " ".join(text.split()),
    ):
        # The full stop belongs to the file.
        assert redact(text, f"Ann said {spell(text)} and left.") == "Ann said # and left."


@pytest.mark.parametrize(
    ("after", "following"), [('"', "& quotas are fine"), ("\\n", "\\ now"), ("'", "&#x200d; then")]
)
def test_a_part_of_an_escape_is_no_character_of_the_text(after: str, following: str) -> None:
    assert redact(f"We never had it{after}", f"We never had it {following}") == f"# {following}"


def test_edges_of_neighbouring_texts_do_not_overlap() -> None:
    redaction = Redaction()
    redaction.learn_text("We never had it*")
    redaction.learn_text("*They never had it")
    redacted = redaction.redact_text("We never had it*They never had it")
    assert WITHDRAWAL_MARK.sub("#", redacted) == "##"


@pytest.mark.parametrize(
    ("text", "remaining_text"),
    [
        ("museum", "#"),
        ("Well: museum!", "Well: #!"),
        ("the museum is closed", "the museum is closed"),
        ("Museum", "Museum"),
        ("museums", "museums"),
        ("a_museum", "a_museum"),
    ],
)
def test_short_text_is_found_only_alone_and_in_its_spelling(text: str, remaining_text: str) -> None:
    assert redact("museum", text) == remaining_text


def test_text_with_other_punctuation_is_a_different_text() -> None:
    for text in ("very_much_so", "Very, much so", "very. Much so"):
        assert redact("very much so", text) == text


def test_option_offered_later_is_found_in_sentences() -> None:
    redaction = Redaction()
    redaction.learn_text("Glass museum")
    redaction.exempt_texts(["glass museum", "hotel"])
    redaction.learn_text("hotel")
    redacted = redaction.redact_text("Glass museum for all; hotel for Ann. A museum.")
    assert WITHDRAWAL_MARK.sub("#", redacted) == "# for all; hotel for Ann. A museum."


def test_only_the_quotation_is_removed_from_a_text_that_quotes_the_human() -> None:
    redaction = Redaction()
    reply = "You said: we never had any money to spend. Who agrees with that?"
    quotable = Quotable(find_quotable("We never had any money to spend."), set())
    redaction.learn_text(reply, quotable)
    for spelled in (reply, reply.upper(), f"Turn 3\n{reply}\n"):
        assert "money" not in redaction.redact_text(spelled).casefold()
    redacted = WITHDRAWAL_MARK.sub("#", redaction.redact_text(reply))
    assert redacted == "You said: #. Who agrees with that?"
    truncated = WITHDRAWAL_MARK.sub("#", redaction.redact_text("You said: we never had an…"))
    assert truncated == "You said: #…"
    assert redaction.redact_text("You said: …") == "You said: …"


def test_beginning_of_a_truncated_text_is_found() -> None:
    assert redact("Moving on is hard", "answer: Moving on i…") == "answer: #…"
    assert redact("Moving on is hard", "answer: Mov…") == "answer: Mov…"
    assert redact("Moving on is hard", "answer: Mov…", own=True) == "answer: #…"


LONG_TEXT = (
    "My grandmother lives beside the noisy ring road near Appleby, and she never sleeps well there."
)


@pytest.mark.parametrize("own", [False, True])
def test_value_that_an_earlier_version_cut_without_an_ellipsis_is_found(own: bool) -> None:
    """Such a value has 80 characters, also if it begins with another text."""
    for value in (LONG_TEXT, f"{{'agent': '{LONG_TEXT}'}}"):
        assert "grandmother" not in redact(LONG_TEXT, value[:80], own=own)
        assert "Appleb" not in redact(LONG_TEXT, value[:80], own=own)
    by_chance = "Nobody else wants to say what all the others think about it: my grandmother live"
    assert len(by_chance) == 80 and redact(LONG_TEXT, by_chance) == by_chance


def test_beginning_of_a_text_is_found_before_an_ellipsis_inside_a_message() -> None:
    message = "The quote 'my grandmother lives beside the noi…' is not in the text."
    assert redact(LONG_TEXT, message) == "The quote '#…' is not in the text."
    natural = "My grandmother… well, she has moved. My… yes."
    assert redact(LONG_TEXT, natural) == natural


@pytest.mark.parametrize(
    ("said", "reply", "remaining_text"),
    [
        # Seven letters, as a sentence and within one.
        ("孩子们需要公园。", "他说过：孩子们需要公园。我同意。", "他说过：#。我同意。"),
        ("孩子们需要公园。", "她也说孩子们需要公园和学校", "她也说#和学校"),
        # A clause of a longer sentence, and of the second sentence.
        ("家园很重要，老人需要电梯！对吗？", "你提到“老人需要电梯”。", "你提到“#”。"),
        # A short sentence counts only as a whole.
        ("我不同意。他们都知道这件事情。", "好。我不同意！", "好。#！"),
        ("我不同意。他们都知道这件事情。", "好吧，我不同意你", "好吧，我不同意你"),
        # Five letters are no quotation.
        ("我们应该多种一些树", "我们应该先修路", "我们应该先修路"),
        ("子供には広い公園が必要です。", "つまり子供には広い公園が必要ですね", "つまり#ね"),
        # An ending that many sentences have.
        ("公園がいいと思います。", "道路が先だと思います。", "道路が先だと思います。"),
        ("เด็กต้องการสวนสาธารณะ", "เขาบอกว่าเด็กต้องการสวนสาธารณะจริงๆ", "เขาบอกว่า#จริงๆ"),
        # Vowel signs do not divide a word, so that one word is no quotation, and four are.
        ("मैं विश्वविद्यालय जाता हूँ।", "विश्वविद्यालय आज बंद है।", "विश्वविद्यालय आज बंद है।"),
        ("बहुत डर। हम सब यहाँ हैं।", "मुझे बहुत डर।", "मुझे बहुत डर।"),
        ("हमें नई सड़क नहीं चाहिए।", "उसने कहा: हमें नई सड़क नहीं मिली।", "उसने कहा: # मिली।"),
        ("We never had any money", "He said we never had any.", "He said #."),
        ("We never had any money", "He said we never had one.", "He said we never had one."),
    ],
)
def test_quotation_is_found_in_scripts_with_and_without_spaces(
    said: str, reply: str, remaining_text: str
) -> None:
    redaction = Redaction()
    redacted = redaction.without_quotations(reply, Quotable(find_quotable(said), set()))
    assert WITHDRAWAL_MARK.sub("#", redacted) == remaining_text
    # In the files, the sentence is escaped.
    redaction.learn_text(reply, Quotable(find_quotable(said), set()))
    escaped = redaction.redact_text(f"Turn 1: {json.dumps(reply)}")
    assert WITHDRAWAL_MARK.sub("#", escaped) == f"Turn 1: {json.dumps(remaining_text)}"


def test_end_of_one_text_and_beginning_of_the_next_are_no_text_of_others() -> None:
    redaction = Redaction()
    redaction.learn_text("Glass museum")
    redaction.discard_shared_texts(["They are of glass", "Museum tickets", "They are of glass"])
    assert WITHDRAWAL_MARK.fullmatch(redaction.redact_text("Glass museum"))


def test_text_shared_with_another_speaker_is_removed_only_from_rows_of_the_human() -> None:
    redaction = Redaction()
    redaction.learn_text("No way at all.")
    redaction.discard_shared_texts(["I see no way at all"])
    assert redaction.redact_text("No way at all.") == "No way at all."
    assert WITHDRAWAL_MARK.fullmatch(redaction.redact_text("No way at all.", own=True))


@pytest.mark.parametrize(
    ("row", "is_own"),
    [
        ({"round": "1", "speaker": "7", "target": "8", "content": "No."}, True),
        ({"round": "1", "speaker": "8", "target": "7", "content": "No."}, False),
        # The number of the session is the id of another participant.
        ({"experiment": "a", "session": "8", "person": "7", "content": "9"}, True),
        ({"experiment": "a", "session": "9", "person": "7", "content": "9"}, False),
        ({"experiment": "b", "session": "8", "person": "7", "content": "9"}, False),
        # An answer in another session equals the number of the human's session.
        ({"experiment": "a", "session": "9", "person": "7", "content": "8"}, False),
        ({"experiment": "a", "person": "7", "label": "8"}, True),
        ({"meeting": "hall", "person": "7"}, True),
        ({"meeting": "other", "person": "7"}, False),
    ],
)
def test_row_is_about_the_first_participant_whom_it_names(
    row: dict[str, str], is_own: bool
) -> None:
    session_cells = {"experiment": "a", "session": "8"}
    if "round" in row:
        redaction = Redaction(frozenset({"7"}), frozenset({"8", "9"}))
    else:
        scopes = frozenset({"hall"})
        redaction = Redaction(frozenset({"7"}), frozenset({"8", "9"}), scopes, session_cells)
    assert redaction.is_row_of_person(row.items()) is is_own
