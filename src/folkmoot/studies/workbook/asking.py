"""Putting a task to one speaker and keeping what came of it: shared by all task types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from folkmoot.conversation.answers import Missing
from folkmoot.conversation.choices import Number
from folkmoot.conversation.transcript import EMPTY, Speaker, Transcript, Utterance
from folkmoot.engine.session import Exchange, Scope
from folkmoot.models.images import images_in
from folkmoot.studies.workbook.answers import Given, Listed, WorkbookAnswer, show
from folkmoot.studies.workbook.config import FACILITATOR
from folkmoot.studies.workbook.experiments import TaskInPlay
from folkmoot.studies.workbook.participants import Seat
from folkmoot.studies.workbook.placeholders import (
    NAMESPACES,
    OPTIONS,
    TemplateProblem,
    names_in,
    normalise_options,
    render,
)
from folkmoot.studies.workbook.room import NOT_AVAILABLE, Prompts, Response, Room

INSTRUCTION = "Instruction"  # who seems to speak when the workbook tells a special role what to do


@dataclass(frozen=True)
class Asked:
    """One participant's exchange in a task: its answer, and what it adds to its own memory."""

    seat: Seat
    response: Response
    memory: tuple[Utterance, ...]

    @property
    def aloud(self) -> Utterance:
        """The answer as others hear it."""
        given = self.response.given
        missing = given.reason if isinstance(given, Missing) else None
        text = "" if isinstance(given, Missing) else given.text
        task, finish = self.response.task.task.task_id, self.response.finish
        return Utterance(
            self.seat.id, text, self.seat.name, "participant", task, None, missing, finish
        )


@dataclass(frozen=True)
class Wording:
    """A task's prompt for one speaker, filled in; its `images` (their words)."""

    text: str
    has_options: bool
    images: tuple[str, ...]


def by_facilitator(text: str, task: TaskInPlay, images: tuple[str, ...] = ()) -> Utterance:
    """Words that the Facilitator poses as the workbook has them; no model is asked for them."""
    said = Utterance(FACILITATOR, text, FACILITATOR, "facilitator", task.task.task_id)
    return said._replace(images=images)


def wording(room: Room, task: TaskInPlay, who: Seat | str, options: str) -> Wording:
    """The prompt for one speaker, filled in.

    `who` may be a role's label: then it is the question as those hear it to whom it is not put.
    """
    label = who.role if isinstance(who, Seat) else special_label(room, who)
    text = normalise_options(task.prompts[label])
    names, _ = names_in(text)
    values = {**room.fillings(who, names - {OPTIONS}), OPTIONS: options}
    answers = names - {OPTIONS} - set(room.experiment.constants) - set(NAMESPACES)
    try:
        filled = render(text, values).strip()
    except TemplateProblem:
        # The values of this session break the text (a division by zero, say): without them it
        # was checked, so the participant reads that they are not available.
        filled = render(text, {**values, **dict.fromkeys(answers, NOT_AVAILABLE)}).strip()
    # What somebody answered is words, whatever address is in it.
    said = [str(values[name]) for name in answers]
    shown = (image.words for image in images_in(f"{filled}\n{options}"))
    images = tuple(words for words in shown if not any(words in text for text in said))
    return Wording(filled, OPTIONS in names, images)


def question_aloud(room: Room, task: TaskInPlay, in_play: Sequence[Seat | str]) -> None:
    """Let those hear the question to whom it is not put: special roles, and who sits out."""
    first = next((who for who in in_play if isinstance(who, Seat)), None)
    if first is None:
        return
    put = wording(room, task, first.role, "")
    question = by_facilitator(put.text, task, put.images)
    room.said.append(question)
    room.tell([*room.specials, *(s.id for s in room.seats if s not in in_play)], question)


def special_label(room: Room, special: str) -> str:
    """The label under which the workbook has a special role."""
    role = room.experiment.special(special)
    return role.label if role else special


@dataclass(frozen=True)
class Put:
    """A task as it is put to one participant: the prompt, its images, the answer that is wanted."""

    prompt: str
    images: tuple[str, ...]
    wanted: WorkbookAnswer


def put_to(
    prompt: Prompts,
    rng: np.random.Generator,
    room: Room,
    task: TaskInPlay,
    seat: Seat,
    peers: Sequence[Utterance] = (),
) -> Put:
    """A task in the words for one participant. `rng` shuffles the options; `peers` answered before
    and stand in the prompt."""
    row, choices = task.task, task.options_for(seat.role)
    name = "turn" if row.type == "discussion" else "question"
    options = show(
        choices,
        integer=row.var_type == "integer",
        shuffle=row.randomize_response_order,
        rng=rng,
    )
    wanted = WorkbookAnswer(
        choices,
        options.order,
        row.var_type,
        validate=row.validate_response,
        as_json=row.format_response,
        speculation=row.generate_speculation_score,
    )
    put = wording(room, task, seat, options.text)
    variables: dict[str, Any] = {
        "options": "" if put.has_options and name == "question" else options.text,
        "as_json": wanted.as_json,
        "speculation": wanted.speculation,
        "listed": isinstance(choices, Listed) and wanted.validate,
        "numeric": wanted.numeric and wanted.validate,
    }
    if name == "question":
        variables |= {"peers": peers, "text": put.text}
    else:
        variables["called"] = seat.name
    return Put(prompt(name, **variables), put.images, wanted)


async def ask_seat(
    scope: Scope,
    room: Room,
    task: TaskInPlay,
    seat: Seat,
    *,
    heard: Transcript,
    peers: Sequence[Utterance] = (),
) -> Asked:
    """Put a task to one participant. `heard` is all it knows; `peers` stand in the prompt."""
    row = task.task
    put = put_to(scope.prompt, scope.rng, room, task, seat, peers)
    wanted = put.wanted
    question = by_facilitator(put.prompt, task, put.images)
    who = room.speakers[seat.id]
    seeing = replace(who, images=(*who.images, *put.images))
    reasks = room.reasks if row.validate_response else 0
    got = await scope.exchange(seeing, put.prompt, heard=heard, answer=wanted, reasks=reasks)
    given, finish = got.value, got.reply.finish
    by_provider = finish.startswith("refused:")
    if isinstance(given, Missing) and given.reason in ("unparsed", "refused") and not by_provider:
        given = wanted.last(got.text)
    missing = given.reason if isinstance(given, Missing) else None
    own = "" if missing else got.text.strip()
    memory = [
        question,
        Utterance(seat.id, own, seat.name, "participant", row.task_id, missing=missing),
    ]
    score = given.score if isinstance(given, Given) else None
    if wanted.speculation and not wanted.as_json and missing is None:
        score, more = await _speculation(scope, task, who, seat, heard + memory)
        memory += more
    response = Response(
        task, room.rounds, seat.id, seat.role, given, got.reasks, wanted.order, score, finish
    )
    return Asked(seat, response, tuple(memory))


async def _speculation(
    scope: Scope, task: TaskInPlay, who: Speaker, seat: Seat, heard: Transcript
) -> tuple[int | None, list[Utterance]]:
    """How speculative the answer was, asked for by itself so that plain answers stay plain."""
    question = scope.prompt("speculation")
    wanted = Number(0, 100, integer=True)
    got: Exchange[float] = await scope.exchange(who, question, heard=heard, answer=wanted)
    if isinstance(got.value, Missing):
        return None, []
    said = Utterance(seat.id, got.text.strip(), seat.name, "participant", task.task.task_id)
    return int(got.value), [by_facilitator(question, task), said]


async def ask_special(scope: Scope, room: Room, task: TaskInPlay, label: str) -> Utterance:
    """Let the Facilitator or the Summarizer speak; it has heard everything, secrets too."""
    put = wording(room, task, label, "")
    who = room.speakers[label]
    seeing = replace(who, images=(*who.images, *put.images))
    got: Exchange[str] = await scope.exchange(seeing, put.text, heard=room.heard.get(label, EMPTY))
    if isinstance(got.value, Missing):
        given: Given | Missing = got.value
        words, missing = "", got.value.reason
    else:
        given = Given(got.value, "unchecked")
        words, missing = got.text.strip(), None
    finish = got.reply.finish
    room.special_replies.append(
        Response(task, room.rounds, label, label, given, got.reasks, finish=finish)
    )
    room.messages += 1
    said = Utterance(
        label,
        words,
        label,
        label.lower(),
        task.task.task_id,
        missing=missing,
        finish=finish,
    )
    told = Utterance(INSTRUCTION, put.text, INSTRUCTION, "instruction", task.task.task_id)
    room.tell([label], told._replace(images=put.images))
    room.tell([label], said)
    room.said.append(said)
    return said


def settle(room: Room, asked: Asked) -> None:
    """Keep an answer, count it, let its speaker remember it and the special roles hear it."""
    room.note(asked.response)
    room.messages += 1
    room.said.append(asked.aloud)
    room.tell(room.specials, asked.aloud)
    for utterance in asked.memory:
        room.tell([asked.seat.id], utterance)
