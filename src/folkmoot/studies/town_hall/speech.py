"""What is said at a meeting, recorded as it is said.

Statements, what the moderator says and the closing text are public. Thoughts, reflections and the
wording of questions are not: prompts show them to their owner, or to whom a question is put.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from folkmoot.conversation.answer_types import DECLINED
from folkmoot.conversation.transcript import Speaker, Utterance
from folkmoot.engine.session.session import Scope
from folkmoot.studies.town_hall.answers import (
    UNREAD,
    Closing,
    Moderation,
    Reflection,
    Thinking,
    Turn,
)
from folkmoot.studies.town_hall.discussion import Call, Meeting, PutTo, Recorded

RESIDENT, MODERATOR, PLANNER = "resident", "moderator", "planner"
# Parts of a reply beside the statement; where a reply holds several residents, behind their id.
THOUGHTS, REFLECTION, QUESTION = "thoughts", "reflection", "question"


def part_of(utterance_id: str) -> str:
    """Return which private part of a reply an utterance is: thoughts, reflection or question; empty
    for what was said in public."""
    part = utterance_id.partition("#")[2].rpartition(".")[2]
    return next((name for name in (THOUGHTS, REFLECTION, QUESTION) if part.startswith(name)), "")


def round_of(utterance_id: str) -> int:
    """Return the round in which an utterance was made; 0 for none."""
    stage = utterance_id.split("/")[1]
    return int(stage.removeprefix("round")) if stage.startswith("round") else 0


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply that holds words of a speaker: in which round, and at which address. `shared`: it
    holds those of several residents."""

    meeting: Meeting
    speaker: Speaker
    round: int | None
    address: str
    shared: bool = False

    def say(self, scope: Scope, text: str, stage: str, part: str = "", **columns: Any) -> Utterance:
        """Record one text of the reply; what has a `part` of its own is private. `columns`: those
        of `SpokenRow` that differ from their defaults, and `missing`."""
        meeting, who = self.meeting, self.speaker
        of = {"discussion_id": meeting.id, "set": meeting.set.number, "level": meeting.level.name}
        own = {"turn": None, "is_vulnerable": who.id in meeting.vulnerable, "addressee": None}
        return scope.say(
            who,
            text,
            address=self.address,
            part=".".join(filter(None, (who.id if self.shared else "", part))),
            public=not part,
            stage=stage,
            round=self.round,
            **{**of, **own, **columns},
        )


def reply_of(
    meeting: Meeting, resident: str, number: int, address: str, *, shared: bool = False
) -> Reply:
    """The reply at an address, as one of a resident in a round."""
    speaker = Speaker(resident, meeting.names[resident], RESIDENT)
    return Reply(meeting, speaker, number, address, shared)


def record_thoughts(scope: Scope, reply: Reply, thinking: Thinking | None) -> Utterance | None:
    """Record what a resident thought, as they are shown it again; None if there is nothing."""
    if thinking is None or thinking.unanswered:
        return None
    noted = thinking.to_prompt()
    if not noted["reactions"]:
        del noted["reactions"]  # as in the first round, which has none
    return reply.say(scope, _as_json(noted), "think", THOUGHTS)


def record_statement(
    scope: Scope, reply: Reply, turn: Turn, thoughts: Utterance | None
) -> Recorded:
    """Record what a resident said to the hall (an empty text is silence), and each question in it
    for those to whom it is put."""
    speaking, me = turn.speaking, reply.speaker.id
    assert reply.round is not None
    said = reply.say(
        scope,
        speaking.full_statement,
        "speak",
        missing=None if turn.heard else DECLINED if speaking.declined else UNREAD,
        turn=reply.meeting.orders[reply.round - 1].index(me) + 1,
    )
    questions = []
    for number, question in enumerate(speaking.questions, start=1):
        # Whoever made no statement has put no question that anybody could hear.
        if speaking.full_statement and question.content:
            part, to = f"{QUESTION}{number}", question.target
            put = reply.say(scope, question.content, "speak", part, addressee=to)
            questions.append(PutTo(to, put))
    return Recorded(said, tuple(questions), thoughts)


def record_reflection(scope: Scope, reply: Reply, reflection: Reflection) -> Utterance | None:
    """Record how a resident looked back, as they are shown it again; None if there is nothing."""
    if reflection.unanswered:
        return None
    return reply.say(scope, _as_json(reflection.to_prompt()), "reflect", REFLECTION)


def record_moderation(
    scope: Scope, meeting: Meeting, who: Speaker, said: Moderation, call: Call
) -> Utterance:
    """Record what the moderator said after a round."""
    missing = call.missing or (UNREAD if said.parse_error or "spoken" in said.missing else None)
    reply = Reply(meeting, who, call.round, call.address)
    turn = len(meeting.ids) + 1  # behind the statements
    return reply.say(scope, said.spoken, "moderate", missing=missing, turn=turn)


def record_consensus(
    scope: Scope, meeting: Meeting, who: Speaker, closing: Closing, call: Call
) -> Utterance:
    """Record the closing text."""
    missing = call.missing or (UNREAD if closing.parse_error else None)
    reply = Reply(meeting, who, None, call.address)
    return reply.say(scope, closing.consensus, "consensus", missing=missing)


def _as_json(noted: dict[str, object]) -> str:
    return json.dumps(noted, ensure_ascii=False)
