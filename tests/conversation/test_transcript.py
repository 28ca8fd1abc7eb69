"""Who hears what: messages are made from what is passed in and from nothing else."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.conversation.answer_types import ParsedAnswer, Text
from folkmoot.conversation.dialogue import Agenda, contains_signal, interview
from folkmoot.conversation.transcript import EMPTY_TRANSCRIPT, Speaker, Utterance, build_messages

ANN = Speaker("ann", "Ann", "participant", "You are Ann.")
BOB = Utterance("bob", "I like parks.", "Bob")
CAT = Utterance("cat", "I do not.", "Cat")
OWN = Utterance("ann", "Nor do I.", "Ann")


def flat(*args: object) -> list[tuple[str, str]]:
    return [(m.role, m.content) for m in build_messages(*args).messages]  # type: ignore[arg-type]


def test_two_voices_are_a_plain_dialogue() -> None:
    heard = EMPTY_TRANSCRIPT + BOB + OWN + BOB
    assert flat(ANN, heard, "") == [
        ("system", "You are Ann."),
        ("user", "I like parks."),
        ("assistant", "Nor do I."),
        ("user", "I like parks."),
    ]


def test_several_voices_are_named_and_neighbours_joined() -> None:
    assert flat(ANN, EMPTY_TRANSCRIPT + BOB + CAT, "And you?") == [
        ("system", "You are Ann."),
        ("user", "Bob: I like parks.\n\nCat: I do not.\n\nAnd you?"),
    ]


def test_missing_utterances_are_not_heard_and_transcripts_do_not_change() -> None:
    heard = EMPTY_TRANSCRIPT + BOB
    longer = heard + Utterance("cat", "", "Cat", missing="refused")
    assert len(heard) == 1 and len(longer) == 2
    assert flat(ANN, longer, "")[1:] == [("user", "I like parks.")]


GIVEN = (
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
NOT_GIVEN = (
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


@pytest.mark.parametrize("text", GIVEN)
def test_a_signal_is_read_as_people_write_it(text: str) -> None:
    assert contains_signal(text, "SATISFIED")


@pytest.mark.parametrize("text", NOT_GIVEN)
def test_a_signal_inside_a_sentence_negated_or_asked_is_none(text: str) -> None:
    assert not contains_signal(text, "SATISFIED")


@given(
    thanks=st.sampled_from(("", "Thank you.", "Thanks, that is clear!", "I see what you mean.")),
    between=st.sampled_from((" ", "\n", "\n\n")),
    around=st.sampled_from(
        (("", ""), ("**", "**"), ("[", "]"), ('"', '"'), ("_", "_"), ("`", "`"))
    ),
    end=st.sampled_from(("", ".", "!", " ✅")),
    case=st.sampled_from((str.upper, str.title, str.lower)),
)
def test_thanks_and_decoration_do_not_hide_the_signal(
    thanks: str, between: str, around: tuple[str, str], end: str, case: Callable[[str], str]
) -> None:
    said = around[0] + case("SATISFIED") + end + around[1]
    assert contains_signal(thanks + between + said, "SATISFIED")
    for denied in (f"I am not {said}", f"I would not call this {said}"):
        assert not contains_signal(thanks + between + denied, "SATISFIED")
    assert not contains_signal(f"{thanks}{between}Are you {said}?", "SATISFIED")


class Scene:
    """A scope that answers from a list."""

    def __init__(self, *replies: str) -> None:
        self.replies = list(replies)
        self.heard: list[int] = []

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
        self.heard.append(len(history))  # type: ignore[arg-type]
        parsed = answer_type.parse_reply(self.replies.pop(0))
        assert isinstance(parsed, ParsedAnswer)
        return parsed.value

    def say(self, who: Speaker, text: str, *, address: str, **columns: object) -> Utterance:
        self.turns.append(columns["turn"])
        return Utterance(who.id, text, who.name, who.role, id=address)


async def test_a_dialogue_ends_on_the_signal_or_at_the_maximum() -> None:
    moderator = Speaker("moderator", "Moderator", "moderator")
    agenda = Agenda("Begin.", "DONE", 2, about="the walk")
    early = await interview(Scene("Why?", "Because.", "DONE"), moderator, ANN, agenda)
    assert early.ended == "signal"
    assert [u.text for u in early.transcript] == ["Why?", "Because."]
    scene = Scene("Why?", "Because.", "How?", "So.", "DONE")
    late = await interview(scene, moderator, ANN, agenda)
    assert late.ended == "limit" and len(late.transcript) == 4 and scene.replies == ["DONE"]
    assert scene.turns == [1, 2, 3, 4]


@pytest.mark.parametrize("last", GIVEN)
async def test_no_participant_is_asked_the_signal(last: str) -> None:
    moderator = Speaker("moderator", "Moderator", "moderator")
    scene = Scene("Why?", "Because.", last, "You're welcome.")
    talk = await interview(
        scene, moderator, ANN, Agenda("Begin.", "SATISFIED", 5, about="the walk")
    )
    assert talk.ended == "signal" and scene.replies == ["You're welcome."]
    assert [u.text for u in talk.transcript] == ["Why?", "Because."]


async def test_what_is_said_in_the_others_name_is_neither_an_answer_nor_the_signal() -> None:
    moderator = Speaker("moderator", "Moderator", "moderator")
    scene = Scene(
        "**Moderator:** Why?\n\n**Participant:** It is near.\nModerator: SATISFIED",
        "It is near.\n\nModerator: And the price?\nI pay it.",
        "Participant: How?",  # nobody can say whose words these are
        "So.\nAnn: I mean it.",
    )
    talk = await interview(
        scene, moderator, ANN, Agenda("Begin.", "SATISFIED", 2, about="the walk")
    )
    assert [u.text for u in talk.transcript] == [
        "**Moderator:** Why?",
        "It is near.",
        "Participant: How?",
        "So.\nAnn: I mean it.",
    ]
