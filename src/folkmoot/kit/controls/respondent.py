"""How the embedded respondent answers control questions.

It has no childhood and no dentist. It gives each persona a stable answer, and two knobs plant the
faults that controls must find: `drift` (who has heard others answers as another person would) and
`persona_forgetting` (who has talked no longer knows what the persona states).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from folkmoot.engine.settings.controls import AGE, CONFOUNDER
from folkmoot.respondent.mind.draws import uniform_draw
from folkmoot.respondent.mind.mind import SimulatedRespondent
from folkmoot.respondent.mind.part import Answering, RespondentPart
from folkmoot.respondent.mind.passages import of_kind

_AGE = re.compile(r"\b(\d{2})\b")
_DECISION = "decision-"
TURNS = 4  # passages of others after which the planted faults act in full


def _exposure_share(mind: SimulatedRespondent) -> float:
    """How much the person has heard of others, 0 to 1."""
    said = of_kind(mind.reading.passages, "utterance", "summary", own=False)
    return min(1.0, len(said) / TURNS)


def _has_drifted(mind: SimulatedRespondent, knob: float) -> bool:
    at = mind.at
    return uniform_draw(
        at.seed, mind.who.key, mind.reading.about, "drift"
    ) < knob * _exposure_share(mind)


def answer_choice(mind: SimulatedRespondent) -> object:
    """The answer to a negative control: the persona's own, or the first option in a drift."""
    options = mind.reading.offered
    if not options:
        return None
    if stated := _stated(mind):
        return next((option for option in options if stated.endswith(f" {option}.")), None)
    if _has_drifted(mind, mind.knobs.drift):
        return options[0]
    return _stable_option(mind, options)


def _stated(mind: SimulatedRespondent) -> str:
    """The attribute that is asked for, as it is stated among the persona's; else empty."""
    id = f"{CONFOUNDER}{mind.at.address.split('/')[-2]}"
    own = (
        passage for passage in of_kind(mind.reading.passages, "persona") if passage.source.id == id
    )
    return next((passage.text for passage in own), "")


def answer_number(mind: SimulatedRespondent) -> object:
    """A number: the age of the persona where it is asked for, else the persona's own."""
    bounds = mind.reading.number_bounds
    if bounds is None:
        return None
    low, high, _ = bounds
    age = _AGE.search(mind.reading.persona or "")
    if mind.at.address.split("/")[-2] == AGE:
        if age and not _has_drifted(mind, mind.knobs.persona_forgetting):
            return age[1]
    elif stated := _stated(mind):
        return stated.rstrip(".").rpartition(" ")[2]
    elif _has_drifted(mind, mind.knobs.drift):
        return round(low + (high - low) / 2)
    share = uniform_draw(mind.at.seed, mind.who.key, mind.reading.about, "answer")
    return round(low + (high - low) * share * share / 4)


def decision_scope(control: str) -> str:
    """The name of the scope in which a control asks a decision; no id of a question is like it."""
    return f"{_DECISION}{control}"


def _is_control(mind: SimulatedRespondent) -> bool:
    """Whether a control question is asked, and not the decision itself once more."""
    return not mind.at.address.split("/")[-2].startswith(_DECISION)


def _stable_option(mind: SimulatedRespondent, options: Sequence[str]) -> str:
    """The option of this persona: the same in every conversation."""
    at = mind.at
    return options[
        int(len(options) * uniform_draw(at.seed, mind.who.key, mind.reading.about, "answer"))
    ]


def part_for(part: RespondentPart[Any], config: object) -> RespondentPart[Any]:
    """The part of a study's respondent that also answers control questions about its run."""

    def first_control(own: Answering, others: Answering | None) -> Answering:
        def answer_control(mind: SimulatedRespondent) -> object:
            if _is_control(mind):
                return own(mind)
            return others(mind) if others is not None else None

        return answer_control

    controls = {"participant choice": answer_choice, "participant number": answer_number}
    joined = {key: first_control(own, part.answers.get(key)) for key, own in controls.items()}
    names = tuple(part.option_names(config))
    return RespondentPart(lambda _config: names, {**part.answers, **joined}, part.lexicon)
