"""The part of the embedded respondent for focus groups: how opinions become answers.

The opinion of a product is the sum of a taste, the claims of concept and material weighted by what
counts for the persona, and the price. In a discussion it moves towards the views of others. Each
text is a passage with a known source (`texts`): the concept, the material, the price, an utterance.
Within an utterance a view is a sentence in the first person with a word for or against.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from folkmoot.files import packaged_yaml
from folkmoot.hints import join_words
from folkmoot.people.sources.grounded.attributes import LIMITS
from folkmoot.respondent import Passage, RespondentPart, SimulatedRespondent, of_kind
from folkmoot.respondent.mind.draws import normal_draw, uniform_draw
from folkmoot.respondent.mind.speech import capitalise_first
from folkmoot.studies.focus_group import texts
from folkmoot.studies.focus_group.config import DiscussionConfig, parse_amount
from folkmoot.studies.focus_group.discussion import INTENTS, MODERATOR
from folkmoot.studies.focus_group.positions import DECIMALS, LEANINGS, SMALLEST_MOVE

# The constants below belong to the respondent's documented model. They are not estimates of human
# behaviour. TASTE is the standard deviation of opinions of a product without any description.
TASTE = 0.6
# The amount by which a tenfold price lowers the opinion of an average persona.
PRICE = 0.9
# The price that neither attracts nor deters. The respondent does not know what products cost.
USUAL = 100.0
# Strength of the views of others, multiplied by `kappa_read`.
HEARD = 1.0
# Number of views of others at which half of their maximum influence is reached.
HALF = 8.0
# A position closer to zero takes no side.
NEUTRAL = 0.15


@cache
def load_wordings() -> Mapping[str, Any]:
    """Return concerns and sentences from `respondent.yaml`."""
    found: Mapping[str, object] = packaged_yaml(__file__, Path(__file__).with_suffix(".yaml").name)
    return found


# --- reading of the prompt ---------------------------------------------------------------------


class View(NamedTuple):
    """A word for (1) or against (−1) a product, with the concern that it is about."""

    concern: str
    side: int
    word: str


@cache
def _words_by_side() -> dict[str, tuple[str, int]]:
    return {
        word: (concern, side)
        for concern, of in load_wordings()["concerns"].items()
        for key, side in (("pro", 1), ("con", -1))
        for word in of[key]
    }


# A negation turns a word that follows it within five words.
_TURNED = re.compile(
    r"(?:\b(?:no|not|never|without|hardly|nobody|cannot)|n['’]t)(?:\W+\w+){0,5}\W*$"
)
FIRST_PERSON = re.compile(r"\b(?:I|I['’](?:m|d|ve|ll)|[Mm]e|[Mm]y|[Mm]yself)\b")


@lru_cache(maxsize=16384)
def sentence_views(sentence: str) -> tuple[View, ...]:
    """Return the views of a sentence.

    A negation turns the word after it. In a first-person sentence quoted text does not count,
    because the speaker repeats the words of others.
    """
    found = []
    if FIRST_PERSON.search(sentence):
        sentence = re.sub("“[^”]*”", " ", sentence)
    for hit in re.finditer(r"[A-Za-z-]+", sentence):
        if known := _words_by_side().get(hit[0].lower()):
            clause = re.split(r"[,;:.]", sentence[: hit.start()])[-1]
            turned = bool(_TURNED.search(clause.lower()))
            found.append(View(known[0], -known[1] if turned else known[1], hit[0].lower()))
    return tuple(found)


_SENTENCE_END = re.compile(r"(?<=[.!?])[\"'”’)]*\s+|\n+")


def split_sentences(text: str) -> list[str]:
    """Return the sentences and lines of a text."""
    return [s.strip() for s in _SENTENCE_END.split(text) if s.strip()]


def collapse_spaces(text: str) -> str:
    """Return a text with single spaces."""
    return " ".join(text.split())


def shown_passages(mind: SimulatedRespondent, *columns: str) -> list[Passage]:
    """Return the passages that come from these table columns or study file keys, in order."""
    return [
        passage
        for passage in mind.reading.passages
        if passage.source.id.partition("/")[0] in columns
    ]


def text_of(mind: SimulatedRespondent, column: str) -> str:
    """Return the last passage from a column, or an empty string if none is shown."""
    found = shown_passages(mind, column)
    return found[-1].text if found else ""


class Product(NamedTuple):
    """The product of a request, as far as the prompt shows it.

    `on_ladder` is True if the price is one of the ladder. The first opinion did not know that
    price.
    """

    described: str
    material: str
    category: str
    price: str
    on_ladder: bool

    @property
    def texts(self) -> list[str]:
        return [text for text in (self.described, self.material) if text]

    @property
    def concept_text(self) -> str:
        """The concept for use in a sentence, or "this" if the prompt has none."""
        return self.described.strip().rstrip(".") or "this"

    @property
    def product_noun(self) -> str:
        """The noun of the concept with an article, such as "the oven", or "it" if none is found."""
        head = re.split(
            r"\b(?:that|which|who|with|without|for|of|by|to|in|from|made|where|on|at|and)\b|[,;:(.]",
            self.concept_text,
        )[0].split()
        noun = head[-1] if head else ""
        return f"the {noun}" if noun and noun.lower() not in ("a", "an", "the", "this") else "it"

    @property
    def claims(self) -> list[str]:
        """The short sentences of the material that speak for or against the product."""
        said = [s.rstrip(".!") for s in re.split(r"[:;\n]|(?<=\.)\s", self.material)]
        return [s.strip() for s in said if 2 <= len(s.split()) <= 9 and sentence_views(s)]


_IN_MONEY = re.compile(
    r"[$€£]\s?\d[\d,.]*\d|\d[\d,.]*\s?(?:[$€£]|dollars?|euros?|pounds?|USD|EUR)\b"
)


def read_product(mind: SimulatedRespondent) -> Product:
    """Return the product of a request with its price.

    The price is one of the ladder, else the product's own, else one that the material names.
    """
    described, material = text_of(mind, texts.CONCEPT), text_of(mind, texts.MATERIAL)
    rung = text_of(mind, texts.LADDER)
    named = _IN_MONEY.findall(f"{described} {material}")
    price = rung or text_of(mind, texts.PRICE) or (named[-1] if named else "")
    category = text_of(mind, texts.CATEGORY) or "this"
    return Product(described, material, category, price, bool(rung))


def said_in_talk(mind: SimulatedRespondent) -> list[Passage]:
    """Return the utterances of the discussion or interview, each once, in order."""
    found: dict[str, Passage] = {}
    for passage in of_kind(mind.reading.passages, "utterance"):
        if texts.stage_of(passage.source.id) not in (texts.PLANNING, texts.FIRST_OPINION):
            found.setdefault(passage.source.id, passage)
    return list(found.values())


def own_words(mind: SimulatedRespondent) -> list[str]:
    """Return the respondent's own utterances in the discussion, in order."""
    return [passage.text for passage in said_in_talk(mind) if passage.own]


def said_since(mind: SimulatedRespondent) -> list[Passage]:
    """Return what participants have said since the respondent's own last utterance."""
    said = said_in_talk(mind)
    last = max((n for n, passage in enumerate(said) if passage.own), default=-1)
    return [passage for passage in said[last + 1 :] if passage.source.speaker != MODERATOR]


class ReportedView(NamedTuple):
    """A view in another participant's utterance. `name` is empty if it is not known."""

    name: str
    sentence: str
    views: tuple[View, ...]


def names_of(mind: SimulatedRespondent) -> dict[str, str]:
    """Return the names of the speakers in the history and in the prompt, by id."""
    named = {
        passage.source.id.rpartition("/")[2]: passage.text
        for passage in shown_passages(mind, texts.NAME)
    }
    return {**mind.reading.names, **named}


def views_of_others(
    mind: SimulatedRespondent, passages: Sequence[Passage] | None = None
) -> list[ReportedView]:
    """Return the views of other participants in order, from all passages or from those given."""
    # A sentence that the respondent has said as well is not a view of others.
    own = {collapse_spaces(s) for text in own_words(mind) for s in split_sentences(text)}
    names = names_of(mind)
    found: dict[str, ReportedView] = {}
    for passage in said_in_talk(mind) if passages is None else passages:
        if passage.own or passage.source.speaker == MODERATOR:
            continue
        for sentence in split_sentences(passage.text):
            spoken = sentence_views(sentence)
            if spoken and FIRST_PERSON.search(sentence) and collapse_spaces(sentence) not in own:
                name = names.get(passage.source.speaker, "")
                found.setdefault(collapse_spaces(sentence), ReportedView(name, sentence, spoken))
    return list(found.values())


# --- opinions ----------------------------------------------------------------------------------


class Opinion(NamedTuple):
    """An opinion of the product: before and after the views of others, and by concern.

    The scale is unbounded. `bounded_position` maps it to −1 to 1.
    """

    first: float
    now: float
    by_concern: Mapping[str, float]
    product: Product

    @property
    def bounded_position(self) -> float:
        """The present opinion on the scale of positions, from −1 to 1."""
        return math.tanh(self.now)


def form_opinion(mind: SimulatedRespondent) -> Opinion:
    """Return the opinion of the persona that is asked.

        first = taste + Σ weight · tanh(net claims / 1.5) − price
        pull  = susceptibility · persuasion · kappa_read · n / (n + 8)
        now   = first + pull · (mean view of others − tanh(first))

    n is the number of views of others. Sycophancy is added to the pull, which is at most 1.
    """
    it, who, knobs = read_product(mind), mind.who, mind.knobs
    spread = 1 - knobs.shrinking_variance
    net: dict[str, float] = {}
    for text in it.texts:
        for sentence in split_sentences(text):
            for view in sentence_views(sentence):
                net[view.concern] = net.get(view.concern, 0) + view.side
    by_concern = {
        concern: concern_weight(mind, concern) * math.tanh(net.get(concern, 0) / 1.5)
        for concern in load_wordings()["concerns"]
    }
    taste = spread * (
        TASTE * normal_draw(who.seed, who.key, "taste", it.concept_text)
        + 0.25 * bool(re.search(load_wordings()["welcomes"], who.key))
        - 0.25 * bool(re.search(load_wordings()["shuns"], who.key))
    )
    first = taste + sum(by_concern.values()) + 0.5 * knobs.acquiescence
    paid = 0.0
    if it.price:
        dear = math.log10(max(parse_amount(_only_amount(it.price)), 0.01) / USUAL)
        by_concern["price"] -= (paid := PRICE * (0.5 + concern_weight(mind, "price")) * dear)
    # The system prompt names the first opinion in words. The computed opinion is brought into the
    # range of these words, so that later answers agree with the private answer before the
    # discussion.
    stated = stated_leaning(mind)
    if stated is None:
        first -= paid
    elif it.on_ladder:
        first = (first + stated.middle) / 2 - paid
    elif it.price or it.material:
        first = min(max(first - paid, stated.low), stated.high)
    else:
        first = stated.middle + 0.1 * first
    heard = [view for each in views_of_others(mind) for view in each.views]
    if not heard:
        return Opinion(first, first, by_concern, it)
    mean = sum(view.side for view in heard) / len(heard)
    pull = who.susceptibility * knobs.persuasion * knobs.kappa_read * HEARD
    pull = min(1.0, pull * len(heard) / (len(heard) + HALF) + knobs.sycophancy)
    return Opinion(first, first + pull * (mean - math.tanh(first)), by_concern, it)


class Leaning(NamedTuple):
    """A first opinion in words, as a range on the scale of opinions."""

    low: float
    middle: float
    high: float


def stated_leaning(mind: SimulatedRespondent) -> Leaning | None:
    """Return the first opinion that the system prompt states, by its five wordings, or None.

    It holds what the participant read in private, even if that text is no longer in the prompt.
    """
    told = text_of(mind, texts.FIRST_LEANING)
    known = list(LEANINGS.values())
    return _STATED[known.index(told)] if told in known else None


# The limits and middles of the five wordings, mapped from positions to the unbounded scale.
_ENDS = (-math.inf, *(math.atanh(limit) for limit in LIMITS), math.inf)
_STATED = tuple(
    Leaning(low, math.atanh(position), high)
    for low, position, high in zip(_ENDS, (-0.75, -0.4, 0.0, 0.4, 0.75), _ENDS[1:], strict=False)
)


def concern_weight(mind: SimulatedRespondent, concern: str) -> float:
    """Return the weight of a concern for the persona: 0.15 to 0.5, or more if the text says so."""
    who = mind.who
    own = bool(re.search(load_wordings()["concerns"][concern]["weighs"], who.key))
    return 0.15 + 0.35 * uniform_draw(who.seed, who.key, "weight", concern) + 0.25 * own


def _only_amount(price: str) -> str:
    return str(re.findall(r"\d[\d,]*(?:\.\d+)?", price)[0])


# --- participants ------------------------------------------------------------------------------


def private_opinion(mind: SimulatedRespondent) -> dict[str, object]:
    """Return the fields of `PrivateOpinion`."""
    view = form_opinion(mind)
    noise = 0.5 * mind.knobs.noise * normal_draw(mind.at.seed, mind.at.address, "position")
    position = math.tanh(view.now + noise)
    strong, other = ("pro", "con") if view.bounded_position >= 0 else ("con", "pro")
    sides = (strong, other if abs(position) < 0.4 else strong)
    said = [give_reason(mind, view, side, skip=n, kind="privately") for n, side in enumerate(sides)]
    return {"opinion": " ".join(said), "position": round(position, 2)}


def answer_intent(mind: SimulatedRespondent) -> str | None:
    """Return the purchase intent: the opinion in five steps, with the noise of one asking.

    Return None for other choices, which the shared part answers.
    """
    if set(mind.reading.offered) != set(INTENTS):
        return None
    at, knobs = mind.at, mind.knobs
    if knobs.instability and uniform_draw(at.seed, at.address, "?") < knobs.instability:
        return INTENTS[int(len(INTENTS) * uniform_draw(at.seed, at.address, "any"))]
    noisy = math.tanh(
        form_opinion(mind).now + 1.5 * knobs.noise * normal_draw(at.seed, at.address, "intent")
    )
    return INTENTS[sum(noisy >= limit for limit in (-0.6, -0.2, 0.2, 0.6))]


def answer_at_table(mind: SimulatedRespondent) -> str:
    """Return a turn in the discussion.

    It is an introduction if the question is about the category and no views were given yet.
    Otherwise it gives views, and may refer to another participant.
    """
    view = form_opinion(mind)
    question = current_question(mind)
    it = view.product
    noun = it.product_noun.split()[-1]
    about_category = noun not in question and collapse_spaces(it.category) in collapse_spaces(
        question
    )
    said = views_of_others(mind)
    n = next(
        (key for key, known in load_wordings()["talks"].items() if re.search(known, mind.who.key)),
        2,
    )
    if about_category and not said:
        return about_oneself(mind, it)
    concern = own_concern(mind)
    taken = ""
    if not concern:
        taken, concern = reply_to_view(mind, view, said)
    parts = [taken] if taken else []
    if ASKS_PRICE.search(question):
        parts.append(fill_phrase(mind, load_wordings()["fair_price"], it, fair=fair_price(view)))
    before = collapse_spaces(" ".join(own_words(mind)))
    # A change of mind is said at most once, and only now and then.
    changed = abs(math.tanh(view.now) - math.tanh(view.first)) >= 0.15
    if (
        changed
        and not any(item in before for item in load_wordings()["moved"])
        and mind.draws.draw_chance(0.3)
    ):
        parts.append(fill_phrase(mind, load_wordings()["moved"], it))
    parts.append(
        compose_turn(mind, view, give_reasons(mind, view, max(1, n - len(parts)), concern))
    )
    return " ".join(parts)


ASKS_PRICE = re.compile(r"\b(?:prices?|pay)\b", re.IGNORECASE)


def fair_price(view: Opinion) -> str:
    """Return the price that a participant calls fair, rounded to two figures.

    It is the product's price, or USUAL if none is shown, multiplied by up to two or divided by up
    to two, according to the position.
    """
    named = view.product.price
    usual = parse_amount(_only_amount(named)) if named else USUAL
    fair = usual * 2**view.bounded_position
    number = f"{float(f'{fair:.2g}'):,g}"
    return named.replace(_only_amount(named), number) if named else f"{number} dollars"


def own_concern(mind: SimulatedRespondent) -> str:
    """Return the concern of the respondent's last utterance.

    It is empty if others have spoken since, or if the utterance had no views.
    """
    own = own_words(mind)
    if not own or views_of_others(mind, said_since(mind)):
        return ""
    found = [view.concern for each in split_sentences(own[-1]) for view in sentence_views(each)]
    return found[0] if found else ""


def current_question(mind: SimulatedRespondent) -> str:
    """Return the current question: the moderator's last utterance."""
    questions = [
        passage.text for passage in said_in_talk(mind) if passage.source.speaker == MODERATOR
    ]
    return questions[-1] if questions else mind.reading.about


def about_oneself(mind: SimulatedRespondent, it: Product) -> str:
    """Return an introduction and a sentence on buying. The introduction is given only once."""
    kinds = ["experience"]
    if mind.who.calling and not own_words(mind):
        kinds.insert(0, "intro")
    return " ".join(fill_phrase(mind, load_wordings()[kind], it) for kind in kinds)


def reply_to_view(
    mind: SimulatedRespondent, view: Opinion, said: Sequence[ReportedView]
) -> tuple[str, str]:
    """Return agreement or disagreement with one of the last views of others, and its concern.

    Both are empty if there is none to respond to, or by chance. Respondents agree with views on
    their own side only.
    """
    side = 1 if view.now >= 0 else -1
    latest = {reported_view.name: reported_view for reported_view in said if reported_view.name}
    who, sycophancy = mind.who, mind.knobs.sycophancy
    contrary = bool(re.search(load_wordings()["contrary"], who.key))
    gentle = bool(re.search(load_wordings()["gentle"], who.key))
    # Only the last views of the last three speakers are considered, the latest first.
    for heard in [*latest.values()][-3:][::-1]:
        first = heard.views[0]
        same = first.side == side
        odds = 0.35 if same else 0.4 * min(1.0, abs(view.now) + 0.4)
        odds *= (1.6 if gentle else 0.6 if contrary else 1.0) ** (1 if same else -1)
        odds = odds + sycophancy * (1 - odds) if same else odds * (1 - sycophancy)
        if abs(view.bounded_position) >= NEUTRAL and mind.draws.draw_chance(odds):
            matter = load_wordings()["concerns"][first.concern]["matter"]
            kind = load_wordings()["agree" if same else "disagree"]
            told = fill_phrase(mind, kind, view.product, name=heard.name, matter=matter)
            return told, first.concern
    return "", ""


def give_reasons(
    mind: SimulatedRespondent, view: Opinion, count: int, concern: str = ""
) -> list[str]:
    """Return `count` sentences on the respondent's side, or more for a neutral position.

    `concern` comes first if a view was referred to. If the opinion is not strong, the last sentence
    is of the other side.
    """
    it, position = view.product, view.bounded_position
    side, other = ("pro", "con") if position >= 0 else ("con", "pro")
    said = [fill_phrase(mind, load_wordings()["reasons"][concern][side], it)] if concern else []
    if abs(position) < NEUTRAL:
        said.append(fill_phrase(mind, load_wordings()["undecided"], it))
        count = max(count, len(said) + 1)
    elif not said and abs(position) >= 0.5 and mind.draws.draw_chance(0.5):
        said.append(fill_phrase(mind, load_wordings()["for" if side == "pro" else "against"], it))
    while len(said) < count:
        said.append(give_reason(mind, view, side, skip=len(said)))
    if abs(position) < 0.4 and count > 1:
        said.append(give_reason(mind, view, other))
    return said


def compose_turn(mind: SimulatedRespondent, view: Opinion, said: Sequence[str]) -> str:
    """Return the reasons as one turn. A reason of the other side is joined as an objection."""
    told = [*said]
    if mind.draws.draw_chance(0.35):
        told[0] = f"{mind.tongue.pick_unused(load_wordings()['leads'])} {embed_sentence(told[0])}"
    if len(said) > 1 and abs(view.bounded_position) < 0.4:
        told[-1] = f"{mind.tongue.pick_unused(load_wordings()['but'])} {embed_sentence(told[-1])}"
    return " ".join(told)


def embed_sentence(sentence: str) -> str:
    """Return a sentence for use after introductory words, with a small first letter."""
    own = sentence.startswith(("I ", "I'")) or not sentence[0].isalpha()
    return sentence if own else sentence[0].lower() + sentence[1:]


def give_reason(
    mind: SimulatedRespondent, view: Opinion, side: str, skip: int = 0, kind: str = "reasons"
) -> str:
    """Return one reason of a side.

    It is the concern with the strongest pull in that direction, after `skip` others. Sometimes it
    is another one, or words of the material.
    """
    it = view.product
    sign = 1 if side == "pro" else -1
    if kind == "reasons" and it.claims and mind.draws.draw_chance(0.2):
        claim = mind.tongue.pick_unused(it.claims)
        return fill_phrase(mind, load_wordings()["claims"][side], it, claim=claim)
    pull = {
        concept: sign * value + 0.25 * concern_weight(mind, concept) + 0.15 * mind.draws.unit()
        for concept, value in view.by_concern.items()
        if concept != "price" or it.price
    }
    ranked = sorted(pull, key=lambda concept: -pull[concept])
    concern = ranked[min(skip, len(ranked) - 1)]
    return fill_phrase(mind, load_wordings()[kind][concern][side], it)


def fill_phrase(mind: SimulatedRespondent, frames: Sequence[str], it: Product, **more: str) -> str:
    """Return one of the frames with its fields filled, if possible one that was not used before."""
    known = dict(
        thing=it.product_noun,
        price=it.price or "that",
        category=it.category,
        concept=it.concept_text,
        C=mind.who.calling,
        **more,
    )
    said = "\n".join(passage.text for passage in of_kind(mind.reading.passages, "utterance"))
    unheard = [frame for frame in frames if capitalise_first(frame.format(**known)) not in said]
    return capitalise_first(
        mind.tongue.pick_unused(unheard if len(unheard) > 1 else frames).format(**known)
    )


# --- the moderator -----------------------------------------------------------------------------


def answer_guide(mind: SimulatedRespondent) -> dict[str, object]:
    """Return the fields of `PhaseGuide`: questions of the phase about this product."""
    it = read_product(mind)
    known = load_wordings()["guide"]
    stock = known.get(text_of(mind, texts.PHASE)) or known["exploration"]
    wanted = int(text_of(mind, texts.NUMBER) or 2)
    return {"questions": [fill_phrase(mind, stock, it) for _ in range(wanted)]}


def people_named(mind: SimulatedRespondent) -> list[str]:
    """Return the names in the prompt, without those of all participants in the system prompt."""
    return list(
        dict.fromkeys(
            passage.text for passage in shown_passages(mind, texts.NAME) if passage.message
        )
    )


def next_question(mind: SimulatedRespondent) -> dict[str, object]:
    """Return the fields of `NextQuestion`: the planned question, after a reference to a remark."""
    it = read_product(mind)
    planned = [
        passage.text
        for passage in mind.reading.passages
        if (
            passage.source.kind == "utterance"
            and texts.stage_of(passage.source.id) == texts.PLANNING
        )
        or passage.source.id.startswith(texts.GUIDE)
    ]
    question = (
        planned[-1] if planned else fill_phrase(mind, load_wordings()["guide"]["exploration"], it)
    )
    frames = load_wordings()["moderator"]
    said = views_of_others(mind, said_since(mind))
    own = own_words(mind)
    lead = []
    taken: dict[str, str] | None = None
    if not own:
        lead.append(fill_phrase(mind, frames["welcome"], it))
    elif said:
        remark = said[-1]
        matter = load_wordings()["concerns"][remark.views[0].concern]["matter"]
        count = len(
            {
                reported_view.name
                for reported_view in said
                if any(view.concern == remark.views[0].concern for view in reported_view.views)
            }
        )
        taken = {"name": remark.name, "words": " ".join(remark.sentence.split()[:6])}
        lead.append(
            fill_phrase(mind, frames["take_up"], it, name=remark.name, matter=matter)
            if count < 3 or mind.draws.draw_chance(0.5)
            else frames["counted"].format(count=_COUNTS.get(count, str(count)), matter=matter)
        )
    exploring = text_of(mind, texts.PHASE) == "exploration"
    if exploring and not any(it.concept_text in text for text in own):
        lead.append(frames["idea"].format(concept=it.concept_text))
    if any(passage.message for passage in shown_passages(mind, texts.MATERIAL)):
        lead.append(frames["material"])
    quiet = people_named(mind)[:2]
    out = [fill_phrase(mind, frames["quiet"], it, names=" and ".join(quiet))] if quiet else []
    return {
        "summary": summarise_views(said),
        "unanswered": [],
        "takes_up": taken,
        "asks": quiet,
        "question": " ".join([*lead, question, *out]),
    }


_COUNTS = {3: "Three", 4: "Four", 5: "Five", 6: "Six"}


def summarise_views(said: Iterable[ReportedView]) -> str:
    """Return the number of participants for and against, by concern and without names."""
    found: dict[tuple[str, int], set[str]] = {}
    for heard in said:
        for view in heard.views:
            found.setdefault((view.concern, view.side), set()).add(heard.name)
    told = [
        f"{len(who)} {'for' if side > 0 else 'against'} it on {concern}"
        for (concern, side), who in found.items()
    ]
    return f"Views since the last question: {join_words(told)}." if told else ""


def ask_probe(mind: SimulatedRespondent) -> str:
    """Return a probe: why, and after the answer to that probe, why it matters."""
    named, own = people_named(mind), own_words(mind)
    # It is the second probe if the moderator's last words named the same participant and at most
    # one answer followed.
    again = bool(named and own and named[0] in own[-1] and len(said_since(mind)) < 2)
    frames = load_wordings()["moderator"]["matters" if again else "why"]
    return fill_phrase(mind, frames, read_product(mind), name=named[0] if named else "you")


# --- the coder ---------------------------------------------------------------------------------

_AGREES = re.compile(r"\b(?:agree|am with|said|has a point)\b")
_DISAGREES = re.compile(r"\b(?:disagree|differently|cannot go along)\b")


def answer_coding(mind: SimulatedRespondent) -> dict[str, object]:
    """Return the fields of `OpinionReading` for the answer that the coder reads."""
    spoken = [passage for passage in said_in_talk(mind) if passage.source.speaker != MODERATOR]
    read_now = [passage for passage in spoken if passage.text == mind.reading.about]
    said = read_now[-1].text if read_now else ""
    known = text_of(mind, texts.POSITION)
    last = float(known) if known else None
    found = [view.side for text in split_sentences(said) for view in sentence_views(text)]
    # The mean of the views, shrunk towards zero for few views.
    read = 0.8 * sum(found) / len(found) * len(found) / (len(found) + 0.5) if found else None
    now = last if read is None else read if last is None else last + 0.5 * (read - last)
    speaker = read_now[-1].source.speaker if read_now else ""
    others = {name for id, name in names_of(mind).items() if id != speaker}
    people = [word for word in re.findall(r"\w[\w'’-]*", said) if word in others]
    first = split_sentences(said)[0] if said.strip() else ""
    # Agreement is read only from a first sentence that names another participant.
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


PART: RespondentPart[DiscussionConfig] = RespondentPart(
    answers={
        "PrivateOpinion": private_opinion,
        "participant choice": answer_intent,
        "participant text": answer_at_table,
        "PhaseGuide": answer_guide,
        "NextQuestion": next_question,
        "moderator text": ask_probe,
        "OpinionReading": answer_coding,
    },
)
