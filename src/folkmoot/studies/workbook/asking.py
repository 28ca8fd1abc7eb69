"""Put one task to one speaker and get the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from folkmoot.conversation.answer_types import Missing
from folkmoot.conversation.choices import Number
from folkmoot.conversation.prompts import as_prompt, wording_for_people
from folkmoot.conversation.transcript import EMPTY_TRANSCRIPT, Speaker, Transcript, Utterance
from folkmoot.engine.session.asking import readable_part
from folkmoot.engine.session.session import AskResult, Scope
from folkmoot.models.images import find_image_references, find_images, replace_images
from folkmoot.provenance import SourcedText, cell_id, with_sources
from folkmoot.studies.workbook.answers import (
    GivenAnswer,
    ListedOptions,
    WorkbookAnswer,
    format_options,
)
from folkmoot.studies.workbook.language.expressions import (
    ExpressionProblem,
)
from folkmoot.studies.workbook.language.placeholders import (
    OPTIONS,
    names_in,
    render_text,
)
from folkmoot.studies.workbook.participants import (
    SessionParticipant,
    TaskInPlay,
    name_of,
)
from folkmoot.studies.workbook.sessions import (
    EMPTY_PROMPT,
    NOT_AVAILABLE,
    POSER,
    VALUE_OF_ANOTHER,
    Prompts,
    Response,
    SessionState,
    quote_material,
)

# The speaker of the workbook's instructions to a special role.
INSTRUCTOR = Speaker("Instruction", "Instruction", "instruction")


@dataclass(frozen=True)
class AskedTask:
    """The result of putting one task to one participant."""

    seat: SessionParticipant
    response: Response
    # The answer as other speakers hear it.
    utterance: Utterance
    # The utterances that are added to the participant's own history.
    memory: tuple[Utterance, ...]


@dataclass(frozen=True)
class FilledPrompt:
    """The prompt of a task for one speaker, with all placeholders filled in."""

    text: str
    # True if the text already shows the options.
    has_options: bool
    # The references to images, as written in the text.
    images: tuple[str, ...]


def fill_prompt(
    state: SessionState, task: TaskInPlay, speaker: SessionParticipant | str, options: str
) -> FilledPrompt:
    """Return the prompt of a task for one speaker, with all placeholders filled in."""
    # The prompt of a role has no personal values.
    text, names = _fill_prompt(state, task, speaker, options)
    # Parts of the text that come from an answer or a computed value.
    answer_spans = [
        (span.start, span.end)
        for span in text.spans
        if span.source.kind == "utterance" or span.source.id.startswith("computed.")
    ]
    # An answer is text, even if it holds the address of an image. Participants cannot send images.
    text_only_words = {
        image.words
        for image, match in find_images(text)
        if any(start <= match.start() and match.end() <= end for start, end in answer_spans)
    }
    images: tuple[str, ...] = ()
    if state.sends_images:
        all_words = (image.words for image in find_image_references(f"{text}\n{options}"))
        images = tuple(words for words in all_words if words not in text_only_words)
    else:
        text = with_sources(replace_images(text, text_only_words))
    if _people_template(state, task, speaker):
        wording, _ = _fill_prompt(state, task, speaker, options, is_for_people=True)
        text = as_prompt(text, as_prompt(wording))
    return FilledPrompt(text, OPTIONS in names, images)


def _label_of(state: SessionState, speaker: SessionParticipant | str) -> str:
    return (
        speaker.role if isinstance(speaker, SessionParticipant) else special_label(state, speaker)
    )


def _people_template(
    state: SessionState, task: TaskInPlay, speaker: SessionParticipant | str
) -> str:
    return task.people_prompts.get(_label_of(state, speaker), "")


def _fill_prompt(
    state: SessionState,
    task: TaskInPlay,
    speaker: SessionParticipant | str,
    options: str,
    *,
    is_for_people: bool = False,
) -> tuple[SourcedText, frozenset[str]]:
    # Also returns the names in the template.
    template = task.prompts[_label_of(state, speaker)]
    if is_for_people:
        template = _people_template(state, task, speaker)
    names = names_in(template)
    values = {**state.placeholder_values(speaker, names - {OPTIONS}), OPTIONS: options}
    known_names = {OPTIONS, *state.experiment.named}
    answers = {name for name in names - known_names if "." not in name}
    speaker_id = speaker.id if isinstance(speaker, SessionParticipant) else speaker

    def note_failure(expression: str, reason: str) -> object:
        # The values of this session can break an expression, for example by a division by zero. The
        # speaker reads that its value is not available. All other expressions keep their values.
        # Roles have no personal values, so a text for a whole role says nothing about an answer.
        if speaker_id in state.speakers:
            state.note_unfilled(task, speaker_id, expression, reason)
        return NOT_AVAILABLE

    try:
        text = render_text(template, values, note_failure)
    except ExpressionProblem as problem:
        # The answers make the text too long. The checks have filled it in without them.
        state.note_unfilled(task, speaker_id, ", ".join(sorted(answers)), str(problem))
        text = render_text(template, {**values, **dict.fromkeys(answers, NOT_AVAILABLE)})
    return quote_material(text, template, task.cell), names


def speakers_to_ask(state: SessionState, task: TaskInPlay) -> list[SessionParticipant | str]:
    """Return the speakers to ask, in speaking order.

    Speakers with an empty prompt are left out, and their answers are recorded as missing.
    """
    # A prompt such as `{% if give_1 > 5 %}Why?{% endif %}` can be empty.
    speakers: list[SessionParticipant | str] = []
    for speaker in state.in_play(task):
        if _fill_prompt(state, task, speaker, OPTIONS)[0]:
            speakers.append(speaker)
        elif isinstance(speaker, SessionParticipant):
            missing = Missing(EMPTY_PROMPT)
            state.note(Response(task, state.rounds, speaker.id, speaker.role, missing))
        else:
            missing = Missing(EMPTY_PROMPT)
            state.special_replies.append(Response(task, state.rounds, speaker, speaker, missing))
    return speakers


def say_question(
    scope: Scope, state: SessionState, task: TaskInPlay, in_play: Sequence[SessionParticipant | str]
) -> Utterance | None:
    """Record the question as an utterance, and return the utterance.

    Returns None if no participant is asked.
    """
    # Speakers who are asked read the question in their prompt. All others get it in their
    # histories.
    # Speakers who are not asked hear the question in the words for the first role.
    first_seat = next(
        (speaker for speaker in in_play if isinstance(speaker, SessionParticipant)), None
    )
    if first_seat is None:
        return None
    filled_prompt = fill_prompt(state, task, first_seat.role, "")
    # The text is empty if all of it depends on values that others may not see.
    template = task.prompts[first_seat.role]
    text = filled_prompt.text or quote_material(VALUE_OF_ANOTHER, template, task.cell)
    state.turns += 1
    question = state.record_utterance(
        scope, task, POSER, text, turn=state.turns, images=filled_prompt.images
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
    public_question: Utterance | None,
) -> None:
    """Add the question, in the words for the participant's role, to the participant's history."""
    # If the role has other words than the group, a new utterance is recorded.
    filled_prompt = fill_prompt(state, task, seat, "")
    is_same = public_question is not None and (public_question.text, public_question.images) == (
        filled_prompt.text,
        filled_prompt.images,
    )
    if public_question is None or not is_same:
        public_question = state.record_utterance(
            scope, task, POSER, filled_prompt.text, images=filled_prompt.images
        )
    state.add_to_history([seat.id], public_question)


def special_label(state: SessionState, special: str) -> str:
    """Return the label that the workbook gives to a special role."""
    role = state.experiment.find_special_role(special)
    return role.label if role else special


@dataclass(frozen=True)
class TaskPrompt:
    """One participant's prompt for a task, with the images and the answer type."""

    prompt: str
    images: tuple[str, ...]
    answer_type: WorkbookAnswer
    # The text of the task alone, for the embedded respondent.
    about: str


def build_task_prompt(
    prompt: Prompts,
    rng: np.random.Generator,
    state: SessionState,
    task: TaskInPlay,
    seat: SessionParticipant,
    peers: Sequence[Utterance] = (),
) -> TaskPrompt:
    """Build one participant's prompt for a task.

    `peers`: answers of other participants, which the prompt shows.
    """
    row, choices = task.task, task.options_for(seat.role)
    name = "turn" if row.type == "discussion" else "question"
    options = format_options(
        choices,
        integer=row.var_type == "integer",
        shuffle=row.randomize_response_order,
        rng=rng,
        source_id=cell_id("options.options", state.experiment.id, row.task_id, seat.role),
    )
    if not state.sends_images:
        options = replace(options, text=replace_images(options.text))
    answer_type = WorkbookAnswer(
        choices,
        options.order,
        row.var_type,
        validate=row.validate_response,
        as_json=row.format_response,
        speculation=row.generate_speculation_score,
        own_names=(seat.name,),
        other_names=_names_of_others(state, seat),
        # A private answer is no part of a conversation, and may be a list of what others will do.
        keeps_all_words=row.type == "private_question",
    )
    filled_prompt = fill_prompt(state, task, seat, options.text)
    text = filled_prompt.text
    if filled_prompt.has_options and options.for_people:
        wording = wording_for_people(fill_prompt(state, task, seat, options.for_people).text)
        text = as_prompt(text, as_prompt(wording))
    # The text may show the options itself. Then the template must not list them again.
    variables: dict[str, object] = {
        "options": "" if filled_prompt.has_options and name == "question" else options.text,
        # A human's page has the options of a list as buttons.
        "options_for_people": "" if options.order else options.for_people or options.text,
        "answer_format": answer_type.describe_format(),
        "listed": isinstance(choices, ListedOptions) and answer_type.validate,
        "numeric": answer_type.is_numeric and answer_type.validate,
    }
    if name == "question":
        variables |= {
            "peers": [_peer_answer(state, said) for said in peers],
            "text": text,
        }
    else:
        variables["called"] = name_of(state.experiment, seat)
    about = (
        fill_prompt(state, task, seat, "").text if filled_prompt.has_options else filled_prompt.text
    )
    return TaskPrompt(prompt(name, **variables), filled_prompt.images, answer_type, str(about))


def _names_of_others(state: SessionState, seat: SessionParticipant) -> tuple[str, ...]:
    # The study itself asks as the Facilitator.
    special_names = (special_label(state, special) for special in state.special_roles)
    names = (other.name for other in state.taken_seats if other is not seat)
    return tuple(dict.fromkeys((*map(str, names), *special_names, str(POSER.name))))


def _peer_answer(state: SessionState, utterance: Utterance) -> Mapping[str, str]:
    seat = next(
        (
            session_participant
            for session_participant in state.taken_seats
            if session_participant.id == utterance.speaker_id
        ),
        None,
    )
    name = SourcedText(utterance.name) if seat is None else name_of(state.experiment, seat)
    return {"name": name, "text": utterance.quoted_text}


async def ask_seat(
    scope: Scope,
    state: SessionState,
    task: TaskInPlay,
    seat: SessionParticipant,
    *,
    turn: int,
    peers: Sequence[Utterance] = (),
) -> AskedTask:
    """Put a task to one participant and return the result.

    `peers`: answers of other participants, which the prompt shows.
    """
    row, history = task.task, state.histories.get(seat.id, EMPTY_TRANSCRIPT)
    task_prompt = build_task_prompt(scope.prompt, scope.rng, state, task, seat, peers)
    answer_type = task_prompt.answer_type
    question = state.record_utterance(
        scope, task, POSER, task_prompt.prompt, images=task_prompt.images
    )
    speaker = state.speakers[seat.id]
    speaker_with_images = replace(speaker, images=(*speaker.images, *task_prompt.images))
    # Without validation any reply is an answer, so there is nothing to re-ask.
    reasks = state.reasks if row.validate_response else 0
    result = await scope.ask_detailed(
        speaker_with_images,
        task_prompt.prompt,
        history=history,
        answer_type=answer_type,
        reasks=reasks,
        about=task_prompt.about,
    )
    given = result.value
    # A reply that cannot be read is kept, marked invalid. Without a reply there is no answer.
    if isinstance(given, Missing) and given.reason == "unparsed":
        given = answer_type.last(readable_part(answer_type, result.reply))
    missing = given.reason if isinstance(given, Missing) else None
    answer_text = "" if isinstance(given, Missing) else given.text
    public = row.type != "private_question" or state.reveals_private
    utterance = state.record_utterance(
        scope, task, speaker, answer_text, result.address, turn=turn, public=public, missing=missing
    )
    reply_text = "" if missing else result.text.strip()
    # The participant's history holds the reply as written, since a model continues its own style. A
    # human reads the answer as all others do, and not the JSON that the page made of the form.
    # Words in the names of others, which a model has invented, are no part of the conversation.
    reply = (
        utterance
        if reply_text == answer_text or result.parse_step == "own_words"
        else state.record_utterance(
            scope, task, speaker, reply_text, result.address, part="reply"
        )._replace(for_people=answer_text)
    )
    memory = [question, reply]
    # In JSON the score is a field of the answer. Otherwise it needs a separate question.
    score = given.score if isinstance(given, GivenAnswer) else None
    if answer_type.speculation and not answer_type.as_json and missing is None:
        score, further = await _ask_speculation(scope, state, task, speaker, history + memory)
        memory += further
    response = Response(
        task,
        state.rounds,
        seat.id,
        seat.role,
        given,
        utterance.id,
        result.reasks,
        answer_type.order,
        score,
        result.reply.finish,
    )
    return AskedTask(seat, response, utterance, tuple(memory))


async def _ask_speculation(
    scope: Scope, state: SessionState, task: TaskInPlay, speaker: Speaker, history: Transcript
) -> tuple[int | None, list[Utterance]]:
    # Asking for the score together with the answer would require a JSON reply.
    prompt = scope.prompt("speculation")
    question = state.record_utterance(scope, task, POSER, prompt)
    answer_type = Number(0, 100, integer=True)
    about = "how speculative the last answer was"
    result: AskResult[float] = await scope.ask_detailed(
        speaker, prompt, history=history, answer_type=answer_type, about=about
    )
    # An unreadable score is left out of the history, as if it had not been asked for.
    if isinstance(result.value, Missing):
        return None, []
    reply = state.record_utterance(scope, task, speaker, result.text.strip(), result.address)
    return int(result.value), [question, reply]


async def ask_special(
    scope: Scope, state: SessionState, task: TaskInPlay, label: str, turn: int
) -> Utterance:
    """Ask the Facilitator or the Summarizer for an utterance, and return the utterance."""
    # Both roles read all answers, including private ones.
    filled_prompt = fill_prompt(state, task, label, "")
    speaker = state.speakers[label]
    speaker_with_images = replace(speaker, images=(*speaker.images, *filled_prompt.images))
    instruction = state.record_utterance(
        scope, task, INSTRUCTOR, filled_prompt.text, images=filled_prompt.images
    )
    result: AskResult[str] = await scope.ask_detailed(
        speaker_with_images,
        filled_prompt.text,
        history=state.histories.get(label, EMPTY_TRANSCRIPT),
        about=str(filled_prompt.text),
    )
    # The reply of a special role is plain text, which needs no validation.
    if isinstance(result.value, Missing):
        given: GivenAnswer | Missing = result.value
        text, missing = "", result.value.reason
    else:
        given = GivenAnswer(str(result.value), "unchecked")
        text, missing = result.text.strip(), None
    utterance = state.record_utterance(
        scope, task, speaker, text, result.address, turn=turn, missing=missing
    )
    state.special_replies.append(
        Response(
            task,
            state.rounds,
            label,
            label,
            given,
            utterance.id,
            result.reasks,
            finish=result.reply.finish,
        )
    )
    state.messages += 1
    state.turns += 1
    state.add_to_history([label], instruction)
    state.add_to_history([label], utterance)
    return utterance


def record_answer(state: SessionState, asked: AskedTask) -> None:
    """Store a participant's answer for later expressions.

    The answer is also added to the histories of the participant and of the special roles.
    """
    # Other participants hear it only when the protocol says so.
    state.note(asked.response)
    state.messages += 1
    state.turns += 1
    state.add_to_history(state.special_roles, asked.utterance)
    for utterance in asked.memory:
        state.add_to_history([asked.seat.id], utterance)
