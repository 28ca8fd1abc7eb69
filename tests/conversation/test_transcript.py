"""Who hears what: messages are made from what is passed in and from nothing else."""

from __future__ import annotations

from folkmoot.conversation.dialogue import is_signal, question_and_answer
from folkmoot.conversation.transcript import EMPTY, Speaker, Utterance, messages_for

ANN = Speaker("ann", "Ann", "participant", "You are Ann.")
BOB = Utterance("bob", "I like parks.", "Bob")
CAT = Utterance("cat", "I do not.", "Cat")
OWN = Utterance("ann", "Nor do I.", "Ann")


def flat(*args: object) -> list[tuple[str, str]]:
    return [(m.role, m.content) for m in messages_for(*args)]  # type: ignore[arg-type]


def test_two_voices_are_a_plain_dialogue() -> None:
    heard = EMPTY + BOB + OWN + BOB
    assert flat(ANN, heard, "") == [
        ("system", "You are Ann."),
        ("user", "I like parks."),
        ("assistant", "Nor do I."),
        ("user", "I like parks."),
    ]


def test_several_voices_are_named_and_neighbours_joined() -> None:
    assert flat(ANN, EMPTY + BOB + CAT, "And you?") == [
        ("system", "You are Ann."),
        ("user", "Bob: I like parks.\n\nCat: I do not.\n\nAnd you?"),
    ]


def test_missing_utterances_are_not_heard_and_transcripts_do_not_change() -> None:
    heard = EMPTY + BOB
    longer = heard + Utterance("cat", "", "Cat", missing="refused")
    assert len(heard) == 1 and len(longer) == 2
    assert flat(ANN, longer, "")[1:] == [("user", "I like parks.")]


def test_the_signal_is_exact() -> None:
    assert is_signal(" SATISFIED\n", "SATISFIED") and is_signal('"SATISFIED."', "SATISFIED")
    for text in ("satisfied", "I am SATISFIED", "SATISFIED with that", "NOT SATISFIED", ""):
        assert not is_signal(text, "SATISFIED")


class Scene:
    """A scope that answers from a list."""

    def __init__(self, *replies: str) -> None:
        self.replies = list(replies)
        self.heard: list[int] = []

    async def ask(self, who: Speaker, prompt: str, *, heard: object = EMPTY) -> str:
        self.heard.append(len(heard))  # type: ignore[arg-type]
        return self.replies.pop(0)


async def test_a_dialogue_ends_on_the_signal_or_at_the_maximum() -> None:
    moderator = Speaker("moderator", "Moderator", "moderator")
    told = {"opening": "Begin.", "signal": "DONE", "max_exchanges": 2}
    early = await question_and_answer(Scene("Why?", "Because.", "DONE"), moderator, ANN, **told)  # type: ignore[arg-type]
    assert early.ended == "signal"
    assert [u.text for u in early.transcript] == ["Why?", "Because."]
    scene = Scene("Why?", "Because.", "How?", "So.", "DONE")
    late = await question_and_answer(scene, moderator, ANN, **told)  # type: ignore[arg-type]
    assert late.ended == "limit" and len(late.transcript) == 4 and scene.replies == ["DONE"]
