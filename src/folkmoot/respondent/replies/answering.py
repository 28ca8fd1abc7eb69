"""Replies to the three basic kinds of questions: for an option, a number, or a text."""
# A study type's rule for an answer (`RespondentPart.answers`) takes precedence.

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from folkmoot.models.request import FINISH_UNMOVED
from folkmoot.respondent.mind.mind import SimulatedRespondent
from folkmoot.respondent.mind.part import Answering
from folkmoot.respondent.replies import roles
from folkmoot.respondent.replies.filling import fill_schema


def answer_as_text(mind: SimulatedRespondent, answers: Mapping[str, Answering]) -> str:
    """Return the reply to a request as text.

    - `answers`: the functions by which the study type computes answers.
    """
    # `answers` holds the study type's functions for some schemas and roles. If one of them fits the
    # request, it makes the answer. Otherwise the answer kind decides: choice, number, JSON or text.
    reading = mind.reading
    kind = reading.kind or "text"
    own_answer = answers.get(str(mind.schema.get("title", ""))) or answers.get(
        f"{reading.role} {kind}"
    )
    answer = own_answer(mind) if own_answer else None
    if own_answer is None and kind != "text" and mind.person and mind.is_unpersuaded_by_text:
        mind.finish = FINISH_UNMOVED
    if kind == "choice":
        choice = str(answer) if answer is not None else answer_choice(mind)
        return (
            json.dumps(fill_schema(mind, dict.fromkeys(_field_names(mind), choice)))
            if mind.schema
            else choice
        )
    if mind.schema:
        return json.dumps(
            fill_schema(mind, answer, known=own_answer is not None), ensure_ascii=False
        )
    if answer is not None:
        return str(answer)
    if kind == "number":
        return answer_number(mind)
    if kind == "json":
        return json.dumps(fill_schema(mind, None), ensure_ascii=False)
    return answer_text(mind)


def _field_names(mind: SimulatedRespondent) -> Sequence[str]:
    return tuple(mind.schema.get("properties") or ())


def answer_choice(mind: SimulatedRespondent) -> str:
    """Return one of the options."""
    # On a rating scale, this is the option nearest to the person's judgement of the question.
    # Otherwise, the person chooses by the utilities of the options.
    options = mind.options
    if len(options) < 2:
        mind.mark_unread()
        return options[0] if options else answer_text(mind)
    if not mind.person:
        return roles.judge_opposition(mind)
    return mind.choose_on_scale(options, mind.reading.about) or mind.choose_option()


def answer_number(mind: SimulatedRespondent) -> str:
    """Return a number within the bounds that the question sets."""
    # The lowest number means that the person is wholly against, and the highest wholly in favour.
    bounds = mind.reading.number_bounds
    if bounds is None or not mind.person:
        mind.mark_unread()
    low, high, is_whole = bounds or (0.0, 100.0, True)
    value = low + (high - low) * (mind.draw_judgement(mind.reading.about) + 1) / 2
    is_whole = is_whole and high - low > 1
    return str(round(value)) if is_whole else f"{value:.2f}".rstrip("0").rstrip(".")


def answer_text(mind: SimulatedRespondent) -> str:
    """Return free text: a participant's reasons, or the text of another role."""
    if not mind.person:
        return roles.answer_role(mind)
    reading, tongue = mind.reading, mind.speech
    if not mind.current_option:
        return mind.compose_reasons()
    # A text with an offered option is asked to give the view of the people who hold that option.
    if reading.offered:
        return roles.restate_reasons(mind, reading.offered[0])
    parts = []
    last_text = reading.heard_passages[-1].text if reading.heard_passages else ""
    argued_options = [
        option
        for option in mind.arguments_by_option(last_text)
        if option not in ("", mind.current_option)
    ]
    if argued_options:
        parts.append(_meet_argument(mind, argued_options[-1]))
    elif mind.who.calling and not reading.own_utterances:
        parts.append(tongue.draw_sentence("self"))
    return " ".join(
        [*parts, mind.compose_reasons(count=max(1, 3 - len(parts)) if argued_options else 0)]
    )


def _meet_argument(mind: SimulatedRespondent, rival: str) -> str:
    # Concede an argument for `rival`, or disagree with it.
    utility_of = dict(zip(mind.options, mind.option_utilities(), strict=True))
    gap = utility_of[mind.current_option] - utility_of[rival]
    # The chance to concede: high if the argument has won the person over, otherwise smaller the
    # farther the other option is behind.
    probability = 0.65 if gap < 0 else 0.12 + 0.3 * mind.who.susceptibility / (1 + gap)
    kind = "gives" if mind.draws.draw_chance(probability) else "holds"
    return mind.speech.draw_sentence(kind, O=mind.current_option, B=rival)
