"""Functions that record the utterances of a meeting and the rows of all tables."""

# Statements, the moderator's speech and the closing text are public. Thoughts, reflections and the
# texts of questions are private. Thoughts and reflections are shown only to their speaker, and
# questions only to their addressee. Rows are recorded at the end of a round, vote or discussion.

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from folkmoot.conversation.answer_types import (
    WAYS_OUT,
)
from folkmoot.conversation.transcript import Speaker, Utterance
from folkmoot.engine.seats.utterances import PlaceInReply, UtteranceInReply
from folkmoot.engine.session.session import Scope, Session
from folkmoot.hints import collapse_spaces, count_words, shorten
from folkmoot.kit import coding
from folkmoot.provenance import cell_id, concatenate_texts, join_texts, quote_value
from folkmoot.randomness import generator
from folkmoot.storage.rows import Row
from folkmoot.studies.town_hall.answers.calls import Call
from folkmoot.studies.town_hall.answers.outcome import (
    Ballot,
    Closing,
    Moderation,
    PlannedItem,
)
from folkmoot.studies.town_hall.answers.records import UNREAD, Record
from folkmoot.studies.town_hall.answers.repairs import AskContext
from folkmoot.studies.town_hall.answers.turns import (
    Reflection,
    Thinking,
    Turn,
)
from folkmoot.studies.town_hall.config import TownHallConfig
from folkmoot.studies.town_hall.discussion import (
    Discussion,
    HallSpeakers,
    Meeting,
    RecordedQuestion,
    RecordedTurn,
    Round,
    on_one_line,
)
from folkmoot.studies.town_hall.measures import (
    build_tables,
    compare_groups,
    final_consensus,
    measure_round,
)
from folkmoot.studies.town_hall.participants import Resident, ResidentSet
from folkmoot.studies.town_hall.quality import count_quality, count_rows, total_count
from folkmoot.studies.town_hall.tables import (
    FIGURES,
    SPECTRUM,
    DiscussionRow,
    ItemRow,
    OfDiscussion,
    OptionOrderRow,
    PortraitRow,
    QualityRow,
    ReactionRow,
    ReferenceRow,
    RepairRow,
    ResidentRow,
    RoundRow,
    SatisfactionRow,
    TypedAnswerRow,
    VoteRow,
)

RESIDENT, MODERATOR, PLANNER = "resident", "moderator", "planner"
# Names of the private parts of a reply. In a shared reply the resident's id comes before the name.
THOUGHTS, REFLECTION, QUESTION = "thoughts", "reflection", "question"


def part_of(utterance_id: str) -> str:
    """Return the kind of a private utterance: thoughts, reflection or question.

    Returns "" for a public utterance.
    """
    # An id is `address#part`, and in a shared reply `address#resident.part`.
    part = utterance_id.partition("#")[2].rpartition(".")[2]
    return next((name for name in (THOUGHTS, REFLECTION, QUESTION) if part.startswith(name)), "")


def find_utterance(utterance: UtteranceInReply, reply: object) -> PlaceInReply | None:
    """Return the place of an utterance in a reply of a resident, the moderator or the planner.

    Returns None if the reply lacks the form that its question asks for.
    """
    part, place = utterance.part, tuple[str | int, ...]()
    # In a shared reply the part of the id begins with the resident.
    resident, _, own_part = part.partition(".")
    if resident == utterance.speaker_id:
        is_nested = isinstance(reply, Mapping) and isinstance(reply.get("turns"), Mapping)
        part = own_part
        place = (*(("turns",) if is_nested else ()), resident, "speaking")
    value = reply
    for key in place:
        value = value.get(key) if isinstance(value, Mapping) else None
    if not isinstance(value, Mapping):
        return None
    if not part:
        fields = ("full_statement", "spoken", "consensus")
        return next(((*place, name) for name in fields if name in value), None)
    # A question to an unknown resident is not recorded, so the number in the id is no position.
    stated = value.get("questions") if part.startswith(QUESTION) else None
    positions = [
        position
        for position, question in enumerate(stated if isinstance(stated, list) else ())
        if isinstance(question, Mapping) and question.get("content") == utterance.text
    ]
    return (*place, "questions", positions[0], "content") if len(positions) == 1 else None


def round_of(utterance_id: str) -> int:
    """Return the number of the round in which an utterance was recorded.

    Returns 0 if the utterance belongs to no round.
    """
    stage = utterance_id.split("/")[1]
    return int(stage.removeprefix("round")) if stage.startswith("round") else 0


@dataclass(frozen=True, slots=True)
class Reply:
    """One reply of a model or human, which may hold several utterances."""

    meeting: Meeting
    speaker: Speaker
    # The round of the reply, or None outside rounds.
    round: int | None
    # The address of the reply in the journal.
    address: str
    # True if the reply holds the utterances of several residents.
    shared: bool = False

    def record_text(
        self, scope: Scope, text: str, stage: str, part: str = "", **columns: Any
    ) -> Utterance:
        """Record one text of the reply as an utterance, and return the utterance.

        - `part`: the kind of a private text, or "" for a public one.
        - `columns`: values of further columns in `SpokenRow`.
        """
        meeting, speaker = self.meeting, self.speaker
        discussion_columns = {
            "discussion_id": meeting.id,
            "set": meeting.set.number,
            "level": meeting.level.name,
        }
        speaker_columns = {
            "turn": None,
            "is_vulnerable": speaker.id in meeting.vulnerable_ids,
            "addressee": None,
        }
        return scope.say(
            speaker,
            text,
            address=self.address,
            part=".".join(filter(None, (speaker.id if self.shared else "", part))),
            public=not part,
            stage=stage,
            round=self.round,
            **{**discussion_columns, **speaker_columns, **columns},
        )


def reply_of(
    meeting: Meeting, resident: str, number: int, address: str, *, shared: bool = False
) -> Reply:
    """Return the object with which the utterances in a resident's reply are recorded.

    - `number`: the round.
    - `address`: the address of the reply in the journal.
    - `shared`: True if the reply also holds utterances of other residents.
    """
    speaker = Speaker(resident, meeting.names_by_id[resident], RESIDENT)
    return Reply(meeting, speaker, number, address, shared)


def record_thoughts(scope: Scope, reply: Reply, thinking: Thinking | None) -> Utterance | None:
    """Record a resident's thoughts in the form that later prompts show.

    Returns None if there are no thoughts.
    """
    if thinking is None or thinking.unanswered:
        return None
    thoughts = thinking.to_prompt()
    if not thoughts["reactions"]:
        # The answer type of round 1 has no reactions, so a later prompt shows no empty list either.
        del thoughts["reactions"]
    return reply.record_text(scope, _as_json(thoughts), "think", THOUGHTS)


def record_statement(
    scope: Scope, reply: Reply, turn: Turn, thoughts: Utterance | None
) -> RecordedTurn:
    """Record a resident's public statement and each question in it."""
    # An empty statement means silence. A question is part of the statement, which all residents
    # hear. It is also recorded separately, so that prompts to its addressee can list it.
    speaking, me = turn.speaking, reply.speaker.id
    assert reply.round is not None
    statement = reply.record_text(
        scope,
        speaking.full_statement,
        "speak",
        missing=None if turn.has_statement else speaking.missing_reason or UNREAD,
        # The position at which prompts list the statement, from 1.
        turn=reply.meeting.orders[reply.round - 1].index(me) + 1,
    )
    questions = []
    for number, question in enumerate(speaking.questions, start=1):
        # Without a statement no other resident can have heard the question.
        if speaking.full_statement and question.content:
            part, target = f"{QUESTION}{number}", question.target
            utterance = reply.record_text(scope, question.content, "speak", part, addressee=target)
            questions.append(RecordedQuestion(target, utterance))
    return RecordedTurn(statement, tuple(questions), thoughts)


def record_reflection(scope: Scope, reply: Reply, reflection: Reflection) -> Utterance | None:
    """Record a resident's reflection in the form that later prompts show.

    Returns None if there is no reflection.
    """
    if reflection.unanswered:
        return None
    return reply.record_text(scope, _as_json(reflection.to_prompt()), "reflect", REFLECTION)


def record_moderation(
    scope: Scope, meeting: Meeting, speaker: Speaker, moderation: Moderation, call: Call
) -> Utterance:
    """Record the moderator's speech after a round."""
    missing = call.missing or (
        UNREAD if moderation.parse_error or "spoken" in moderation.missing else None
    )
    reply = Reply(meeting, speaker, call.round, call.address)
    # The moderator speaks after all residents.
    turn = len(meeting.ids) + 1
    return reply.record_text(scope, moderation.spoken, "moderate", missing=missing, turn=turn)


def record_consensus(
    scope: Scope, meeting: Meeting, speaker: Speaker, closing: Closing, call: Call
) -> Utterance:
    """Record the closing text."""
    missing = call.missing or (UNREAD if closing.parse_error else None)
    reply = Reply(meeting, speaker, None, call.address)
    return reply.record_text(scope, closing.consensus, "consensus", missing=missing)


def _as_json(fields: dict[str, object]) -> str:
    return json.dumps(fields, ensure_ascii=False)


# Level 0 (ignore) has no interaction type: it is the absence of a reference.
DEFAULT_LEVELS: Mapping[str, int] = {
    "disagree": 1,
    "question": 2,
    "cite": 3,
    "agree": 4,
    # Partial agreement is support with reservations. A study file may give it another level.
    "partial_agree": 4,
}


def interaction_levels(config: TownHallConfig) -> dict[str, int]:
    """Return a map from type of interaction, such as "agree", to reaction level."""
    # Levels in the study file replace the defaults.
    own_levels = {str(kind): level for kind, level in config.reaction_levels.items()}
    return {**DEFAULT_LEVELS, **own_levels}


def record_set(scope: Scope, resident_set: ResidentSet, residents: Sequence[Resident]) -> None:
    """Record the residents and the option orders of one set."""
    for resident in residents:
        scope.record(ResidentRow(set=resident_set.number, **resident.to_row()))
    for name, options in resident_set.options.to_json().items():
        for position, option in enumerate(options, start=1):
            row = OptionOrderRow(
                set=resident_set.number, field=name, position=position, option=option
            )
            scope.record(row)


class Recorder:
    """Records one discussion."""

    # Copies of the rows are kept to compute the measures.
    def __init__(self, scope: Scope, hall: HallSpeakers) -> None:
        self._scope = scope
        self._meeting = meeting = hall.meeting
        self._rows: list[Row] = []
        self._key: dict[str, Any] = {
            "discussion_id": meeting.id,
            "set": meeting.set.number,
            "level": meeting.level.name,
            "part": meeting.level.part,
        }
        self._record_rows(
            PortraitRow(
                **self._key,
                agent_id=resident.id,
                portrait=hall.portraits[resident.id],
                label=resident.label,
            )
            for resident in meeting.residents
        )

    def end_round(self, rounds: Sequence[Round]) -> None:
        """Record the rows of the last round in `rounds`."""
        meeting, key, round_ = self._meeting, self._key, rounds[-1]
        # Rows are built first and recorded last, because the row of a resident needs the measures
        # of all.
        references = list(_reference_rows(meeting, round_, key))
        reactions = list(_reaction_rows(meeting, rounds, references, key))
        answers = list(self._answers_of_round(round_))
        measures = measure_round(build_tables([*answers, *references, *reactions]), meeting.ids)
        round_rows = (
            _round_row(meeting, resident, round_, measures[resident.id], key)
            for resident in meeting.residents
        )
        self._record_rows([*answers, *round_rows, *reactions, *references])

    def end_vote(self, discussion: Discussion) -> tuple[ItemRow, ...]:
        """Record the ballot and all votes, and return the rows of the items."""
        ballots = discussion.ballots
        if discussion.planned:
            self._record_rows([self._typed_answer_row("plan", PLANNER, discussion.planned)])
        # Outcomes come before votes, since each vote's row says whether its item passed.
        outcomes = tuple(
            _item_row(self._meeting, id, item, ballots, self._key)
            for id, item in discussion.items.items()
        )
        answers = (
            self._typed_answer_row("vote", resident_id, ballot)
            for resident_id, ballot in ballots.items()
        )
        votes = _vote_rows(self._meeting, outcomes, ballots, self._key)
        self._record_rows([*answers, *outcomes, *votes])
        return outcomes

    def end_discussion(self, discussion: Discussion) -> None:
        """Record the closing text, repairs, satisfaction, quality counts and measures."""
        key = self._key
        self._record_rows([self._typed_answer_row("consensus", PLANNER, discussion.closing)])
        self._record_rows(
            RepairRow.from_source(
                repair,
                **key,
                stage=call.stage.name,
                round=call.round,
                agent_id=call.agent,
                was=shorten(repair.original),
                became=shorten(repair.replacement) or None,
                dropped=repair.is_dropped,
            )
            for call in discussion.calls
            for repair in call.repairs
        )
        self._record_rows(_satisfaction_rows(discussion, key))
        tables, counts = build_tables(self._rows), count_quality(discussion)
        groups = compare_groups(tables)
        figures = {
            f"{group}_{name}": values[name] for group, values in groups.items() for name in FIGURES
        }
        named_values = final_consensus(tables, groups) | {
            name: total_count(counts, name) for name in counts
        }
        # The remaining columns of the row have the names of counts or of outcomes.
        other_columns = (
            DiscussionRow.columns().keys() - OfDiscussion.columns().keys() - figures.keys()
        )
        self._record_rows(
            QualityRow(**key, count=count, stage=stage, kind=kind, n=n)
            for count, stage, kind, n in count_rows(counts)
        )
        # This row comes last: a report takes a discussion as complete if its row exists.
        self._record_rows(
            [
                DiscussionRow(
                    **key, **figures, **{name: named_values[name] for name in other_columns}
                )
            ]
        )

    def _record_rows(self, rows: Iterable[Row]) -> None:
        for row in rows:
            self._scope.record(row)
            self._rows.append(row)

    def _answers_of_round(self, round_: Round) -> Iterator[TypedAnswerRow]:
        for resident_id, turn in round_.turns.items():
            if turn.thinking:
                yield self._typed_answer_row("think", resident_id, turn.thinking, round_.number)
            yield self._typed_answer_row("speak", resident_id, turn.speaking, round_.number)
        if round_.moderation:
            yield self._typed_answer_row("moderate", "moderator", round_.moderation, round_.number)
        for resident_id, reflection in round_.reflections.items():
            yield self._typed_answer_row("reflect", resident_id, reflection, round_.number)

    def _typed_answer_row(
        self, stage: str, agent_id: str, answer: Record | Ballot, round_: int | None = None
    ) -> TypedAnswerRow:
        text = orjson.dumps(answer.to_json()).decode()
        return TypedAnswerRow(
            **self._key, stage=stage, round=round_, agent_id=agent_id, answer=text
        )


def _reference_rows(
    meeting: Meeting, round_: Round, key: Mapping[str, Any]
) -> Iterator[ReferenceRow]:
    # `said_aloud` is only a robustness check: its text rule misses paraphrases and counts chance
    # matches.
    # Only ids and names are needed for the rule over words.
    asked = AskContext(meeting.ids, names=meeting.names_by_id)
    for speaker, turn in round_.turns.items():
        statement = turn.speaking.full_statement
        for reference in turn.speaking.references:
            target = reference.target_agent
            yield ReferenceRow.from_source(
                reference,
                **key,
                round=round_.number,
                speaker=speaker,
                target=target,
                missing=reference.missing.get("interaction_type"),
                said_aloud=bool(statement)
                and asked.was_said_publicly(reference.content, target, statement),
            )


def _reaction_rows(
    meeting: Meeting,
    rounds: Sequence[Round],
    references: Iterable[ReferenceRow],
    key: Mapping[str, Any],
) -> Iterator[ReactionRow]:
    if len(rounds) < 2:
        return
    (before, current), config = rounds[-2:], meeting.config
    # A reaction needs a statement to react to. An unreadable statement had no hearers.
    heard_ids = [
        resident_id for resident_id in meeting.ids if before.turns[resident_id].has_statement
    ]
    references_by_pair: dict[tuple[str, str], list[ReferenceRow]] = {}
    for reference in references:
        references_by_pair.setdefault((reference.speaker, reference.target), []).append(reference)
    # A speaker with unknown references is left out, so that unreadable answers do not count as
    # silence.
    for speaker in (
        resident_id
        for resident_id in meeting.ids
        if current.turns[resident_id].has_known_references
    ):
        thoughts = current.turns[speaker].thinking
        reactions_by_target = (
            {reaction.target_agent: reaction for reaction in thoughts.reactions} if thoughts else {}
        )
        for target in (resident_id for resident_id in heard_ids if resident_id != speaker):
            own_references, private_reaction = (
                references_by_pair.get((speaker, target), []),
                reactions_by_target.get(target),
            )
            public_references = [
                reference_row for reference_row in own_references if reference_row.said_aloud
            ]
            level = _find_level(own_references, config)
            yield ReactionRow(
                **key,
                round=current.number,
                speaker=speaker,
                target=target,
                reaction_level=level,
                reaction=None if level is None else SPECTRUM[level],
                interaction_types="|".join(
                    reference_row.interaction_type
                    for reference_row in own_references
                    if reference_row.interaction_type
                ),
                said_aloud=bool(public_references) if own_references else None,
                reaction_level_said_aloud=_find_level(public_references, config),
                agree_level=private_reaction.agree_level if private_reaction else None,
                agree_missing=private_reaction.missing.get("agree_level")
                if private_reaction
                else None,
                my_feeling=private_reaction.my_feeling if private_reaction else None,
                want_to_respond=private_reaction.want_to_respond if private_reaction else None,
                speaker_vulnerable=speaker in meeting.vulnerable_ids,
                target_vulnerable=target in meeting.vulnerable_ids,
            )


def _find_level(references: Sequence[ReferenceRow], config: TownHallConfig) -> int | None:
    # The level is 0 without references, and None if none of the references has a known type.
    levels = interaction_levels(config)
    found_levels = [
        levels[reference_row.interaction_type]
        for reference_row in references
        if reference_row.interaction_type
    ]
    if not found_levels:
        return None if references else 0
    # The study file decides which of several references counts.
    by_rule = {"highest": max(found_levels), "lowest": min(found_levels), "last": found_levels[-1]}
    return by_rule[config.repeated_reaction]


def _round_row(
    meeting: Meeting,
    resident: Resident,
    round_: Round,
    measured: Mapping[str, Any],
    key: Mapping[str, Any],
) -> RoundRow:
    turn, reflection = round_.turns[resident.id], round_.reflections.get(resident.id)
    evolution = reflection.stance_evolution if reflection else None
    compelling = reflection.most_compelling if reflection else None
    disagreed = reflection.most_disagreed if reflection else None
    points, references = _count_points_and_references(turn)
    return RoundRow(
        **key,
        **measured,
        round=round_.number,
        is_vulnerable=resident.is_vulnerable,
        vulnerable_type=resident.vulnerable_type,
        seat_model=meeting.seats[resident.id],
        overall_stance=turn.thinking.overall_stance if turn.thinking else None,
        stance_missing=_why_no_stance(turn.thinking, "overall_stance"),
        silent=turn.is_silent,
        words=count_words(turn.speaking.full_statement),
        thinking_parse_error=bool(turn.thinking and turn.thinking.parse_error),
        speaking_parse_error=turn.speaking.parse_error,
        new_points=points,
        references_made=references,
        speaking_volume=None if points is None or references is None else points + references,
        stance_after=evolution.current_stance if evolution else None,
        stance_after_missing=_why_no_stance(
            reflection, "stance_evolution", evolution.missing if evolution else {}
        ),
        change_type=evolution.change_type if evolution else None,
        most_compelling=compelling.agent_id if compelling else None,
        most_disagreed=disagreed.agent_id if disagreed else None,
    )


def _count_points_and_references(turn: Turn) -> tuple[int | None, int | None]:
    # A number is None if it is unknown.
    speaking = turn.speaking
    points = (
        None
        if speaking.unanswered or "new_points" in speaking.missing
        else len(speaking.new_points)
    )
    return points, len(speaking.references) if turn.has_known_references else None


def _why_no_stance(
    answer: Thinking | Reflection | None, field: str, further: Mapping[str, str] | None = None
) -> str | None:
    # None if there is a stance, or if nothing was asked. `further` adds reasons from another part
    # of the answer.
    if answer is None:
        return None
    if answer.unanswered:
        return answer.missing_reason
    return answer.missing.get(field) or (further or {}).get("current_stance")


def _item_row(
    meeting: Meeting,
    id: str,
    item: PlannedItem,
    ballots: Mapping[str, Ballot],
    key: Mapping[str, Any],
) -> ItemRow:
    # The majority decides, and the item fails in a tie. Without a vote of yes or no there is no
    # outcome: answers that could not be read must not look like a rejection.
    votes = [ballot.votes.get(id) for ballot in ballots.values()]
    yes, no = votes.count("yes"), votes.count("no")
    declined = sum(ballot.missing.get(id) in WAYS_OUT for ballot in ballots.values())
    return ItemRow(
        **key,
        item_id=id,
        text=item.proposal,
        origin="|".join(item.originating_residents),
        vulnerable_originated=bool(set(item.originating_residents) & set(meeting.vulnerable_ids)),
        yes=yes,
        no=no,
        declined=declined,
        # The rest are votes that could not be read, or that a fork left out.
        uncast=len(votes) - yes - no - declined,
        passed=yes > no if yes or no else None,
        tie=yes == no > 0,
    )


def _vote_rows(
    meeting: Meeting,
    outcomes: Sequence[ItemRow],
    ballots: Mapping[str, Ballot],
    key: Mapping[str, Any],
) -> Iterator[VoteRow]:
    for resident, ballot in ballots.items():
        for item in outcomes:
            vote = ballot.votes.get(item.item_id)
            yield VoteRow(
                **key,
                item_id=item.item_id,
                agent_id=resident,
                is_vulnerable=resident in meeting.vulnerable_ids,
                originated=resident in item.origin.split("|"),
                vote=vote,
                missing=None if vote else ballot.missing.get(item.item_id, UNREAD),
                reason=ballot.reasons.get(item.item_id, ""),
                passed=item.passed,
            )


def _satisfaction_rows(discussion: Discussion, key: Mapping[str, Any]) -> Iterator[SatisfactionRow]:
    for resident in discussion.meeting.residents:
        before, after = discussion.before[resident.id], discussion.after[resident.id]
        # The change needs both ratings of the same resident.
        pre, post = before.satisfaction, after.satisfaction
        yield SatisfactionRow(
            **key,
            agent_id=resident.id,
            is_vulnerable=resident.is_vulnerable,
            pre_satisfaction=pre,
            post_satisfaction=post,
            satisfaction_delta=None if pre is None or post is None else post - pre,
            pre_reason=before.reason,
            post_reason=after.reason,
            pre_missing=before.missing.get("satisfaction"),
            post_missing=after.missing.get("satisfaction"),
        )


CODEBOOK = Path(__file__).parent / "codebooks" / "concern.yaml"


# The name of the codebook, by which its codes are found in the tables.
CONCERN = "concern"


def concern_texts(discussion: Discussion, seed: int) -> list[coding.TextToCode]:
    """Return one text per sampled resident, which tells the coder about that resident's concern."""
    # These are the vulnerable residents and a random sample of equally many general residents. The
    # sample depends on the seed and not on the level. A resident without a statement has no text.
    meeting = discussion.meeting
    rng = generator(seed, ("town_hall", f"set{meeting.set.number:02d}", "concerns"))
    # Sizes are equal so that coding costs no more than the comparison of groups needs.
    sampled = rng.permutation(len(meeting.general_ids))[: len(meeting.vulnerable_ids)]
    chosen = [
        *meeting.vulnerable_ids,
        *(meeting.general_ids[index] for index in sorted(sampled)),
    ]
    return [
        text_to_code
        for text_to_code in (_concern_text(discussion, resident_id) for resident_id in chosen)
        if text_to_code is not None
    ]


def _concern_text(discussion: Discussion, resident_id: str) -> coding.TextToCode | None:
    # The text holds the resident's points, and what others said after the resident's first
    # statement.
    rounds, names = discussion.rounds, discussion.meeting.names_by_id
    spoken_rounds = [
        round_ for round_ in rounds if round_.turns[resident_id].speaking.full_statement
    ]
    if not spoken_rounds:
        return None
    points = [
        new_point
        for round_ in spoken_rounds
        for new_point in round_.turns[resident_id].speaking.new_points
    ]
    points = points or [
        collapse_spaces(round_.turns[resident_id].speaking.full_statement)
        for round_ in spoken_rounds
    ]
    # A response can come only after the concern was voiced.
    first_number = spoken_rounds[0].number
    statements = [
        concatenate_texts((line["name"], " (", line["id"], "): ", line["text"]), plain=None)
        for row in discussion.meeting.public_history(
            [round_ for round_ in rounds if round_.number > first_number], excluding=resident_id
        )
        for line in row["statements"]
    ]
    # The moderator speaks after the statements, so the first round's moderation is included.
    moderator_texts = [
        on_one_line(round_.moderator) for round_ in rounds[first_number - 1 :] if round_.moderator
    ]
    items = [
        quote_item(discussion.meeting, item_row.item_id, item_row.text)
        for item_row in discussion.item_outcomes
    ]
    closing = discussion.consensus
    parts = [
        *statements,
        *(concatenate_texts(("The chair: ", text), plain=None) for text in moderator_texts if text),
        *(
            concatenate_texts(("Proposal ", item["id"], ": ", item["text"]), plain=None)
            for item in items
        ),
    ]
    if closing is not None and closing.text:
        parts.append(concatenate_texts(("The final text: ", closing.quoted_text), plain=None))
    context = {
        "resident": f"{names[resident_id]} ({resident_id})",
        "concern": " ".join(dict.fromkeys(points)),
    }
    return coding.TextToCode(
        f"{discussion.meeting.id}/{resident_id}", join_texts("\n\n", parts), resident_id, context
    )


async def code_concerns(
    session: Session[TownHallConfig], texts: Sequence[coding.TextToCode]
) -> None:
    """Let the coder judge how the closing text treats each resident's concern."""
    # If coding is switched off, the texts are only recorded.
    if texts:
        await coding.code_texts(session, CODEBOOK, texts)


def quote_item(meeting: Meeting, id: str, text: str) -> dict[str, str]:
    """Return the id and text of a ballot item, for prompts."""
    return {
        "id": quote_value(id, "value", cell_id("items.item_id", meeting.id, id)),
        "text": quote_value(text, "proposal", cell_id("items.text", meeting.id, id), PLANNER),
    }
