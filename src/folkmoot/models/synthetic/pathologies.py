"""What bad models do to a reply, off by default: refusals, broken formats, strangers, essays.

The other pathologies (position bias, acquiescence, sycophancy, shrinking variance, instability) act
where choices and numbers are made.
"""

from __future__ import annotations

from folkmoot.models.synthetic.draws import Draws, unit
from folkmoot.models.synthetic.knobs import Knobs
from folkmoot.models.synthetic.reading import Reading

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


def spoil(text: str, reading: Reading, knobs: Knobs, seed: int, address: str) -> tuple[str, str]:
    """The reply after its pathologies, and its finish reason (`stop` or `refusal`)."""
    if knobs.refusals and unit(seed, address, "refusal") < knobs.refusals:
        return Draws(seed, address, "refused").pick(_REFUSALS), "refusal"
    listed = reading.options and text in reading.options
    if listed and knobs.off_list and unit(seed, address, "off list") < knobs.off_list:
        return Draws(seed, address, "off").pick(_OFF_LIST), "stop"
    if knobs.malformed and unit(seed, address, "malformed") < knobs.malformed:
        return _broken(text, Draws(seed, address, "broken")), "stop"
    if knobs.over_length and unit(seed, address, "over length") < knobs.over_length:
        return _padded(text, Draws(seed, address, "padding")), "stop"
    return text, "stop"


def _broken(text: str, draws: Draws) -> str:
    """JSON cut short, fenced with talk, or with a trailing comma; a choice wrapped in a phrase."""
    if text.startswith(("{", "[")):
        way = draws.between(0, 2)
        if way == 0:
            return text[: max(1, int(len(text) * 0.7))]
        if way == 1:
            return f"Sure, here is what you asked for:\n```json\n{text}\n```\nAnything else?"
        return text[:-1] + "," + text[-1]
    if len(text) < 120:
        return f"I would go with… hmm, {text[: max(1, len(text) // 2)]}"
    return text[: len(text) // 3]


def _padded(text: str, draws: Draws) -> str:
    if text.startswith(("{", "[")):
        return f"{' '.join(draws.shuffled(_PADDING))}\n\n{text}"
    return f"{text} {' '.join(draws.shuffled(_PADDING) * 3)}"
