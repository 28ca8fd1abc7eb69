"""Putting a task to one speaker and keeping what came of it: shared by all task types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from folkmoot.conversation.answers import Missing, Number
from folkmoot.conversation.transcript import Speaker, Transcript, Utterance
from folkmoot.engine.session import Exchange, Scope
from folkmoot.studies.workbook.assignment import Seat
from folkmoot.studies.workbook.model import FACILITATOR
from folkmoot.studies.workbook.permutations import TaskInPlay
from folkmoot.studies.workbook.reply import Given, WorkbookAnswer
from folkmoot.studies.workbook.response_options import Listed, Shown, show
from folkmoot.studies.workbook.room import NOT_AVAILABLE, Response, Room
from folkmoot.studies.workbook.templates import (
    OPTIONS,
    TemplateProblem,
    names_in,
    normalise_options,
    render,
)

INSTRUCTION = "Instruction"  # who seems to speak when the workbook tells a special role what to do


class Asked:
    """One participant's exchange in a task: its answer, and what it adds to its own memory."""

    def __init__(self, seat: Seat, response: Response, memory: Sequence[Utterance]) -> None:
        self.seat = seat
        self.response = response
        self.memory = tuple(memory)

    def aloud(self, task: TaskInPlay) -> Utterance:
        """The answer as others hear it."""
        given = self.response.given
        missing = given.reason if isinstance(given, Missing) else None
        text = "" if isinstance(given, Missing) else given.text
        who, finish = self.seat, self.response.finish
        return Utterance(
            *(who.id, text, who.name, "participant", task.task.task_id), None, missing, finish
        )


def by_facilitator(text: str, task: TaskInPlay) -> Utterance:
    """Words that the Facilitator poses as the workbook has them; no model is asked for them."""
    return Utterance(FACILITATOR, text, FACILITATOR, "facilitator", task.task.task_id)


def wording(room: Room, task: TaskInPlay, who: Seat | str, options: str) -> tuple[str, bool]:
    """The prompt for one speaker, filled in, and whether it holds the options.

    `who` may be a role's label: then it is the question as those hear it to whom it is not put.
    """
    label = who.role if isinstance(who, Seat) else special_label(room, who)
    text = normalise_options(task.prompts[label])
    names, _ = names_in(text)
    values = {**room.fillings(who, names - {OPTIONS}), OPTIONS: options}
    try:
        return render(text, values).strip(), OPTIONS in names
    except TemplateProblem:
        # The values of this session break the text (a division by zero, say): without them it
        # was checked, so the participant reads that they are not available.
        gone = dict.fromkeys(names - {OPTIONS} - set(room.experiment.constants), NOT_AVAILABLE)
        return render(text, {**values, **gone}).strip(), OPTIONS in names


def question_aloud(room: Room, task: TaskInPlay, in_play: Sequence[Seat | str]) -> None:
    """Let those hear the question to whom it is not put: special roles, and who sits out."""
    first = next((who for who in in_play if isinstance(who, Seat)), None)
    if first is None:
        return
    question = by_facilitator(wording(room, task, first.role, "")[0], task)
    room.said.append(question)
    room.tell([*room.specials, *(s.id for s in room.seats if s not in in_play)], question)


def special_label(room: Room, special: str) -> str:
    """The label under which the workbook has a special role."""
    role = room.experiment.special(special)
    return role.label if role else special


def shown_options(scope: Scope, task: TaskInPlay, seat: Seat) -> Shown:
    """The options as this participant sees them in this task, in an order of its own."""
    return show(
        task.options_for(seat.role),
        integer=task.task.var_type == "integer",
        shuffle=task.task.randomize_response_order,
        rng=scope.rng,
    )


def answer_type(task: TaskInPlay, seat: Seat, options: Shown) -> WorkbookAnswer:
    """How the reply is to be read."""
    row = task.task
    return WorkbookAnswer(
        choices=task.options_for(seat.role),
        order=options.order,
        var_type=row.var_type,
        validate=row.validate_response,
        as_json=row.format_response,
        speculation=row.generate_speculation_score,
    )


async def ask_seat(
    scope: Scope,
    room: Room,
    task: TaskInPlay,
    seat: Seat,
    *,
    heard: Transcript,
    place: int,
    prompt: str = "question",
    peers: Sequence[Utterance] = (),
) -> Asked:
    """Put a task to one participant. `heard` is all it knows; `peers` stand in the prompt."""
    options = shown_options(scope, task, seat)
    wanted = answer_type(task, seat, options)
    text, has_options = wording(room, task, seat, options.text)
    variables: dict[str, Any] = {
        "options": "" if has_options and prompt == "question" else options.text,
        "as_json": wanted.as_json,
        "speculation": wanted.speculation,
        "listed": isinstance(wanted.choices, Listed) and wanted.validate,
        "numeric": wanted.numeric and wanted.validate,
    }
    if prompt == "question":
        variables |= {"peers": peers, "text": text}
    else:
        variables["called"] = seat.name
    put = scope.prompt(prompt, **variables)
    who = room.speakers[seat.id]
    reasks = room.reasks if task.task.validate_response else 0
    got = await scope.exchange(who, put, heard=heard, answer=wanted, reasks=reasks)
    given = got.value
    by_provider = got.reply.finish.startswith("refused:")
    if isinstance(given, Missing) and given.reason in ("unparsed", "refused") and not by_provider:
        given = wanted.last(got.text)
    missing = given.reason if isinstance(given, Missing) else None
    own = "" if missing else got.text.strip()
    memory = [
        by_facilitator(put, task),
        Utterance(seat.id, own, seat.name, "participant", task.task.task_id, missing=missing),
    ]
    score = given.score if isinstance(given, Given) else None
    if wanted.speculation and not wanted.as_json and missing is None:
        score, more = await _speculation(scope, task, who, seat, heard + memory)
        memory += more
    finish = got.reply.finish
    response = Response(
        task, place, seat.id, seat.role, given, got.reasks, options.order, score, finish
    )
    return Asked(seat, response, memory)


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


async def ask_special(
    scope: Scope, room: Room, task: TaskInPlay, label: str, *, place: int
) -> Utterance:
    """Let the Facilitator or the Summarizer speak; it has heard everything, secrets too."""
    text, _ = wording(room, task, label, "")
    who = room.speakers[label]
    heard = room.heard.get(label, Transcript())
    got: Exchange[str] = await scope.exchange(who, text, heard=heard)
    missing = got.value.reason if isinstance(got.value, Missing) else None
    given = got.value if isinstance(got.value, Missing) else Given(got.value, "unchecked")
    finish = got.reply.finish
    room.special_replies.append(
        Response(task, place, label, label, given, got.reasks, finish=finish)
    )
    room.messages += 1
    said = Utterance(
        label,
        got.text.strip() if missing is None else "",
        label,
        label.lower(),
        task.task.task_id,
        missing=missing,
        finish=finish,
    )
    instruction = Utterance(INSTRUCTION, text, INSTRUCTION, "instruction", task.task.task_id)
    room.tell([label], instruction)
    room.tell([label], said)
    room.said.append(said)
    return said


def settle(room: Room, asked: Asked) -> None:
    """Keep an answer, count it, and let the special roles hear it."""
    room.note(asked.response)
    room.messages += 1
    said = asked.aloud(asked.response.task)
    room.said.append(said)
    room.tell(room.specials, said)
