"""The rules by which the embedded respondent answers in focus groups, in place of a model.

An opinion depends on the persona's taste, the product's claims and the price. In a discussion,
opinions move towards the views of others.
"""
# Claims count more if they touch a concern of the persona. `talk.views` reads the product and the
# views in a prompt.

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from folkmoot.hints import capitalise, collapse_spaces, join_words
from folkmoot.people.sources.grounded.attributes import LIMITS
from folkmoot.respondent import RespondentPart, SimulatedRespondent, of_kind
from folkmoot.respondent.mind.draws import normal_draw, uniform_draw
from folkmoot.studies.focus_group import texts
from folkmoot.studies.focus_group.config import DiscussionConfig, parse_amount
from folkmoot.studies.focus_group.discussion import INTENTS, MODERATOR
from folkmoot.studies.focus_group.positions import DECIMALS, LEANINGS, SMALLEST_MOVE
from folkmoot.studies.focus_group.talk.views import (
    Product,
    ReportedView,
    load_wordings,
    names_of,
    own_words,
    passages_since,
    read_product,
    sentence_views,
    split_sentences,
    talk_passages,
    views_of_others,
)

# The constants below belong to the respondent's documented model. They are not estimates of human
# behaviour. TASTE is the standard deviation of opinions of a product without any description.
TASTE_SD = 0.6
# The amount by which a tenfold price lowers the opinion of an average persona.
PRICE_WEIGHT = 0.9
# The price that neither attracts nor deters. The respondent does not know what products cost.
USUAL_PRICE = 100.0
# Strength of the views of others, multiplied by `kappa_read`.
HEARD_WEIGHT = 1.0
# Number of views of others at which half of their maximum influence is reached.
HALF_EFFECT_VIEWS = 8.0
# A position closer to zero takes no side.
MAX_NEUTRAL_POSITION = 0.15


# --- opinions ----------------------------------------------------------------------------------


class ProductOpinion(NamedTuple):
    """An opinion about the product, on a scale without bounds."""

    # The opinion before the participant heard others.
    first: float
    # The opinion after that.
    now: float
    # The contribution of each concern to the opinion.
    by_concern: Mapping[str, float]
    product: Product

    @property
    def bounded_position(self) -> float:
        """The present opinion on the scale of positions, from −1 to 1."""
        return math.tanh(self.now)


def form_opinion(mind: SimulatedRespondent) -> ProductOpinion:
    """Return the opinion of the persona who answers the request."""
    # The first opinion depends on the persona's taste, the product's claims and the price. Words of
    # other participants for or against the product then pull the opinion towards their mean.
    # first = taste + Σ weight · tanh(net claims / 1.5) − price effect
    # pull  = min(1, susceptibility · persuasion · kappa_read · n / (n + 8) + sycophancy)
    # now   = first + pull · (mean view − tanh(first))
    # The sum is over concerns. Net claims are the claims for the product minus those against it. A
    # view is a word of another participant for (1) or against (−1) the product, and n counts them.
    product, persona, knobs = read_product(mind), mind.who, mind.knobs
    spread = 1 - knobs.shrinking_variance
    net_mentions: dict[str, float] = {}
    for text in product.texts:
        for sentence in split_sentences(text):
            for view in sentence_views(sentence):
                net_mentions[view.concern] = net_mentions.get(view.concern, 0) + view.side
    by_concern = {
        concern: concern_weight(mind, concern) * math.tanh(net_mentions.get(concern, 0) / 1.5)
        for concern in load_wordings()["concerns"]
    }
    taste = spread * (
        TASTE_SD * normal_draw(persona.seed, persona.key, "taste", product.concept_text)
        + 0.25 * bool(re.search(load_wordings()["welcomes"], persona.key))
        - 0.25 * bool(re.search(load_wordings()["shuns"], persona.key))
    )
    first = taste + math.fsum(by_concern.values()) + 0.5 * knobs.acquiescence
    price_effect = 0.0
    if product.price:
        log_price = math.log10(max(parse_amount(_only_amount(product.price)), 0.01) / USUAL_PRICE)
        by_concern["price"] -= (
            price_effect := PRICE_WEIGHT * (0.5 + concern_weight(mind, "price")) * log_price
        )
    # The system prompt names the first opinion in words. The computed opinion is brought into the
    # range of these words, so that later answers agree with the private answer before the
    # discussion.
    stated_range = stated_leaning(mind)
    if stated_range is None:
        first -= price_effect
    elif product.on_ladder:
        first = (first + stated_range.middle) / 2 - price_effect
    elif product.price or product.material:
        first = min(max(first - price_effect, stated_range.low), stated_range.high)
    else:
        first = stated_range.middle + 0.1 * first
    heard_views = [view for reported_view in views_of_others(mind) for view in reported_view.views]
    if not heard_views:
        return ProductOpinion(first, first, by_concern, product)
    mean_side = math.fsum(view.side for view in heard_views) / len(heard_views)
    pull = persona.susceptibility * knobs.persuasion * knobs.kappa_read * HEARD_WEIGHT
    pull = min(
        1.0, pull * len(heard_views) / (len(heard_views) + HALF_EFFECT_VIEWS) + knobs.sycophancy
    )
    return ProductOpinion(first, first + pull * (mean_side - math.tanh(first)), by_concern, product)


class Leaning(NamedTuple):
    """One of five ranges on the scale of opinions.

    Each has words, such as "strongly against it".
    """

    low: float
    middle: float
    high: float


def stated_leaning(mind: SimulatedRespondent) -> Leaning | None:
    """Return the range of opinions that contains the participant's first opinion.

    Returns None if the system prompt states no first opinion.
    """
    leaning_text = mind.shown_text(texts.FIRST_LEANING)
    leanings = list(LEANINGS.values())
    return _STATED[leanings.index(leaning_text)] if leaning_text in leanings else None


# The limits and middles of the five wordings, mapped from positions to the unbounded scale.
_ENDS = (-math.inf, *(math.atanh(limit) for limit in LIMITS), math.inf)
_STATED = tuple(
    Leaning(low, math.atanh(position), high)
    for low, position, high in zip(_ENDS, (-0.75, -0.4, 0.0, 0.4, 0.75), _ENDS[1:], strict=False)
)


def concern_weight(mind: SimulatedRespondent, concern: str) -> float:
    """Return the weight of a concern for the persona, from 0.15 to 0.75."""
    # The weight is drawn from 0.15 to 0.5, and raised if the persona's text names the concern.
    persona = mind.who
    is_own_concern = bool(re.search(load_wordings()["concerns"][concern]["weighs"], persona.key))
    return (
        0.15
        + 0.35 * uniform_draw(persona.seed, persona.key, "weight", concern)
        + 0.25 * is_own_concern
    )


def _only_amount(price: str) -> str:
    return str(re.findall(r"\d[\d,]*(?:\.\d+)?", price)[0])


# --- participants ------------------------------------------------------------------------------


def private_opinion(mind: SimulatedRespondent) -> dict[str, object]:
    """Return a participant's private answer as the fields of `PrivateOpinion`."""
    opinion = form_opinion(mind)
    noise = 0.5 * mind.knobs.noise * normal_draw(mind.at.seed, mind.at.address, "position")
    position = math.tanh(opinion.now + noise)
    stronger_side, other_side = ("pro", "con") if opinion.bounded_position >= 0 else ("con", "pro")
    sides = (stronger_side, other_side if abs(position) < 0.4 else stronger_side)
    reasons = [
        give_reason(mind, opinion, side, skip=n, kind="privately") for n, side in enumerate(sides)
    ]
    return {"opinion": " ".join(reasons), "position": round(position, 2)}


def answer_intent(mind: SimulatedRespondent) -> str | None:
    """Draw one of the five answers to the question about buying.

    Returns None if the question does not offer these five answers.
    """
    # The answer follows from the opinion, with some noise.
    if set(mind.reading.offered) != set(INTENTS):
        return None
    at, knobs = mind.at, mind.knobs
    if knobs.instability and uniform_draw(at.seed, at.address, "?") < knobs.instability:
        return INTENTS[int(len(INTENTS) * uniform_draw(at.seed, at.address, "any"))]
    noisy_position = math.tanh(
        form_opinion(mind).now + 1.5 * knobs.noise * normal_draw(at.seed, at.address, "intent")
    )
    return INTENTS[sum(noisy_position >= limit for limit in (-0.6, -0.2, 0.2, 0.6))]


def answer_at_table(mind: SimulatedRespondent) -> str:
    """Return one answer in the discussion."""
    # It is an introduction if the question is about the product category and no participant has
    # taken a side yet. Any other answer is for or against the product.
    opinion = form_opinion(mind)
    question = current_question(mind)
    product = opinion.product
    noun = product.product_noun.split()[-1]
    about_category = noun not in question and collapse_spaces(product.category) in collapse_spaces(
        question
    )
    others_views = views_of_others(mind)
    sentence_count = next(
        (
            count
            for count, pattern in load_wordings()["talks"].items()
            if re.search(pattern, mind.who.key)
        ),
        2,
    )
    if about_category and not others_views:
        return about_oneself(mind, product)
    concern = own_concern(mind)
    taken = ""
    if not concern:
        taken, concern = reply_to_view(mind, opinion, others_views)
    parts = [taken] if taken else []
    if ASKS_PRICE.search(question):
        parts.append(
            fill_phrase(mind, load_wordings()["fair_price"], product, fair=fair_price(opinion))
        )
    earlier_text = collapse_spaces(" ".join(own_words(mind)))
    # A change of mind is said at most once, and only now and then.
    changed = abs(math.tanh(opinion.now) - math.tanh(opinion.first)) >= 0.15
    if (
        changed
        and not any(phrase in earlier_text for phrase in load_wordings()["moved"])
        and mind.draws.draw_chance(0.3)
    ):
        parts.append(fill_phrase(mind, load_wordings()["moved"], product))
    parts.append(
        compose_turn(
            mind, opinion, give_reasons(mind, opinion, max(1, sentence_count - len(parts)), concern)
        )
    )
    return " ".join(parts)


ASKS_PRICE = re.compile(r"\b(?:prices?|pay)\b", re.IGNORECASE)


def fair_price(opinion: ProductOpinion) -> str:
    """Return the price that a participant calls fair, rounded to two figures."""
    # It is between half the product's price (position −1) and twice this price (position 1). If the
    # prompt shows no price, USUAL_PRICE is used.
    stated_price = opinion.product.price
    reference_price = parse_amount(_only_amount(stated_price)) if stated_price else USUAL_PRICE
    fair = reference_price * 2**opinion.bounded_position
    number = f"{float(f'{fair:.2g}'):,g}"
    return (
        stated_price.replace(_only_amount(stated_price), number)
        if stated_price
        else f"{number} dollars"
    )


def own_concern(mind: SimulatedRespondent) -> str:
    """Return the concern in the respondent's last utterance, such as "price".

    Returns "" if the last utterance has no concern. Also returns "" if other participants have
    given a view since then.
    """
    own_texts = own_words(mind)
    if not own_texts or views_of_others(mind, passages_since(mind)):
        return ""
    concerns = [
        view.concern
        for sentence in split_sentences(own_texts[-1])
        for view in sentence_views(sentence)
    ]
    return concerns[0] if concerns else ""


def current_question(mind: SimulatedRespondent) -> str:
    """Return the moderator's last utterance."""
    questions = [
        passage.text for passage in talk_passages(mind) if passage.source.speaker == MODERATOR
    ]
    return questions[-1] if questions else mind.reading.about


def about_oneself(mind: SimulatedRespondent, product: Product) -> str:
    """Return a sentence about how the persona chooses products of this kind."""
    # An introduction comes first if the respondent has not spoken yet.
    kinds = ["experience"]
    if mind.who.calling and not own_words(mind):
        kinds.insert(0, "intro")
    return " ".join(fill_phrase(mind, load_wordings()[kind], product) for kind in kinds)


def reply_to_view(
    mind: SimulatedRespondent, opinion: ProductOpinion, reported_views: Sequence[ReportedView]
) -> tuple[str, str]:
    """Return a sentence for or against a view of a different participant, and the sentence's topic.

    Returns two empty strings if the respondent reacts to no participant.
    """
    # The respondent agrees only with a view on its own side.
    side = 1 if opinion.now >= 0 else -1
    latest = {
        reported_view.name: reported_view for reported_view in reported_views if reported_view.name
    }
    persona, sycophancy = mind.who, mind.knobs.sycophancy
    contrary = bool(re.search(load_wordings()["contrary"], persona.key))
    gentle = bool(re.search(load_wordings()["gentle"], persona.key))
    # Only the last views of the last three speakers are considered, the latest first.
    for remark in [*latest.values()][-3:][::-1]:
        first_view = remark.views[0]
        is_same_side = first_view.side == side
        probability = 0.35 if is_same_side else 0.4 * min(1.0, abs(opinion.now) + 0.4)
        probability *= (1.6 if gentle else 0.6 if contrary else 1.0) ** (1 if is_same_side else -1)
        probability = (
            probability + sycophancy * (1 - probability)
            if is_same_side
            else probability * (1 - sycophancy)
        )
        if abs(opinion.bounded_position) >= MAX_NEUTRAL_POSITION and mind.draws.draw_chance(
            probability
        ):
            matter = load_wordings()["concerns"][first_view.concern]["matter"]
            kind = load_wordings()["agree" if is_same_side else "disagree"]
            reaction = fill_phrase(mind, kind, opinion.product, name=remark.name, matter=matter)
            return reaction, first_view.concern
    return "", ""


def give_reasons(
    mind: SimulatedRespondent, opinion: ProductOpinion, count: int, concern: str = ""
) -> list[str]:
    """Return sentences that praise the product, or criticise it if the opinion is negative.

    - `count`: the minimum number of sentences.
    - `concern`: the concern of the first sentence, or "" for any.
    """
    # At least `count`, and more if the opinion is neutral or weak.
    product, position = opinion.product, opinion.bounded_position
    side, other_side = ("pro", "con") if position >= 0 else ("con", "pro")
    sentences = (
        [fill_phrase(mind, load_wordings()["reasons"][concern][side], product)] if concern else []
    )
    if abs(position) < MAX_NEUTRAL_POSITION:
        sentences.append(fill_phrase(mind, load_wordings()["undecided"], product))
        count = max(count, len(sentences) + 1)
    elif not sentences and abs(position) >= 0.5 and mind.draws.draw_chance(0.5):
        sentences.append(
            fill_phrase(mind, load_wordings()["for" if side == "pro" else "against"], product)
        )
    while len(sentences) < count:
        sentences.append(give_reason(mind, opinion, side, skip=len(sentences)))
    if abs(position) < 0.4 and count > 1:
        sentences.append(give_reason(mind, opinion, other_side))
    return sentences


def compose_turn(
    mind: SimulatedRespondent, opinion: ProductOpinion, sentences: Sequence[str]
) -> str:
    """Join the sentences of a turn."""
    # A reason for the other side begins with "but".
    turn_sentences = [*sentences]
    if mind.draws.draw_chance(0.35):
        turn_sentences[0] = (
            f"{mind.speech.pick_unused(load_wordings()['leads'])} "
            f"{embed_sentence(turn_sentences[0])}"
        )
    if len(sentences) > 1 and abs(opinion.bounded_position) < 0.4:
        turn_sentences[-1] = (
            f"{mind.speech.pick_unused(load_wordings()['but'])} "
            f"{embed_sentence(turn_sentences[-1])}"
        )
    return " ".join(turn_sentences)


def embed_sentence(sentence: str) -> str:
    """Return a sentence with a lower-case first letter."""
    # For use after introductory words.
    keeps_capital = sentence.startswith(("I ", "I'")) or not sentence[0].isalpha()
    return sentence if keeps_capital else sentence[0].lower() + sentence[1:]


def give_reason(
    mind: SimulatedRespondent,
    opinion: ProductOpinion,
    side: str,
    skip: int = 0,
    kind: str = "reasons",
) -> str:
    """Return one argument for or against the product, about a strong concern of the persona.

    - `side`: `pro` or `con`.
    - `skip`: the number of strongest concerns to leave out.
    - `kind`: the set of sentences in `respondent.yaml`.
    """
    # The reason is about the strongest concern for this side, after the first `skip` ones.
    # Sometimes it quotes a claim of the material instead.
    product = opinion.product
    sign = 1 if side == "pro" else -1
    if kind == "reasons" and product.claims and mind.draws.draw_chance(0.2):
        claim = mind.speech.pick_unused(product.claims)
        return fill_phrase(mind, load_wordings()["claims"][side], product, claim=claim)
    scores = {
        concern: sign * value + 0.25 * concern_weight(mind, concern) + 0.15 * mind.draws.unit()
        for concern, value in opinion.by_concern.items()
        if concern != "price" or product.price
    }
    ranked = sorted(scores, key=lambda concern: -scores[concern])
    concern = ranked[min(skip, len(ranked) - 1)]
    return fill_phrase(mind, load_wordings()[kind][concern][side], product)


def fill_phrase(
    mind: SimulatedRespondent, frames: Sequence[str], product: Product, **more: str
) -> str:
    """Return one of the sentence patterns in `frames` with its placeholders filled in.

    `more`: values of further placeholders.
    """
    # Patterns that already occur in the discussion are avoided if possible.
    variables = dict(
        thing=product.product_noun,
        price=product.price or "that",
        category=product.category,
        concept=product.concept_text,
        C=mind.who.calling,
        **more,
    )
    said_text = "\n".join(passage.text for passage in of_kind(mind.reading.passages, "utterance"))
    unheard = [frame for frame in frames if capitalise(frame.format(**variables)) not in said_text]
    return capitalise(
        mind.speech.pick_unused(unheard if len(unheard) > 1 else frames).format(**variables)
    )


# --- the moderator -----------------------------------------------------------------------------


def answer_guide(mind: SimulatedRespondent) -> dict[str, object]:
    """Return the planned questions for a phase."""
    # The fields of `PhaseGuide`: packaged sentences with the name of the product filled in.
    product = read_product(mind)
    guide = load_wordings()["guide"]
    phrases = guide.get(mind.shown_text(texts.PHASE)) or guide["exploration"]
    count = int(mind.shown_text(texts.NUMBER) or 2)
    return {"questions": [fill_phrase(mind, phrases, product) for _ in range(count)]}


def people_named(mind: SimulatedRespondent) -> list[str]:
    """Return the distinct names of participants in the messages."""
    # The system prompt is left out because it lists all participants.
    return list(
        dict.fromkeys(
            passage.text for passage in mind.shown_passages(texts.NAME) if passage.message
        )
    )


def next_question(mind: SimulatedRespondent) -> dict[str, object]:
    """Return the moderator's next question."""
    # The fields of `NextQuestion`. The text first refers to a participant's remark if there is one,
    # and then asks the planned question.
    product = read_product(mind)
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
        planned[-1]
        if planned
        else fill_phrase(mind, load_wordings()["guide"]["exploration"], product)
    )
    frames = load_wordings()["moderator"]
    others_views = views_of_others(mind, passages_since(mind))
    own_texts = own_words(mind)
    opening = []
    reference: dict[str, str] | None = None
    if not own_texts:
        opening.append(fill_phrase(mind, frames["welcome"], product))
    elif others_views:
        remark = others_views[-1]
        matter = load_wordings()["concerns"][remark.views[0].concern]["matter"]
        count = len(
            {
                reported_view.name
                for reported_view in others_views
                if any(view.concern == remark.views[0].concern for view in reported_view.views)
            }
        )
        reference = {"name": remark.name, "words": " ".join(remark.sentence.split()[:6])}
        opening.append(
            fill_phrase(mind, frames["take_up"], product, name=remark.name, matter=matter)
            if count < 3 or mind.draws.draw_chance(0.5)
            else frames["counted"].format(count=_COUNTS.get(count, str(count)), matter=matter)
        )
    is_exploration = mind.shown_text(texts.PHASE) == "exploration"
    if is_exploration and not any(product.concept_text in text for text in own_texts):
        opening.append(frames["idea"].format(concept=product.concept_text))
    if any(passage.message for passage in mind.shown_passages(texts.MATERIAL)):
        opening.append(frames["material"])
    quiet_names = people_named(mind)[:2]
    closing = (
        [fill_phrase(mind, frames["quiet"], product, names=" and ".join(quiet_names))]
        if quiet_names
        else []
    )
    return {
        "summary": summarise_views(others_views),
        "unanswered": [],
        "takes_up": reference,
        "asks": quiet_names,
        "question": " ".join([*opening, question, *closing]),
    }


_COUNTS = {3: "Three", 4: "Four", 5: "Five", 6: "Six"}


def summarise_views(reported_views: Iterable[ReportedView]) -> str:
    """Return a sentence that counts the supporters and opponents of the product for each concern.

    Returns "" if no view is reported.
    """
    speakers_by_view: dict[tuple[str, int], set[str]] = {}
    for reported_view in reported_views:
        for view in reported_view.views:
            speakers_by_view.setdefault((view.concern, view.side), set()).add(reported_view.name)
    clauses = [
        f"{len(names)} {'for' if side > 0 else 'against'} it on {concern}"
        for (concern, side), names in speakers_by_view.items()
    ]
    return f"Views since the last question: {join_words(clauses)}." if clauses else ""


def ask_probe(mind: SimulatedRespondent) -> str:
    """Return a question that asks a participant for a reason."""
    # The second such question in a row asks why the reason matters.
    asked_names, own_texts = people_named(mind), own_words(mind)
    # It is the second probe if the moderator's last words named the same participant and at most
    # one answer followed.
    is_second_probe = bool(
        asked_names
        and own_texts
        and asked_names[0] in own_texts[-1]
        and len(passages_since(mind)) < 2
    )
    frames = load_wordings()["moderator"]["matters" if is_second_probe else "why"]
    return fill_phrase(
        mind, frames, read_product(mind), name=asked_names[0] if asked_names else "you"
    )


# --- the coder ---------------------------------------------------------------------------------

_AGREES = re.compile(r"\b(?:agree|am with|said|has a point)\b")
_DISAGREES = re.compile(r"\b(?:disagree|differently|cannot go along)\b")


def answer_coding(mind: SimulatedRespondent) -> dict[str, object]:
    """Return the coder's answer about one utterance, as the fields of `OpinionReading`."""
    # The coder counts the words for and against the product.
    passages = [passage for passage in talk_passages(mind) if passage.source.speaker != MODERATOR]
    current = [passage for passage in passages if passage.text == mind.reading.about]
    text = current[-1].text if current else ""
    stated_position = mind.shown_text(texts.POSITION)
    last = float(stated_position) if stated_position else None
    sides = [view.side for sentence in split_sentences(text) for view in sentence_views(sentence)]
    # The mean of the views, shrunk towards zero for few views.
    coded_position = (
        0.8 * math.fsum(sides) / len(sides) * len(sides) / (len(sides) + 0.5) if sides else None
    )
    new_position = (
        last
        if coded_position is None
        else coded_position
        if last is None
        else last + 0.5 * (coded_position - last)
    )
    speaker = current[-1].source.speaker if current else ""
    other_names = {name for speaker_id, name in names_of(mind).items() if speaker_id != speaker}
    named_people = [word for word in re.findall(r"\w[\w'’-]*", text) if word in other_names]
    first_sentence = split_sentences(text)[0] if text.strip() else ""
    # Agreement is read only from a first sentence that names another participant.
    stance = None
    if named_people and named_people[0] in first_sentence:
        stance = (
            "disagree"
            if _DISAGREES.search(first_sentence)
            else "agree"
            if _AGREES.search(first_sentence)
            else None
        )
    return {
        "changed": None not in (last, new_position)
        and abs(round(new_position - last, DECIMALS)) >= 2 * SMALLEST_MOVE,  # type: ignore[operator]
        "valence": None if new_position is None else round(new_position, 2),
        "takes_up": named_people[0] if named_people else None,
        "stance": stance,
        "sentiment": 0.0 if coded_position is None else round(coded_position, 2),
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
