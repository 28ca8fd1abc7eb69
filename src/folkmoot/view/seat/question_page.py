"""The page of one question, with its form and the conversation so far."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from starlette.responses import Response

from folkmoot.conversation.answer_types import (
    ALL_FIELDS_INSTRUCTION,
    DECLINED,
    WAY_OUT_BY_KIND,
)
from folkmoot.conversation.transcript import Utterance
from folkmoot.engine.seats.seat_manager import (
    PendingQuestion,
    SeatManager,
    SeatState,
)
from folkmoot.hints import collapse_spaces, number_text, shorten
from folkmoot.models.images import MessagePart, find_image_references, split_messages
from folkmoot.models.request import Message
from folkmoot.view import forms
from folkmoot.view.site import (
    POLICY,
    render_page,
)

# The page reminds a participant when this share of the answer time is left, or this many seconds if
# they are longer.
NUDGE_SHARE, NUDGE_SECONDS = 0.25, 30.0
# In characters.
LONGEST_ANSWER = 200_000
# Characters of a folded persona that stay in view. They fill about three lines of a phone.
OPENING_CHARACTERS = 90
_OWN_IMAGES = "img-src 'self' data:"
# An image address that a policy can name exactly: the host has no wildcard, and the path is not a
# folder, which would allow all files in it.
_NAMEABLE = re.compile(r"(?ai)(https?://[a-z0-9.-]+(?::\d+)?/[!\"$->@-~]*\w)(?:[?#]|$)")


@dataclass(frozen=True, slots=True)
class UtteranceView:
    """One utterance of the history on the page of a seat.

    - `origin`: `mine` for the participant, `theirs` for another speaker, `asked` for a question.
    """

    name: str
    text: str
    # One of "mine", "theirs" and "asked", where "asked" is an earlier question.
    origin: str


def render_question(
    seat_manager: SeatManager,
    seat_state: SeatState,
    question: PendingQuestion,
    problem: str = "",
    sent: Mapping[str, Sequence[str]] | None = None,
    status: int = 200,
) -> Response:
    """Render the page of a question.

    - `problem`: the reason why the last submitted form was rejected, or "".
    - `sent`: the submitted values that fill the form.
    """
    # After a `problem`, `sent` fills the form with the submitted values.
    minutes = seat_manager.minutes_for(question.view)
    nudge = max(NUDGE_SECONDS, NUDGE_SHARE * 60 * minutes) if minutes else None
    split = partial(split_images, images=question.request.images)
    context = {
        "seat_state": seat_state,
        "settings": seat_manager.settings,
        "problem": problem,
        "messages": seat_manager.announcements_for(seat_state),
        "question": question,
        "scene": question.view,
        "so_far": so_far(question),
        "form": form_for(question),
        "sent": sent or {},
        "nudge": nudge,
        "number": max(1, seat_state.question_count - len(seat_state.questions) + 1),
        "expected": seat_manager.expected_questions,
        "parts": split,
        "opening": opening_of(split(question.view.speaker.system)),
    }
    response = render_page("seat.html.j2", context, status)
    response.headers["Content-Security-Policy"] = policy_for(question.request.images)
    return response


def split_images(text: str, images: Collection[str]) -> list[MessagePart]:
    """Split a text into text parts and the images between them."""
    return split_messages([Message("user", text)], images)[0][1]


def opening_of(parts: Sequence[MessagePart]) -> str:
    """Return the first words of a text for its folded form, or "" if it has only images."""
    words = collapse_spaces(" ".join(part.text for part in parts))
    opening = textwrap.shorten(words, OPENING_CHARACTERS, placeholder=" …")
    # Without a space, as in a Japanese text, no word can be kept whole.
    return opening if opening != "…" else shorten(words, OPENING_CHARACTERS)


def policy_for(images: Collection[str]) -> str:
    """Return a content security policy that lets the browser load `images`.

    - `images`: the references to the images, as written in the texts of the page.
    """
    # Images with an address that a policy cannot hold are left out.
    urls = (image.url for words in images for image in find_image_references(words))
    image_addresses = [match[1] for url in urls if (match := _NAMEABLE.match(url))]
    # A semicolon or a comma would end the entry in the policy.
    image_addresses = [
        address.replace(";", "%3B").replace(",", "%2C") for address in image_addresses
    ]
    return POLICY.replace(_OWN_IMAGES, " ".join([_OWN_IMAGES, *image_addresses]))


def so_far(question: PendingQuestion) -> list[UtteranceView]:
    """Return the conversation before a question, as a model would get it if no human answered."""
    # Names of speakers are shown if there are several other speakers.
    view = question.view
    has_several_speakers = (
        len({utterance.speaker_id for utterance in view.history} - {"", view.speaker.id}) > 1
    )
    return [
        _format_history(utterance, view.speaker.id, has_several_speakers)
        for utterance in view.history
    ]


def _format_history(
    utterance: Utterance, speaker_id: str, has_several_speakers: bool
) -> UtteranceView:
    if not utterance.speaker_id:
        return UtteranceView("", utterance.text, "asked")
    if utterance.speaker_id == speaker_id:
        return UtteranceView("You", utterance.text, "mine")
    return UtteranceView(
        (utterance.name or utterance.speaker_id) if has_several_speakers else "",
        utterance.text,
        "theirs",
    )


def form_for(question: PendingQuestion) -> forms.FormField:
    """Build the form in which a human answers the question."""
    # From its JSON schema, or else from its answer kind and options.
    schema, view = question.request.schema, question.view
    if schema is not None:
        form = forms.form_of(schema, view.fields_for_people)
    elif view.answer_kind == "choice" and view.options:
        options = tuple((option, option) for option in view.options)
        form = forms.FormField("a", "choice", "", required=True, options=options)
    elif view.answer_kind == "number":
        low, high = (
            (float(option) for option in view.options) if len(view.options) == 2 else (None, None)
        )
        form = forms.FormField("a", "number", "", required=True, low=low, high=high)
    else:
        form = forms.FormField("a", "text", "", required=True, shortest=1)
    # Declining refers to the whole object. Its fields have their own ways out.
    if form.kind == "object":
        return replace(form, ways_out=((forms.DECLINES_ALL, DECLINED),))
    return replace(form, ways_out=forms.ways_out(*_ways_out(question)))


def _ways_out(question: PendingQuestion) -> list[str]:
    view, ways_out = question.view, []
    if question.request.schema is None and (way := WAY_OUT_BY_KIND.get(view.answer_kind)):
        options = {"_".join(re.findall(r"[^\W_]+", option.casefold())) for option in view.options}
        if way not in options and not view.describe_parse_problem(way):
            ways_out.append(way)
    return [*ways_out, DECLINED]


def parse_form(
    question: PendingQuestion, sent: Mapping[str, Sequence[str]]
) -> tuple[str | None, str]:
    """Return the reply in a submitted form, and the reason why it cannot be used.

    The reply is None if the participant declines. The reason is empty for a usable reply.
    """
    form, schema = form_for(question), question.request.schema
    try:
        way = forms.way_out_of(form, sent)
        if way is not None:
            return (None if way == DECLINED else str(way)), ""
        if forms.is_untouched(sent):
            return None, _blank_answer_message(form)
        value = forms.answer_of(form, sent)
    except ValueError as error:
        return None, str(error)
    if schema is not None:
        if problem := forms.problem_with(value, schema, form):
            return None, problem
        text = json.dumps(value, ensure_ascii=False)
    else:
        text = str(value)
    if len(text) > LONGEST_ANSWER:
        return None, f"Please be shorter: at most {LONGEST_ANSWER:,} characters."
    return text, _word_for_humans(question.view.describe_parse_problem(text), form)


def _blank_answer_message(form: forms.FormField) -> str:
    request = "choose one of the options" if form.kind == "choice" else "give an answer"
    return f"Please {request}, or say that you prefer not to."


def _word_for_humans(problem: str, form: forms.FormField) -> str:
    if not problem:
        return ""
    problem_text = problem.replace(ALL_FIELDS_INSTRUCTION, "").removeprefix(
        "The JSON did not fit: "
    )
    problem_text = problem_text.partition("Reply with")[0].replace("The reply", "Your answer")
    problem_text = problem_text.replace("Input should", "it should").strip(" .")
    problem_text = re.sub(r'^The "([\w.]+)" could not be read\. ', r"\1: ", problem_text)
    field_path, _, rest = problem_text.partition(": ")
    if rest and re.fullmatch(r"[\w.]+", field_path):
        problem_text = f"{forms.label_path(form, field_path.split('.'))}: {rest}"
    if form.kind == "number" and form.low is not None and form.high is not None:
        request = f"Please give a number from {number_text(form.low)} to {number_text(form.high)}."
    elif form.kind == "choice":
        request = "Please choose one of the options."
    else:
        request = "Please change your answer."
    return f"{problem_text}. {request}" if problem_text else request
