"""What the respondent makes of others' words: summaries, descriptions of groups, a judgement.

Text in, text out: the argument phrases of the text that is given, and nothing else.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from folkmoot.models.synthetic.draws import Draws
from folkmoot.models.synthetic.grammar import listed
from folkmoot.models.synthetic.lexicon import VERB_PHRASES, phrases_in, reasons
from folkmoot.models.synthetic.reading import Reading, dialogue_in


def _proportional(found: Sequence[tuple[str, int]], room: int) -> list[str]:
    """At most `room` phrases, the camps in the proportion in which they were found."""
    by_camp: dict[int, list[str]] = {0: [], 1: [], 2: []}
    for phrase, camp in found:
        by_camp[camp].append(phrase)
    total = len(found)
    quota = {c: len(p) * room / total for c, p in by_camp.items()} if total > room else {}
    if not quota:
        return [p for p, _ in found]
    take = {c: int(q) for c, q in quota.items()}
    for camp in sorted(quota, key=lambda c: int(quota[c]) - quota[c])[: room - sum(take.values())]:
        take[camp] += 1
    kept = {p for c, phrases in by_camp.items() for p in phrases[: take[c]]}
    return [p for p, _ in found if p in kept]


_SUM_OPEN = (
    "The participant favours {O} above all for {A}.",
    "They chose {O} for the sake of {A}.",
    "Behind this choice of {O} they put {A}.",
    "For this participant {O} would mean {A}.",
)
_SUM_MORE = (
    "They also stress {A}.",
    "Their reasoning adds {A}.",
    "Further weight is given to {A}.",
    "They return more than once to {A}.",
)
_SUM_VERB = (
    "They expect it to {A}.",
    "In their view it would {A}.",
    "They hope that it will {A}.",
)


def individual_summary(reading: Reading, draws: Draws) -> str:
    """One to three sentences on a participant's position, out of their own words only."""
    turns = [t for who, t in dialogue_in(reading.prompt) if who in {"participant", "you"}]
    text = " ".join(turns) or reading.prompt
    option = reading.held or _quoted(reading.prompt) or "this option"
    found = phrases_in(text)
    if not found:
        return _from_their_words(text, option)
    kept = _proportional(found, 12)
    nouns = [p for p in kept if p not in VERB_PHRASES]
    verbs = [p for p in kept if p in VERB_PHRASES]
    out = []
    first = nouns[: (len(nouns) + 1) // 2] if len(nouns) > 3 else nouns
    if first:
        out.append(draws.pick(_SUM_OPEN).format(O=option, A=listed(first)))
    rest = nouns[len(first) :]
    if rest:
        out.append(draws.pick(_SUM_MORE).format(A=listed(rest)))
    if verbs:
        line = draws.pick(_SUM_VERB).format(A=listed(verbs))
        out.append(line if out else f"The participant chose {option}. {line}")
    return " ".join(out)


def _quoted(text: str) -> str:
    found = re.search(r"[\"“]([^\"”\n]{2,120})[\"”]", text)
    return found[1] if found else ""


def _from_their_words(text: str, option: str) -> str:
    """A summary where no known phrase stands: the participant's first two sentences, kept."""
    sentences = re.split(r"(?<=[.!?])\s+", " ".join(text.split()))
    kept = " ".join(s for s in sentences[:2] if s)[:300]
    return (
        f"The participant chose {option}. In their words: {kept}"
        if kept
        else (f"The participant chose {option} without giving further reasons.")
    )


def cluster_description(reading: Reading, draws: Draws) -> str:
    """Three sentences on what a group shares, with the arguments most often given in it."""
    option = _quoted(reading.prompt) or reading.held or "this option"
    positions = re.split(
        r"^\s*(?:[-*]\s*)?(?:Position|Summary)\s*\d+\s*:", reading.prompt, flags=re.M
    )
    texts = positions[1:] or [reading.prompt]
    tally: Counter[str] = Counter()
    camp_of: dict[str, int] = {}
    for text in texts:
        for phrase, camp in phrases_in(text):
            tally[phrase] += 1
            camp_of[phrase] = camp
    if not tally:
        return (
            f"This group stands behind {option}. Its members put their reasons in many ways. "
            "No single argument sets them apart from others who made the same choice."
        )
    common = [(p, camp_of[p]) for p, _ in sorted(tally.items(), key=lambda kv: (-kv[1], kv[0]))]
    kept = _weighted_kept(common, tally, 9)
    nouns = [p for p in kept if p not in VERB_PHRASES] or kept[:1]
    verbs = [p for p in kept if p in VERB_PHRASES]
    core, more = nouns[:2], nouns[2:4]
    last = nouns[4:6] or nouns[:1]
    first = draws.pick(("This group backs {O} for {A}", "This group stands behind {O} for {A}"))
    second = (
        f"They reason that it would {listed(verbs[:2])}"
        + (f", and they point to {listed(more)}." if more else ".")
        if verbs
        else f"They point to {listed(more or core)}."
    )
    third = draws.pick(
        (
            "Unlike others who made the same choice, they put {A} first.",
            "What sets them apart from others with the same choice is their stress on {A}.",
        )
    ).format(A=listed(last))
    return f"{first.format(O=option, A=listed(core))}. {second} {third}"


def _weighted_kept(common: Sequence[tuple[str, int]], tally: Counter[str], room: int) -> list[str]:
    """The most frequent phrases, the camps in proportion to how often they were voiced."""
    weight = [0, 0, 0]
    for phrase, camp in common:
        weight[camp] += tally[phrase]
    total = sum(weight)
    left = [round(room * w / total) for w in weight]
    kept = []
    for phrase, camp in common:
        if left[camp] > 0:
            left[camp] -= 1
            kept.append(phrase)
    return kept


def judged(reading: Reading, draws: Draws) -> str:
    """The option whose positions differ most in their reasons from the participant's own.

    With equal reasons (or none) a seeded one of the other options.
    """
    options = reading.options
    held = reading.held
    rivals = [o for o in options if o != held] or list(options)
    if not rivals:
        return "I could not find the options."
    own, by_rival = _judge_texts(reading.prompt, rivals)
    best = draws.pick(rivals)
    distance = _distance(own, by_rival.get(best, "")) if by_rival.get(best) else -1.0
    for option in rivals:
        if by_rival.get(option) and _distance(own, by_rival[option]) > distance + 1e-9:
            best, distance = option, _distance(own, by_rival[option])
    return best


def _judge_texts(prompt: str, rivals: Sequence[str]) -> tuple[str, dict[str, str]]:
    """The participant's own reasoning and, joined by option, the other positions."""
    parts = re.split(r"^\s*Position\s*\d+\s*:", prompt, flags=re.MULTILINE | re.IGNORECASE)
    texts: dict[str, str] = {}
    for part in parts[1:]:
        option = next((o for o in rivals if o.lower() in part[:200].lower()), "")
        if option:
            texts[option] = f"{texts.get(option, '')} {part}"
    return parts[0], texts


def _distance(a: str, b: str) -> float:
    """Half the L1 distance between the camp shares of two texts (0 to 1)."""
    x, y = reasons(a), reasons(b)
    total_x, total_y = sum(x) or 1, sum(y) or 1
    return sum(abs(p / total_x - q / total_y) for p, q in zip(x, y, strict=True)) / 2
