"""Texts for prompts. Each text is a `SourcedText`, a string that records where it comes from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from folkmoot.conversation.transcript import Utterance
from folkmoot.engine.session.session import Scope
from folkmoot.hints import natural_sort_key
from folkmoot.provenance import (
    Kind,
    SourcedText,
    alter_text,
    cell_id,
    concatenate_texts,
    enumerate_texts,
    quote_value,
)
from folkmoot.studies.negotiation.decision import (
    DecisionPart,
    Negotiation,
    SlotDecision,
    in_one_line,
    share_of,
)
from folkmoot.studies.negotiation.rules.operators import Portion
from folkmoot.studies.negotiation.rules.strategies import (
    Group,
    Member,
    Strategy,
    TripTopic,
    strategy_table,
)
from folkmoot.studies.negotiation.rules.tally import (
    content_words,
    words_of,
)
from folkmoot.studies.negotiation.rules.vocabulary import EVERYONE, describe_members
from folkmoot.studies.negotiation.tables import (
    OptionRow,
    ShownDecisionRow,
    ShownShareRow,
    ids_of_decision,
)

# The condition of statements and options from before the mediation, which hold for all conditions.
BEFORE = "all"
# The steps at which prompts show a decision.
OPERATOR, PROPOSAL, RECORD = "operator", "proposal", "record"

# The embedded respondent and the exposure table identify a text by these prefixes of source ids.
# `PREFERENCES` is the scope of the preferences that members state before the mediation.
PREFERENCES = "preferences/"
MEMBER_NAME, TARGET_NAME = "members.member_name", "feedback.target_name"
TOPIC_LABEL, STRATEGY_ID, RULE = "topics.label", "strategies.strategy_id", "strategies.rule"
SHARE_OPTION, SHARE_MEMBERS = "shown_shares.option", "shown_shares.members"
SHARE_TIME, SENTENCE = "shown_shares.time", "shown_decisions.text"
RESOLUTION = "decisions.resolution_text"


# --- the group and the topic -------------------------------------------------------------------


def quote_name(group: Group, member_id: str) -> str:
    """Return the name of a member as a `SourcedText`, a string that records where it comes from."""
    return quote_value(
        group.names_by_member[member_id], "value", cell_id(MEMBER_NAME, group.id, member_id)
    )


def quote_names(group: Group, member_ids: Iterable[str]) -> list[str]:
    """Return the names of members, each as a `SourcedText`."""
    return [quote_name(group, member_id) for member_id in member_ids]


def quote_title(group: Group) -> str:
    """Return the title of a group's type as a `SourcedText`."""
    return quote_value(group.type.title, "material", cell_id("groups.title", group.id))


def quote_type(group: Group) -> str:
    """Return the id of a group's type as a `SourcedText`."""
    return quote_value(group.type.id, "material", cell_id("groups.group_type", group.id))


def quote_member_groups(group: Group) -> str:
    """Return one text that lists the phrases for several members, such as "the parents"."""
    return quote_value(describe_members(group), "value", cell_id("groups.member_groups", group.id))


def quote_topic(topic: TripTopic, column: str) -> str:
    """Return the id, the label or the question of a topic as a `SourcedText`.

    `column`: what to return. `topic` for the id, `label` or `question`.
    """
    text: str = getattr(topic, "id" if column == "topic" else column)
    return quote_value(text, "material", cell_id(f"topics.{column}", topic.id))


def quote_strategy(strategy: Strategy) -> dict[str, str]:
    """Return the texts of one row of the strategy table, by column."""
    columns = ("topic", "strategy_id", "operator", "rule", "style")
    key = strategy.group_type, strategy.topic
    return {
        column: quote_value(
            getattr(strategy, column), "material", cell_id(f"strategies.{column}", *key)
        )
        for column in columns
    }


def quote_strategies(group: Group) -> list[dict[str, str]]:
    """Return the rows of the strategy table that apply to a group's type, each by column."""
    # Each text records its source.
    return [
        quote_strategy(row) for (kind, _), row in strategy_table().items() if kind == group.type.id
    ]


# --- statements --------------------------------------------------------------------------------


def in_quotation_marks(utterance: Utterance) -> SourcedText:
    """Return a member's utterance in quotation marks and without line breaks."""
    # The marks tell a model that the text is a quotation and not an instruction.
    quoted = alter_text(utterance.quoted_text, in_one_line(utterance.text))
    return concatenate_texts(("“", quoted, "”"), plain=None)


def quote_preference(case: Negotiation, topic: TripTopic, member_id: str) -> SourcedText:
    """Return a member's stated preference on a topic, in quotation marks.

    Returns "none stated" if the member stated no preference.
    """
    stated = case.stated[topic.id].get(member_id)
    return in_quotation_marks(stated) if stated else SourcedText("none stated")


def list_preferences(case: Negotiation, topic: TripTopic) -> list[dict[str, str]]:
    """Return the name and the preference of each member who stated a preference on a topic."""
    # The members are in the order of the mediator's prompts.
    stated = case.stated[topic.id]
    return [
        {"name": quote_name(case.group, member.id), "text": in_quotation_marks(stated[member.id])}
        for member in case.mediation_order(topic)
        if member.id in stated
    ]


# --- options -----------------------------------------------------------------------------------


def quote_usual_options(topic: TripTopic, options: Iterable[str]) -> list[str]:
    """Return usual options of a topic, each as a `SourcedText`."""
    return [
        quote_value(option, "option", cell_id("topics.options", topic.id)) for option in options
    ]


def quote_options(
    case: Negotiation,
    topic: TripTopic,
    options: Iterable[str],
    came_up: Mapping[str, str] | None = None,
) -> list[str]:
    """Return options of a topic, each as a `SourcedText`.

    `came_up`: maps each option that no stated preference named to the condition under which the
    option was first named.
    """
    entered_in = came_up or {}
    return [
        quote_value(
            option,
            "option",
            cell_id(
                "options.option", case.group.id, entered_in.get(option, BEFORE), topic.id, option
            ),
        )
        for option in options
    ]


def record_options(scope: Scope, case: Negotiation) -> None:
    """Record the options that the stated preferences name, in the table `options`."""
    # They are recorded once for all conditions.
    for topic in case.topics:
        for option in case.with_all_statements.tally_topic(topic).options:
            ids = {**ids_of_decision(case, topic), "condition": BEFORE}
            scope.record(OptionRow(**ids, option=option, usual=option in topic.options))


def record_late_options(
    scope: Scope, case: Negotiation, topic: TripTopic, decision: SlotDecision
) -> SlotDecision:
    """Record the options of a decision that no stated preference named, in the table `options`.

    Returns the decision, with the recorded options in `came_up`.
    """
    stated = decision.stated.portions if decision.stated else ()
    named_options = [
        *decision.options,
        *(portion.option for portion in (*decision.portions, *stated)),
    ]
    known = {*case.with_all_statements.tally_topic(topic).options, *decision.came_up}
    late_options = [option for option in dict.fromkeys(named_options) if option not in known]
    for option in late_options:
        ids = ids_of_decision(case, topic)
        scope.record(OptionRow(**ids, option=option, usual=option in topic.options))
    return decision.with_options(dict.fromkeys(late_options, case.compared_as))


# --- decisions ---------------------------------------------------------------------------------


def show_shares(
    scope: Scope,
    case: Negotiation,
    topic: TripTopic,
    step: str,
    portions: Sequence[Portion],
    *,
    stated: bool = False,
) -> tuple[DecisionPart, ...]:
    """Record the parts of a decision, and return these parts as texts for prompts.

    - `step`: the step in which prompts show the parts, such as `round1`.
    - `stated`: True if the mediator stated the decision, False if a fixed rule made the decision.
    """
    # A stated decision counts as text of the mediator, a decision of an operator as data.
    kind: Kind = "proposal" if stated else "value"
    shares = []
    for number, portion in enumerate(portions):
        share_texts = share_of(case.group, portion)
        is_everyone = len(portion.members) == len(case.group.members)
        names = (
            [EVERYONE]
            if is_everyone
            else [case.group.names_by_member[member] for member in portion.members]
        )
        row = ShownShareRow(
            **ids_of_decision(case, topic),
            step=step,
            share=number,
            option=portion.option,
            members=names,
            time=portion.when,
        )
        scope.record(row)
        row_key = row.group_id, row.condition, row.topic, step, number
        name_cell = cell_id(SHARE_MEMBERS, *row_key)
        owner = quote_name(case.group, portion.owner) if portion.owner else ""
        shares.append(
            DecisionPart(
                option=quote_value(share_texts.option, kind, cell_id(SHARE_OPTION, *row_key)),
                who=enumerate_texts([quote_value(name, kind, name_cell) for name in names]),
                when=quote_value(share_texts.when, kind, cell_id(SHARE_TIME, *row_key)),
                owner=owner,
            )
        )
    return tuple(shares)


def show_sentence(
    scope: Scope, case: Negotiation, topic: TripTopic, step: str, text: str, *, stated: bool = False
) -> str:
    """Record a sentence about a decision, and return the sentence as a text for prompts.

    - `step`: the step in which prompts show the sentence, such as `round1`.
    - `stated`: True if the mediator stated the decision, False if a fixed rule made the decision.
    """
    # Parts of the sentence that already have a source keep it.
    if not text:
        return ""
    row = ShownDecisionRow(**ids_of_decision(case, topic), step=step, text=str(text))
    scope.record(row)
    source_id = cell_id(SENTENCE, row.group_id, row.condition, row.topic, step)
    return quote_value(text, "proposal" if stated else "value", source_id)


# Words that our rendering adds for times and groups. They meet no wish of a member.
_FRAME = frozenset(words_of("day whole trip group shared backbone optional branch part"))


def left_out(group: Group, texts: Mapping[str, str], resolution: str) -> list[Member]:
    """Return the members whom a decision leaves out.

    The stated preference of such a member has no word in common with the decision.

    - `texts`: a map from member id to stated preference.
    - `resolution`: the decision in words.
    """
    # Differences of case and simple plurals are ignored. Stop words, words like "prefer", numbers
    # and words for days and parts of the trip do not count.
    decided_words = _significant_words(resolution)
    return [
        member
        for member in sorted(group.members, key=lambda member: natural_sort_key(member.id))
        if (words := _significant_words(texts.get(member.id, ""))) and not words & decided_words
    ]


def _significant_words(text: str) -> set[str]:
    return {word for word in content_words(text) - _FRAME if not word.isdigit()}
