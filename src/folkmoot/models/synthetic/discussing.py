"""The respondent in a focus group: participants, moderator and coder, as their prompts ask.

`reply` is the way in; it answers nothing but requests whose system prompt is of a focus group.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from folkmoot.models.request import Request
from folkmoot.models.synthetic.draws import Draws
from folkmoot.models.synthetic.knobs import Knobs
from folkmoot.models.synthetic.reading import Reading
from folkmoot.models.synthetic.table_guest import Guest
from folkmoot.models.synthetic.table_reading import (
    COOLED,
    WARMED,
    Heard,
    bank,
    concept_in,
    fixed_words,
    heard_in,
    lean_of,
    lowered,
    names_in,
)
from folkmoot.models.synthetic.table_talk import Speech

_IN_GROUP = re.compile(r"\bfocus group", re.IGNORECASE)
_MODERATOR = re.compile(r"^You are the moderator of a focus group", re.IGNORECASE)
_CODER = re.compile(r"^You code what people say", re.IGNORECASE)
_THEMES: tuple[tuple[str, str], ...] = (
    ("price", r"pric|cost|money|dollar|pay|cheap|expens"),
    ("trust", r"trust|promis|break|broke|warranty|lasts?\b"),
    ("effort", r"clean|hassle|fuss|set(?:ting)? (?:it )?up|half an hour|step less|time\b"),
    ("need", r"need|already own|nobody asked|works fine"),
    ("fit", r"my house|at home|the way (?:we|i) live|family"),
    ("fun", r"new|fun|try|fresh"),
)


def reply(request: Request, reading: Reading, draws: Draws, knobs: Knobs) -> str | None:
    """The reply to a request of a focus group; None for any other request."""
    system = reading.system
    if not _IN_GROUP.search(system):
        return None
    if _CODER.search(system):
        return _coded(request, reading, draws)
    if _MODERATOR.search(system):
        return _moderates(request, reading, draws)
    guest = Guest.of(reading, knobs)
    if guest is None:
        return None
    if reading.options and "likely" in reading.prompt:
        return _intent(guest, reading.options, draws)
    return Speech(guest, reading, draws).text() if "moderator asks" in reading.prompt else None


def _intent(guest: Guest, options: Sequence[str], draws: Draws) -> str:
    """The option at the place of the position on the scale, with some noise."""
    value = guest.now + draws.normal(0.0, 0.15) - 0.08 * guest.price
    share = (value + 0.95) / 1.9
    return options[min(len(options) - 1, max(0, int(share * len(options))))]


def _coded(request: Request, reading: Reading, draws: Draws) -> str:
    """What an answer shows of a position: said changes of mind, or words far from where it was."""
    prompt = reading.prompt
    found = re.search(r"last known position: ([+-−]?\d(?:\.\d+)?)", prompt)
    last = float(found[1].replace("−", "-")) if found else 0.0
    answer = re.search(r"'s answer: \"(.+?)\"\s*\n", prompt, re.DOTALL)
    text = answer[1] if answer else prompt
    shown = lean_of(text)
    step = 0.2 + 0.15 * draws.unit()
    valence, changed = last, True
    if WARMED.search(text):
        valence = last + step
    elif COOLED.search(text):
        valence = last - step
    elif abs(shown) >= 0.6 and shown * last < 0 and abs(last) >= 0.2:
        valence = last + step * (1 if shown > 0 else -1)
    else:
        changed = False
    valence = round(max(-1.0, min(1.0, valence)), 2)
    out: dict[str, Any] = {"changed": changed, "valence": valence}
    fields = (request.schema or {}).get("properties") or {}
    if "sentiment" in fields and "- sentiment:" in prompt:
        out["sentiment"] = round(shown, 2)
    return json.dumps(out)


def _moderates(request: Request, reading: Reading, draws: Draws) -> str:
    """The guide of a phase as JSON, a probe, or the next question."""
    names = names_in(reading)
    if request.schema is not None:
        wanted = re.search(r"Write (\d+) question", reading.prompt)
        stock = bank()["guide"].get(_phase(reading.prompt), [])
        questions = [q.format(**names) for q in stock][: int(wanted[1]) if wanted else 2]
        return json.dumps({"questions": questions or ["What do you think of it?"]})
    if "worth following up" in reading.prompt:
        name = re.search(r"Ask (\w[\w'’-]*), by name", reading.prompt)
        stock = bank()["moderator"]["probe"]
        said = " ".join(reading.own_turns).lower()
        frames = [f for f in draws.shuffled(stock) if fixed_words(f) not in said]
        return str((frames or stock)[0].format(name=name[1] if name else "you"))
    return _asks(reading, draws)


def _asks(reading: Reading, draws: Draws) -> str:
    """A transition, the planned question, and the quiet by name."""
    prompt, lines = reading.prompt, bank()["moderator"]
    said = " ".join(reading.own_turns).lower()

    def fresh(stock: Sequence[str]) -> str:
        order = draws.shuffled(list(stock))
        return next((f for f in order if fixed_words(f) not in said), order[0])

    planned = re.search(r'From your guide: "(.+?)"\s*(?:\n|$)', prompt, re.DOTALL)
    question = planned[1] if planned else "What do you think?"
    parts: list[str] = []
    talk = [h for h in heard_in(reading) if h.name != "Moderator"]
    if "very start" in prompt:
        parts.append(fresh(lines["welcome"]))
    elif "opens a new part" in prompt:
        parts += [fresh(lines["thanks"]).format(name=talk[-1].name)] if talk else []
        if "pass this around" not in prompt:
            stock = lines["lead_over"].get(_phase(prompt), lines["lead_over"]["reaction"])
            parts.append(fresh(stock).format(concept=lowered(concept_in(reading))))
    elif "This is the last question" in prompt:
        parts.append(fresh(lines["last"]))
    elif talk:
        parts.append(_pickup(talk, lines, fresh, draws))
    if "pass this around" in prompt:
        parts.append(fresh(lines["pass_around"]))
    parts.append(question)
    quiet = re.search(r"Not heard much so far: (.+?)\. Draw", prompt)
    if quiet:
        q = [n.strip() for n in quiet[1].split(",")]
        if len(q) > 1:
            parts.append(fresh(lines["quiet_two"]).format(q=q[0], r=q[1]))
        else:
            parts.append(fresh(lines["quiet_one"]).format(q=q[0]))
    return " ".join(parts)


def _phase(prompt: str) -> str:
    found = re.search(r"^Phase: (\w+)", prompt, re.MULTILINE)
    return found[1] if found else ""


def _pickup(talk: Sequence[Heard], lines: Mapping[str, Any], fresh: Any, draws: Draws) -> str:
    """A word on what somebody just said, by its theme."""
    other = draws.pick(talk[-3:])
    theme = next((t for t, cue in _THEMES if re.search(cue, other.text, re.IGNORECASE)), "any")
    stock = lines["pickup"][theme]
    return str(fresh(stock).format(name=other.name))
