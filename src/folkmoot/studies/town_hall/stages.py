"""The stages of a discussion."""

# Each stage takes the speakers and the discussion so far, and returns its result with its calls. A
# resident's thoughts and reflections are shown to that resident alone. In a shared session one
# model answers for all residents, and one reply holds all turns of a round. A reply that would be
# too long is split. The model is asked again for residents who are missing in a reply.

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, NamedTuple

from folkmoot.conversation.answer_types import (
    Json,
    Missing,
)
from folkmoot.conversation.transcript import Speaker, Utterance
from folkmoot.engine.journal.earlier_replies import DROPPED
from folkmoot.engine.session.session import Scope
from folkmoot.hints import count_words
from folkmoot.provenance import cell_id, concatenate_texts, quote_value
from folkmoot.studies.town_hall.answers.calls import (
    Call,
    ResidentAnswers,
    SpeakerAnswer,
    Stage,
    call_of,
)
from folkmoot.studies.town_hall.answers.outcome import (
    NO_BALLOT,
    NO_CLOSING,
    NO_MODERATION,
    NO_SATISFACTION,
    SATISFACTION,
    Ballot,
    Closing,
    Moderation,
    Planned,
    Satisfaction,
    ballot_type,
    empty_ballots,
    planned_ballot_type,
)
from folkmoot.studies.town_hall.answers.records import UNREAD
from folkmoot.studies.town_hall.answers.shared_replies import WholeRound, each_of
from folkmoot.studies.town_hall.answers.turns import (
    NO_SPEAKING,
    NO_THINKING,
    Reflection,
    Speaking,
    Thinking,
    Turn,
    turn_answer_type,
)
from folkmoot.studies.town_hall.discussion import (
    Discussion,
    HallSpeakers,
    Meeting,
    RecordedTurn,
    Round,
    SharedRequest,
    ask_alone,
    ask_speaker,
    ask_together,
    keep_answer,
    resident_history,
    session_of,
    shared_history,
)
from folkmoot.studies.town_hall.recording import (
    quote_item,
    record_consensus,
    record_moderation,
    record_reflection,
    record_statement,
    record_thoughts,
    reply_of,
)

BEFORE, AFTER = "satisfaction_before", "satisfaction_after"
# Expected tokens of one resident's part of a shared reply, per rating or ballot item: a number or a
# vote, and a reason of one sentence. They only decide how many residents one call asks about.
SATISFACTION_TOKENS = ITEM_TOKENS = 45

Rounds = tuple[Round, ...]


async def ask_satisfaction(
    scope: Scope, hall: HallSpeakers, so_far: Discussion, stage_name: str
) -> tuple[dict[str, Satisfaction], list[Call]]:
    """Ask all residents how satisfied they are, from 1 to 10.

    `stage_name`: `BEFORE` for before the first round, `AFTER` for after the outcome.
    """
    is_after = stage_name == AFTER
    outcomes = with_outcomes(so_far)
    consensus_utterance, meeting = so_far.consensus, hall.meeting
    consensus = consensus_utterance.quoted_text if consensus_utterance else ""
    answer_format = SATISFACTION.describe_format()

    async def ask_one_resident(
        resident_scope: Scope, speaker: Speaker
    ) -> SpeakerAnswer[Satisfaction]:
        history = resident_history(hall, so_far.rounds, speaker.id)
        if is_after:
            votes = so_far.ballots[speaker.id].votes
            items = [
                {
                    **outcome,
                    "mine": quote_value(
                        votes.get(outcome["id"], ""),
                        "value",
                        cell_id("votes.vote", meeting.id, outcome["id"], speaker.id),
                        speaker.id,
                    ),
                }
                for outcome in outcomes
            ]
            prompt = resident_scope.prompt(
                AFTER, items=items, consensus=consensus, **history, answer_format=answer_format
            )
        else:
            prompt = resident_scope.prompt(BEFORE, me=history["me"], answer_format=answer_format)
        return await ask_speaker(
            resident_scope,
            speaker,
            prompt,
            SATISFACTION,
            Stage(stage_name, None, len(history["own"])),
        )

    def shared_prompt(residents: list[str], _: object) -> str:
        history = shared_history(hall, so_far.rounds)
        return scope.prompt(
            "shared_satisfaction",
            ids=meeting.ids_of(residents),
            after=is_after,
            items=outcomes,
            consensus=consensus,
            **history,
            answer_format=each_of(dict.fromkeys(residents, SATISFACTION)).describe_format(),
        )

    if hall.session is None:
        answers, calls = await ask_alone(scope, hall, ask_one_resident)
    else:
        stage = Stage(stage_name, None, len(so_far.rounds))
        answer_types = dict.fromkeys(hall.ids, SATISFACTION)
        group = SharedRequest(stage, answer_types, SATISFACTION_TOKENS, shared_prompt, keep_answer)
        answers, calls = await ask_together(scope, hall, group)
    return answers.of_all(hall.ids, NO_SATISFACTION), calls


class CompletedTurn(NamedTuple):
    """A resident's turn and its recorded utterances."""

    turn: Turn
    recorded: RecordedTurn


async def take_turns(scope: Scope, hall: HallSpeakers, earlier: Rounds) -> tuple[Round, list[Call]]:
    """Ask each resident to think and then to speak, in separate calls."""
    # Residents speak at the same time, so they see no statements of the same round.
    number, meeting = len(earlier) + 1, hall.meeting

    async def take_turn(
        resident_scope: Scope, speaker: Speaker
    ) -> tuple[CompletedTurn, list[Call]]:
        calls = []
        thoughts: Thinking | None = None
        recorded_thoughts: Utterance | None = None
        if meeting.level.think:
            thinking = await ask_thinking(resident_scope, hall, speaker, earlier)
            thoughts = thinking.or_else(NO_THINKING)
            reply = reply_of(meeting, speaker.id, number, thinking.call.address)
            recorded_thoughts = record_thoughts(resident_scope, reply, thoughts)
            calls.append(thinking.call)
        statement = await ask_statement(resident_scope, hall, (speaker, recorded_thoughts), earlier)
        speaking = statement.or_else(NO_SPEAKING)
        # The parts are validated already, so validation is skipped.
        turn = Turn.model_construct(thinking=thoughts, speaking=speaking)
        reply = reply_of(meeting, speaker.id, number, statement.call.address)
        return CompletedTurn(
            turn, record_statement(resident_scope, reply, turn, recorded_thoughts)
        ), [*calls, statement.call]

    results = await scope.map([hall.seats[resident_id] for resident_id in hall.ids], take_turn)
    turns = {resident: completed.turn for resident, (completed, _) in results.items()}
    recorded = {resident: completed.recorded for resident, (completed, _) in results.items()}
    order = meeting.orders[number - 1]
    round_ = Round(number, order, turns, recorded)
    return round_, [call for _, calls in results.values() for call in calls]


async def ask_thinking(
    scope: Scope, hall: HallSpeakers, speaker: Speaker, earlier: Rounds
) -> SpeakerAnswer[Thinking]:
    """Ask one resident for private thoughts."""
    number, last_round = len(earlier) + 1, earlier[-1] if earlier else None
    history = resident_history(hall, earlier, speaker.id)
    note = last_round.notes.get(speaker.id) if last_round else None
    answer_type = Thinking.answer_type(hall.reading_context(speaker.id, round=number))
    prompt = scope.prompt(
        "think",
        **hall.meeting.round_numbers(number),
        **history,
        reflection=quote_fields(last_round.reflections[speaker.id], note)
        if last_round and note
        else None,
        answer_format=hall.meeting.describe_format(answer_type),
    )
    stage = Stage("think", number, len(history["own"]) + bool(note))
    return await ask_speaker(scope, speaker, prompt, answer_type, stage)


def quote_fields(reflection: Reflection, note: Utterance) -> dict[str, object]:
    """Return the fields of a reflection for prompts to the same resident.

    `note`: the utterance that holds the reflection.
    """

    def quote_field(value: object) -> object:
        if isinstance(value, Mapping):
            return {name: quote_field(nested) for name, nested in value.items()}
        return quote_value(value, "utterance", note.id, note.speaker_id)

    return {name: quote_field(value) for name, value in reflection.to_prompt().items()}


async def ask_statement(
    scope: Scope,
    hall: HallSpeakers,
    speaker_and_thoughts: tuple[Speaker, Utterance | None],
    earlier: Rounds,
) -> SpeakerAnswer[Speaking]:
    """Ask one resident for a public statement."""
    # The thoughts are None at levels without thinking.
    speaker, thoughts = speaker_and_thoughts
    number = len(earlier) + 1
    answer_type = Speaking.answer_type(hall.reading_context(speaker.id, round=number))
    prompt = scope.prompt(
        "speak",
        **hall.meeting.round_numbers(number),
        thoughts=thoughts.quoted_text if thoughts else None,
        heard=bool(earlier),
        **resident_history(hall, earlier, speaker.id),
        moderated=hall.meeting.level.is_moderated,
        answer_format=hall.meeting.describe_format(answer_type),
    )
    return await ask_speaker(
        scope, speaker, prompt, answer_type, Stage("speak", number, int(thoughts is not None))
    )


async def ask_moderation(scope: Scope, hall: HallSpeakers, rounds: Rounds) -> tuple[Round, Call]:
    """Ask the moderator about the last round of `rounds`.

    Returns a copy of that round with the moderator's answer, and the call.
    """
    assert hall.moderator is not None
    round_, meeting = rounds[-1], hall.meeting
    earlier = meeting.public_history(meeting.remembered_rounds(rounds)[:-1])
    # With `history: last` the moderator would not see the previous moderation.
    if not earlier and len(rounds) > 1:
        earlier = [{**meeting.public_history(rounds[-2:-1])[0], "statements": []}]
    answer_type = Json(Moderation, validation_context=hall.reading_context("moderator"))
    prompt = scope.prompt(
        "moderator",
        **meeting.round_numbers(round_.number),
        earlier=earlier,
        statements=meeting.statements(round_),
        quiet=[
            concatenate_texts((resident["id"], " (", resident["name"], ")"), plain=None)
            for resident in (
                meeting.named_residents[resident_id] for resident_id in quiet_residents(round_)
            )
        ],
        questions=meeting.questions_put_to([round_], "moderator", "all"),
        answer_format=hall.meeting.describe_format(answer_type),
    )
    stage = Stage("moderate", round_.number, sum(bool(record["moderator"]) for record in earlier))
    result = await ask_speaker(scope, hall.moderator, prompt, answer_type, stage)
    moderation = result.or_else(NO_MODERATION)
    utterance = record_moderation(scope, meeting, hall.moderator, moderation, result.call)
    return replace(round_, moderation=moderation, moderator=utterance), result.call


def quiet_residents(round_: Round) -> list[str]:
    """Return the ids of residents who said few words in a round, sorted."""
    # A resident is quiet with no words, or with less than half of the median number of words.
    # Residents without a readable statement are left out.
    word_counts = {
        resident_id: count_words(turn.speaking.full_statement)
        for resident_id, turn in round_.turns.items()
        # An unreadable statement is no silence, so its resident is not called quiet.
        if turn.has_statement
    }
    middle = median(word_counts.values()) if word_counts else 0
    return sorted(
        resident_id
        for resident_id, count in word_counts.items()
        if count == 0 or count < middle / 2
    )


async def ask_reflections(
    scope: Scope, hall: HallSpeakers, rounds: Rounds
) -> tuple[Round, list[Call]]:
    """Ask all residents to reflect on the last round of `rounds`.

    Returns a copy of that round with the reflections, and the calls.
    """
    round_, meeting = rounds[-1], hall.meeting
    if hall.session is not None:
        notes, calls = await _ask_missing_reflections(scope, hall, rounds, list(round_.order))
        # Reflections after a moderator need a separate call, which is planned and no split.
        parts, planned_parts = round_.parts + len(calls), round_.planned_parts + 1
        round_ = replace(round_, parts=parts, planned_parts=planned_parts)
        return with_notes(round_, hall.ids, notes), calls

    async def reflect(resident_scope: Scope, speaker: Speaker) -> SpeakerAnswer[ReflectionNote]:
        turn = round_.turns[speaker.id]
        history = resident_history(hall, rounds, speaker.id)
        answer_type = Reflection.answer_type(hall.reading_context(speaker.id, stance=turn.stance))
        prompt = resident_scope.prompt(
            "reflect",
            **meeting.round_numbers(round_.number),
            **history,
            own_statement=turn.speaking.full_statement,
            stance=round_.quote_stance(speaker.id),
            answer_format=hall.meeting.describe_format(answer_type),
        )
        result = await ask_speaker(
            resident_scope, speaker, prompt, answer_type, Stage("reflect", round_.number, 1)
        )
        if result.value is None:
            return SpeakerAnswer(None, result.call)
        reply = reply_of(meeting, speaker.id, round_.number, result.call.address)
        return SpeakerAnswer(
            ReflectionNote(result.value, record_reflection(resident_scope, reply, result.value)),
            result.call,
        )

    answers, calls = await ask_alone(scope, hall, reflect)
    return with_notes(round_, hall.ids, answers.of_all(hall.ids, NO_NOTE)), calls


class ReflectionNote(NamedTuple):
    """A resident's reflection and its utterance.

    The utterance is None if no later prompt can show the reflection.
    """

    reflection: Reflection
    utterance: Utterance | None = None


# Reason why there is no reflection → the note without one.
NO_NOTE = {
    reason: ReflectionNote(reflection) for reason, reflection in Reflection.replacements().items()
}


def with_notes(
    round_: Round, residents: Sequence[str], notes_by_resident: Mapping[str, ReflectionNote]
) -> Round:
    """Return a copy of a round with the reflections in `notes_by_resident`."""
    reflections = {resident: notes_by_resident[resident].reflection for resident in residents}
    notes = {
        resident: utterance
        for resident in residents
        if (utterance := notes_by_resident[resident].utterance) is not None
    }
    return replace(round_, reflections=reflections, notes=notes)


async def draw_up_ballot(
    scope: Scope, hall: HallSpeakers, so_far: Discussion
) -> tuple[Planned | None, list[Call]]:
    """Ask the planner for the ballot.

    The ballot is None if the planner declined or the answer could not be read.
    """
    rounds, max_items = so_far.rounds, hall.meeting.config.max_vote_items
    answer_type = planned_ballot_type(hall.reading_context("planner", max_items=max_items))
    prompt = scope.prompt(
        "planner",
        history=hall.meeting.public_history(rounds),
        questions=hall.meeting.questions_put_to(rounds, "planner"),
        most=quote_value(max_items, "value", "study.max_vote_items"),
        answer_format=hall.meeting.describe_format(answer_type),
    )
    result = await ask_speaker(
        scope, hall.planner, prompt, answer_type, Stage("plan", None, len(rounds))
    )
    return result.value, [result.call]


async def ask_votes(
    scope: Scope, hall: HallSpeakers, so_far: Discussion
) -> tuple[dict[str, Ballot], list[Call]]:
    """Ask each resident for a vote with a reason on each item."""
    # The moderator and the planner do not vote.
    rounds, items = so_far.rounds, so_far.items
    items_shown = [
        quote_item(hall.meeting, item_id, item.proposal) for item_id, item in items.items()
    ]
    answer_type = ballot_type(items, hall.meeting.set.options.votes)

    async def ask_one_resident(resident_scope: Scope, speaker: Speaker) -> SpeakerAnswer[Ballot]:
        history = resident_history(hall, rounds, speaker.id)
        prompt = resident_scope.prompt(
            "vote",
            **history,
            items=items_shown,
            answer_format=hall.meeting.describe_format(answer_type),
        )
        return await ask_speaker(
            resident_scope, speaker, prompt, answer_type, Stage("vote", None, len(history["own"]))
        )

    def shared_prompt(residents: list[str], _: object) -> str:
        history = shared_history(hall, rounds)
        ids = hall.meeting.ids_of(residents)
        answer_format = hall.meeting.describe_format(each_of(dict.fromkeys(residents, answer_type)))
        return scope.prompt(
            "shared_vote", ids=ids, **history, items=items_shown, answer_format=answer_format
        )

    if not items:
        return dict.fromkeys(hall.ids, NO_BALLOT), []
    if hall.session is None:
        answers, calls = await ask_alone(scope, hall, ask_one_resident)
    else:
        tokens, answer_types = ITEM_TOKENS * len(items), dict.fromkeys(hall.ids, answer_type)
        group = SharedRequest(
            Stage("vote", None, len(rounds)), answer_types, tokens, shared_prompt, keep_answer
        )
        answers, calls = await ask_together(scope, hall, group)
    return answers.of_all(hall.ids, empty_ballots(items)), calls


async def write_consensus(
    scope: Scope, hall: HallSpeakers, so_far: Discussion
) -> tuple[Closing, Utterance, Call]:
    """Ask the planner for the closing text."""
    history = hall.meeting.public_history(so_far.rounds)
    answer_type = Json(Closing, validation_context=hall.reading_context("planner"))
    prompt = scope.prompt(
        "consensus",
        items=with_outcomes(so_far),
        history=history,
        answer_format=hall.meeting.describe_format(answer_type),
    )
    stage = Stage("consensus", None, len(history))
    result = await ask_speaker(scope, hall.planner, prompt, answer_type, stage)
    closing = result.or_else(NO_CLOSING)
    utterance = record_consensus(scope, hall.meeting, hall.planner, closing, result.call)
    return closing, utterance, result.call


def with_outcomes(so_far: Discussion) -> list[dict[str, Any]]:
    """Return the ballot items for prompts. Each item holds its votes and its outcome."""
    meeting = so_far.meeting
    return [
        {
            **quote_item(meeting, item.item_id, item.text),
            "passed": item.passed,
            "yes": quote_value(item.yes, "value", cell_id("items.yes", meeting.id, item.item_id)),
            "no": quote_value(item.no, "value", cell_id("items.no", meeting.id, item.item_id)),
            "tie": item.tie,
        }
        for item in so_far.item_outcomes
    ]


# Expected tokens of one resident's part of a shared round: the fixed fields, each reaction, and the
# reflection. If they are too low, a reply may be cut. If they are too high, a round is split
# needlessly.
TURN_TOKENS, REACTION_TOKENS, REFLECTION_TOKENS = 330, 55, 200

Turns = dict[str, CompletedTurn]
Notes = dict[str, ReflectionNote]


@dataclass(frozen=True, slots=True)
class UpcomingRound:
    """A round that has not started yet, in which one model answers for all residents."""

    hall: HallSpeakers
    earlier: tuple[Round, ...]
    # True if residents reflect at the end of the round.
    reflects: bool

    @property
    def round_number(self) -> int:
        return len(self.earlier) + 1

    @property
    def speaking_order(self) -> tuple[str, ...]:
        return self.hall.meeting.orders[self.round_number - 1]

    @property
    def round_stage(self) -> Stage:
        return Stage("round", self.round_number, len(self.earlier))

    @property
    def has_thinking(self) -> bool:
        return self.hall.meeting.level.think

    def expected_tokens(self, *, reflects: bool) -> int:
        """Return the expected length of one resident's part of a reply, in tokens."""
        # A resident reacts to each other resident, but not in round 1 and not without THINK.
        others = len(self.speaking_order) - 1 if self.has_thinking and self.earlier else 0
        return TURN_TOKENS + REACTION_TOKENS * others + (REFLECTION_TOKENS if reflects else 0)

    def turns(self) -> dict[str, Json[Turn]]:
        """Return the answer type of each resident's turn, in speaking order."""
        contexts = {
            resident_id: self.hall.reading_context(
                resident_id, round=self.round_number, think=self.has_thinking
            )
            for resident_id in self.speaking_order
        }
        return {resident_id: turn_answer_type(context) for resident_id, context in contexts.items()}

    def whole_round(self) -> WholeRound:
        """Return the answer type of a reply that holds the whole round."""

        def reflection_type(resident_id: str, stance: str) -> Json[Reflection]:
            return Reflection.answer_type(self.hall.reading_context(resident_id, stance=stance))

        return WholeRound(self.turns(), reflection_type if self.reflects else None)

    def prompt(self, scope: Scope, residents: list[str], completed: Turns, *, whole: bool) -> str:
        """Return the prompt that asks for the turns of some residents.

        - `completed`: the turns in earlier replies of the round.
        - `whole`: True if the prompt also asks for reflections.
        """
        # Reflections are asked for only if the round has any.
        notes = self.earlier[-1].notes if self.earlier else {}
        meeting = self.hall.meeting
        turns = self.turns()
        answer_types = each_of({resident: turns[resident] for resident in residents})
        answer_format = meeting.describe_format(self.whole_round() if whole else answer_types)
        return scope.prompt(
            "shared_round",
            ids=meeting.ids_of(residents),
            **meeting.round_numbers(self.round_number),
            **shared_history(self.hall, self.earlier),
            notes=[
                {
                    "id": meeting.named_residents[resident]["id"],
                    "reflection": notes[resident].quoted_text,
                }
                for resident in residents
                if resident in notes
            ],
            already=meeting.as_lines(
                (resident_id, completed_turn.recorded.statement)
                for resident_id, completed_turn in completed.items()
            ),
            think=self.has_thinking,
            reflect=self.reflects and whole,
            whole=whole,
            moderated=meeting.level.is_moderated,
            answer_format=answer_format,
        )

    def record_turn(self, scope: Scope, resident: str, turn: Turn, address: str) -> CompletedTurn:
        """Record the utterances of one resident's turn in a shared reply."""
        reply = reply_of(self.hall.meeting, resident, self.round_number, address, shared=True)
        thoughts = record_thoughts(scope, reply, turn.thinking)
        return CompletedTurn(turn, record_statement(scope, reply, turn, thoughts))


async def shared_round(
    scope: Scope, hall: HallSpeakers, earlier: tuple[Round, ...], *, reflects: bool
) -> tuple[Round, list[Call]]:
    """Run one round in which one model answers for all residents.

    `reflects`: True if the round includes reflections.
    """
    ahead = UpcomingRound(hall, earlier, reflects)
    turns: Turns = {}
    notes: Notes = {}
    calls: list[Call] = []
    max_tokens = hall.longest_reply
    # Try one reply only if it is expected to fit. A cut reply would be paid for and lost.
    if len(ahead.speaking_order) * ahead.expected_tokens(reflects=reflects) <= max_tokens:
        turns, notes, calls = await _in_one_reply(scope, ahead)
    missing = [resident_id for resident_id in ahead.speaking_order if resident_id not in turns]
    dropped: set[str] = set()
    if missing:
        further_answers, further_calls = await _ask_missing_turns(scope, ahead, turns, missing)
        turns, calls = {**turns, **further_answers.values}, [*calls, *further_calls]
        dropped = {id for id, reason in further_answers.missing.items() if reason == DROPPED}
    # Record residents without a readable turn too, so that each utterance of the round has a row.
    # The address is that of the last call, which should have held the turn.
    for resident_id in ahead.speaking_order:
        if resident_id not in turns:
            reason = DROPPED if resident_id in dropped else UNREAD
            no_turn = Turn.model_construct(
                thinking=NO_THINKING[reason] if ahead.has_thinking else None,
                speaking=NO_SPEAKING[reason],
            )
            turns[resident_id] = ahead.record_turn(scope, resident_id, no_turn, calls[-1].address)
    turns_by_resident = {resident_id: turns[resident_id].turn for resident_id in hall.ids}
    recorded = {resident_id: turns[resident_id].recorded for resident_id in hall.ids}
    round_ = Round(ahead.round_number, ahead.speaking_order, turns_by_resident, recorded)
    if reflects:
        missing = [resident_id for resident_id in ahead.speaking_order if resident_id not in notes]
        if missing:
            # A separate child scope, so that exposure can tell these questions from the questions
            # for turns.
            reflect_scope = scope.child("reflect")
            late_notes, further_calls = await _ask_missing_reflections(
                reflect_scope, hall, (*earlier, round_), missing
            )
            notes, calls = {**notes, **late_notes}, [*calls, *further_calls]
        round_ = with_notes(round_, hall.ids, notes)
    if len(calls) > 1:
        missing_reason = calls[0].missing
        explanation = (
            f"the first reply was unusable ({missing_reason})"
            if missing_reason
            else "too long for one reply of the session"
        )
        scope.log(f"round {ahead.round_number} took {len(calls)} calls: {explanation}")
    return replace(round_, parts=len(calls)), calls


async def _in_one_reply(scope: Scope, ahead: UpcomingRound) -> tuple[Turns, Notes, list[Call]]:
    session, stage = session_of(ahead.hall), ahead.round_stage
    question = ahead.prompt(scope, list(ahead.speaking_order), {}, whole=True)
    longest = ahead.hall.longest_reply
    answer_type = ahead.whole_round()
    result = await scope.ask_detailed(
        session, question, answer_type=answer_type, max_tokens=longest, about=stage.question_matter
    )
    call = call_of(stage, session, len(ahead.speaking_order), question, result)
    if isinstance(result.value, Missing):
        # All residents are asked about again, so this call has not yet caused minimal structures.
        return {}, {}, [replace(call, minimal=0, parse_step=result.parse_step)]
    turns, reflections = result.value
    meeting, number = ahead.hall.meeting, ahead.round_number
    completed = {
        resident_id: ahead.record_turn(scope, resident_id, turn, result.address)
        for resident_id, turn in turns.items()
    }
    notes = {
        resident_id: record_note(scope, meeting, number, resident_id, reflection, result.address)
        for resident_id, reflection in reflections.items()
    }
    return completed, notes, [call]


def record_note(
    scope: Scope, meeting: Meeting, number: int, resident: str, reflection: Reflection, address: str
) -> ReflectionNote:
    """Record one resident's reflection from a shared reply."""
    reply = reply_of(meeting, resident, number, address, shared=True)
    return ReflectionNote(reflection, record_reflection(scope, reply, reflection))


async def _ask_missing_turns(
    scope: Scope, ahead: UpcomingRound, completed: Turns, missing: list[str]
) -> tuple[ResidentAnswers[CompletedTurn], list[Call]]:
    def build_prompt(residents: list[str], answered: Mapping[str, CompletedTurn]) -> str:
        return ahead.prompt(scope, residents, {**completed, **answered}, whole=False)

    def record_answer(resident: str, turn: Turn, address: str) -> CompletedTurn:
        return ahead.record_turn(scope, resident, turn, address)

    turns = ahead.turns()
    answer_types = {resident_id: turns[resident_id] for resident_id in missing}
    group = SharedRequest(
        ahead.round_stage,
        answer_types,
        ahead.expected_tokens(reflects=False),
        build_prompt,
        record_answer,
    )
    return await ask_together(scope, ahead.hall, group)


async def _ask_missing_reflections(
    scope: Scope, hall: HallSpeakers, rounds: tuple[Round, ...], missing: list[str]
) -> tuple[Notes, list[Call]]:
    round_, meeting = rounds[-1], hall.meeting
    answer_types = {
        resident_id: Reflection.answer_type(
            hall.reading_context(resident_id, stance=round_.turns[resident_id].stance)
        )
        for resident_id in missing
    }

    def build_prompt(residents: list[str], _: Mapping[str, ReflectionNote]) -> str:
        return scope.prompt(
            "shared_reflect",
            ids=meeting.ids_of(residents),
            **meeting.round_numbers(round_.number),
            earlier=meeting.public_history(meeting.remembered_rounds(rounds)[:-1]),
            statements=meeting.statements(round_),
            moderator=meeting.public_history([round_])[0]["moderator"],
            stances=[
                {
                    "id": meeting.named_residents[resident]["id"],
                    "stance": round_.quote_stance(resident),
                }
                for resident in residents
            ],
            answer_format=meeting.describe_format(
                each_of({resident: answer_types[resident] for resident in residents})
            ),
        )

    def record_answer(resident: str, reflection: Reflection, address: str) -> ReflectionNote:
        return record_note(scope, meeting, round_.number, resident, reflection, address)

    stage = Stage("reflect", round_.number, 1)
    group = SharedRequest(stage, answer_types, REFLECTION_TOKENS, build_prompt, record_answer)
    answers, calls = await ask_together(scope, hall, group)
    return answers.of_all(missing, NO_NOTE), calls
