"""What the embedded respondent should know of this study: what its answers mean in opinions.

A person's opinion of a product is a taste, plus what concept and material say of it for and
against, weighed by what counts for the person, less what it costs; in a talk it moves towards what
others were heard to say. Each of these is a passage of known source (`texts`): the concept, the
material, the price, what a participant said. Inside a passage a view is a sentence in the first
person with words for or against.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from folkmoot.files import packaged_yaml
from folkmoot.hints import enumerated
from folkmoot.people.sources.grounded.attributes import LIMITS
from folkmoot.respondent import Mind, Part, Passage, of_kind
from folkmoot.respondent.mind.draws import normal, unit
from folkmoot.respondent.mind.speech import capital
from folkmoot.studies.focus_group import texts
from folkmoot.studies.focus_group.config import DiscussionConfig, amount
from folkmoot.studies.focus_group.discussion import INTENTS, MODERATOR
from folkmoot.studies.focus_group.positions import DECIMALS, LEANINGS, SMALLEST_MOVE

TASTE = 0.6  # standard deviation of what people think of a product of which nothing is said
PRICE = 0.9  # by how much a tenfold price lowers an opinion, for an average person
USUAL = 100.0  # the price that neither attracts nor deters: the respondent knows no products
HEARD = 1.0  # strength of what others say, times `kappa_read`
HALF = 8.0  # views heard at which half of that is done
NEUTRAL = 0.15  # a position nearer to zero takes no side


@cache
def words() -> Mapping[str, Any]:
    """Concerns and sentences, from `respondent.yaml`."""
    found: Mapping[str, object] = packaged_yaml(__file__, Path(__file__).with_suffix(".yaml").name)
    return found


# --- what is read ------------------------------------------------------------------------------


class View(NamedTuple):
    """A word for (1) or against (−1) a product, and the concern that it is about."""

    concern: str
    side: int
    word: str


@cache
def _sides() -> dict[str, tuple[str, int]]:
    return {
        word: (concern, side)
        for concern, of in words()["concerns"].items()
        for key, side in (("pro", 1), ("con", -1))
        for word in of[key]
    }


_TURNED = re.compile(
    r"(?:\b(?:no|not|never|without|hardly|nobody|cannot)|n['’]t)(?:\W+\w+){0,5}\W*$"
)
FIRST_PERSON = re.compile(r"\b(?:I|I['’](?:m|d|ve|ll)|[Mm]e|[Mm]y|[Mm]yself)\b")


@lru_cache(maxsize=16384)
def views(sentence: str) -> tuple[View, ...]:
    """What a sentence says for and against; a negation before a word turns it. What somebody
    quotes is not what they say."""
    found = []
    if FIRST_PERSON.search(sentence):
        sentence = re.sub("“[^”]*”", " ", sentence)
    for hit in re.finditer(r"[A-Za-z-]+", sentence):
        if known := _sides().get(hit[0].lower()):
            clause = re.split(r"[,;:.]", sentence[: hit.start()])[-1]
            turned = bool(_TURNED.search(clause.lower()))
            found.append(View(known[0], -known[1] if turned else known[1], hit[0].lower()))
    return tuple(found)


_SENTENCE_END = re.compile(r"(?<=[.!?])[\"'”’)]*\s+|\n+")


def sentences(text: str) -> list[str]:
    return [s.strip() for s in _SENTENCE_END.split(text) if s.strip()]


def fold(text: str) -> str:
    """Return a text with single spaces."""
    return " ".join(text.split())


def shown(mind: Mind, *columns: str) -> list[Passage]:
    """The passages from these columns of tables or keys of the study file, in order."""
    return [p for p in mind.reading.passages if p.source.id.partition("/")[0] in columns]


def text_of(mind: Mind, column: str) -> str:
    """The last text from a column; empty if none is shown."""
    found = shown(mind, column)
    return found[-1].text if found else ""


class Product(NamedTuple):
    """The product of a request, as far as it is shown. `on_ladder`: the price is one of the
    ladder's, of which nobody knew at first."""

    described: str
    material: str
    category: str
    price: str
    on_ladder: bool

    @property
    def texts(self) -> list[str]:
        return [text for text in (self.described, self.material) if text]

    @property
    def concept(self) -> str:
        return self.described.strip().rstrip(".") or "this"

    @property
    def thing(self) -> str:
        """ "the oven": the noun that the concept begins with, before what is said of it."""
        head = re.split(
            r"\b(?:that|which|who|with|without|for|of|by|to|in|from|made|where|on|at|and)\b|[,;:(.]",
            self.concept,
        )[0].split()
        noun = head[-1] if head else ""
        return f"the {noun}" if noun and noun.lower() not in ("a", "an", "the", "this") else "it"

    @property
    def claims(self) -> list[str]:
        """Short sentences of the material that say something for or against."""
        said = [s.rstrip(".!") for s in re.split(r"[:;\n]|(?<=\.)\s", self.material)]
        return [s.strip() for s in said if 2 <= len(s.split()) <= 9 and views(s)]


_IN_MONEY = re.compile(
    r"[$€£]\s?\d[\d,.]*\d|\d[\d,.]*\s?(?:[$€£]|dollars?|euros?|pounds?|USD|EUR)\b"
)


def product(mind: Mind) -> Product:
    """What is talked about, and what it costs: a price of the ladder, else the product's own, else
    one that its material names."""
    described, material = text_of(mind, texts.CONCEPT), text_of(mind, texts.MATERIAL)
    rung = text_of(mind, texts.LADDER)
    named = _IN_MONEY.findall(f"{described} {material}")
    price = rung or text_of(mind, texts.PRICE) or (named[-1] if named else "")
    category = text_of(mind, texts.CATEGORY) or "this"
    return Product(described, material, category, price, bool(rung))


def said_in_talk(mind: Mind) -> list[Passage]:
    """What was said at the table or in an interview, in order; what is shown twice counts once."""
    found: dict[str, Passage] = {}
    for passage in of_kind(mind.reading.passages, "utterance"):
        if texts.stage_of(passage.source.id) not in (texts.PLANNING, texts.FIRST_OPINION):
            found.setdefault(passage.source.id, passage)
    return list(found.values())


def own_words(mind: Mind) -> list[str]:
    return [passage.text for passage in said_in_talk(mind) if passage.own]


def said_since(mind: Mind) -> list[Passage]:
    """What participants have said since the last own words."""
    said = said_in_talk(mind)
    last = max((n for n, passage in enumerate(said) if passage.own), default=-1)
    return [passage for passage in said[last + 1 :] if passage.source.speaker != MODERATOR]


class Heard(NamedTuple):
    """A view that another participant was heard to say; `name` is empty if it is not known."""

    name: str
    sentence: str
    views: tuple[View, ...]


def names_of(mind: Mind) -> dict[str, str]:
    """The names of those who are heard or named in the prompt, by id."""
    named = {p.source.id.rpartition("/")[2]: p.text for p in shown(mind, texts.NAME)}
    return {**mind.reading.names, **named}


def said_by_others(mind: Mind, passages: Sequence[Passage] | None = None) -> list[Heard]:
    """All views of other participants, or those in some passages, in order."""
    own = {fold(s) for text in own_words(mind) for s in sentences(text)}
    names = names_of(mind)
    found: dict[str, Heard] = {}
    for passage in said_in_talk(mind) if passages is None else passages:
        if passage.own or passage.source.speaker == MODERATOR:
            continue
        for sentence in sentences(passage.text):
            spoken = views(sentence)
            if spoken and FIRST_PERSON.search(sentence) and fold(sentence) not in own:
                name = names.get(passage.source.speaker, "")
                found.setdefault(fold(sentence), Heard(name, sentence, spoken))
    return list(found.values())


# --- what somebody thinks ----------------------------------------------------------------------


class Opinion(NamedTuple):
    """What somebody thinks of the product: before and after what was heard, and by concern."""

    first: float
    now: float
    by_concern: Mapping[str, float]
    product: Product

    @property
    def position(self) -> float:
        return math.tanh(self.now)


def opinion(mind: Mind) -> Opinion:
    """u = taste + Σ weight · tanh(net claims / 1.5) − price; then a part of the way to what others
    say on balance: susceptibility · persuasion · kappa_read · n/(n + 8)."""
    it, who, knobs = product(mind), mind.who, mind.knobs
    spread = 1 - knobs.shrinking_variance
    net: dict[str, float] = {}
    for text in it.texts:
        for sentence in sentences(text):
            for view in views(sentence):
                net[view.concern] = net.get(view.concern, 0) + view.side
    by_concern = {
        concern: weight(mind, concern) * math.tanh(net.get(concern, 0) / 1.5)
        for concern in words()["concerns"]
    }
    taste = spread * (
        TASTE * normal(who.seed, who.key, "taste", it.concept)
        + 0.25 * bool(re.search(words()["welcomes"], who.key))
        - 0.25 * bool(re.search(words()["shuns"], who.key))
    )
    first = taste + sum(by_concern.values()) + 0.5 * knobs.acquiescence
    paid = 0.0
    if it.price:
        dear = math.log10(max(amount(_only_amount(it.price)), 0.01) / USUAL)
        by_concern["price"] -= (paid := PRICE * (0.5 + weight(mind, "price")) * dear)
    stated = stated_leaning(mind)
    if stated is None:
        first -= paid
    elif it.on_ladder:
        first = (first + stated.middle) / 2 - paid
    elif it.price or it.material:
        first = min(max(first - paid, stated.low), stated.high)
    else:
        first = stated.middle + 0.1 * first
    heard = [v for each in said_by_others(mind) for v in each.views]
    if not heard:
        return Opinion(first, first, by_concern, it)
    mean = sum(v.side for v in heard) / len(heard)
    pull = who.susceptibility * knobs.persuasion * knobs.kappa_read * HEARD
    pull = min(1.0, pull * len(heard) / (len(heard) + HALF) + knobs.sycophancy)
    return Opinion(first, first + pull * (mean - math.tanh(first)), by_concern, it)


class Leaning(NamedTuple):
    """A first opinion by its wording, on the scale of opinions: from where to where it reaches."""

    low: float
    middle: float
    high: float


def stated_leaning(mind: Mind) -> Leaning | None:
    """The first opinion that somebody is told to have, by one of its five wordings: what was read
    in private is known, also where it is out of sight."""
    told = text_of(mind, texts.FIRST_LEANING)
    known = list(LEANINGS.values())
    return _STATED[known.index(told)] if told in known else None


_ENDS = (-math.inf, *(math.atanh(limit) for limit in LIMITS), math.inf)
_STATED = tuple(
    Leaning(low, math.atanh(position), high)
    for low, position, high in zip(_ENDS, (-0.75, -0.4, 0.0, 0.4, 0.75), _ENDS[1:], strict=False)
)


def weight(mind: Mind, concern: str) -> float:
    """How much a concern counts for somebody: .15 to .5, more if their description says so."""
    who = mind.who
    own = bool(re.search(words()["concerns"][concern]["weighs"], who.key))
    return 0.15 + 0.35 * unit(who.seed, who.key, "weight", concern) + 0.25 * own


def _only_amount(price: str) -> str:
    return str(re.findall(r"\d[\d,]*(?:\.\d+)?", price)[0])


# --- participants ------------------------------------------------------------------------------


def private_opinion(mind: Mind) -> dict[str, object]:
    """The answer of `PrivateOpinion`."""
    view = opinion(mind)
    noise = 0.5 * mind.knobs.noise * normal(mind.at.seed, mind.at.address, "position")
    position = math.tanh(view.now + noise)
    strong, other = ("pro", "con") if view.position >= 0 else ("con", "pro")
    sides = (strong, other if abs(position) < 0.4 else strong)
    said = [reason(mind, view, side, skip=n, kind="privately") for n, side in enumerate(sides)]
    return {"opinion": " ".join(said), "position": round(position, 2)}


def intent(mind: Mind) -> str | None:
    """Purchase intent: the opinion on five steps, with the noise of one asking."""
    if set(mind.reading.offered) != set(INTENTS):
        return None
    at, knobs = mind.at, mind.knobs
    if knobs.instability and unit(at.seed, at.address, "?") < knobs.instability:
        return INTENTS[int(len(INTENTS) * unit(at.seed, at.address, "any"))]
    noisy = math.tanh(opinion(mind).now + 1.5 * knobs.noise * normal(at.seed, at.address, "intent"))
    return INTENTS[sum(noisy >= limit for limit in (-0.6, -0.2, 0.2, 0.6))]


def answer(mind: Mind) -> str:
    """A turn at the table: about oneself where nobody has come to the product yet, else a view,
    which may take up what somebody has said."""
    view = opinion(mind)
    question = asked(mind)
    it = view.product
    noun = it.thing.split()[-1]
    about_category = noun not in question and fold(it.category) in fold(question)
    said = said_by_others(mind)
    n = next((k for k, known in words()["talks"].items() if re.search(known, mind.who.key)), 2)
    if about_category and not said:
        return about_oneself(mind, it)
    concern = own_concern(mind)
    taken = ""
    if not concern:
        taken, concern = taken_up(mind, view, said)
    parts = [taken] if taken else []
    if ASKS_PRICE.search(question):
        parts.append(phrase(mind, words()["fair_price"], it, fair=fair_price(view)))
    before = fold(" ".join(own_words(mind)))
    changed = abs(math.tanh(view.now) - math.tanh(view.first)) >= 0.15
    if changed and not any(f in before for f in words()["moved"]) and mind.draws.chance(0.3):
        parts.append(phrase(mind, words()["moved"], it))
    parts.append(aloud(mind, view, reasons(mind, view, max(1, n - len(parts)), concern)))
    return " ".join(parts)


ASKS_PRICE = re.compile(r"\b(?:prices?|pay)\b", re.IGNORECASE)


def fair_price(view: Opinion) -> str:
    """The price that a participant names as fair: the product's own, or the usual one where none is
    in view, up to twice or half of it by their position; to two figures."""
    named = view.product.price
    usual = amount(_only_amount(named)) if named else USUAL
    fair = usual * 2**view.position
    number = f"{float(f'{fair:.2g}'):,g}"
    return named.replace(_only_amount(named), number) if named else f"{number} dollars"


def own_concern(mind: Mind) -> str:
    """The concern of the speaker who is asked right after their own words; empty if others have
    spoken since, or if they spoke of nothing in particular."""
    own = own_words(mind)
    if not own or said_by_others(mind, said_since(mind)):
        return ""
    found = [view.concern for each in sentences(own[-1]) for view in views(each)]
    return found[0] if found else ""


def asked(mind: Mind) -> str:
    """The question: what the moderator said last."""
    questions = [p.text for p in said_in_talk(mind) if p.source.speaker == MODERATOR]
    return questions[-1] if questions else mind.reading.about


def about_oneself(mind: Mind, it: Product) -> str:
    """Who one is, and how one buys; the first only once."""
    kinds = ["experience"]
    if mind.who.calling and not own_words(mind):
        kinds.insert(0, "intro")
    return " ".join(phrase(mind, words()[kind], it) for kind in kinds)


def taken_up(mind: Mind, view: Opinion, said: Sequence[Heard]) -> tuple[str, str]:
    """Agreement or disagreement with one of the latest views of others, and its concern: only with
    what was said, on the side on which the speaker stands."""
    side = 1 if view.now >= 0 else -1
    latest = {h.name: h for h in said if h.name}
    who, sycophancy = mind.who, mind.knobs.sycophancy
    contrary = bool(re.search(words()["contrary"], who.key))
    gentle = bool(re.search(words()["gentle"], who.key))
    for heard in [*latest.values()][-3:][::-1]:
        first = heard.views[0]
        same = first.side == side
        odds = 0.35 if same else 0.4 * min(1.0, abs(view.now) + 0.4)
        odds *= (1.6 if gentle else 0.6 if contrary else 1.0) ** (1 if same else -1)
        odds = odds + sycophancy * (1 - odds) if same else odds * (1 - sycophancy)
        if abs(view.position) >= NEUTRAL and mind.draws.chance(odds):
            matter = words()["concerns"][first.concern]["matter"]
            kind = words()["agree" if same else "disagree"]
            told = phrase(mind, kind, view.product, name=heard.name, matter=matter)
            return told, first.concern
    return "", ""


def reasons(mind: Mind, view: Opinion, n: int, concern: str = "") -> list[str]:
    """`n` sentences that stand where the speaker stands: what counts most for them on their side
    (`concern` first, if one was taken up), and where the opinion is not strong a last one of the
    other side."""
    it, position = view.product, view.position
    side, other = ("pro", "con") if position >= 0 else ("con", "pro")
    said = [phrase(mind, words()["reasons"][concern][side], it)] if concern else []
    if abs(position) < NEUTRAL:
        said.append(phrase(mind, words()["undecided"], it))
        n = max(n, len(said) + 1)
    elif not said and abs(position) >= 0.5 and mind.draws.chance(0.5):
        said.append(phrase(mind, words()["for" if side == "pro" else "against"], it))
    while len(said) < n:
        said.append(reason(mind, view, side, skip=len(said)))
    if abs(position) < 0.4 and n > 1:
        said.append(reason(mind, view, other))
    return said


def aloud(mind: Mind, view: Opinion, said: Sequence[str]) -> str:
    """Reasons as they are said at a table: one of the other side is joined as an objection."""
    told = [*said]
    if mind.draws.chance(0.35):
        told[0] = f"{mind.tongue.fresh(words()['leads'])} {within(told[0])}"
    if len(said) > 1 and abs(view.position) < 0.4:
        told[-1] = f"{mind.tongue.fresh(words()['but'])} {within(told[-1])}"
    return " ".join(told)


def within(sentence: str) -> str:
    """A sentence as it goes on after a word or two of another."""
    own = sentence.startswith(("I ", "I'")) or not sentence[0].isalpha()
    return sentence if own else sentence[0].lower() + sentence[1:]


def reason(mind: Mind, view: Opinion, side: str, skip: int = 0, kind: str = "reasons") -> str:
    """One reason of a side: of the concerns the one that pulls most that way (`skip`: after so many
    others), now and then another; or words of the material."""
    it = view.product
    sign = 1 if side == "pro" else -1
    if kind == "reasons" and it.claims and mind.draws.chance(0.2):
        claim = mind.tongue.fresh(it.claims)
        return phrase(mind, words()["claims"][side], it, claim=claim)
    pull = {
        c: sign * v + 0.25 * weight(mind, c) + 0.15 * mind.draws.unit()
        for c, v in view.by_concern.items()
        if c != "price" or it.price
    }
    ranked = sorted(pull, key=lambda c: -pull[c])
    concern = ranked[min(skip, len(ranked) - 1)]
    return phrase(mind, words()[kind][concern][side], it)


def phrase(mind: Mind, frames: Sequence[str], it: Product, **more: str) -> str:
    """One of the frames, filled: if there are such, one that has not been said before."""
    known = dict(
        thing=it.thing, price=it.price or "that", category=it.category, concept=it.concept,
        C=mind.who.calling, **more,
    )  # fmt: skip
    said = "\n".join(passage.text for passage in of_kind(mind.reading.passages, "utterance"))
    unheard = [f for f in frames if capital(f.format(**known)) not in said]
    return capital(mind.tongue.fresh(unheard if len(unheard) > 1 else frames).format(**known))


# --- the moderator -----------------------------------------------------------------------------


def guide(mind: Mind) -> dict[str, object]:
    """The answer of `PhaseGuide`: questions of the phase about this product."""
    it = product(mind)
    known = words()["guide"]
    stock = known.get(text_of(mind, texts.PHASE)) or known["exploration"]
    wanted = int(text_of(mind, texts.NUMBER) or 2)
    return {"questions": [phrase(mind, stock, it) for _ in range(wanted)]}


def people_named(mind: Mind) -> list[str]:
    """The names in the prompt, apart from those of everybody in the system message."""
    return list(dict.fromkeys(p.text for p in shown(mind, texts.NAME) if p.message))


def next_question(mind: Mind) -> dict[str, object]:
    """The answer of `NextQuestion`: the planned question, after a remark that was really made."""
    it = product(mind)
    planned = [
        p.text
        for p in mind.reading.passages
        if (p.source.kind == "utterance" and texts.stage_of(p.source.id) == texts.PLANNING)
        or p.source.id.startswith(texts.GUIDE)
    ]
    question = planned[-1] if planned else phrase(mind, words()["guide"]["exploration"], it)
    frames = words()["moderator"]
    said = said_by_others(mind, said_since(mind))
    own = own_words(mind)
    lead = []
    taken: dict[str, str] | None = None
    if not own:
        lead.append(phrase(mind, frames["welcome"], it))
    elif said:
        remark = said[-1]
        matter = words()["concerns"][remark.views[0].concern]["matter"]
        count = len(
            {h.name for h in said if any(v.concern == remark.views[0].concern for v in h.views)}
        )
        taken = {"name": remark.name, "words": " ".join(remark.sentence.split()[:6])}
        lead.append(
            phrase(mind, frames["take_up"], it, name=remark.name, matter=matter)
            if count < 3 or mind.draws.chance(0.5)
            else frames["counted"].format(count=_COUNTS.get(count, str(count)), matter=matter)
        )
    exploring = text_of(mind, texts.PHASE) == "exploration"
    if exploring and not any(it.concept in text for text in own):
        lead.append(frames["idea"].format(concept=it.concept))
    if any(passage.message for passage in shown(mind, texts.MATERIAL)):
        lead.append(frames["material"])
    quiet = people_named(mind)[:2]
    out = [phrase(mind, frames["quiet"], it, names=" and ".join(quiet))] if quiet else []
    return {
        "summary": summary(said),
        "unanswered": [],
        "takes_up": taken,
        "asks": quiet,
        "question": " ".join([*lead, question, *out]),
    }


_COUNTS = {3: "Three", 4: "Four", 5: "Five", 6: "Six"}


def summary(said: Iterable[Heard]) -> str:
    """What was said for and against, by concern, as it was counted; without names."""
    found: dict[tuple[str, int], set[str]] = {}
    for heard in said:
        for view in heard.views:
            found.setdefault((view.concern, view.side), set()).add(heard.name)
    told = [
        f"{len(who)} {'for' if side > 0 else 'against'} it on {concern}"
        for (concern, side), who in found.items()
    ]
    return f"Views since the last question: {enumerated(told)}." if told else ""


def probe(mind: Mind) -> str:
    """A follow-up: why, and after the answer to that why it matters."""
    named, own = people_named(mind), own_words(mind)
    again = bool(named and own and named[0] in own[-1] and len(said_since(mind)) < 2)
    frames = words()["moderator"]["matters" if again else "why"]
    return phrase(mind, frames, product(mind), name=named[0] if named else "you")


# --- the coder ---------------------------------------------------------------------------------

_AGREES = re.compile(r"\b(?:agree|am with|said|has a point)\b")
_DISAGREES = re.compile(r"\b(?:disagree|differently|cannot go along)\b")


def coded(mind: Mind) -> dict[str, object]:
    """The answer of `OpinionReading`, of the answer that it is about."""
    spoken = [p for p in said_in_talk(mind) if p.source.speaker != MODERATOR]
    read_now = [p for p in spoken if p.text == mind.reading.about]
    said = read_now[-1].text if read_now else ""
    known = text_of(mind, texts.POSITION)
    last = float(known) if known else None
    found = [v.side for s in sentences(said) for v in views(s)]
    read = 0.8 * sum(found) / len(found) * len(found) / (len(found) + 0.5) if found else None
    now = last if read is None else read if last is None else last + 0.5 * (read - last)
    speaker = read_now[-1].source.speaker if read_now else ""
    others = {name for id, name in names_of(mind).items() if id != speaker}
    people = [word for word in re.findall(r"\w[\w'’-]*", said) if word in others]
    first = sentences(said)[0] if said.strip() else ""
    stance = None
    if people and people[0] in first:
        stance = (
            "disagree" if _DISAGREES.search(first) else "agree" if _AGREES.search(first) else None
        )
    return {
        "changed": None not in (last, now)
        and abs(round(now - last, DECIMALS)) >= 2 * SMALLEST_MOVE,  # type: ignore[operator]
        "valence": None if now is None else round(now, 2),
        "takes_up": people[0] if people else None,
        "stance": stance,
        "sentiment": 0.0 if read is None else round(read, 2),
    }


PART: Part[DiscussionConfig] = Part(
    answers={
        "PrivateOpinion": private_opinion,
        "participant choice": intent,
        "participant text": answer,
        "PhaseGuide": guide,
        "NextQuestion": next_question,
        "moderator text": probe,
        "OpinionReading": coded,
    },
)
