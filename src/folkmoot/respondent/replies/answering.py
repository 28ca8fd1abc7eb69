"""Answers by their form: an option of those listed, a number within its bounds, text.

A study's own answers (`Part.answers`) come first.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from folkmoot.models.request import NOT_MOVED
from folkmoot.respondent.mind.mind import Mind
from folkmoot.respondent.mind.part import Answering
from folkmoot.respondent.replies import roles
from folkmoot.respondent.replies.filling import filled


def answered(mind: Mind, answers: Mapping[str, Answering]) -> str:
    """The reply of a mind, as text."""
    read = mind.reading
    kind = read.kind or "text"
    own = answers.get(str(mind.schema.get("title", ""))) or answers.get(f"{read.role} {kind}")
    given = own(mind) if own else None
    if own is None and kind != "text" and mind.person and mind.untouched:
        mind.finish = NOT_MOVED
    if kind == "choice":
        chosen = str(given) if given is not None else choice(mind)
        return (
            json.dumps(filled(mind, dict.fromkeys(_fields(mind), chosen)))
            if mind.schema
            else chosen
        )
    if mind.schema:
        return json.dumps(filled(mind, given, known=own is not None), ensure_ascii=False)
    if given is not None:
        return str(given)
    if kind == "number":
        return number(mind)
    if kind == "json":
        return json.dumps(filled(mind, None), ensure_ascii=False)
    return spoken(mind)


def _fields(mind: Mind) -> Sequence[str]:
    return tuple(mind.schema.get("properties") or ())


def choice(mind: Mind) -> str:
    """One of the options: on a rating scale by the leaning on what is asked, else by liking."""
    options = mind.options
    if len(options) < 2:
        mind.unread()
        return options[0] if options else spoken(mind)
    if not mind.person:
        return roles.judged(mind)
    return mind.placed(options, mind.reading.about) or mind.choose()


def number(mind: Mind) -> str:
    """A number within the bounds of the answer type: the person's leaning on what is asked."""
    bounds = mind.reading.bounds
    if bounds is None or not mind.person:
        mind.unread()
    low, high, whole = bounds or (0.0, 100.0, True)
    value = low + (high - low) * (mind.judgement(mind.reading.about) + 1) / 2
    whole = whole and high - low > 1
    return str(round(value)) if whole else f"{value:.2f}".rstrip("0").rstrip(".")


def spoken(mind: Mind) -> str:
    """Free text: a person's reasons, or the part of whoever leads or sums up."""
    if not mind.person:
        return roles.said(mind)
    read, tongue = mind.reading, mind.tongue
    if not mind.held:
        return mind.say()
    if read.offered:  # the option of others, of which the text is to give the view
        return roles.restated(mind, read.offered[0])
    parts = []
    last = read.heard[-1].text if read.heard else ""
    put = [o for o in mind.arguments(last) if o not in ("", mind.held)]
    if put:
        parts.append(_met(mind, put[-1]))
    elif mind.who.calling and not read.own_utterances:
        parts.append(tongue.say("self"))
    return " ".join([*parts, mind.say(n=max(1, 3 - len(parts)) if put else 0)])


def _met(mind: Mind, rival: str) -> str:
    """How an argument for another option is met: the more it moved the person, the more often it
    is granted."""
    known = dict(zip(mind.options, mind.utilities(), strict=True))
    gap = known[mind.held] - known[rival]
    odds = 0.65 if gap < 0 else 0.12 + 0.3 * mind.who.susceptibility / (1 + gap)
    kind = "gives" if mind.draws.chance(odds) else "holds"
    return mind.tongue.say(kind, O=mind.held, B=rival)
