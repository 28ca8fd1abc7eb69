"""Who said what. Utterances and transcripts are immutable, and hearing is always an argument."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from folkmoot.conversation.prompts import Prompt
from folkmoot.models.request import Message, Role


@dataclass(frozen=True, slots=True)
class Speaker:
    """Someone who can be asked: a participant, a moderator, a planner, a facilitator.

    `system` is the system prompt; `model` None means the run's model for this role. `images`: words
    of `system` and of the prompts put to it that are sent as images (`models.images`). `persona` is
    the description of the person as it stands in what the speaker is told (of several lines, those
    that do): by it the embedded respondent knows one person in all prompts. It is sent to nobody.
    """

    id: str
    name: str = ""
    role: str = "participant"
    system: str = ""
    model: str | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    images: tuple[str, ...] = ()
    persona: str = ""


class Utterance(NamedTuple):
    """One thing said by one speaker. `missing` holds the reason when no words could be had;
    `finish` how the reply ended, None for words that no model wrote; `images` the words of `text`
    that are sent as images."""

    speaker_id: str
    text: str
    name: str = ""
    role: str = "participant"
    stage: str = ""
    round: int | None = None
    missing: str | None = None
    finish: str | None = None
    images: tuple[str, ...] = ()

    def to_source_json(self) -> dict[str, str]:
        """`{role, content}`, the transcript format of the cross-pollination source."""
        return {"role": self.role, "content": self.text}


@dataclass(frozen=True, slots=True)
class Transcript:
    """An immutable sequence of utterances; `+` gives a new one."""

    utterances: tuple[Utterance, ...] = ()

    def __add__(self, other: Utterance | Iterable[Utterance]) -> Transcript:
        if isinstance(other, Utterance):
            return Transcript((*self.utterances, other))
        return Transcript((*self.utterances, *other))

    def __iter__(self) -> Iterator[Utterance]:
        return iter(self.utterances)

    def __len__(self) -> int:
        return len(self.utterances)

    def __bool__(self) -> bool:
        return bool(self.utterances)

    def by(self, speaker_id: str) -> Transcript:
        """Only what this speaker said."""
        return Transcript(tuple(u for u in self.utterances if u.speaker_id == speaker_id))

    def last(self, n: int) -> Transcript:
        """The n most recent utterances."""
        return Transcript(self.utterances[-n:] if n > 0 else ())

    def to_source_json(self) -> list[dict[str, str]]:
        return [u.to_source_json() for u in self.utterances]

    def to_rows(self, *, stage: str | None = None, **shared: Any) -> list[dict[str, Any]]:
        """One record per utterance, `turn` counted from 1, with the shared columns added.

        `stage` replaces the stage of the utterances.
        """
        return [
            {
                **shared,
                "turn": turn,
                "stage": u.stage if stage is None else stage,
                "round": u.round,
                "speaker_id": u.speaker_id,
                "speaker_name": u.name,
                "speaker_role": u.role,
                "text": u.text,
                "missing": u.missing,
                "finish": u.finish,
            }
            for turn, u in enumerate(self.utterances, start=1)
        ]


EMPTY = Transcript()


def how_ended(asker: object) -> str | None:
    """How the last reply ended that a scope asked for; None for an asker that does not say."""
    found = getattr(asker, "finish", None)
    return found if isinstance(found, str) else None


def messages_for(who: Speaker, heard: Transcript, prompt: str) -> tuple[Message, ...]:
    """What `who` is sent: the system prompt, what was heard, then the prompt.

    Own words become `assistant`. Others' words become `user`; with more than one other voice
    each is introduced by name. Neighbouring messages of one role are joined, because some
    providers refuse two in a row. An utterance without a speaker id is a prompt that was given
    earlier: it is heard, but from nobody.
    """
    return told(who, heard, prompt)[0]


def told(
    who: Speaker, heard: Transcript, prompt: str
) -> tuple[tuple[Message, ...], tuple[int, ...]]:
    """`messages_for`, and where others of this speaker's may go on otherwise: see `Request.begins`.

    That is after each thing heard; at the end, where earlier prompts are among these; and where a
    prompt says so.
    """
    said = [u for u in heard.utterances if u.missing is None]
    several = len({u.speaker_id for u in said} - {"", who.id}) > 1
    messages: list[Message] = [Message("system", str(who.system))] if who.system else []
    length, ends = len(who.system), list(_begins(who.system))
    for u in (*said, Utterance("", str(prompt))):
        role: Role = "assistant" if u.speaker_id == who.id != "" else "user"
        named = several and role == "user" and u.speaker_id
        content = f"{u.name or u.speaker_id}: {u.text}" if named else u.text
        if not content:
            continue
        if said:
            ends.append(length)
        if messages and messages[-1].role == role:
            messages[-1] = Message(role, f"{messages[-1].content}\n\n{content}")
            length += 2
        else:
            messages.append(Message(role, content))
        length += len(content)
    ends += (length - len(prompt) + end for end in _begins(prompt))
    if any(not u.speaker_id for u in said):
        ends.append(length)
    return tuple(messages), tuple(dict.fromkeys(ends))


def _begins(text: str) -> tuple[int, ...]:
    return text.begins if isinstance(text, Prompt) else ()
