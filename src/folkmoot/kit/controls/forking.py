"""Replace a text, then ask again for all replies that depend on it."""
# If the speaker has replied to a text, it cannot be replaced alone: the prompt would hold replies
# to words that are gone. A request records which earlier replies it quotes, so all dependent
# replies are known before the first call. They are asked again in their order in the study, and
# each request holds the new replies instead of the old ones. All other replies are taken from the
# journal at no cost. `reply_graph` finds what a prompt quotes of a reply.

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from folkmoot.conversation.transcript import Speaker
from folkmoot.engine.seats.seats import PARTICIPANT_ROLE
from folkmoot.engine.settings.controls import Language
from folkmoot.kit.controls.conversations import ControlledDecision, DecisionConversation
from folkmoot.kit.controls.replacing import (
    COMPUTED,
    REPLIED,
    UNCHANGED,
    Refusal,
    Replaced,
    Subject,
    TreatmentTexts,
    replaced_texts,
    replaced_version,
)
from folkmoot.kit.controls.reply_graph import (
    JournaledReply,
    NewReply,
    Quote,
    ReplyGraph,
    part_as_text,
)
from folkmoot.kit.controls.tables import ORDER
from folkmoot.provenance import Replacement, SourcedText, Span, replace_parts


class ForkStep(NamedTuple):
    """A reply for which the speaker is asked again, with the changed texts of the request."""

    reply: JournaledReply
    # The system prompt and the messages after the replacements of the control.
    texts: tuple[str, ...]
    # The places in `texts` for the new replies of earlier steps.
    quotes: tuple[Quote, ...] = ()


class ForkedDecision(NamedTuple):
    """A decision with a changed prompt, and the earlier replies to ask for again, in order."""

    steps: tuple[ForkStep, ...]
    decision: Replaced
    # The places for the new replies in the request of the decision.
    quotes: tuple[Quote, ...] = ()


class ForkRules(NamedTuple):
    """What the controls of a run replace, and which decisions they fork."""

    treatments: TreatmentTexts
    language: Language
    # True for controls that an earlier version planned. They fork a decision only if a reply of the
    # participant follows the first replaced text of the prompt, and read its replies by the options
    # in their former order.
    is_earlier: bool = False
    # True if the reply that a researcher gave in a fork stays as given. Controls that an earlier
    # version planned ask a model in its place.
    keeps_given: bool = True
    # True if a decision is not asked alone where a computed value in its prompt depends on a reply
    # to a replaced text. Controls that an earlier version planned look at such values only if a
    # quoted reply has to be asked again.
    follows_values: bool = True

    def keeps(self, reply: JournaledReply) -> bool:
        """Return whether a reply stays as a researcher gave it, whatever it answers."""
        return self.keeps_given and reply.is_given


def fork_decision(
    control: str,
    decision: ControlledDecision,
    conversation: DecisionConversation,
    rules: ForkRules,
    graph: ReplyGraph,
) -> ForkedDecision | Refusal:
    """Return a decision with its changed prompt.

    `graph`: holds all replies that the texts of the decision quote.

    Returns the reason if the control does not ask the decision again.
    """
    treatments, language = rules.treatments, rules.language
    texts = texts_of(conversation)
    subject, writers = treatments.subject_of(decision), treatments.writers
    changed = replaced_texts(control, subject, texts, writers, language)
    if not is_replaced(texts, changed):
        # The control would ask the same prompt again. The answer in the run counts, at no cost.
        return UNCHANGED
    asked_at_once = ForkedDecision((), replaced_version(control, decision, conversation, changed))
    if rules.is_earlier and not _has_replied(control, decision, conversation, changed, graph):
        return asked_at_once
    reachable = _find_reachable(control, subject, changed, rules, graph)
    asked_again: dict[str, ForkStep] = {}
    is_any_kept = False
    # A prompt contains only earlier replies, so one pass in the order of the protocol is enough.
    for step in sorted(reachable.values(), key=lambda step: step.reply.order):
        if is_replaced(step.reply.texts, step.texts) or (
            graph.addresses_in(step.texts) & asked_again.keys()
        ):
            if rules.keeps(step.reply):
                is_any_kept = True
            else:
                asked_again[step.reply.address] = step
    # If no reply behind the decision has to be asked again, all quoted ones fit the new prompt. A
    # computed value need not fit, because it may come from a reply that is not quoted, such as a
    # vote. A value that was computed from a reply kept as given was computed from others, too. The
    # session is then run again for all participants, as it is for the others in it.
    if not asked_again and not (
        graph.holds_computed_value(changed)
        and (is_any_kept or _has_answered(control, decision, subject, rules, graph))
    ):
        return asked_at_once
    # A value computed from an old reply would contradict the new one beside it. Which replies a
    # value depends on is not recorded, so any computed value counts.
    if any(
        graph.holds_computed_value(texts)
        for texts in (changed, *(step.texts for step in asked_again.values()))
    ):
        return COMPUTED
    # Ask again for all of these replies or for none: an old reply would answer replaced words.
    steps = []
    for step in asked_again.values():
        quotes = graph.find_quotes(step.texts, asked_again)
        if quotes is None or not step.reply.can_be_asked:
            return REPLIED
        steps.append(step._replace(quotes=tuple(quotes)))
    quotes = graph.find_quotes(changed, asked_again)
    if quotes is None:
        return REPLIED
    return asked_at_once._replace(steps=tuple(steps), quotes=tuple(quotes))


def follows_own_replies(decision: ControlledDecision) -> bool:
    """Return whether computed values in the prompt may come from replies of the same speaker."""
    # Values in the prompts of a leading role, such as a mediator, come from replies of
    # participants. Its own earlier replies are about other topics, or the prompt quotes them.
    return decision.role == PARTICIPANT_ROLE


def _has_answered(
    control: str,
    decision: ControlledDecision,
    subject: Subject,
    rules: ForkRules,
    graph: ReplyGraph,
) -> bool:
    # Whether the participant has replied to what the control replaces, earlier in the session.
    if not rules.follows_values or not follows_own_replies(decision):
        return False
    writers, language = rules.treatments.writers, rules.language
    return any(
        is_replaced(texts, replaced_texts(control, subject, texts, writers, language))
        for texts in graph.requests_before(decision.address)
    )


def _find_reachable(
    control: str,
    subject: Subject,
    changed: Sequence[str],
    rules: ForkRules,
    graph: ReplyGraph,
) -> dict[str, ForkStep]:
    # The replies behind the changed texts of a decision, each with the texts of its request after
    # the replacements of the control.
    reachable: dict[str, ForkStep] = {}
    waiting = graph.addresses_in(changed)
    # Texts that the control replaces are in `changed` no more, so the replies behind them are not
    # reached and cost nothing.
    while waiting:
        found: set[str] = set()
        for reply in graph.replies_at(waiting):
            own = reply.texts
            # Change the prompts of this participant only. With other prompts for all, the
            # participant would also meet other partners.
            if reply.speaker.id == subject.speaker_id:
                own = tuple(
                    replaced_texts(control, subject, own, rules.treatments.writers, rules.language)
                )
            options = _listed_options(control, subject, reply, own, rules)
            reachable[reply.address] = ForkStep(reply._replace(options=options), own)
            # What is behind a reply that stays does not reach the decision through it.
            if not rules.keeps(reply):
                found |= graph.addresses_in(own)
        waiting = found - reachable.keys() - waiting
    return reachable


def _listed_options(
    control: str, subject: Subject, reply: JournaledReply, texts: Sequence[str], rules: ForkRules
) -> tuple[str, ...]:
    # The options of a step in the order of its changed prompt: a reply such as "1" means the option
    # that the prompt lists first.
    is_same_list = sorted(reply.options) == sorted(subject.options)
    is_reversed = control == ORDER and is_same_list and is_replaced(reply.texts, texts)
    return reply.options[::-1] if is_reversed and not rules.is_earlier else reply.options


def _has_replied(
    control: str,
    decision: ControlledDecision,
    conversation: DecisionConversation,
    changed: Sequence[str],
    graph: ReplyGraph,
) -> bool:
    # Whether the participant spoke between the first changed text and the question.
    texts = texts_of(conversation)
    at = next(n for n, text in enumerate(texts) if str(text) != str(changed[n]))
    # `texts` begins with the system prompt, so messages are counted from 1.
    own = [n for n, utterance in enumerate(conversation.asked, 1) if utterance.speaker_id]
    if any(number > at for number in own):
        return True
    # Earlier versions did not ask for a quoted vote again if only the order was reversed.
    if control == ORDER:
        return False
    start = _first_difference(str(texts[at]), str(changed[at]))
    return any(
        (number, span.start) > (at, start)
        for number, text in enumerate(texts)
        for span in graph.reply_spans(text)
        if span.source.speaker in (decision.participant_id, decision.speaker_id)
    )


def _first_difference(text: str, other: str) -> int:
    # One text may be the beginning of the other, so the comparison ends with the shorter one.
    pairs = enumerate(zip(text, other, strict=False))
    return next((n for n, (one, two) in pairs if one != two), min(len(text), len(other)))


def with_new_replies(
    texts: Sequence[str], quotes: Sequence[Quote], new: Mapping[str, NewReply]
) -> list[str] | None:
    """Return the texts of a request with the new replies in place of the old ones.

    `new`: a map from the address of the old reply to the new reply.
    Returns None if a new JSON reply lacks the part that the request quotes.
    """
    parts: dict[int, list[Replacement]] = {}
    for quote in quotes:
        reply = new[quote.address]
        said = part_as_text(quote.part, reply)
        if said is None:
            return None
        # A computed value comes from a table, and the table has no row for the new reply.
        source = quote.source._replace(id=reply.address) if quote.source.address else quote.source
        text = SourcedText(said, [Span(0, len(said), source, 0)])
        parts.setdefault(quote.message, []).append(Replacement(quote.start, quote.end, text))
    return [
        replace_parts(text, parts[number]) if number in parts else text  # type: ignore[arg-type]
        for number, text in enumerate(texts)
    ]


def texts_of(conversation: DecisionConversation) -> list[str]:
    """Return the system prompt and the messages of a decision."""
    return [conversation.speaker.system, *(utterance.text for utterance in conversation.asked)]


def is_replaced(before: Sequence[str], after: Sequence[str]) -> bool:
    """Return whether two lists of texts differ."""
    return [str(text) for text in before] != [str(text) for text in after]


def speaker_of(step: ForkStep, texts: Sequence[str]) -> Speaker:
    """Return the speaker to ask again, with the first of `texts` as system prompt."""
    return replace(step.reply.speaker, system=texts[0])
