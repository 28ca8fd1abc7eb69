"""Fields of a town hall's end: votes on items with reasons, satisfaction before and after."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from folkmoot.models.synthetic.civic import Around, entry_of, own_line
from folkmoot.models.synthetic.civic_words import WHY
from folkmoot.models.synthetic.concerns import raised_in
from folkmoot.models.synthetic.grammar import capital
from folkmoot.models.synthetic.mind import Mind


def wording(mind: Mind, around: Around) -> str:
    return str(entry_of(around).get("wording") or mind.text[-600:])


def votes_yes(mind: Mind, text: str) -> bool:
    """Yes where the item answers an own concern, or by leaning and warmth."""
    keys = {c.key for c in raised_in(text)}
    own = {c.key for c in mind.concerns[:4]}
    lean = -0.15 + 0.8 * bool(keys & own) + 0.5 * mind.who.warmth
    lean += 0.8 * mind.who.lean(text[:200]) + 2 * mind.at.knobs.acquiescence
    return lean > 0


def vote(mind: Mind, schema: Mapping[str, Any], around: Around) -> Any:
    yes = votes_yes(mind, wording(mind, around))
    kinds = schema.get("enum")
    if kinds:
        return next((k for k in kinds if str(k).lower() == ("yes" if yes else "no")), kinds[0])
    return yes if schema.get("type") == "boolean" else ("yes" if yes else "no")


def vote_reason(mind: Mind, schema: Mapping[str, Any], around: Around) -> Any:
    text = wording(mind, around)
    yes = votes_yes(mind, text)
    own = [c for c in raised_in(text) if c in mind.concerns[:4]]
    if own and yes:
        return capital(own_line(mind, own[0])) + "."
    return mind.tongue.frame(WHY[yes])


def satisfaction(mind: Mind, schema: Mapping[str, Any], around: Around) -> Any:
    low, high = float(schema.get("minimum", 1)), float(schema.get("maximum", 10))
    passed = len(re.findall(r"\b(?:passed|adopted|accepted)\b", mind.text, re.IGNORECASE))
    heard = [c for c in mind.concerns[:3] if c.said.search(mind.text)] if mind.local else []
    lean = 0.45 + 0.12 * mind.position + 0.1 * mind.who.warmth + 0.06 * len(heard)
    lean += 0.04 * min(passed, 3) + 0.1 * mind.draws.normal() + 0.15 * mind.at.knobs.acquiescence
    value = low + (high - low) * max(0.0, min(1.0, lean))
    return round(value)


def satisfaction_reason(mind: Mind, schema: Mapping[str, Any], around: Around) -> Any:
    noun = mind.concerns[0].noun if mind.local else mind.tongue.noun()
    heard = bool(mind.local and mind.concerns[0].said.search(mind.text))
    if heard:
        return mind.tongue.frame(
            (
                f"At least {noun} came up.",
                f"Somebody listened when it came to {noun}.",
                f"There was talk of {noun}, though I am not sure what becomes of it.",
            )
        )
    return mind.tongue.frame(
        (
            f"Nobody has said anything on {noun} so far.",
            f"I am still waiting to hear about {noun}.",
            f"For people like me it hangs on {noun}, and that is open.",
        )
    )
