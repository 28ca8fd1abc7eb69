"""One task put to one speaker: the prompt, the question as others hear it, and the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from folkmoot.conversation.answer_types import Missing
from folkmoot.conversation.choices import Number
from folkmoot.conversation.transcript import EMPTY_TRANSCRIPT, Speaker, Transcript, Utterance
from folkmoot.engine.session.session import AskResult, Scope
from folkmoot.models.images import find_image_references, find_images, replace_images
from folkmoot.provenance import SourcedText, cell_id
from folkmoot.studies.workbook.answers import (
    GivenAnswer,
    ListedOptions,
    WorkbookAnswer,
    format_options,
)
from folkmoot.studies.workbook.expressions import (
    ExpressionProblem,
)
from folkmoot.studies.workbook.participants import (
    SessionParticipant,
    TaskInPlay,
    name_of,
)
from folkmoot.studies.workbook.placeholders import (
    OPTIONS,
    names_in,
    render_text,
)
from folkmoot.studies.workbook.sessions import (
    EMPTY_PROMPT,
    NOT_AVAILABLE,
    POSER,
    Prompts,
    Response,
    SessionState,
    quote_material,
)

# Who seems to speak when the workbook tells a special role what to do.
INSTRUCTOR = Speaker("Instruction", "Instruction", "instruction")


@dataclass(frozen=True)
class AskedTask:
    """One participant's exchange in a task: its answer as others hear it, and what it adds to its
    own memory."""

    seat: SessionParticipant
    response: Response
    said: Utterance
    memory: tuple[Utterance, ...]


@dataclass(frozen=True)
class FilledPrompt:
    """A task's prompt for one speaker, filled in; its `images` (their words)."""

    text: str
    has_options: bool
    images: tuple[str, ...]


def fill_prompt(
    state: SessionState, task: TaskInPlay, who: SessionParticipant | str, options: str
) -> FilledPrompt:
    """The prompt for one speaker, filled in.

    `who` may be a role's label: then it is the question as those hear it to whom it is not put.
    """
    filled, names = _fill_prompt(state, task, who, options)
    answered = [
        (span.start, span.end)
        for span in filled.spans
        if span.source.kind == "utterance" or span.source.id.startswith("computed.")
    ]
    # What somebody answered is words, whatever address is in it.
    words_alone = {
        image.words
        for image, found in find_images(filled)
        if any(start <= found.start() and found.end() <= end for start, end in answered)
    }
    if not state.sends_images:
        return FilledPrompt(replace_images(filled, words_alone), OPTIONS in names, ())
    shown = (image.words for image in find_image_references(f"{filled}\n{options}"))
    images = tuple(words for words in shown if words not in words_alone)
    return FilledPrompt(filled, OPTIONS in names, images)


def _fill_prompt(
    state: SessionState, task: TaskInPlay, who: SessionParticipant | str, options: str
) -> tuple[SourcedText, frozenset[str]]:
    """A task's prompt filled in, and the names in it."""
    label = who.role if isinstance(who, SessionParticipant) else special_label(state, who)
    template = task.prompts[label]
    names = names_in(template)
    values = {**state.placeholder_values(who, names - {OPTIONS}), OPTIONS: options}
    beforehand = {OPTIONS, *state.experiment.named}
    answers = {name for name in names - beforehand if "." not in name}
    try:
        filled = render_text(template, values)
    except ExpressionProblem:
        # The values of this session break the text (a division by zero, say): without them it
        # was checked, so the participant reads that they are not available.
        filled = render_text(template, {**values, **dict.fromkeys(answers, NOT_AVAILABLE)})
    return quote_material(filled, template, task.cell), names


def asked_in(state: SessionState, task: TaskInPlay) -> list[SessionParticipant | str]:
    """Who is asked in a task, in order: those with a prompt that is not empty.

    A text may hold nothing for some of them (`{% if give_1 > 5 %}Why?{% endif %}`). They sit out,
    and their answer is missing with that reason.
    """
    asked: list[SessionParticipant | str] = []
    for who in state.in_play(task):
        if _fill_prompt(state, task, who, OPTIONS)[0]:
            asked.append(who)
        elif isinstance(who, SessionParticipant):
            skipped = Missing(EMPTY_PROMPT)
            state.note(Response(task, state.rounds, who.id, who.role, skipped))
        else:
            skipped = Missing(EMPTY_PROMPT)
            state.special_replies.append(Response(task, state.rounds, who, who, skipped))
    return asked


def say_question(
    scope: Scope, state: SessionState, task: TaskInPlay, in_play: Sequence[SessionParticipant | str]
) -> Utterance | None:
    """Let those hear the question to whom it is not put: special roles, and who sits out. Return it
    as they hear it; None if it depends on who is asked."""
    first = next((who for who in in_play if isinstance(who, SessionParticipant)), None)
    put = fill_prompt(state, task, first.role, "") if first else None
    if put is None or not put.text:
        return None
    state.turns += 1
    question = state.record_utterance(
        scope, task, POSER, put.text, turn=state.turns, images=put.images
    )
    state.add_to_history(
        [
            *state.special_roles,
            *(
                session_participant.id
                for session_participant in state.taken_seats
                if session_participant not in in_play
            ),
        ],
        question,
    )
    return question


def say_question_to(
    scope: Scope,
    state: SessionState,
    task: TaskInPlay,
    seat: SessionParticipant,
    aloud: Utterance | None,
) -> None:
    """Let a participant hear the question to the group, in the words for its role (`aloud`: as all
    others hear it)."""
    put = fill_prompt(state, task, seat, "")
    same = aloud is not None and (aloud.text, aloud.images) == (put.text, put.images)
    if aloud is None or not same:
        aloud = state.record_utterance(scope, task, POSER, put.text, images=put.images)
    state.add_to_history([seat.id], aloud)


def special_label(state: SessionState, special: str) -> str:
    """The label under which the workbook has a special role."""
    role = state.experiment.find_special_role(special)
    return role.label if role else special


@dataclass(frozen=True)
class TaskPrompt:
    """A task as it is put to one participant: the prompt, its images, the answer that is wanted,
    and what it is about: the task's text alone."""

    prompt: str
    images: tuple[str, ...]
    wanted: WorkbookAnswer
    about: str


def build_task_prompt(
    prompt: Prompts,
    rng: np.random.Generator,
    state: SessionState,
    task: TaskInPlay,
    seat: SessionParticipant,
    peers: Sequence[Utterance] = (),
) -> TaskPrompt:
    """A task in the words for one participant. `rng` shuffles the options; `peers` answered before
    and stand in the prompt."""
    row, choices = task.task, task.options_for(seat.role)
    name = "turn" if row.type == "discussion" else "question"
    options = format_options(
        choices,
        integer=row.var_type == "integer",
        shuffle=row.randomize_response_order,
        rng=rng,
        recorded=cell_id("options.options", state.experiment.id, row.task_id, seat.role),
    )
    if not state.sends_images:
        options = replace(options, text=replace_images(options.text))
    wanted = WorkbookAnswer(
        choices,
        options.order,
        row.var_type,
        validate=row.validate_response,
        as_json=row.format_response,
        speculation=row.generate_speculation_score,
    )
    put = fill_prompt(state, task, seat, options.text)
    variables: dict[str, object] = {
        "options": "" if put.has_options and name == "question" else options.text,
        "answer_format": wanted.describe_format(),
        "listed": isinstance(choices, ListedOptions) and wanted.validate,
        "numeric": wanted.is_numeric and wanted.validate,
    }
    if name == "question":
        variables |= {"peers": [_peer_answer(state, said) for said in peers], "text": put.text}
    else:
        variables["called"] = name_of(state.experiment, seat)
    about = fill_prompt(state, task, seat, "").text if put.has_options else put.text
    return TaskPrompt(prompt(name, **variables), put.images, wanted, str(about))


def _peer_answer(state: SessionState, said: Utterance) -> Mapping[str, str]:
    """An answer that stands in the prompt of those who answer later, and by whom it is."""
    seat = next(
        (
            session_participant
            for session_participant in state.taken_seats
            if session_participant.id == said.speaker_id
        ),
        None,
    )
    name = SourcedText(said.name) if seat is None else name_of(state.experiment, seat)
    return {"name": name, "text": said.quoted_text}


async def ask_seat(
    scope: Scope,
    state: SessionState,
    task: TaskInPlay,
    seat: SessionParticipant,
    *,
    turn: int,
    peers: Sequence[Utterance] = (),
) -> AskedTask:
    """Put a task to one participant, who knows what it has heard. `peers` stand in the prompt."""
    row, heard = task.task, state.heard.get(seat.id, EMPTY_TRANSCRIPT)
    put = build_task_prompt(scope.prompt, scope.rng, state, task, seat, peers)
    wanted = put.wanted
    question = state.record_utterance(scope, task, POSER, put.prompt, images=put.images)
    who = state.speakers[seat.id]
    seeing = replace(who, images=(*who.images, *put.images))
    reasks = state.reasks if row.validate_response else 0
    got = await scope.ask_detailed(
        seeing, put.prompt, history=heard, answer_type=wanted, reasks=reasks, about=put.about
    )
    given, finish = got.value, got.reply.finish
    by_provider = finish.startswith("refused:")
    if isinstance(given, Missing) and given.reason in ("unparsed", "refused") and not by_provider:
        given = wanted.last(got.text)
    missing = given.reason if isinstance(given, Missing) else None
    answer = "" if isinstance(given, Missing) else given.text
    public = row.type != "private_question" or state.reveals_private
    said = state.record_utterance(
        scope, task, who, answer, got.address, turn=turn, public=public, missing=missing
    )
    own = "" if missing else got.text.strip()
    # It remembers its reply as it wrote it.
    reply = (
        said
        if own == answer
        else state.record_utterance(scope, task, who, own, got.address, part="reply")
    )
    memory = [question, reply]
    score = given.score if isinstance(given, GivenAnswer) else None
    if wanted.speculation and not wanted.as_json and missing is None:
        score, more = await _ask_speculation(scope, state, task, who, heard + memory)
        memory += more
    response = Response(
        task,
        state.rounds,
        seat.id,
        seat.role,
        given,
        said.id,
        got.reasks,
        wanted.order,
        score,
        finish,
    )
    return AskedTask(seat, response, said, tuple(memory))


async def _ask_speculation(
    scope: Scope, state: SessionState, task: TaskInPlay, who: Speaker, heard: Transcript
) -> tuple[int | None, list[Utterance]]:
    """How speculative the answer was, asked for by itself so that plain answers stay plain."""
    prompt = scope.prompt("speculation")
    question = state.record_utterance(scope, task, POSER, prompt)
    wanted = Number(0, 100, integer=True)
    about = "how speculative the last answer was"
    got: AskResult[float] = await scope.ask_detailed(
        who, prompt, history=heard, answer_type=wanted, about=about
    )
    if isinstance(got.value, Missing):
        return None, []
    said = state.record_utterance(scope, task, who, got.text.strip(), got.address)
    return int(got.value), [question, said]


async def ask_special(
    scope: Scope, state: SessionState, task: TaskInPlay, label: str, turn: int
) -> Utterance:
    """Let the Facilitator or the Summarizer speak; it has heard everything, secrets too."""
    put = fill_prompt(state, task, label, "")
    who = state.speakers[label]
    seeing = replace(who, images=(*who.images, *put.images))
    instruction = state.record_utterance(scope, task, INSTRUCTOR, put.text, images=put.images)
    got: AskResult[str] = await scope.ask_detailed(
        seeing, put.text, history=state.heard.get(label, EMPTY_TRANSCRIPT), about=str(put.text)
    )
    if isinstance(got.value, Missing):
        given: GivenAnswer | Missing = got.value
        words, missing = "", got.value.reason
    else:
        given = GivenAnswer(str(got.value), "unchecked")
        words, missing = got.text.strip(), None
    said = state.record_utterance(scope, task, who, words, got.address, turn=turn, missing=missing)
    state.special_replies.append(
        Response(
            task,
            state.rounds,
            label,
            label,
            given,
            said.id,
            got.reasks,
            finish=got.reply.finish,
        )
    )
    state.messages += 1
    state.turns += 1
    state.add_to_history([label], instruction)
    state.add_to_history([label], said)
    return said


def record_answer(state: SessionState, asked: AskedTask) -> None:
    """Keep an answer, count it, let its speaker remember it and the special roles hear it."""
    state.note(asked.response)
    state.messages += 1
    state.turns += 1
    state.add_to_history(state.special_roles, asked.said)
    for utterance in asked.memory:
        state.add_to_history([asked.seat.id], utterance)
