"""What the embedded respondent should know of negotiations: travellers' wishes and votes, and a
mediator who follows a minority or not.

Statements are found by form (a member's name and a quotation on one line), options by name, who
gets what by an option that stands before members' names. No wording of a prompt is looked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from folkmoot.conversation.answers import NONE_OF_THESE, WAYS_OUT
from folkmoot.files import packaged_yaml
from folkmoot.hints import enumerated
from folkmoot.respondent import Mind, Part
from folkmoot.respondent.draws import unit
from folkmoot.respondent.reading import any_of, in_lines
from folkmoot.studies.negotiation.config import NegotiationConfig
from folkmoot.studies.negotiation.decision import SYSTEM
from folkmoot.studies.negotiation.rules.strategies import Member, table, topics
from folkmoot.studies.negotiation.rules.tally import (
    NEGATION_CUES,
    Mention,
    Tally,
    candidates,
    count,
    mentions,
    text_scores,
    words_of,
)
from folkmoot.studies.negotiation.rules.vocabulary import EVERYONE

FOLLOWS = 0.6  # chance that the mediator makes room for those outside the most common first wish
LABELS = 0.75  # chance that it calls its strategy by the id that it was given
LATER = "another day"
_VAGUE = ("compromise", "policy", "Family Friendly", "majority", "balanced approach", "fair_split")
_QUOTE = re.compile("“([^”]*)”")
_NO_NAME = re.compile(r"^[\W\d_]+|\W+$")  # "[3] Ann: " is Ann's label
_CAPITALS = re.compile(r"[A-Z]\w*(?:\s(?:[A-Z]\w*|\d+))*")  # a name as it stands in running text
_SYSTEM = re.compile(rf"(?<!\w){SYSTEM}(?!\w)")
_DAY = re.compile(r"\b(?:Day \d+(?:(?:, Day \d+)* and Day \d+)?|Group [AB])\b")
_DAY_BEFORE = re.compile(rf"(?:{_DAY.pattern})\W*$")
_WHEN = re.compile(rf"{_DAY.pattern}|\(([^()]+)\)\W*(?:and\s*)?$")
_OWNED = re.compile(r"\(\w[^()]*['’]s \w+\)")  # a day that is somebody's choice is for all
Reply = dict[str, object]


def part(follows: float = FOLLOWS) -> Part[NegotiationConfig]:
    """The study's part; `follows` is the planted size of C3's and C5's care for a minority."""
    return Part(
        names=_names,
        answers={
            "participant text": wish,
            "participant choice": confirmation,
            "BallotForm": ballot,
            "ScoreForm": scores,
            "OwnScores": own_scores,
            "PlainSynthesis": lambda mind: synthesis(mind, follows),
            "GuidedSynthesis": lambda mind: synthesis(mind, follows),
            "FeedbackReply": lambda mind: feedback(mind, follows),
        },
    )


def _names(config: NegotiationConfig) -> Sequence[str]:
    return [option for topic in topics(config.options) for option in topic.options]


@cache
def _frames() -> Mapping[str, list[str] | dict[str, list[str]]]:
    """Sentences by what they do; by voice as well, where voices differ."""
    said: dict[str, list[str] | dict[str, list[str]]] = packaged_yaml(__file__, "respondent.yaml")
    return {kind: frames for kind, frames in said.items() if kind != "phrases"}


@cache
def _phrases() -> Mapping[str, str]:
    """Options as they stand in a sentence."""
    phrases: dict[str, str] = packaged_yaml(__file__, "respondent.yaml")["phrases"]
    return phrases


def _say(mind: Mind, kind: str, **names: str) -> str:
    """A sentence of respondent.yaml, with options as they stand in one."""
    frames, phrases = _frames()[kind], _phrases()
    voiced = frames[mind.who.voice] if isinstance(frames, dict) else frames
    spelled = {k: phrases.get(v, v) for k, v in names.items()}
    text = mind.tongue.fresh(voiced).format(**spelled)
    return text[:1].upper() + text[1:]


# --- members -----------------------------------------------------------------------------------


def _liking(mind: Mind, options: Sequence[str]) -> dict[str, float]:
    """What a traveller thinks of each option: the taste, and what the description says of it."""
    told = text_scores(mind.who.key, options)
    return {o: mind.who.taste(o) + 0.8 * told[o] for o in options}


def wish(mind: Mind) -> str | None:
    """What a member wants of the options that stand in the question, in one to three sentences."""
    options = [m.option for m in mentions(mind.reading.prompt, mind.at.names)]
    liking = _liking(mind, list(dict.fromkeys(options)))
    if not liking:
        return None
    best, *rest = sorted(liking, key=lambda o: -liking[o])
    phrases = _phrases()
    said = [_say(mind, "wish", W=best) if best in phrases else f"What I want most: {best}."]
    if rest and liking[rest[0]] > 0.8 and mind.draws.chance(0.35):
        said.append(_say(mind, "second", W=rest[0]))
    turned_down = not NEGATION_CUES & set(words_of(" ".join(liking)))
    if rest and turned_down and liking[rest[-1]] < -1 and mind.draws.chance(0.4):
        said.append(_say(mind, "reject", R=rest[-1]))
    return " ".join(said)


def confirmation(mind: Mind) -> str | None:
    """Whether the options that somebody gets on record are among those that the System spoke of."""
    if not {"yes", "no"} <= set(mind.options):
        return None
    spoken, people, others = set[str](), list[str](), list[str]()
    for line in in_lines(mind.reading.prompt):
        if _QUOTE.search(line):
            label = _NO_NAME.sub("", _QUOTE.sub("", line))
            people += [label, *_CAPITALS.findall(label)]
        elif _SYSTEM.search(line):
            spoken |= {m.option for m in mentions(line, mind.at.names)}
        else:
            others.append(line)
    who = any_of(("everyone", *filter(None, people)))
    recorded = {
        m.option
        for line in others
        for part in _parted(line, who, mind.at.names)
        if who.search(part)
        for m in mentions(part, mind.at.names)
    }
    if not recorded:
        mind.unread()
    return "yes" if recorded <= spoken else "no"


def _own_view(mind: Mind) -> tuple[dict[str, float], dict[str, int]]:
    """The options on the table by liking, and what the member's own statement says of them."""
    fields = mind.schema.get("properties", {})
    enum = fields.get("top_choice", {}).get("enum") or _nested(mind.schema, "Score", "option")
    listed = [o for o in enum or () if o not in WAYS_OUT]
    options = listed or list(dict.fromkeys(m.option for m in _mentions(mind)))
    stated = " ".join(_QUOTE.findall(mind.reading.prompt))
    said = text_scores(stated, options)
    return {o: v + said[o] for o, v in _liking(mind, options).items()}, said


def ballot(mind: Mind) -> Reply:
    """A ballot that agrees with what the member stated."""
    liking, said = _own_view(mind)
    ranked = sorted(liking, key=lambda o: (-said[o], -liking[o]))
    refused = [o for o in ranked if said[o] < 0]
    liked = [o for o in ranked[1:] if o not in refused and (said[o] > 0 or liking[o] > 0)]
    top = next((o for o in ranked if o not in refused), NONE_OF_THESE)
    return {"top_choice": top, "acceptable": liked[:2], "hard_no": refused} | _NOTHING_ELSE


# The respondent says nothing beyond the options that it was shown.
_NOTHING_ELSE: Reply = {"new_option": "", "objection": ""}


def scores(mind: Mind) -> Reply:
    liking, said = _own_view(mind)
    given = {o: max(-4, min(4, round(v))) for o, v in liking.items()}
    refused = [o for o in liking if said[o] < 0]
    listed = [{"option": o, "score": s} for o, s in given.items()]
    return {"scores": listed, "hard_no": refused} | _NOTHING_ELSE


def own_scores(mind: Mind) -> Reply:
    """What a member tells the researcher alone: the same liking, and the wish as the reason."""
    liking, _ = _own_view(mind)
    best = max(liking, key=lambda o: liking[o], default="")
    return {"reason": _say(mind, "wish", W=best) if best else ""} | scores(mind)


# --- the mediator ------------------------------------------------------------------------------


def _nested(schema: Mapping[str, Any], model: str, field: str) -> list[str]:
    """The texts that a field of a nested model may hold."""
    node = schema.get("$defs", {}).get(model, {}).get("properties", {}).get(field, {})
    found: list[str] = node.get("items", node).get("enum", [])
    return found


def _mentions(mind: Mind) -> tuple[Mention, ...]:
    return mentions(mind.reading.prompt, mind.at.names)


class _Given(NamedTuple):
    """What a line of the request gives to whom, and whether it names the option first."""

    share: Reply
    line: str
    option_first: bool


def _of(given: Sequence[_Given]) -> list[Reply]:
    return [g.share for g in given]


class Meeting:
    """What a mediator knows: who is there, what they stated, what is on the table and in force."""

    def __init__(self, mind: Mind) -> None:
        self.mind = mind
        speakers = _nested(mind.schema, "Spoken", "speaker")
        self.names = [n for n in speakers if n != SYSTEM] or _nested(
            mind.schema, "Share", "members"
        )
        self.texts: dict[str, str] = {}
        plain, last = [], ""
        for line in in_lines(mind.reading.prompt):
            quotes, rest = _QUOTE.findall(line), _QUOTE.sub("", line)
            who = self.named(rest)
            last = who[0] if len(who) == 1 else "" if who else last
            if quotes and last:
                self.texts.setdefault(last, " ".join(quotes))
            elif not quotes and "|" not in line and "?" not in line:
                plain.append(line)
        self.tally = self._counted(candidates(mind.at.names, self.texts))
        given = [share for line in plain for share in self._shares(line)]
        # What a member firmly rejects may stand beside the name as well; it is not what they get.
        given = self._covering([g for g in given if self._bears(g.share)]) or given
        # An option before its members, as far as all are served so; else members before theirs.
        given = self._covering([g for g in given if g.option_first]) or given
        self.told = _told(given[0]) if given else ""
        self.standing = [g.share for n, g in enumerate(given) if g.share not in _of(given[:n])]
        calls = mind.reading.prompt
        self.asked = max(self.names, key=lambda n: len(self.named(calls, n)), default="")

    def _covering(self, given: list[_Given]) -> list[_Given]:
        """Those lines, if they give everybody something; else none."""
        served = {n for g in given for n in _list(g.share["members"]) or self.names}
        return given if served >= set(self.names) else []

    def _bears(self, share: Reply) -> bool:
        refusing = self.tally.rejections(str(share["option"]))
        return not set(refusing) & set(_list(share["members"]))

    def _counted(self, options: Sequence[str]) -> Tally:
        members = [Member(name, name, "") for name in self.names]
        return count(members, self.texts, options)

    def named(self, text: str, *names: str) -> list[str]:
        """The members that a text names, possessives ("Ann's choice") left out, in its order."""
        longest = sorted(names or self.names, key=len, reverse=True)
        if not longest:
            return []
        ways = "|".join(map(re.escape, longest))
        found = re.findall(rf"(?<!\w)(?:{ways})(?!\w|['’]s)", text)
        return found if names else list(dict.fromkeys(found))

    def _shares(self, line: str) -> Iterator[_Given]:
        """What a line gives to whom: an option (for everyone also several), and members."""
        for said in _parted(line, any_of(("everyone", *self.names)), self.tally.options):
            found = list(dict.fromkeys(m.option for m in mentions(said, self.tally.options)))
            everyone = "everyone" in said.casefold() or bool(_OWNED.search(said))
            who = [] if everyone else self.named(said)
            if found and (everyone or (who and len(found) == 1)):
                first = _place(said, found[0])
                when = _WHEN.search(said)
                named = (when[1] or when[0]) if when else ""
                place = said.index(who[0]) if who else said.casefold().find("everyone")
                before = place < 0 or 0 <= first < place
                for option in found:
                    share: Reply = {"option": option, "members": who, "when": named}
                    yield _Given(share, line, before)

    def gets(self, name: str, shares: Sequence[Reply]) -> set[str]:
        return {str(s["option"]) for s in shares if not s["members"] or name in _list(s["members"])}

    def proposal(self, follows: float) -> list[Reply]:
        """The most common first wish for all; a mediator who follows a minority gives each of it
        the own wish on another day."""
        firsts = self.tally.first_choices()
        wanted = list(firsts.values()) or list(self.tally.ranked()[:1])
        if not wanted:
            return []
        most = min(wanted, key=lambda o: (-wanted.count(o), -self.tally.total(o), o))
        shares: list[Reply] = [{"option": most, "members": [], "when": ""}]
        others: dict[str, list[str]] = {}
        for name, option in firsts.items():
            if option != most:
                others.setdefault(option, []).append(name)
        if others and _follows(self.mind, follows):
            shares += [{"option": o, "members": w, "when": LATER} for o, w in others.items()]
        return shares

    def dropped(self, shares: Sequence[Reply]) -> list[str]:
        given = {s["option"] for s in shares}
        return [o for o in self.tally.options if o not in given]

    def reaction(self, name: str, shares: Sequence[Reply], *, content: bool = True) -> str:
        """What a member says to a decision: glad of the own wish, sorry for it, or easy."""
        got, own = self.gets(name, shares), self.tally.primary(name)
        refused = [o for o in got if name in self.tally.rejections(o)]
        if own in got:
            return _say(self.mind, "glad", W=own or "")
        if refused:
            return _say(self.mind, "against", R=refused[0])
        if own is None:
            return _say(self.mind, "easy")
        return _say(self.mind, "resigned" if content else "asks", W=own)


def _told(given: _Given) -> str:
    """The line that gives, from the option on where that stands first, or the day before it."""
    at = max(0, _place(given.line, str(given.share["option"]))) if given.option_first else 0
    day = _DAY_BEFORE.search(given.line[:at])
    return given.line[day.start() if day else at :].rstrip(". ")


def _place(text: str, option: str) -> int:
    """About where a text names an option."""
    return text.casefold().find(option.split(maxsplit=1)[0])


def _parted(line: str, who: re.Pattern[str], options: Sequence[str]) -> Iterator[str]:
    """What a line gives, each gift by itself: it is cut at ";", and, where one gift follows another
    in running text, before the option or the people with whom gifts open there."""
    for said in line.split(";"):
        people = [m for m in who.finditer(said) if not said.startswith(("'s", "’s"), m.end())]
        named = mentions(said, options) if people else ()
        option_first = bool(named) and 0 <= _place(said, named[0].option) < people[0].start()
        ends = [*(m.start() for m in people), len(said)][1:]
        at = 0
        for person, end in zip(people, ends, strict=True):
            after = said[person.end() : end]
            cut = end
            if option_first:
                more = mentions(after, options)
                cut = person.end() + _place(after, more[0].option) if more else 0
            elif end == len(said) or not mentions(said[at:end], options):
                cut = 0
            if cut > at:
                yield said[at:cut]
                at = cut
        yield said[at:]


def _follows(mind: Mind, chance: float) -> bool:
    """By place alone, whatever the mediator's prompts say."""
    return unit(mind.at.seed, mind.at.address, "follows") < chance


def _list(value: object) -> list[str]:
    return value if isinstance(value, list) else []


def _stated(shares: Sequence[Reply]) -> list[Reply]:
    """The shares as a reply states them: "everyone" is a separate value."""
    return [{**s, "members": s["members"] or [EVERYONE], "new_option": ""} for s in shares]


def _aloud(shares: Sequence[Reply]) -> str:
    parts = []
    for s in shares:
        who = enumerated(_list(s["members"])) or "everyone"
        parts.append(f"{s['option']} for {who}" + (f" ({s['when']})" if s["when"] else ""))
    text = "; ".join(parts)
    return text[:1].upper() + text[1:]


def synthesis(mind: Mind, follows: float) -> Reply:
    """A proposal: what an operator gave, where that stands in the request, else one's own."""
    at = Meeting(mind)
    shares = at.standing or at.proposal(follows)
    wants = [f"{n} wants {_phrases().get(o, o)}" for n, o in at.tally.first_choices().items()]
    said = (
        at.told or _aloud(shares) or "Nobody has named anything yet, so we look again on the spot"
    )
    return {
        "has_conflict": at.tally.conflict,
        "conflict_description": f"{enumerated(wants)}." if at.tally.conflict and wants else "",
        "resolution_strategy": _label(mind),
        "resolution_explanation": f"{said}.",
        "decision": _stated(shares),
        "dropped": at.dropped(shares),
        "dialogue": [
            {"speaker": "System", "text": _say(mind, "proposes", D=f"{said}.")},
            *({"speaker": n, "text": at.reaction(n, shares)} for n in at.names),
        ],
    }


def _label(mind: Mind) -> str:
    """Mostly the id that stands beside the topic, at times a vague label, as models are wont to."""
    ids = {s.strategy_id for s in table().values()}
    on_table = {m.option for m in _mentions(mind)}
    topic = max(topics(), key=lambda t: len(on_table & set(t.options))).id
    for line in in_lines(mind.reading.prompt):
        words = re.findall(r"\w+", line)
        here = [word for word in words if word in ids]
        if here and topic in words:
            return here[0] if mind.draws.chance(LABELS) else mind.draws.pick(_VAGUE)
    return mind.draws.pick(_VAGUE)


def feedback(mind: Mind, follows: float) -> Reply:
    """A round: the member asked misses the own wish or not, and the mediator makes room or not."""
    at = Meeting(mind)
    name, shares = at.asked, at.standing
    own = at.tally.primary(name) if name else None
    got = at.gets(name, shares)
    missing = own is not None and own not in got
    against = own is None and any(name in at.tally.rejections(o) for o in got)
    parted = any(str(s["when"]).startswith("Group") for s in shares)
    room = bool(missing and shares and not parted and _follows(mind, follows))
    resolved = not (missing or against) or room or mind.draws.chance(0.25)
    added: Reply = {"option": own, "members": [name], "when": LATER}
    revised = [*shares, added] if room else shares
    said = f"{name} gets {own} on another day." if room else "Nothing changes, the plan stands."
    question = f"would {own} on another day answer your concern?" if missing else "are you content?"
    return {
        "resolved": resolved,
        "updated_resolution_explanation": said if room else "",
        "targeted_feedback_question": f"{name}, {question}",
        "final_revised_decision": _aloud(revised) if room else "",
        "decision": _stated(revised),
        "dropped": at.dropped(revised),
        "hard_no": [],
        "objection": "",
        "dialogue": [
            {"speaker": name, "text": at.reaction(name, shares, content=resolved and not room)},
            {"speaker": "System", "text": said},
        ],
    }


PART = part()
