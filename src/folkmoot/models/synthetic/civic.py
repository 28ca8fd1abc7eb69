"""Fields of a town hall: reactions, statements, reflections, ballots, satisfaction."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from folkmoot.models.synthetic.civic_words import ANSWER, LEAD, SIDE, WHY
from folkmoot.models.synthetic.concerns import Concern, raised_in
from folkmoot.models.synthetic.draws import unit
from folkmoot.models.synthetic.grammar import capital
from folkmoot.models.synthetic.mind import STANCES, Mind, gist, side_of

Around = Mapping[str, Any]
Field = Callable[[Mind, Mapping[str, Any], Around], Any]


def entry_of(around: Around) -> Mapping[str, Any]:
    entry = around.get("#entry")
    return entry if isinstance(entry, Mapping) else {}


def _of(mind: Mind, around: Around) -> str:
    """What the person said whom this entry is about."""
    entry = entry_of(around)
    return str(entry.get("text") or mind.heard.get(str(entry.get("id", "")), ""))


def score(mind: Mind, around: Around) -> float:
    entry = entry_of(around)
    if "score" in entry:
        return float(entry["score"])
    return mind.agreement(_of(mind, around))


def about(mind: Mind, text: str) -> str:
    """What a statement is about, as a noun: shared concerns first."""
    raised = raised_in(text)
    if not raised:
        return "that"
    own = [c for c in raised if c in mind.concerns[:4]]
    return (own or list(raised))[0].noun


def level_of(value: float) -> int:
    """Agreement from −1 to 1 as a level from 1 to 5."""
    return 1 + sum(value > edge for edge in (-0.45, -0.12, 0.18, 0.5))


def interaction(mind: Mind, value: float) -> str:
    if value > 0.4:
        return "agree"
    if value > 0.1:
        return mind.draws.pick(("partial_agree", "partial_agree", "cite"))
    if value > -0.2:
        return mind.draws.pick(("cite", "question", "question"))
    return "disagree"


# --- think ------------------------------------------------------------------------------------


def target(mind: Mind, schema: Mapping[str, Any], around: Around) -> Any:
    return entry_of(around).get("id") or (
        mind.draws.pick(sorted(mind.heard)) if mind.heard else "all"
    )


def feeling(mind: Mind, schema: Mapping[str, Any], around: Around) -> Any:
    text, value = _of(mind, around), score(mind, around)
    weak = any(c.key in {"company", "access", "contribution"} for c in raised_in(text))
    if value > 0.35:
        return "empathetic" if weak else mind.draws.pick(("hopeful", "relieved"))
    if value > -0.1:
        return "empathetic" if weak and mind.who.warmth > -0.2 else "indifferent"
    return "angry" if value < -0.5 and mind.who.warmth < 0.1 else "worried"


def agree_level(mind: Mind, schema: Mapping[str, Any], around: Around) -> Any:
    return level_of(score(mind, around))


def summary_of(mind: Mind, schema: Mapping[str, Any], around: Around) -> Any:
    return gist(_of(mind, around)) or "said little of substance"


def reason(mind: Mind, schema: Mapping[str, Any], around: Around) -> Any:
    value = score(mind, around)
    side = True if value > 0.15 else False if value < -0.15 else None
    raised = [c for c in raised_in(_of(mind, around)) if c in mind.concerns[:4]]
    if raised and side and mind.draws.chance(0.6):
        return f"For me, too, it is about {raised[0].noun}."
    return mind.tongue.frame(WHY[side])


def wants(mind: Mind, schema: Mapping[str, Any], around: Around) -> Any:
    pull = abs(score(mind, around)) + 0.3 * eagerness(mind)
    return pull > 0.55


def eagerness(mind: Mind) -> float:
    """−1 for those who rarely speak, 1 for those who speak readily."""
    low = mind.who.key.lower()
    if re.search(r"rarely speak|passive|shy|quiet|keep it short", low):
        return -1.0
    return 1.0 if re.search(r"speak readily|active|outspoken|talkative|firmly", low) else 0.0


def stance(mind: Mind, schema: Mapping[str, Any], around: Around) -> Any:
    return mind.stance


def key_concerns(mind: Mind, _n: int) -> list[str]:
    if not mind.local:
        return [capital(mind.tongue.noun()) for _ in range(2)]
    return [capital(c.noun) for c in mind.concerns[: mind.draws.between(1, 3)]]


def strategy(mind: Mind, schema: Mapping[str, Any], around: Around) -> Any:
    noun = mind.concerns[0].noun if mind.local else mind.tongue.noun()
    return mind.tongue.frame(
        (
            f"Bring the talk to {noun} and not get lost in the rest.",
            f"Listen first, then raise {noun}.",
            f"Find others who care about {noun} and say it together.",
            f"Keep calm, give an example from my own life, and ask about {noun}.",
            f"Say little, but insist on {noun}.",
        )
    )


# --- speak ------------------------------------------------------------------------------------


def interaction_type(mind: Mind, schema: Mapping[str, Any], around: Around) -> Any:
    entry = entry_of(around)
    if isinstance(entry, dict) and "kind" not in entry:
        entry["kind"] = interaction(mind, score(mind, around))
    return entry.get("kind", "cite")


def content(mind: Mind, schema: Mapping[str, Any], around: Around) -> Any:
    """What is said to one person: an answer that names them, or a question."""
    entry = entry_of(around)
    if entry.get("question"):
        return entry["question"]
    kind = str(around.get("interaction_type") or entry.get("kind") or "cite")
    frame = mind.tongue.frame(ANSWER.get(kind, ANSWER["cite"]))
    line = frame.format(T=entry.get("id", "that"), X=about(mind, _of(mind, around)))
    if isinstance(entry, dict):
        entry["line"] = line
    mind.spoken.setdefault("answers", "")
    mind.spoken["answers"] = f"{mind.spoken['answers']} {line}".strip()
    return line


def points(mind: Mind, _n: int) -> list[str]:
    """Points of one's own. Those who rarely speak have few."""
    if mind.spoken.get("silent"):
        return []
    count = 1 if eagerness(mind) < 0 else mind.draws.between(1, 2)
    if not mind.local:
        return [mind.tongue.reason(topic_of(mind)) for _ in range(count)]
    lines = [own_line(mind, c) for c in mind.concerns[:count]]
    mind.spoken["points"] = "\n".join(lines)
    return [capital(line) + "." for line in lines]


def own_line(mind: Mind, concern: Concern) -> str:
    """One of the concern's lines, another in each round so that nobody repeats themselves."""
    start = int(unit(mind.at.seed, mind.who.key, concern.key) * len(concern.lines))
    used = mind.spoken.setdefault(f"used {concern.key}", "")
    mind.spoken[f"used {concern.key}"] = used + "x"
    return concern.lines[(start + 2 * mind.round + len(used)) % len(concern.lines)]


def statement(mind: Mind, schema: Mapping[str, Any], around: Around) -> Any:
    """The words that are spoken: answers, own points, where one stands, perhaps a question."""
    if mind.spoken.get("silent"):
        return ""
    if not mind.local:
        said = mind.spoken.get("answers", "")
        return f"{said} {mind.tongue.reason(topic_of(mind))} {mind.tongue.reason('this')}".strip()
    parts = [mind.spoken["answers"]] if mind.spoken.get("answers") else []
    lines = [x for x in mind.spoken.get("points", "").split("\n") if x]
    lines = lines or [own_line(mind, mind.concerns[0])]
    parts += [capital(mind.tongue.frame(LEAD).format(L=line)) for line in lines]
    if eagerness(mind) > 0 and mind.draws.chance(0.5):
        parts.append(capital(own_line(mind, mind.concerns[0])) + ".")
    if mind.round == 1 or mind.draws.chance(0.5):
        parts.append(mind.tongue.frame(SIDE[mind.stance]))
    if mind.spoken.get("question"):
        parts.append(mind.spoken["question"])
    parts = [*parts[-1:], *parts[:-1]] if mind.draws.chance(0.3) else parts
    return " ".join(parts)


def topic_of(mind: Mind) -> str:
    return "this"


# --- reflect ----------------------------------------------------------------------------------


def extreme(mind: Mind, best: bool) -> dict[str, Any] | None:
    """Whoever convinced most, or least, of those heard."""
    rated = mind.rated
    if not rated:
        return None
    value, who = max(rated) if best else min(rated)
    return {"id": who, "text": mind.heard[who], "score": value}


def previous_stance(mind: Mind, schema: Mapping[str, Any], around: Around) -> Any:
    thinking = around.get("thinking")
    if isinstance(thinking, Mapping) and thinking.get("overall_stance") in STANCES:
        return thinking["overall_stance"]
    return mind.stance


def current_stance(mind: Mind, schema: Mapping[str, Any], around: Around) -> Any:
    """Mostly as before; the susceptible go a step with what convinced them or with the hall."""
    before = str(around.get("previous_stance", mind.stance))
    at = STANCES.index(before) if before in STANCES else 2
    best = extreme(mind, True)
    draw = mind.draws.unit()
    s = mind.who.susceptibility + mind.at.knobs.sycophancy
    sides = [side_of(t) for t in mind.heard.values() if t]
    hall = sum(sides) / len(sides) if sides else 0.0
    if best and best["score"] > 0.2 and draw < 0.3 * s:
        at += _sign(side_of(best["text"]))
    elif draw < 0.55 * s:
        at += _sign(hall - (at - 2) / 2)
    elif draw > 0.98:
        at = 4 - at
    return STANCES[max(0, min(4, at))]


def _sign(x: float) -> int:
    return (x > 0.12) - (x < -0.12)


def place_of(stance: Any) -> int:
    """A stance as a place from −2 (strongly against) to 2; 0 for anything else."""
    return STANCES.index(stance) - 2 if stance in STANCES else 0


def change_type(mind: Mind, schema: Mapping[str, Any], around: Around) -> Any:
    a, b = (place_of(around.get(k)) for k in ("previous_stance", "current_stance"))
    if a == b:
        return "maintain"
    if a * b < 0:
        return "flip"
    return "harden" if abs(b) > abs(a) else "soften"


def change_reason(mind: Mind, schema: Mapping[str, Any], around: Around) -> Any:
    change = around.get("change_type", "maintain")
    best = extreme(mind, True)
    if change == "maintain" or best is None:
        return mind.tongue.frame(
            (
                "Nothing I heard changes what it means for me.",
                "I heard nothing that weighs more.",
                "My situation is the same as before.",
                "I was listening, but I stay where I was.",
            )
        )
    return f"{best['id']} made me think again about {about(mind, best['text'])}."


def why(mind: Mind, schema: Mapping[str, Any], around: Around) -> Any:
    return reason(mind, schema, around)
