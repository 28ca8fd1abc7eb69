"""Put one task to one speaker: the prompt, the question as others hear it, and the answer."""

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

# The speaker of the workbook's instructions to a special role.
INSTRUCTOR = Speaker("Instruction", "Instruction", "instruction")


@dataclass(frozen=True)
class AskedTask:
    """The result of one task for one participant.

    `said` is the answer as others hear it. `memory` holds the utterances that are added to the
    participant's history.
    """

    seat: SessionParticipant
    response: Response
    said: Utterance
    memory: tuple[Utterance, ...]


@dataclass(frozen=True)
class FilledPrompt:
    """The filled prompt of a task for one speaker.

    `has_options` is True if the text shows the options itself. `images` holds the references as
    they are written in the text.
    """

    text: str
    has_options: bool
    images: tuple[str, ...]


def fill_prompt(
    state: SessionState, task: TaskInPlay, who: SessionParticipant | str, options: str
) -> FilledPrompt:
    """Return the prompt of a task for one speaker.

    If `who` is a role's label, it is the question as speakers hear it who are not asked.
    """
    filled, names = _fill_prompt(state, task, who, options)
    # Parts of the text that come from an answer or a computed value.
    answered = [
        (span.start, span.end)
        for span in filled.spans
        if span.source.kind == "utterance" or span.source.id.startswith("computed.")
    ]
    # An answer is text, even if it holds the address of an image. Participants cannot send images.
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
    """Return the filled prompt of a task, and the names in its template."""
    label = who.role if isinstance(who, SessionParticipant) else special_label(state, who)
    template = task.prompts[label]
    names = names_in(template)
    values = {**state.placeholder_values(who, names - {OPTIONS}), OPTIONS: options}
    beforehand = {OPTIONS, *state.experiment.named}
    answers = {name for name in names - beforehand if "." not in name}
    try:
        filled = render_text(template, values)
    except ExpressionProblem:
        # The values of this session break the text, for example by a division by zero. The checks
        # have filled it in without them, so the participant reads that they are not available.
        filled = render_text(template, {**values, **dict.fromkeys(answers, NOT_AVAILABLE)})
    return quote_material(filled, template, task.cell), names


def asked_in(state: SessionState, task: TaskInPlay) -> list[SessionParticipant | str]:
    """Return the speakers who are asked in a task, in order, and record the others as missing.

    A text may be empty for some speakers (`{% if give_1 > 5 %}Why?{% endif %}`). They are not
    asked, and their answer is missing with the reason `EMPTY_PROMPT`.
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
    """Add the question to the histories of special roles and of participants who sit out.

    Returns the question as they hear it, or None if there is no text that all of them can hear.
    """
    # Speakers who are not asked hear the question in the words for the first role.
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
    """Let a participant hear the question to the group, in the words for their role.

    `aloud` is the question as others hear it. It is reused if the words are the same.
    """
    put = fill_prompt(state, task, seat, "")
    same = aloud is not None and (aloud.text, aloud.images) == (put.text, put.images)
    if aloud is None or not same:
        aloud = state.record_utterance(scope, task, POSER, put.text, images=put.images)
    state.add_to_history([seat.id], aloud)


def special_label(state: SessionState, special: str) -> str:
    """Return the label that the workbook gives to a special role."""
    role = state.experiment.find_special_role(special)
    return role.label if role else special


@dataclass(frozen=True)
class TaskPrompt:
    """A task as it is put to one participant.

    `wanted` is the answer type. `about` is the text of the task alone, for the embedded respondent.
    """

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
    """Build the prompt of a task for one participant.

    `rng` shuffles the options. `peers` are earlier answers that the prompt lists.
    """
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
    # The text may show the options itself. Then the template must not list them again.
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
    """Return an earlier answer and the name of its speaker, for a prompt."""
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
    """Put a task to one participant and return the result. The prompt lists the answers `peers`."""
    row, heard = task.task, state.heard.get(seat.id, EMPTY_TRANSCRIPT)
    put = build_task_prompt(scope.prompt, scope.rng, state, task, seat, peers)
    wanted = put.wanted
    question = state.record_utterance(scope, task, POSER, put.prompt, images=put.images)
    who = state.speakers[seat.id]
    seeing = replace(who, images=(*who.images, *put.images))
    # Without validation any reply is an answer, so there is nothing to re-ask.
    reasks = state.reasks if row.validate_response else 0
    got = await scope.ask_detailed(
        seeing, put.prompt, history=heard, answer_type=wanted, reasks=reasks, about=put.about
    )
    given, finish = got.value, got.reply.finish
    # A refusal by the provider is no answer. Any other unreadable reply is kept, marked invalid.
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
    # The participant's history holds the reply as written, since a model continues its own style.
    reply = (
        said
        if own == answer
        else state.record_utterance(scope, task, who, own, got.address, part="reply")
    )
    memory = [question, reply]
    # In JSON the score is a field of the answer. Otherwise it needs a separate question.
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
    """Ask how speculative the last answer was, as a separate question.

    In the same reply, the rating would turn a plain answer into JSON.
    """
    prompt = scope.prompt("speculation")
    question = state.record_utterance(scope, task, POSER, prompt)
    wanted = Number(0, 100, integer=True)
    about = "how speculative the last answer was"
    got: AskResult[float] = await scope.ask_detailed(
        who, prompt, history=heard, answer_type=wanted, about=about
    )
    # An unreadable score is left out of the history, as if it had not been asked for.
    if isinstance(got.value, Missing):
        return None, []
    said = state.record_utterance(scope, task, who, got.text.strip(), got.address)
    return int(got.value), [question, said]


async def ask_special(
    scope: Scope, state: SessionState, task: TaskInPlay, label: str, turn: int
) -> Utterance:
    """Let the Facilitator or the Summarizer speak.

    They have heard all answers, private ones too.
    """
    put = fill_prompt(state, task, label, "")
    who = state.speakers[label]
    seeing = replace(who, images=(*who.images, *put.images))
    instruction = state.record_utterance(scope, task, INSTRUCTOR, put.text, images=put.images)
    got: AskResult[str] = await scope.ask_detailed(
        seeing, put.text, history=state.heard.get(label, EMPTY_TRANSCRIPT), about=str(put.text)
    )
    # The reply of a special role is plain text, which needs no validation.
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
    """Keep and count an answer, and add it to the histories of those who hear it now.

    They are its speaker and the special roles. The protocol adds it for other participants.
    """
    state.note(asked.response)
    state.messages += 1
    state.turns += 1
    state.add_to_history(state.special_roles, asked.said)
    for utterance in asked.memory:
        state.add_to_history([asked.seat.id], utterance)
