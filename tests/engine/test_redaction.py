"""A recorded text is found however a file spells it, and nothing beside it is taken."""

from __future__ import annotations

import html
import json

import pytest

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
        ESCAPED,
    ],
)
def test_a_long_text_is_found_as_files_spell_it(spelled: str) -> None:
    around = "Ann said: {} (Monday). We never had much."
    assert redact(TEXT, around.format(spelled)) in (around.format("#."), around.format("#.\n\n#."))


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("museum", "#"),
        ("Well: museum!", "Well: #!"),
        ("the museum is closed", "the museum is closed"),
        ("Museum", "Museum"),
        ("museums", "museums"),
        ("a_museum", "a_museum"),
    ],
)
def test_a_short_text_is_found_alone_and_as_it_was_written(text: str, left: str) -> None:
    assert redact("museum", text) == left


def test_other_punctuation_is_another_text() -> None:
    for text in ("very_much_so", "Very, much so", "very. Much so"):
        assert redact("very much so", text) == text


def test_an_option_that_was_offered_afterwards_is_found_in_sentences() -> None:
    redaction = Redaction()
    redaction.learn_text("Glass museum")
    redaction.exempt_texts(["glass museum", "hotel"])
    redaction.learn_text("hotel")
    left = redaction.redact_text("Glass museum for all; hotel for Ann. A museum.")
    assert WITHDRAWAL_MARK.sub("#", left) == "# for all; hotel for Ann. A museum."


def test_of_a_text_that_quotes_the_person_only_the_quotation_goes() -> None:
    redaction = Redaction()
    reply = "You said: we never had any money to spend. Who agrees with that?"
    quotable = Quotable(find_quotable("We never had any money to spend."), set())
    redaction.learn_text(reply, quotable)
    for spelled in (reply, reply.upper(), f"Turn 3\n{reply}\n"):
        assert "money" not in redaction.redact_text(spelled).casefold()
    left = WITHDRAWAL_MARK.sub("#", redaction.redact_text(reply))
    assert left == "You said: #. Who agrees with that?"
    cut = WITHDRAWAL_MARK.sub("#", redaction.redact_text("You said: we never had an…"))
    assert cut == "You said: #…"
    assert redaction.redact_text("You said: …") == "You said: …"


def test_the_beginning_of_a_text_that_was_cut_off_is_found() -> None:
    assert redact("Moving on is hard", "answer: Moving on i…") == "answer: #…"
    assert redact("Moving on is hard", "answer: Mov…") == "answer: Mov…"
    assert redact("Moving on is hard", "answer: Mov…", own=True) == "answer: #…"


def test_the_end_of_one_text_and_the_beginning_of_the_next_are_no_text_of_others() -> None:
    redaction = Redaction()
    redaction.learn_text("Glass museum")
    redaction.discard_shared_texts(["They are of glass", "Museum tickets", "They are of glass"])
    assert WITHDRAWAL_MARK.fullmatch(redaction.redact_text("Glass museum"))


def test_what_another_speaker_said_too_goes_from_rows_of_the_person_only() -> None:
    redaction = Redaction()
    redaction.learn_text("No way at all.")
    redaction.discard_shared_texts(["I see no way at all"])
    assert redaction.redact_text("No way at all.") == "No way at all."
    assert WITHDRAWAL_MARK.fullmatch(redaction.redact_text("No way at all.", own=True))
