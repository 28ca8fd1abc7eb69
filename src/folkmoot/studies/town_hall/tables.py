"""The tables of a run. Each column has a description."""

from __future__ import annotations

from collections.abc import Mapping
from types import new_class

from folkmoot.engine.seats.utterances import UTTERANCES, UtteranceRow
from folkmoot.kit import coding
from folkmoot.storage.rows import Row, column

SPECTRUM = ("ignore", "refute", "question", "cite", "agree")
GROUPS = ("vulnerable", "general", "gap")

# Figure → its meaning. Figures can be compared between groups of different sizes.
FIGURES: Mapping[str, str] = {
    "weighted_inclusivity_score": "mean level of all possible reactions, 0 ignored to 4 agreed",
    "weighted_inclusivity_score_said_aloud": "the same score, only from references that a text "
    "rule finds in the statement",
    "positive_reaction_ratio": "share of reactions that cite or agree",
    "reactions_per_resident": "reactions received, per resident",
    "positive_reactions_per_resident": "citing or agreeing reactions received, per resident",
    "interactions_per_resident": "public references to a resident, per resident",
    "avg_agree_level": "private agreement of others with the statements, 1 to 5",
    "response_rate": "share of private reactions with the wish to respond",
    "compelling_citations_per_resident": "times that others named the resident most convincing, "
    "per resident",
    "responders_per_resident": "different residents who responded, per resident",
    "opinion_survival": "share of later rounds in which others still referred to the statements",
    "speaking_volume_per_resident": "new points and references made, per resident",
    "items_originated_per_resident": "ballot items raised, per resident",
    "items_passed_per_resident": "raised ballot items that passed, per resident",
    "opinion_reflection_rate": "share of raised ballot items that passed, of those with a vote of "
    "yes or no",
    "concerns_in_final_per_resident": "concerns in the closing text, per resident",
    "pre_satisfaction": "satisfaction before, 1 to 10",
    "post_satisfaction": "satisfaction after, 1 to 10",
    "satisfaction_delta": "satisfaction after minus before",
}

_SHARE = (0, 1)
# Figure → the lowest and highest value that it may have. Other figures count without a limit.
_RANGES: Mapping[str, tuple[float, float]] = {
    "weighted_inclusivity_score": (0, 4),
    "weighted_inclusivity_score_said_aloud": (0, 4),
    "positive_reaction_ratio": _SHARE,
    "avg_agree_level": (1, 5),
    "response_rate": _SHARE,
    "opinion_survival": _SHARE,
    "opinion_reflection_rate": _SHARE,
    "pre_satisfaction": (1, 10),
    "post_satisfaction": (1, 10),
    "satisfaction_delta": (-9, 9),
}
# The figures that cannot lie outside 0 to 1, so that a t interval over a few sets would mislead.
SHARES = frozenset(name for name, bounds in _RANGES.items() if bounds == _SHARE)

PART = "main comparison or supplementary"
SET = "number of the set, which has the same residents at every level"
IS_VULNERABLE = "whether the resident is one of the vulnerable"
VULNERABLE_TYPE = "housing or participation; empty for general residents"
SILENT = "whether the resident chose to say nothing"
PASSED = "whether the item passed: more yes than no, a tie fails; empty without a yes or no"


class OfDiscussion(Row):
    """A row that belongs to one discussion."""

    discussion_id: str = column("id of the discussion, which is one set at one level")
    set: int = column(SET)
    level: str = column("level of technical implementation")
    part: str = column(PART)


class ResidentRow(Row, table="residents", key=("set", "id")):
    """One resident of a set."""

    set: int = column(SET)
    id: str = column("id of the resident")
    name: str = column("name of the resident")
    age_group: str = column("age group")
    gender: str = column("gender")
    residence_years: int = column("years lived in the quarter")
    ownership: str = column("owner or tenant")
    occupation: str = column("occupation")
    assertiveness: int = column("personality, 1–5")
    openness: int = column("personality, 1–5")
    risk_tolerance: int = column("personality, 1–5")
    community_orientation: int = column("personality, 1–5")
    income_level: str = column("low, middle or high")
    can_afford_contribution: bool = column("whether the resident can pay the contribution")
    economic_pressure: str = column("comfortable, moderate or struggling")
    participation_tendency: str = column("active, moderate or passive")
    information_access: str = column("high, medium or low")
    community_engagement: str = column("active, moderate or minimal")
    is_vulnerable: bool = column(IS_VULNERABLE)
    vulnerable_type: str | None = column(VULNERABLE_TYPE)
    label: str = column("short name of a vulnerable profile")


class PortraitRow(OfDiscussion, table="portraits", key=("discussion_id", "agent_id")):
    """The persona text of one resident in one discussion."""

    agent_id: str = column("id of the resident")
    portrait: str = column("description of the resident in prompts")
    label: str = column(
        "short name of the vulnerable profile that the discussion lists for the resident; drawn at "
        "random if labels are shuffled"
    )


class RoundRow(OfDiscussion, table="rounds"):
    """One resident in one round, and the reactions of other residents."""

    round: int = column("round of discussion, from 1")
    agent_id: str = column("id of the resident")
    is_vulnerable: bool = column(IS_VULNERABLE)
    vulnerable_type: str | None = column(VULNERABLE_TYPE)
    seat_model: str | None = column(
        "model that the level assigns to the resident; empty for the model of the run"
    )
    overall_stance: str | None = column(
        "stance in THINK; empty if thinking is off or could not be read"
    )
    stance_missing: str | None = column(
        "reason why THINK has no stance: none_of_these, declined, template_sentence (the reply "
        "repeats the prompt), missing_value, unknown_value or unparsed (the whole reply)"
    )
    silent: bool = column(SILENT)
    words: int = column(
        "number of words of the public statement; in scripts without spaces, such as Chinese, of "
        "letters"
    )
    thinking_parse_error: bool = column(
        "whether THINK could not be read, so that the minimal structure was used"
    )
    speaking_parse_error: bool = column(
        "whether SPEAK could not be read, so that it counts for no possible reaction"
    )
    new_points: int | None = column("points that respond to no other resident; empty if unknown")
    references_made: int | None = column(
        "public references that the resident made; empty if unknown"
    )
    reactions_ignore: int = column("others who could have reacted and made no reference (level 0)")
    reactions_refute: int = column("others who disagreed (level 1)")
    reactions_question: int = column("others who asked (level 2)")
    reactions_cite: int = column("others who cited without judgement (level 3)")
    reactions_agree: int = column("others who agreed (level 4)")
    total_reaction_count: int = column("others who reacted at all")
    positive_reaction_count: int = column("others who cited or agreed (levels 3 and 4)")
    positive_ratio: float | None = column("share of positive reactions; empty without reactions")
    weighted_inclusivity_score: float | None = column(
        "sum of levels divided by the number of possible reactions, 0–4"
    )
    weighted_inclusivity_score_said_aloud: float | None = column(
        "the same score, only from references that a text rule finds in the statement"
    )
    avg_agree_level: float | None = column("mean private agreement with the resident, 1–5")
    cited_as_compelling_count: int = column(
        "times that reflections on the round named the resident most convincing"
    )
    possible_reactions: int = column(
        "others who could have reacted (readable statements, from round 2)"
    )
    unknown_reactions: int = column("others who referred to the resident in an unknown way")
    interaction_count: int = column("public references to the resident")
    response_rate: float | None = column("share of private reactions with the wish to respond")
    cited_as_disagreed_count: int = column(
        "times that others named the resident as the one they disagree with most in the round"
    )
    questions_received: int = column("public questions to the resident")
    speaking_volume: int | None = column("new points and references that the resident made")
    responders: str = column(
        "ids of the residents who reacted, also by a reference of unknown type, joined by |"
    )
    stance_after: str | None = column("stance in REFLECT after the round")
    stance_after_missing: str | None = column(
        "reason why REFLECT has no stance, as in stance_missing"
    )
    change_type: str | None = column("maintain, soften, harden or flip")
    most_compelling: str | None = column(
        "id of the resident who convinced this resident most in the round"
    )
    most_disagreed: str | None = column(
        "id of the resident with whom this resident disagreed most in the round"
    )


class SpokenRow(UtteranceRow, table=UTTERANCES, key=("utterance_id",)):
    """One utterance of a speaker, public or private."""

    discussion_id: str = column("id of the discussion, which is one set at one level")
    set: int = column(SET)
    level: str = column("level of technical implementation")
    turn: int | None = column("position of the statement in the list that listeners see")
    is_vulnerable: bool = column(IS_VULNERABLE)
    addressee: str | None = column(
        "addressee of a question, who alone is shown it: an id, all, moderator or planner"
    )


class ReactionRow(OfDiscussion, table="reactions"):
    """The reaction of one resident to another in a round."""

    round: int = column("round of discussion, from 1")
    speaker: str = column("id of the resident who could react")
    target: str = column("id of the resident to whom the speaker could react")
    reaction_level: int | None = column(
        "level by the speaker's own references: 0 ignore, 1 refute, 2 question, 3 cite, 4 agree; "
        "empty if the type of the reference is unknown"
    )
    reaction: str | None = column("name of the reaction's level")
    interaction_types: str = column("interaction types of the references, joined by |")
    said_aloud: bool | None = column(
        "whether a text rule finds a reference to the target in the statement; empty without a "
        "reference"
    )
    reaction_level_said_aloud: int | None = column(
        "reaction_level by the references that the rule finds, as a robustness check"
    )
    agree_level: int | None = column("private agreement of the speaker with the target, 1–5")
    agree_missing: str | None = column(
        "way out of the private agreement: cannot_say, declined or none_of_these"
    )
    my_feeling: str | None = column("private feeling of the speaker")
    want_to_respond: bool | None = column("whether the speaker wished to respond")
    speaker_vulnerable: bool = column("whether the speaker is one of the vulnerable residents")
    target_vulnerable: bool = column("whether the target is one of the vulnerable residents")


class ReferenceRow(OfDiscussion, table="references"):
    """One reference to another resident in a public statement."""

    round: int = column("round of discussion, from 1")
    speaker: str = column("id of the resident who refers to another")
    target: str = column("id of the resident who is referred to")
    interaction_type: str | None = column("agree, disagree, partial_agree, cite or question")
    missing: str | None = column(
        "reason for a missing type: none_of_these, declined, unknown_value, missing_value"
    )
    content: str = column("words of the statement that respond to the target")
    said_aloud: bool = column("whether a text rule finds the reference in the statement")


class TypedAnswerRow(OfDiscussion, table="typed_answers"):
    """One answer of a resident, the moderator or the planner."""

    # Satisfaction ratings have a separate table, `satisfaction`.
    stage: str = column("think, speak, moderate, reflect, plan, vote or consensus")
    round: int | None = column("round of discussion, from 1")
    agent_id: str = column("id of the resident, or moderator or planner")
    answer: str = column(
        "the answer as JSON, with the fields of the source study. Reasons for null fields are "
        "under _missing. An unreadable answer has _parse_error, a declined one _declined"
    )


class ItemRow(OfDiscussion, table="items", key=("discussion_id", "item_id"), from_replies=True):
    """One item of a ballot."""

    item_id: str = column("id of the ballot item")
    text: str = column("text of the proposal")
    origin: str = column("ids of the residents who raised the item, joined by |")
    vulnerable_originated: bool = column("whether a vulnerable resident raised the item")
    yes: int = column("votes for the item")
    no: int = column("votes against the item")
    declined: int = column("votes that were declined or are neither yes nor no")
    uncast: int = column("votes that could not be read, or that a fork left out")
    passed: bool | None = column(PASSED)
    tie: bool = column("whether there were as many yes as no, so that the item failed")


class VoteRow(
    OfDiscussion,
    table="votes",
    key=("discussion_id", "item_id", "agent_id"),
    from_replies=True,
):
    """One resident's vote on one item."""

    item_id: str = column("id of the ballot item")
    agent_id: str = column("id of the resident")
    is_vulnerable: bool = column(IS_VULNERABLE)
    originated: bool = column("whether this resident raised the item")
    vote: str | None = column("yes or no; empty without a vote")
    missing: str | None = column(
        "reason for a missing vote: none_of_these, declined, template_sentence (the reply repeats "
        "the prompt) or unparsed"
    )
    reason: str = column("the resident's reason")
    passed: bool | None = column(PASSED)


class SatisfactionRow(OfDiscussion, table="satisfaction"):
    """The satisfaction of one resident before and after a discussion."""

    agent_id: str = column("id of the resident")
    is_vulnerable: bool = column(IS_VULNERABLE)
    pre_satisfaction: int | None = column(
        "satisfaction before the discussion, 1–10", between=_RANGES["pre_satisfaction"]
    )
    post_satisfaction: int | None = column(
        "satisfaction after the outcome, 1–10", between=_RANGES["post_satisfaction"]
    )
    satisfaction_delta: int | None = column(
        "satisfaction after minus before", between=_RANGES["satisfaction_delta"]
    )
    pre_reason: str = column("the resident's reason before the discussion")
    post_reason: str = column("the resident's reason after the outcome")
    pre_missing: str | None = column(
        "reason for a missing satisfaction before: cannot_say, declined, template_sentence (the "
        "reply repeats the prompt) or unparsed"
    )
    post_missing: str | None = column("reason for a missing satisfaction after, as in pre_missing")


class RepairRow(OfDiscussion, table="repairs"):
    """One value of an answer that a validator repaired or dropped."""

    stage: str = column("part of the discussion")
    round: int | None = column("round of discussion, from 1")
    agent_id: str = column("id of the resident, or moderator or planner")
    field: str = column("field that was repaired or dropped")
    kind: str = column("problem with the value")
    was: str = column("value in the reply; a long one is cut, with … at its end")
    became: str | None = column("value after the repair; empty if the value was dropped")
    dropped: bool = column("whether the value was dropped")


def _with_figures(base: type[Row]) -> type[Row]:
    group_labels = {"vulnerable": "vulnerable residents", "general": "general residents"}
    group_labels["gap"] = "vulnerable minus general"
    columns = {
        f"{group}_{name}": column(f"{group_label}: {figure}", between=_bounds_of(group, name))
        for group, group_label in group_labels.items()
        for name, figure in FIGURES.items()
    }

    def add_columns(namespace: dict[str, object]) -> None:
        namespace["__module__"] = __name__
        namespace["__annotations__"] = dict.fromkeys(columns, "float | None")
        namespace.update(columns)

    # `new_class` fills the annotations before `Row.__init_subclass__` makes a dataclass of the
    # class.
    return new_class(f"{base.__name__}WithFigures", (base,), exec_body=add_columns)


def _bounds_of(group: str, figure: str) -> tuple[float, float] | None:
    bounds = _RANGES.get(figure)
    if bounds is None or group != "gap":
        return bounds
    # A difference of two such numbers.
    low, high = bounds
    return low - high, high - low


class DiscussionRow(_with_figures(OfDiscussion), table="discussions"):  # type: ignore[misc, call-arg]
    """One discussion with all its figures."""

    total_vote_items: int = column("items on the ballot")
    items_passed: int = column("items that passed")
    ties_failed: int = column("items that failed by a tie")
    vulnerable_originated_items: int = column("items that a vulnerable resident raised")
    vulnerable_items_passed: int = column("items of vulnerable residents that passed")
    vulnerable_opinion_reflection_rate: float | None = column(
        "share of the items of vulnerable residents that passed; empty without such items. Items "
        "without a yes or no are left out"
    )
    answers: int = column("requested answers")
    reasks: int = column("re-asks because of unreadable answers")
    minimal_structures: int = column(
        "residents with the minimal structure in place of an unreadable answer"
    )
    silent_turns: int = column("turns in which a resident chose to say nothing")
    votes_uncast: int = column("votes that could not be read, or that a fork left out")
    ways_out: int = column("stances, agreements, votes and ratings that took a way out")
    repaired: int = column("fields that were repaired")
    dropped: int = column("fields that were dropped")
    rounds_split: int = column("rounds of a shared session that took more than one call")


class QualityRow(OfDiscussion, table="quality"):
    """One count on how well the answers of a discussion could be read."""

    count: str = column("what is counted, as in quality.json")
    stage: str | None = column("part of the discussion, if counts are by part")
    kind: str | None = column("kind, if counts are by kind; blank: none of any kind")
    n: int = column("the count")


class OptionOrderRow(Row, table="option_orders", key=("set", "field", "position")):
    """One option of an answer field, and the position of the option in prompts."""

    set: int = column(SET)
    field: str = column("stances, feelings, interactions, changes or votes")
    position: int = column("position in the list, from 1")
    option: str = column("the option")


class OfLevel(Row):
    """A row that belongs to one level."""

    part: str = column(PART)
    level: str = column("level of technical implementation")


class OfStep(Row):
    """A row that compares two levels."""

    part: str = column(PART)
    from_level: str = column("level that is subtracted")
    to_level: str = column("level from which `from_level` is subtracted")
    consecutive: bool = column("whether the two levels follow each other in the main comparison")
    switches_changed: str = column("switches in which the two levels differ, joined by |")


class Compared(Row):
    """The mean of one figure in one group, and the interval of the mean."""

    figure: str = column("name of the measure; levels.json gives the meanings")
    group: str = column("vulnerable, general, or gap (vulnerable minus general)")
    estimate: float | None = column(
        "mean over sets (of the difference within sets, in `differences`)"
    )
    low: float | None = column(
        "lower end of the 95 % interval over sets; empty with fewer than five sets"
    )
    high: float | None = column("upper end of the 95 % interval")
    sets: int = column("number of sets that have this figure")


class LevelRow(Compared, OfLevel, table="levels"):
    """The mean of one figure over the sets at one level."""


class DifferenceRow(Compared, OfStep, table="differences"):
    """The mean difference of one figure between two levels."""

    p: float | None = column(
        "two-sided p-value of no difference within sets, paired t test; empty with fewer than five "
        "sets"
    )


TABLES: tuple[type[Row], ...] = (
    ResidentRow,
    PortraitRow,
    RoundRow,
    SpokenRow,
    ReactionRow,
    ReferenceRow,
    TypedAnswerRow,
    ItemRow,
    VoteRow,
    SatisfactionRow,
    RepairRow,
    OptionOrderRow,
    DiscussionRow,
    QualityRow,
    LevelRow,
    DifferenceRow,
    *coding.TABLES,
)
