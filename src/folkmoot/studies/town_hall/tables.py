"""The tables of a run: what their columns mean, and the rows of a discussion in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import new_class
from typing import TypedDict, TypeVar

from folkmoot.conversation.answer_types import DECLINED
from folkmoot.engine.seats.utterances import UTTERANCES, UtteranceRow
from folkmoot.engine.session.session import Scope
from folkmoot.kit import coding
from folkmoot.storage.rows import Row, column
from folkmoot.studies.town_hall.answers import UNREAD, Reflection, Thinking
from folkmoot.studies.town_hall.discussion import Discussion, Meeting, Round, portrait
from folkmoot.studies.town_hall.measures import (
    FIGURES,
    SPECTRUM,
    ByGroup,
    Comparison,
    Tracking,
    is_said_aloud,
    measures,
    pairs,
    satisfaction_rows,
    tracking,
    why_no_vote,
)
from folkmoot.studies.town_hall.participants import Resident, ResidentSet
from folkmoot.studies.town_hall.quality import count_rows, counted, quality

T = TypeVar("T")

PART = "main comparison or supplementary"
SET = "number of the set; the same residents at every level"
IS_VULNERABLE = "one of the vulnerable residents"
VULNERABLE_TYPE = "housing or participation; empty for general residents"
SILENT = "chose to say nothing"
PASSED = "more yes than no; a tie fails"


class OfDiscussion(Row):
    """Where a row belongs."""

    discussion_id: str = column("one discussion: a set at a level")
    set: int = column(SET)
    level: str = column("level of technical implementation")
    part: str = column(PART)


class ResidentRow(Row, table="residents", key=("set", "id")):
    """One resident of a set."""

    set: int = column(SET)
    id: str = column("id of the resident")
    name: str = column("name that the resident goes by")
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
    """How one resident is described in one discussion."""

    agent_id: str = column("the resident")
    portrait: str = column("the description that the model was given")
    label: str = column(
        "short name of a vulnerable profile under which the resident is listed in the discussion; "
        "drawn by lot where labels are shuffled"
    )


class RoundRow(OfDiscussion, table="rounds"):
    """One resident in one round: what they did, and how the others reacted to them."""

    round: int = column("round of discussion, from 1")
    agent_id: str = column("the resident")
    is_vulnerable: bool = column(IS_VULNERABLE)
    vulnerable_type: str | None = column(VULNERABLE_TYPE)
    seat_model: str | None = column(
        "model dealt to this seat by the level; empty for the run's own"
    )
    overall_stance: str | None = column("stance in THINK; empty where thinking is off or unread")
    stance_missing: str | None = column(
        "why THINK has no stance: none_of_these, declined, template_sentence (the prompt's own "
        "words came back) or unparsed"
    )
    silent: bool = column(SILENT)
    words: int = column("words of the public statement")
    thinking_parse_error: bool = column("THINK could not be read: the minimal structure stands")
    speaking_parse_error: bool = column("SPEAK could not be read: left out of possible reactions")
    new_points: int | None = column("points that answer nobody; empty where they are not known")
    references_made: int | None = column(
        "public references that the resident made; empty where they are not known"
    )
    reactions_ignore: int = column("others who could have reacted and made no reference (level 0)")
    reactions_refute: int = column("others who disagreed (level 1)")
    reactions_question: int = column("others who asked (level 2)")
    reactions_cite: int = column("others who cited without judgement (level 3)")
    reactions_agree: int = column("others who agreed (level 4)")
    total_reaction_count: int = column("others who reacted at all")
    positive_reaction_count: int = column("others who cited or agreed (levels 3 and 4)")
    positive_ratio: float | None = column("positive of all reactions; empty when there was none")
    weighted_inclusivity_score: float | None = column("sum of levels over possible reactions, 0–4")
    weighted_inclusivity_score_said_aloud: float | None = column(
        "the same, of references alone that a rule over words finds in the statement"
    )
    avg_agree_level: float | None = column("mean private agreement with the resident, 1–5")
    cited_as_compelling_count: int = column(
        "times named most compelling in reflections on the round"
    )
    possible_reactions: int = column(
        "others who could have reacted (readable statements, from round 2)"
    )
    unknown_reactions: int = column("others who referred to the resident, nobody knows how")
    interaction_count: int = column("public references to the resident")
    response_rate: float | None = column("share of private reactions that wished to respond")
    cited_as_disagreed_count: int = column(
        "times named most disagreed with in reflections on the round"
    )
    questions_received: int = column("public questions put to the resident")
    speaking_volume: int | None = column("new points and references that the resident made")
    responders: str = column("who reacted, ids joined by |")
    stance_after: str | None = column("stance in REFLECT after the round")
    stance_after_missing: str | None = column("why REFLECT has no stance; see stance_missing")
    change_type: str | None = column("maintain, soften, harden or flip")
    most_compelling: str | None = column("who convinced the resident most in this round")
    most_disagreed: str | None = column("with whom the resident disagreed most in this round")


class SpokenRow(UtteranceRow, table=UTTERANCES, key=("utterance_id",)):
    """One thing that a speaker said, wrote or thought. `speaker_role` is resident, moderator or
    planner; `stage` is think, speak, moderate, reflect or consensus."""

    discussion_id: str = column("one discussion: a set at a level")
    set: int = column(SET)
    level: str = column("level of technical implementation")
    turn: int | None = column("place in which the statement is listed to those who hear it")
    is_vulnerable: bool = column(IS_VULNERABLE)
    addressee: str | None = column(
        "of a question: to whom it is put, which is who is shown it; an id, all, moderator or "
        "planner"
    )


class ReactionRow(OfDiscussion, table="reactions"):
    """One possible reaction: a speaker to a target in a round."""

    round: int = column("round of discussion, from 1")
    speaker: str = column("who could react")
    target: str = column("to whom")
    reaction_level: int | None = column(
        "0 ignore, 1 refute, 2 question, 3 cite, 4 agree, of references as the speaker gave them; "
        "empty where the type of the reference is not known"
    )
    reaction: str | None = column("name of the reaction's level")
    interaction_types: str = column("interaction types of the references, joined by |")
    said_aloud: bool | None = column(
        "whether a rule over words finds a reference to the target in the statement; empty "
        "without a reference"
    )
    reaction_level_said_aloud: int | None = column(
        "reaction_level of the references that the rule finds: a check of robustness"
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
    """One public reference, as its speaker gave it."""

    round: int = column("round of discussion, from 1")
    speaker: str = column("who referred")
    target: str = column("to whom")
    interaction_type: str | None = column("agree, disagree, partial_agree, cite or question")
    missing: str | None = column(
        "why there is no interaction type: none_of_these, declined, unknown_value, missing_value"
    )
    content: str = column("the words in which the speaker answered the target")
    said_aloud: bool = column("whether a rule over words finds the reference in the statement")


class ItemRow(OfDiscussion, table="items", key=("discussion_id", "item_id")):
    """One item of a ballot."""

    item_id: str = column("item of the ballot")
    text: str = column("the proposal")
    origin: str = column("residents who raised it, joined by |")
    vulnerable_originated: bool = column("whether a vulnerable resident raised it")
    yes: int = column("votes for it")
    no: int = column("votes against it")
    declined: int = column("votes that were declined, or are for neither yes nor no")
    uncast: int = column("votes that could not be read")
    passed: bool = column(PASSED)
    tie: bool = column("as many yes as no, which fails")


class VoteRow(OfDiscussion, table="votes", key=("discussion_id", "item_id", "agent_id")):
    """One resident's vote on one item."""

    item_id: str = column("item of the ballot")
    agent_id: str = column("the resident")
    is_vulnerable: bool = column(IS_VULNERABLE)
    originated: bool = column("whether this resident raised the item")
    vote: str | None = column("yes or no; empty where there is no vote")
    missing: str | None = column(
        "why there is no vote: none_of_these, declined, template_sentence (the prompt's own words "
        "came back) or unparsed"
    )
    reason: str = column("the reason given")
    passed: bool = column(PASSED)


class SatisfactionRow(OfDiscussion, table="satisfaction"):
    """One resident's satisfaction before and after."""

    agent_id: str = column("the resident")
    is_vulnerable: bool = column(IS_VULNERABLE)
    pre_satisfaction: int | None = column("satisfaction before the discussion, 1–10")
    post_satisfaction: int | None = column("satisfaction after the outcome, 1–10")
    satisfaction_delta: int | None = column("after minus before")
    pre_reason: str = column("reason given before")
    post_reason: str = column("reason given after")
    pre_missing: str | None = column(
        "why there is no satisfaction before: cannot_say, declined, template_sentence (the "
        "prompt's own words came back) or unparsed"
    )
    post_missing: str | None = column("why there is no satisfaction after")


class RepairRow(OfDiscussion, table="repairs"):
    """One thing that was repaired or dropped in an answer."""

    stage: str = column("part of the discussion")
    round: int | None = column("round of discussion, from 1")
    agent_id: str = column("the resident (or who else answered)")
    field: str = column("field that was repaired or dropped")
    kind: str = column("what was wrong")
    was: str = column("what the model wrote")
    became: str | None = column("what it was repaired to; empty when it was dropped")
    dropped: bool = column("whether it was dropped")


def _with_figures(base: type[Row]) -> type[Row]:
    """`base` with a column for each figure of each group."""
    words = {"vulnerable": "vulnerable residents", "general": "general residents"}
    words["gap"] = "vulnerable minus general"
    said = {f"{g}_{n}": f"{of}: {w}" for g, of in words.items() for n, w in FIGURES.items()}

    def columns(namespace: dict[str, object]) -> None:
        namespace["__module__"] = __name__
        namespace["__annotations__"] = dict.fromkeys(said, "float | None")
        namespace.update({name: column(meaning) for name, meaning in said.items()})

    return new_class(f"{base.__name__}WithFigures", (base,), exec_body=columns)


class DiscussionRow(_with_figures(OfDiscussion), table="discussions"):  # type: ignore[misc, call-arg]
    """All figures of one discussion."""

    total_vote_items: int = column("items on the ballot")
    items_passed: int = column("items that passed")
    ties_failed: int = column("items that failed by a tie")
    vulnerable_originated_items: int = column("items that a vulnerable resident raised")
    vulnerable_items_passed: int = column("of these, passed")
    vulnerable_opinion_reflection_rate: float | None = column(
        "passed of originated; empty where none was"
    )
    answers: int = column("answers asked for")
    reasks: int = column("answers that had to be asked for again")
    minimal_structures: int = column("residents for whom the minimal structure stands")
    silent_turns: int = column("turns in which a resident chose to say nothing")
    votes_uncast: int = column("votes that could not be read")
    ways_out: int = column("stances, agreements, votes and ratings that took a way out")
    repaired: int = column("fields that were repaired")
    dropped: int = column("fields that were dropped")
    rounds_split: int = column("rounds of a shared session that took more than one call")


class QualityRow(OfDiscussion, table="quality"):
    """One count of how well the answers of a discussion could be read."""

    count: str = column("what is counted, as in quality.json")
    stage: str | None = column("part of the discussion, where it is counted by part")
    kind: str | None = column("what of it, where it is counted by kind; blank: none of any kind")
    n: int = column("how many")


class OptionOrderRow(Row, table="option_orders", key=("set", "field", "position")):
    """One option of a closed field, at the place where prompts and schemas of a set list it."""

    set: int = column(SET)
    field: str = column("stances, feelings, interactions, changes or votes")
    position: int = column("place in the list, from 1")
    option: str = column("the option")


class OfLevel(Row):
    """Which level a row is about."""

    part: str = column(PART)
    level: str = column("level of technical implementation")


class OfStep(Row):
    """Which two levels a row compares."""

    part: str = column(PART)
    from_level: str = column("level that is compared from")
    to_level: str = column("level that is compared to")
    consecutive: bool = column("whether the two levels follow each other in the main comparison")
    switches_changed: str = column("switches in which the two levels differ, joined by |")


class Compared(Row):
    """A figure with its interval over sets."""

    figure: str = column("measure that is compared; levels.json says what each is")
    group: str = column("vulnerable, general, or gap (vulnerable minus general)")
    estimate: float | None = column(
        "mean over sets (of the difference within sets, in `differences`)"
    )
    low: float | None = column(
        "lower end of the 95 % interval, t over sets; empty with fewer than five"
    )
    high: float | None = column("upper end of the 95 % interval")
    sets: int = column("sets that have this figure")


class LevelRow(Compared, OfLevel, table="levels"):
    """The mean of a figure at one level."""


class DifferenceRow(Compared, OfStep, table="differences"):
    """The mean difference of a figure between two levels, within sets."""

    p: float | None = column(
        "two-sided p of no difference, t over sets; empty with fewer than five"
    )


TABLES: tuple[type[Row], ...] = (
    ResidentRow,
    PortraitRow,
    RoundRow,
    SpokenRow,
    ReactionRow,
    ReferenceRow,
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


class Key(TypedDict):
    """The columns of `OfDiscussion`."""

    discussion_id: str
    set: int
    level: str
    part: str


def record_set(scope: Scope, of: ResidentSet, residents: Sequence[Resident]) -> None:
    """The residents of one set, one row each, and the orders in which options are listed."""
    for resident in residents:
        scope.record(ResidentRow(set=of.number, **resident.to_row()))
    for name, options in of.options.to_json().items():
        for position, option in enumerate(options, start=1):
            row = OptionOrderRow(set=of.number, field=name, position=position, option=option)
            scope.record(row)


def comparison_rows(comparison: Comparison) -> Iterator[Row]:
    """The levels and the differences between them, a row for each figure and group."""
    for name, part in (
        ("main", comparison["main"]),
        ("supplementary", comparison["supplementary"]),
    ):
        for level, summary in part["levels"].items():
            for figure, group, mean in _each(summary["figures"]):
                yield LevelRow.of(mean, part=name, level=level, figure=figure, group=group)
        for step in part["differences"]:
            about: dict[str, object] = {
                "part": name,
                "from_level": step["from"],
                "to_level": step["to"],
            }
            switches = "|".join(step["switches_changed"])
            about |= {"consecutive": step["consecutive"], "switches_changed": switches}
            for figure, group, moved in _each(step["figures"]):
                yield DifferenceRow.of(moved, **about, figure=figure, group=group)


def _each(figures: ByGroup[T]) -> Iterator[tuple[str, str, T]]:
    for figure, groups in figures.items():
        for group, found in groups.items():
            yield figure, group, found


def record_discussion(scope: Scope, discussion: Discussion) -> None:
    """Everything tidy about one discussion."""
    meeting = discussion.meeting
    key: Key = {
        "discussion_id": meeting.id,
        "set": meeting.set.number,
        "level": meeting.level.name,
        "part": meeting.level.part,
    }
    for person, listed in zip(meeting.people, meeting.residents, strict=True):
        described = portrait(scope, meeting, person)
        row = PortraitRow(**key, agent_id=person.id, portrait=described, label=listed.label)
        scope.record(row)
    tracked = {(row.agent_id, row.round): row for row in tracking(discussion)}
    for round_ in discussion.rounds:
        for resident in meeting.residents:
            tracked_row = tracked[resident.id, round_.number]
            scope.record(_round(meeting, resident, round_, tracked_row, key))
    for record in (_reactions, _references, _items, _votes, _repairs):
        for row_of in record(discussion, key):
            scope.record(row_of)
    for satisfied in satisfaction_rows(discussion):
        scope.record(SatisfactionRow(**key, **satisfied))
    scope.record(DiscussionRow(**key, **_figures(discussion)))
    for counted_as, stage, kind, n in count_rows(quality(discussion)):
        scope.record(QualityRow(**key, count=counted_as, stage=stage, kind=kind, n=n))


def _figures(discussion: Discussion) -> dict[str, object]:
    found, counts = measures(discussion), quality(discussion)
    named = found.final_consensus | {name: counted(counts, name) for name in counts}
    figures = {f"{g}_{n}": value for g, of in found.figures.items() for n, value in of.items()}
    rest = DiscussionRow.columns().keys() - OfDiscussion.columns().keys() - figures.keys()
    return figures | {name: named[name] for name in rest}


def _round(
    meeting: Meeting, resident: Resident, round_: Round, tracked: Tracking, key: Key
) -> RoundRow:
    turn, reflection = round_.turns[resident.id], round_.reflections.get(resident.id)
    evolution = reflection.stance_evolution if reflection else None
    compelling = reflection.most_compelling if reflection else None
    disagreed = reflection.most_disagreed if reflection else None
    reactions = {f"reactions_{name}": n for name, n in tracked.reaction_spectrum.items()}
    own = {name: n for name, n in vars(tracked).items() if name in RoundRow.columns()}
    return RoundRow(
        **key,
        **own | reactions | {"responders": "|".join(tracked.responders)},
        is_vulnerable=resident.is_vulnerable,
        vulnerable_type=resident.vulnerable_type,
        seat_model=meeting.seats[resident.id],
        overall_stance=turn.thinking.overall_stance if turn.thinking else None,
        stance_missing=_why_no_stance(turn.thinking, "overall_stance"),
        silent=turn.silent,
        words=len(turn.speaking.full_statement.split()),
        thinking_parse_error=bool(turn.thinking and turn.thinking.parse_error),
        speaking_parse_error=turn.speaking.parse_error,
        stance_after=evolution.current_stance if evolution else None,
        stance_after_missing=_why_no_stance(
            reflection, "stance_evolution", evolution.missing if evolution else {}
        ),
        change_type=evolution.change_type if evolution else None,
        most_compelling=compelling.agent_id if compelling else None,
        most_disagreed=disagreed.agent_id if disagreed else None,
    )


def _why_no_stance(
    answer: Thinking | Reflection | None, field: str, further: Mapping[str, str] | None = None
) -> str | None:
    """Return why an answer holds no stance; None if it holds one or was not asked for."""
    if answer is None:
        return None
    if answer.unanswered:
        return DECLINED if answer.declined else UNREAD
    return answer.missing.get(field) or (further or {}).get("current_stance")


def _reactions(discussion: Discussion, key: Key) -> list[Row]:
    vulnerable = discussion.meeting.vulnerable
    return [
        ReactionRow.of(
            pair,
            **key,
            reaction_level=pair.level,
            reaction=None if pair.level is None else SPECTRUM[pair.level],
            interaction_types="|".join(pair.types),
            reaction_level_said_aloud=pair.level_said_aloud,
            agree_level=pair.private.agree_level if pair.private else None,
            agree_missing=pair.private.missing.get("agree_level") if pair.private else None,
            my_feeling=pair.private.my_feeling if pair.private else None,
            want_to_respond=pair.private.want_to_respond if pair.private else None,
            speaker_vulnerable=pair.speaker in vulnerable,
            target_vulnerable=pair.target in vulnerable,
        )
        for pair in pairs(discussion)
    ]


def _references(discussion: Discussion, key: Key) -> list[Row]:
    return [
        ReferenceRow.of(
            reference,
            **key,
            round=round_.number,
            speaker=speaker,
            target=reference.target_agent,
            missing=reference.missing.get("interaction_type"),
            said_aloud=is_said_aloud(discussion, turn, reference),
        )
        for round_ in discussion.rounds
        for speaker, turn in round_.turns.items()
        for reference in turn.speaking.references
    ]


def _items(discussion: Discussion, key: Key) -> list[Row]:
    return [
        ItemRow.of(
            outcome,
            **key,
            item_id=item.id,
            text=item.text,
            origin="|".join(item.origin),
            vulnerable_originated=bool(set(item.origin) & set(discussion.meeting.vulnerable)),
        )
        for item, outcome in zip(discussion.items, discussion.outcomes, strict=True)
    ]


def _votes(discussion: Discussion, key: Key) -> list[Row]:
    return [
        VoteRow(
            **key,
            item_id=item.id,
            agent_id=resident,
            is_vulnerable=resident in discussion.meeting.vulnerable,
            originated=resident in item.origin,
            vote=ballot.votes.get(item.id),
            missing=why_no_vote(ballot, item.id),
            reason=ballot.reasons.get(item.id, ""),
            passed=item.id in discussion.passed,
        )
        for resident, ballot in discussion.ballots.items()
        for item in discussion.items
    ]


def _repairs(discussion: Discussion, key: Key) -> list[Row]:
    return [
        RepairRow.of(
            repair,
            **key,
            stage=call.stage,
            round=call.round,
            agent_id=call.agent,
            became=repair.became or None,
        )
        for call in discussion.calls
        for repair in call.repairs
    ]
