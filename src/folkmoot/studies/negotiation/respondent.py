"""What the embedded respondent should know of negotiations: travellers' wishes and votes, and a
mediator who follows a minority or not.

It reads the passages of a request by their sources (`quotes`): a statement is known by who made it,
an option, a name and a share of a decision by the cell of the table that holds it. No word of the
instructions is read. Inside a statement options are found by the study's own rules (`rules.tally`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from folkmoot.conversation.answer_types import NONE_OF_THESE, WAYS_OUT
from folkmoot.files import packaged_yaml
from folkmoot.hints import enumerated
from folkmoot.respondent import Mind, Part, Passage, of_kind
from folkmoot.respondent.mind.draws import unit
from folkmoot.studies.negotiation import quotes
from folkmoot.studies.negotiation.config import NegotiationConfig
from folkmoot.studies.negotiation.decision import SYSTEM, SYSTEM_SPEAKER
from folkmoot.studies.negotiation.rules.strategies import Member, natural, topics
from folkmoot.studies.negotiation.rules.tally import (
    NEGATION_CUES,
    count,
    match_option,
    mentions,
    text_scores,
    words_of,
)
from folkmoot.studies.negotiation.rules.vocabulary import EVERYONE, fold_name

FOLLOWS = 0.6  # chance that the mediator makes room for those outside the most common first wish
LABELS = 0.75  # chance that it calls its strategy by the id that it was given
LATER = "another day"
_VAGUE = ("compromise", "policy", "Family Friendly", "majority", "balanced approach", "fair_split")
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


# --- what is read -------------------------------------------------------------------------------


def _shown(mind: Mind, column: str) -> list[Passage]:
    """The passages from this column of a table, in order."""
    return [p for p in mind.reading.passages if p.source.id.startswith(f"{column}/")]


def _last_key(passage: Passage) -> str:
    """The last key of the row from which a text was taken."""
    return passage.source.id.rpartition("/")[2]


def _preferences(mind: Mind) -> list[Passage]:
    """What was stated before the mediation."""
    said = of_kind(mind.reading.passages, "utterance")
    return [p for p in said if p.source.id.startswith(quotes.PREFERENCES)]


def _listed(mind: Mind) -> list[str]:
    """The options that the request lists, by their usual names, each once."""
    found = (passage.text for passage in of_kind(mind.reading.passages, "option"))
    return list(dict.fromkeys(_usual(text, mind.at.names) for text in found))


def _usual(text: str, options: Sequence[str]) -> str:
    """An option as the study calls it: a prompt may write it in capitals."""
    return match_option(text, options) or text


def _on_table(mind: Mind, model: str, field: str) -> list[str]:
    """The options that a field of the answer may name (of a nested model, or of the answer itself),
    else those that the request lists."""
    schema = mind.schema.get("$defs", {}).get(model, mind.schema)
    allowed = schema.get("properties", {}).get(field, {}).get("enum", ())
    return [option for option in allowed if option not in WAYS_OUT] or _listed(mind)


# --- members -----------------------------------------------------------------------------------


def _liking(mind: Mind, options: Sequence[str]) -> dict[str, float]:
    """What a traveller thinks of each option: the taste, and what the description says of it."""
    told = text_scores(mind.who.key, options)
    return {o: mind.who.taste(o) + 0.8 * told[o] for o in options}


def wish(mind: Mind) -> str | None:
    """What a member wants of the options that are listed, in one to three sentences."""
    liking = _liking(mind, _listed(mind))
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
    """Whether the options of the decision on record are among those that the System spoke of."""
    if not {"yes", "no"} <= set(mind.reading.offered):
        return None
    recorded = {_usual(p.text, mind.at.names) for p in _shown(mind, quotes.SHARE_OPTION)}
    if not recorded:
        mind.unread()
    by_system = of_kind(mind.reading.passages, "utterance")
    spoken = [p for p in by_system if p.source.speaker == SYSTEM_SPEAKER.id]
    spoken += _shown(mind, quotes.RESOLUTION)
    known = [*mind.at.names, *recorded]
    return (
        "yes" if recorded <= {m.option for p in spoken for m in mentions(p.text, known)} else "no"
    )


def _own_view(mind: Mind, model: str, field: str) -> tuple[dict[str, float], dict[str, int]]:
    """The options on the table by liking, and what the member's own statement says of them."""
    options = _on_table(mind, model, field)
    said = text_scores(" ".join(p.text for p in _preferences(mind) if p.own), options)
    return {o: v + said[o] for o, v in _liking(mind, options).items()}, said


def ballot(mind: Mind) -> Reply:
    """A ballot that agrees with what the member stated."""
    liking, said = _own_view(mind, "BallotForm", "top_choice")
    ranked = sorted(liking, key=lambda o: (-said[o], -liking[o]))
    refused = [o for o in ranked if said[o] < 0]
    liked = [o for o in ranked[1:] if o not in refused and (said[o] > 0 or liking[o] > 0)]
    top = next((o for o in ranked if o not in refused), NONE_OF_THESE)
    return {"top_choice": top, "acceptable": liked[:2], "hard_no": refused} | _NOTHING_ELSE


# The respondent says nothing beyond the options that it was shown.
_NOTHING_ELSE: Reply = {"new_option": "", "objection": ""}


def scores(mind: Mind) -> Reply:
    """Scores that agree with what the member stated."""
    liking, said = _own_view(mind, "Score", "option")
    given = {o: max(-4, min(4, round(v))) for o, v in liking.items()}
    refused = [o for o in liking if said[o] < 0]
    listed = [{"option": o, "score": s} for o, s in given.items()]
    return {"scores": listed, "hard_no": refused} | _NOTHING_ELSE


def own_scores(mind: Mind) -> Reply:
    """What a member tells the researcher alone: the same liking, and the wish as the reason."""
    liking, _ = _own_view(mind, "Score", "option")
    best = max(liking, key=lambda o: liking[o], default="")
    return {"reason": _say(mind, "wish", W=best) if best else ""} | scores(mind)


# --- the mediator ------------------------------------------------------------------------------


class Meeting:
    """What a mediator knows: who is there, what they stated, what is on the table and in force.

    `in_force` are the shares of the decision that the request shows, `told` is its sentence about
    it, and `asked` the member who is asked in a round of feedback.
    """

    def __init__(self, mind: Mind) -> None:
        self.mind = mind
        spoken = mind.schema.get("$defs", {}).get("Spoken", {}).get("properties", {})
        speakers: Sequence[str] = spoken.get("speaker", {}).get("enum", ())
        self.names = [name for name in speakers if name != SYSTEM]
        by_id = {_last_key(p): self._name(p.text) for p in _shown(mind, quotes.MEMBER_NAME)}
        stated = ((by_id.get(p.source.speaker, ""), p.text) for p in _preferences(mind))
        self.texts = {name: text for name, text in stated if name}
        members = [Member(name, name, "") for name in self.names]
        self.tally = count(members, self.texts, _on_table(mind, "Share", "option"))
        self.in_force = self._shares()
        self.told = _text_of(mind, quotes.SENTENCE).rstrip(". ")
        self.asked = self._name(_text_of(mind, quotes.TARGET_NAME))

    def _name(self, text: str) -> str:
        """A member's name as replies must give it: a prompt may write it in capitals."""
        return next((name for name in self.names if fold_name(name) == fold_name(text)), text)

    def _shares(self) -> list[Reply]:
        """Who gets what, by the row of each share."""
        times = {_row(p): p.text for p in _shown(self.mind, quotes.SHARE_TIME)}
        people: dict[str, list[str]] = {}
        for passage in _shown(self.mind, quotes.SHARE_MEMBERS):
            people.setdefault(_row(passage), []).append(self._name(passage.text))
        found: dict[str, Reply] = {}
        for passage in _shown(self.mind, quotes.SHARE_OPTION):
            row = _row(passage)
            # Shares of the same members are shown as one, with the members of the first.
            named = people.get(row) or next(iter(people.values()), [])
            everyone = any(fold_name(name) == fold_name(EVERYONE) for name in named)
            found[row] = {
                "option": _usual(passage.text, self.tally.options),
                "members": [] if everyone else list(dict.fromkeys(named)),
                "when": times.get(row, ""),
            }
        return [found[row] for row in sorted(found, key=natural)]

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


def _row(passage: Passage) -> str:
    """The keys of the row from which a text was taken."""
    return passage.source.id.partition("/")[2]


def _text_of(mind: Mind, column: str) -> str:
    """The last text from a column of a table; empty if none is shown."""
    return next((p.text for p in reversed(_shown(mind, column))), "")


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
    shares = at.in_force or at.proposal(follows)
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
    """Mostly the id of the topic's strategy, at times a vague label, as models are wont to."""
    topic = {_last_key(passage) for passage in _shown(mind, quotes.TOPIC_LABEL)}
    ids = [p.text for p in _shown(mind, quotes.STRATEGY_ID) if _last_key(p) in topic]
    return ids[0] if ids and mind.draws.chance(LABELS) else mind.draws.pick(_VAGUE)


def feedback(mind: Mind, follows: float) -> Reply:
    """A round: the member asked misses the own wish or not, and the mediator makes room or not."""
    at = Meeting(mind)
    name, shares = at.asked, at.in_force
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
