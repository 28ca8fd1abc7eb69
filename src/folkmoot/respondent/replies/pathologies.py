"""Simulated faults of weak models, such as refusals and replies that are cut off.

All faults are off by default.
"""
# The other pathologies (position bias, acquiescence, sycophancy, shrinking variance, instability)
# are part of the computation of choices and numbers.

from __future__ import annotations

from folkmoot.respondent.mind.draws import Draws, uniform_draw
from folkmoot.respondent.mind.mind import SimulatedRespondent

_REFUSALS = (
    "I'm sorry, but I can't take part in this.",
    "As an AI language model, I don't have personal opinions and cannot make this choice.",
    "I'd rather not answer that.",
)
_OFF_LIST = (
    "None of these options",
    "A combination of several of them",
    "Something else entirely",
    "It depends on the details",
)
_PADDING = (
    "There is of course a great deal more that could be said about all of this.",
    "To put the same thing in other words, the matter has many sides, and each has its weight.",
    "Let me elaborate on that at some length, since it deserves a thorough treatment.",
    "One could go on, and perhaps one should, for such questions are seldom simple.",
)


def apply_pathologies(text: str, mind: SimulatedRespondent) -> tuple[str, str]:
    """Apply the simulated faults to a reply. Return the new text and the finish reason."""
    # At most one fault of weak models changes the reply. All faults are off by default.
    knobs = mind.knobs

    def draw_pathology(knob: str) -> Draws | None:
        # `knob` is the setting that holds the chance of the fault.
        chance = getattr(knobs, knob)
        draw_key = (mind.at.seed, mind.at.address, knob)
        return Draws(*draw_key, "how") if chance and uniform_draw(*draw_key) < chance else None

    # The order matters: a reply has at most one of these faults, and a refusal replaces the whole
    # reply.
    if draws := draw_pathology("refusals"):
        return draws.pick_item(_REFUSALS), "refusal"
    if text in mind.options and (draws := draw_pathology("off_list")):
        return draws.pick_item(_OFF_LIST), "stop"
    if draws := draw_pathology("malformed"):
        return _break_json(text, draws), "stop"
    if draws := draw_pathology("over_length"):
        return _pad_reply(text, draws), "stop"
    if draws := draw_pathology("cut"):
        return text[: max(1, int(len(text) * (0.2 + 0.6 * draws.unit())))], "length"
    return text, mind.finish


def _break_json(text: str, draws: Draws) -> str:
    if text.startswith(("{", "[")):
        variant = draws.draw_integer(0, 2)
        if variant == 0:
            return text[: max(1, int(len(text) * 0.7))]
        if variant == 1:
            return f"Sure, here is what you asked for:\n```json\n{text}\n```\nAnything else?"
        return text[:-1] + "," + text[-1]
    if len(text) < 120:
        return f"I would go with… hmm, {text[: max(1, len(text) // 2)]}"
    return text[: len(text) // 3]


def _pad_reply(text: str, draws: Draws) -> str:
    if text.startswith(("{", "[")):
        return f"{' '.join(draws.shuffled_copy(_PADDING))}\n\n{text}"
    return f"{text} {' '.join(draws.shuffled_copy(_PADDING) * 3)}"
