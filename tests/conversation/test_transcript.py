"""Messages are built only from the transcript and the prompt that are passed in."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.conversation.answer_types import ParsedAnswer, Text
from folkmoot.conversation.dialogue import Agenda, contains_signal, interview
from folkmoot.conversation.transcript import EMPTY_TRANSCRIPT, Speaker, Utterance, build_messages

ANN = Speaker("ann", "Ann", "participant", "You are Ann.")
BOB_UTTERANCE = Utterance("bob", "I like parks.", "Bob")
CAT_UTTERANCE = Utterance("cat", "I do not.", "Cat")
OWN_UTTERANCE = Utterance("ann", "Nor do I.", "Ann")


def list_messages(*args: object) -> list[tuple[str, str]]:
    return [(message.role, message.content) for message in build_messages(*args).messages]  # type: ignore[arg-type]


def test_two_speakers_make_a_dialogue_without_names() -> None:
    history = EMPTY_TRANSCRIPT + BOB_UTTERANCE + OWN_UTTERANCE + BOB_UTTERANCE
    assert list_messages(ANN, history, "") == [
        ("system", "You are Ann."),
        ("user", "I like parks."),
        ("assistant", "Nor do I."),
        ("user", "I like parks."),
    ]


def test_several_speakers_are_named_and_adjacent_messages_joined() -> None:
    assert list_messages(ANN, EMPTY_TRANSCRIPT + BOB_UTTERANCE + CAT_UTTERANCE, "And you?") == [
        ("system", "You are Ann."),
        ("user", "Bob: I like parks.\n\nCat: I do not.\n\nAnd you?"),
    ]


def test_missing_utterances_are_left_out_and_transcripts_are_immutable() -> None:
    history = EMPTY_TRANSCRIPT + BOB_UTTERANCE
    longer_history = history + Utterance("cat", "", "Cat", missing="refused")
    assert len(history) == 1 and len(longer_history) == 2
    assert list_messages(ANN, longer_history, "")[1:] == [("user", "I like parks.")]


TEXTS_WITH_SIGNAL = (
    *("SATISFIED", " SATISFIED\n", '"SATISFIED."', "Satisfied.", "satisfied", "[SATISFIED]"),
    *(
        "**SATISFIED**",
        "**Satisfied!**",
        "`SATISFIED`",
        "« SATISFIED »",
        "(SATISFIED)",
        "✅ SATISFIED",
    ),
    "Thank you, that makes your reasons clear.\n\nSATISFIED",
    "Thank you for your patience! I have no further questions. **SATISFIED**",
    "Thanks, I don't have any more questions: SATISFIED",
    "Thank you for explaining — SATISFIED.",
    "Thank you. [SATISFIED]",
    "Thank you for all of this [SATISFIED]",
    "Status: satisfied",
    "SATISFIED\n\nThank you for taking part.",
    "What you say about cost is clear to me now.\n> SATISFIED",
    *("I am satisfied.", "I'm satisfied!", "I am now fully satisfied.", "I am **SATISFIED**."),
    "Thank you for explaining that. I am satisfied.",
    "Okay, I'm satisfied.",
)
TEXTS_WITHOUT_SIGNAL = (
    *(
        "",
        "...",
        "I am SATISFIED with that",
        "SATISFIED with that",
        "NOT SATISFIED",
        "Unsatisfied.",
    ),
    *("I am not satisfied.", "Are you satisfied?", "Satisfied?", "SATISFIED?", "**Satisfied?**"),
    *("I'm not yet SATISFIED.", "I am not [SATISFIED]", "I am not: SATISFIED", "Dissatisfied."),
    "Are people in your street happy, content, satisfied?",
    "You sound calm, content, satisfied. Why?",
    "When I understand you I will say: SATISFIED",
    "Once that is clear, SATISFIED",
    "SATISFIED. But one more thing: what about the cost?",
    "What would make you\nsatisfied?",
    "Tell me more, and then I can be fully (SATISFIED)",
    *("I am hardly satisfied.", "I am glad that you are satisfied.", "You say: I'm satisfied?"),
    *("I would be happy if I am satisfied.", "I am satisfied. But why parks?"),
)


@pytest.mark.parametrize("text", TEXTS_WITH_SIGNAL)
def test_a_signal_is_read_in_common_spellings(text: str) -> None:
    assert contains_signal(text, "SATISFIED")


@pytest.mark.parametrize("text", TEXTS_WITHOUT_SIGNAL)
def test_a_negated_or_questioned_signal_does_not_count(text: str) -> None:
    assert not contains_signal(text, "SATISFIED")


@given(
    thanks=st.sampled_from(("", "Thank you.", "Thanks, that is clear!", "I see what you mean.")),
    separator=st.sampled_from((" ", "\n", "\n\n")),
    decoration=st.sampled_from(
        (("", ""), ("**", "**"), ("[", "]"), ('"', '"'), ("_", "_"), ("`", "`"))
    ),
    end=st.sampled_from(("", ".", "!", " ✅")),
    change_case=st.sampled_from((str.upper, str.title, str.lower)),
)
def test_thanks_and_decoration_do_not_hide_the_signal(
    thanks: str,
    separator: str,
    decoration: tuple[str, str],
    end: str,
    change_case: Callable[[str], str],
) -> None:
    decorated_signal = decoration[0] + change_case("SATISFIED") + end + decoration[1]
    assert contains_signal(thanks + separator + decorated_signal, "SATISFIED")
    for negated_signal in (
        f"I am not {decorated_signal}",
        f"I would not call this {decorated_signal}",
    ):
        assert not contains_signal(thanks + separator + negated_signal, "SATISFIED")
    assert not contains_signal(f"{thanks}{separator}Are you {decorated_signal}?", "SATISFIED")


class ScriptedScope:
    """A scope that answers with prepared replies."""

    def __init__(self, *replies: str) -> None:
        self.replies = list(replies)
        self.history_lengths: list[int] = []

        self.address = "talk/ask0"
        self.turns: list[object] = []

    async def ask(
        self,
        speaker: Speaker,
        prompt: str,
        *,
        answer_type: Text,
        history: object = EMPTY_TRANSCRIPT,
        about: str = "",
    ) -> str:
        assert bool(answer_type.end_signal) == (speaker.role == "moderator") and about == "the walk"
        self.history_lengths.append(len(history))  # type: ignore[arg-type]
        parsed = answer_type.parse_reply(self.replies.pop(0))
        assert isinstance(parsed, ParsedAnswer)
        return parsed.value

    def say(self, speaker: Speaker, text: str, *, address: str, **columns: object) -> Utterance:
        self.turns.append(columns["turn"])
        return Utterance(speaker.id, text, speaker.name, speaker.role, id=address)


async def test_a_dialogue_ends_on_the_signal_or_at_the_maximum() -> None:
    moderator = Speaker("moderator", "Moderator", "moderator")
    agenda = Agenda("Begin.", "DONE", 2, about="the walk")
    short_dialogue = await interview(
        ScriptedScope("Why?", "Because.", "DONE"), moderator, ANN, agenda
    )
    assert short_dialogue.ended == "signal"
    assert [utterance.text for utterance in short_dialogue.transcript] == ["Why?", "Because."]
    scope = ScriptedScope("Why?", "Because.", "How?", "So.", "DONE")
    long_dialogue = await interview(scope, moderator, ANN, agenda)
    assert (
        long_dialogue.ended == "limit"
        and len(long_dialogue.transcript) == 4
        and scope.replies == ["DONE"]
    )
    assert scope.turns == [1, 2, 3, 4]


@pytest.mark.parametrize("last", TEXTS_WITH_SIGNAL)
async def test_the_signal_is_not_put_to_the_participant(last: str) -> None:
    moderator = Speaker("moderator", "Moderator", "moderator")
    scope = ScriptedScope("Why?", "Because.", last, "You're welcome.")
    dialogue = await interview(
        scope, moderator, ANN, Agenda("Begin.", "SATISFIED", 5, about="the walk")
    )
    assert dialogue.ended == "signal" and scope.replies == ["You're welcome."]
    assert [utterance.text for utterance in dialogue.transcript] == ["Why?", "Because."]


async def test_words_in_the_name_of_the_other_speaker_are_neither_answer_nor_signal() -> None:
    moderator = Speaker("moderator", "Moderator", "moderator")
    scope = ScriptedScope(
        "**Moderator:** Why?\n\n**Participant:** It is near.\nModerator: SATISFIED",
        "It is near.\n\nModerator: And the price?\nI pay it.",
        "Participant: How?",  # the speaker of these words is unknown
        "So.\nAnn: I mean it.",
    )
    dialogue = await interview(
        scope, moderator, ANN, Agenda("Begin.", "SATISFIED", 2, about="the walk")
    )
    assert [utterance.text for utterance in dialogue.transcript] == [
        "**Moderator:** Why?",
        "It is near.",
        "Participant: How?",
        "So.\nAnn: I mean it.",
    ]
