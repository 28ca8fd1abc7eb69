"""The stages of a discussion: what everybody is shown and asked, and what counts.

Each takes who can be asked and the discussion so far, and gives its result with the calls made.
Thoughts and reflections go into no prompt but their owner's. At a level with a shared session one
reply holds all residents' turns of a round; a reply that would be too long is split, and residents
it did not reach are asked for again (`Round.parts` counts the calls).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict

from folkmoot.conversation.answer_types import (
    Answer,
    Json,
    JsonMap,
    Missing,
    Parsed,
    Unreadable,
    object_schema,
    pin_schema,
)
from folkmoot.conversation.transcript import Speaker, Utterance
from folkmoot.engine.session.session import Scope, Session
from folkmoot.kit import coding
from folkmoot.provenance import cell, concatenate, join, quote
from folkmoot.randomness import generator
from folkmoot.studies.town_hall.answers.outcome import (
    MINIMAL_CLOSING,
    MINIMAL_MODERATION,
    NO_BALLOT,
    REFUSED_SATISFACTION,
    SATISFACTION,
    UNKNOWN,
    UNREAD_BALLOT,
    Ballot,
    Closing,
    Moderation,
    Planned,
    Satisfaction,
    ballot,
    planned,
    refused_ballot,
)
from folkmoot.studies.town_hall.answers.turns import (
    MINIMAL_REFLECTION,
    MINIMAL_SPEAKING,
    MINIMAL_THINKING,
    Reflection,
    Speaking,
    Thinking,
    Turn,
    reflection,
    speaking,
    thinking,
    turn,
)
from folkmoot.studies.town_hall.config import TownHallConfig
from folkmoot.studies.town_hall.discussion import (
    Call,
    Discussion,
    Got,
    Group,
    Hall,
    Meeting,
    Recorded,
    Round,
    Stage,
    all_heard,
    ask_alone,
    ask_one,
    ask_together,
    call_of,
    each_of,
    heard,
    keep_answer,
    on_one_line,
    one_line,
    session_of,
)
from folkmoot.studies.town_hall.recording import (
    PLANNER,
    record_consensus,
    record_moderation,
    record_reflection,
    record_statement,
    record_thoughts,
    reply_of,
)

BEFORE, AFTER = "satisfaction_before", "satisfaction_after"
# Tokens that one resident's part of a shared reply is expected to take, per answer.
SATISFACTION_TOKENS = ITEM_TOKENS = 45

Rounds = tuple[Round, ...]


async def survey(
    scope: Scope, hall: Hall, so_far: Discussion, when: str
) -> tuple[dict[str, Satisfaction], list[Call]]:
    """Satisfaction, 1–10 with a reason, before the first round or after the outcome."""
    after = when == AFTER
    outcomes = with_outcomes(so_far)
    said, meeting = so_far.consensus, hall.meeting
    consensus = said.quoted if said else ""
    answer_format = SATISFACTION.describe_format()

    async def alone(own: Scope, who: Speaker) -> Got[Satisfaction]:
        known = heard(hall, so_far.rounds, who.id)
        if after:
            votes = so_far.ballots[who.id].votes
            items = [
                {
                    **i,
                    "mine": quote(
                        votes.get(i["id"], ""),
                        "value",
                        cell("votes.vote", meeting.id, i["id"], who.id),
                        who.id,
                    ),
                }
                for i in outcomes
            ]
            prompt = own.prompt(
                AFTER, items=items, consensus=consensus, **known, answer_format=answer_format
            )
        else:
            prompt = own.prompt(BEFORE, me=known["me"], answer_format=answer_format)
        return await ask_one(own, who, prompt, SATISFACTION, Stage(when, None, len(known["own"])))

    def together(residents: list[str], _: object) -> str:
        known = all_heard(hall, so_far.rounds)
        return scope.prompt(
            "shared_satisfaction",
            ids=meeting.ids_of(residents),
            after=after,
            items=outcomes,
            consensus=consensus,
            **known,
            answer_format=each_of(dict.fromkeys(residents, SATISFACTION)).describe_format(),
        )

    if hall.session is None:
        found, calls = await ask_alone(scope, hall, alone)
    else:
        stage = Stage(when, None, len(so_far.rounds))
        each = dict.fromkeys(hall.ids, SATISFACTION)
        group = Group(stage, each, SATISFACTION_TOKENS, together, keep_answer)
        found, calls = await ask_together(scope, hall, group)
    return found.of_all(hall.ids, UNKNOWN, REFUSED_SATISFACTION), calls


class Taken(NamedTuple):
    """A resident's turn, and its utterances."""

    turn: Turn
    recorded: Recorded


async def take_turns(scope: Scope, hall: Hall, earlier: Rounds) -> tuple[Round, list[Call]]:
    """THINK and SPEAK of residents in separate sessions, side by side: nobody hears the others
    of the same round."""
    number, meeting = len(earlier) + 1, hall.meeting

    async def take_turn(own: Scope, who: Speaker) -> tuple[Taken, list[Call]]:
        calls = []
        thoughts: Thinking | None = None
        noted: Utterance | None = None
        if meeting.level.think:
            got = await think(own, hall, who, earlier)
            thoughts = got.or_else(MINIMAL_THINKING, Thinking.refused())
            reply = reply_of(meeting, who.id, number, got.call.address)
            noted = record_thoughts(own, reply, thoughts)
            calls.append(got.call)
        said = await speak(own, hall, (who, noted), earlier)
        spoken = said.or_else(MINIMAL_SPEAKING, Speaking.refused())
        turn = Turn.model_construct(thinking=thoughts, speaking=spoken)
        reply = reply_of(meeting, who.id, number, said.call.address)
        return Taken(turn, record_statement(own, reply, turn, noted)), [*calls, said.call]

    taken = await scope.each([hall.seats[i] for i in hall.ids], take_turn)
    turns = {resident: of.turn for resident, (of, _) in taken.items()}
    recorded = {resident: of.recorded for resident, (of, _) in taken.items()}
    order = meeting.orders[number - 1]
    round_ = Round(number, order, turns, recorded)
    return round_, [c for _, calls in taken.values() for c in calls]


async def think(scope: Scope, hall: Hall, who: Speaker, earlier: Rounds) -> Got[Thinking]:
    """THINK: private reactions to the round before, and where one stands."""
    number, last = len(earlier) + 1, earlier[-1] if earlier else None
    known = heard(hall, earlier, who.id)
    note = last.notes.get(who.id) if last else None
    answer = thinking(hall.asked(who.id, round=number))
    prompt = scope.prompt(
        "think",
        **hall.meeting.numbered(number),
        **known,
        reflection=quote_fields(last.reflections[who.id], note) if last and note else None,
        answer_format=hall.meeting.describe_format(answer),
    )
    stage = Stage("think", number, len(known["own"]) + bool(note))
    return await ask_one(scope, who, prompt, answer, stage)


def quote_fields(reflection: Reflection, note: Utterance) -> dict[str, object]:
    """The fields of a reflection for its owner's prompts; each is a part of what was noted."""

    def quote_field(value: object) -> object:
        if isinstance(value, Mapping):
            return {name: quote_field(inner) for name, inner in value.items()}
        return quote(value, "utterance", note.id, note.speaker_id)

    return {name: quote_field(value) for name, value in reflection.to_prompt().items()}


async def speak(
    scope: Scope, hall: Hall, mind: tuple[Speaker, Utterance | None], earlier: Rounds
) -> Got[Speaking]:
    """SPEAK: what the hall hears, from one's own thoughts (if asked for) and what was said."""
    who, thoughts = mind
    number = len(earlier) + 1
    answer = speaking(hall.asked(who.id, round=number))
    prompt = scope.prompt(
        "speak",
        **hall.meeting.numbered(number),
        thoughts=thoughts.quoted if thoughts else None,
        heard=bool(earlier),
        **heard(hall, earlier, who.id),
        moderated=hall.meeting.level.moderated,
        answer_format=hall.meeting.describe_format(answer),
    )
    return await ask_one(
        scope, who, prompt, answer, Stage("speak", number, int(thoughts is not None))
    )


async def moderate(scope: Scope, hall: Hall, rounds: Rounds) -> tuple[Round, Call]:
    """The moderator sums up, names opinions that got too little room, invites quiet residents and
    points to overlooked concerns of vulnerable ones. The hall hears it before it looks back on the
    round. Returns the last of these rounds with what the moderator said.

    The moderator has the rounds before them that residents have, and always their own last words.
    """
    assert hall.moderator is not None
    round_, meeting = rounds[-1], hall.meeting
    earlier = meeting.history(meeting.remembered(rounds)[:-1])
    if not earlier and len(rounds) > 1:
        earlier = [{**meeting.history(rounds[-2:-1])[0], "statements": []}]
    answer = Json(Moderation, about=hall.asked("moderator"))
    prompt = scope.prompt(
        "moderator",
        **meeting.numbered(round_.number),
        earlier=earlier,
        statements=meeting.statements(round_),
        quiet=[
            concatenate((named["id"], " (", named["name"], ")"), plain=None)
            for named in (meeting.named[i] for i in quiet(round_))
        ],
        questions=meeting.questions([round_], "moderator", "all"),
        answer_format=hall.meeting.describe_format(answer),
    )
    stage = Stage("moderate", round_.number, sum(bool(e["moderator"]) for e in earlier))
    got = await ask_one(scope, hall.moderator, prompt, answer, stage)
    said = got.value or MINIMAL_MODERATION
    spoken = record_moderation(scope, meeting, hall.moderator, said, got.call)
    return replace(round_, moderation=said, moderator=spoken), got.call


def quiet(round_: Round) -> list[str]:
    """Who said nothing, or less than half of what the middle resident said, in order of id."""
    words = {i: len(t.speaking.full_statement.split()) for i, t in round_.turns.items() if t.heard}
    middle = median(words.values()) if words else 0
    return sorted(i for i, n in words.items() if n == 0 or n < middle / 2)


async def reflect(scope: Scope, hall: Hall, rounds: Rounds) -> tuple[Round, list[Call]]:
    """REFLECT: each looks back on the last of these rounds, on what was said and on what the
    moderator said of it; that round with the reflections."""
    round_, meeting = rounds[-1], hall.meeting
    if hall.session is not None:
        noted, calls = await _reflections(scope, hall, rounds, list(round_.order))
        parts, planned_parts = round_.parts + len(calls), round_.planned_parts + 1
        round_ = replace(round_, parts=parts, planned_parts=planned_parts)
        return with_notes(round_, hall.ids, noted), calls

    async def look_back(own: Scope, who: Speaker) -> Got[Noted]:
        turn = round_.turns[who.id]
        known = heard(hall, rounds, who.id)
        answer = reflection(hall.asked(who.id, stance=turn.stance))
        prompt = own.prompt(
            "reflect",
            **meeting.numbered(round_.number),
            **known,
            own_statement=turn.speaking.full_statement,
            stance=round_.quote_stance(who.id),
            answer_format=hall.meeting.describe_format(answer),
        )
        got = await ask_one(own, who, prompt, answer, Stage("reflect", round_.number, 1))
        if got.value is None:
            return Got(None, got.call)
        reply = reply_of(meeting, who.id, round_.number, got.call.address)
        return Got(Noted(got.value, record_reflection(own, reply, got.value)), got.call)

    found, calls = await ask_alone(scope, hall, look_back)
    return with_notes(round_, hall.ids, found.of_all(hall.ids, UNREAD_NOTE, REFUSED_NOTE)), calls


class Noted(NamedTuple):
    """A resident's reflection, and its utterance; None if there is nothing to show again."""

    reflection: Reflection
    said: Utterance | None = None


UNREAD_NOTE, REFUSED_NOTE = Noted(MINIMAL_REFLECTION), Noted(Reflection.refused())


def with_notes(round_: Round, residents: Sequence[str], noted: Mapping[str, Noted]) -> Round:
    """Return a round with the residents' reflections on it."""
    reflections = {i: noted[i].reflection for i in residents}
    notes = {i: said for i in residents if (said := noted[i].said) is not None}
    return replace(round_, reflections=reflections, notes=notes)


async def draw_up_ballot(
    scope: Scope, hall: Hall, so_far: Discussion
) -> tuple[Planned | None, list[Call]]:
    """The planner words decision points as yes/no items, credited to residents."""
    rounds, most = so_far.rounds, hall.meeting.config.max_vote_items
    answer = planned(hall.asked("planner", most=most))
    prompt = scope.prompt(
        "planner",
        history=hall.meeting.history(rounds),
        questions=hall.meeting.questions(rounds, "planner"),
        most=quote(most, "value", "study.max_vote_items"),
        answer_format=hall.meeting.describe_format(answer),
    )
    got = await ask_one(scope, hall.planner, prompt, answer, Stage("plan", None, len(rounds)))
    return got.value, [got.call]


async def vote(
    scope: Scope, hall: Hall, so_far: Discussion
) -> tuple[dict[str, Ballot], list[Call]]:
    """Yes or no with a reason on each item, from each resident; nobody else votes."""
    rounds, items = so_far.rounds, so_far.items
    listed = [quote_item(hall.meeting, id, item.proposal) for id, item in items.items()]
    answer = ballot(items, hall.meeting.set.options.votes)

    async def alone(own: Scope, who: Speaker) -> Got[Ballot]:
        known = heard(hall, rounds, who.id)
        prompt = own.prompt(
            "vote", **known, items=listed, answer_format=hall.meeting.describe_format(answer)
        )
        return await ask_one(own, who, prompt, answer, Stage("vote", None, len(known["own"])))

    def together(residents: list[str], _: object) -> str:
        known = all_heard(hall, rounds)
        ids = hall.meeting.ids_of(residents)
        answer_format = hall.meeting.describe_format(each_of(dict.fromkeys(residents, answer)))
        return scope.prompt(
            "shared_vote",
            ids=ids,
            **known,
            items=listed,
            answer_format=answer_format,
        )

    if not items:
        return dict.fromkeys(hall.ids, NO_BALLOT), []
    if hall.session is None:
        found, calls = await ask_alone(scope, hall, alone)
    else:
        tokens, each = ITEM_TOKENS * len(items), dict.fromkeys(hall.ids, answer)
        group = Group(Stage("vote", None, len(rounds)), each, tokens, together, keep_answer)
        found, calls = await ask_together(scope, hall, group)
    return found.of_all(hall.ids, UNREAD_BALLOT, refused_ballot(items)), calls


async def write_consensus(
    scope: Scope, hall: Hall, so_far: Discussion
) -> tuple[Closing, Utterance, Call]:
    """The closing text, written by the planner from the votes and the discussion."""
    said = hall.meeting.history(so_far.rounds)
    answer = Json(Closing, about=hall.asked("planner"))
    prompt = scope.prompt(
        "consensus",
        items=with_outcomes(so_far),
        history=said,
        answer_format=hall.meeting.describe_format(answer),
    )
    stage = Stage("consensus", None, len(said))
    got = await ask_one(scope, hall.planner, prompt, answer, stage)
    closing = got.value or MINIMAL_CLOSING
    recorded = record_consensus(scope, hall.meeting, hall.planner, closing, got.call)
    return closing, recorded, got.call


def with_outcomes(so_far: Discussion) -> list[dict[str, Any]]:
    """Items with how they came out."""
    meeting = so_far.meeting
    return [
        {
            **quote_item(meeting, item.item_id, item.text),
            "passed": item.passed,
            "yes": quote(item.yes, "value", cell("items.yes", meeting.id, item.item_id)),
            "no": quote(item.no, "value", cell("items.no", meeting.id, item.item_id)),
            "tie": item.tie,
        }
        for item in so_far.outcomes
    ]


def quote_item(meeting: Meeting, id: str, text: str) -> dict[str, str]:
    """An item with its sources, for prompts."""
    return {
        "id": quote(id, "value", cell("items.item_id", meeting.id, id)),
        "text": quote(text, "proposal", cell("items.text", meeting.id, id), PLANNER),
    }


# Tokens that one resident's part is expected to take: the fixed fields and each reaction.
TURN_TOKENS, REACTION_TOKENS, REFLECTION_TOKENS = 330, 55, 200

Turns = dict[str, Taken]
Notes = dict[str, Noted]


@dataclass(frozen=True, slots=True)
class UpcomingRound:
    """One round of the shared session, before it is held."""

    hall: Hall
    earlier: tuple[Round, ...]
    reflects: bool

    @property
    def number(self) -> int:
        return len(self.earlier) + 1

    @property
    def order(self) -> tuple[str, ...]:
        return self.hall.meeting.orders[self.number - 1]

    @property
    def stage(self) -> Stage:
        return Stage("round", self.number, len(self.earlier))

    @property
    def think(self) -> bool:
        return self.hall.meeting.level.think

    def tokens(self, *, reflects: bool) -> int:
        """Expected length of one resident's part of a reply."""
        others = len(self.order) - 1 if self.think and self.earlier else 0
        return TURN_TOKENS + REACTION_TOKENS * others + (REFLECTION_TOKENS if reflects else 0)

    def turns(self) -> dict[str, Json[Turn]]:
        """How each resident's turn is read."""
        asked = {i: self.hall.asked(i, round=self.number, think=self.think) for i in self.order}
        return {i: turn(of) for i, of in asked.items()}

    def prompt(self, scope: Scope, residents: list[str], there: Turns, *, whole: bool) -> str:
        """What is asked for these residents; `there` are turns that were written already."""
        notes = self.earlier[-1].notes if self.earlier else {}
        meeting = self.hall.meeting
        turns = self.turns()
        part = each_of({i: turns[i] for i in residents})
        answer_format = meeting.describe_format(WholeRound(self) if whole else part)
        return scope.prompt(
            "shared_round",
            ids=meeting.ids_of(residents),
            **meeting.numbered(self.number),
            **all_heard(self.hall, self.earlier),
            notes=[
                {"id": meeting.named[i]["id"], "reflection": notes[i].quoted}
                for i in residents
                if i in notes
            ],
            already=meeting.lines((i, of.recorded.statement) for i, of in there.items()),
            think=self.think,
            reflect=self.reflects and whole,
            whole=whole,
            moderated=meeting.level.moderated,
            answer_format=answer_format,
        )

    def record_turn(self, scope: Scope, resident: str, turn: Turn, address: str) -> Taken:
        """Record the utterances of a resident's turn in a reply of the session."""
        reply = reply_of(self.hall.meeting, resident, self.number, address, shared=True)
        thoughts = record_thoughts(scope, reply, turn.thinking)
        return Taken(turn, record_statement(scope, reply, turn, thoughts))


async def shared_round(
    scope: Scope, hall: Hall, earlier: tuple[Round, ...], *, reflects: bool
) -> tuple[Round, list[Call]]:
    """One round: turns of all residents and, where wanted, their reflections."""
    ahead = UpcomingRound(hall, earlier, reflects)
    turns: Turns = {}
    noted: Notes = {}
    calls: list[Call] = []
    longest = hall.longest_reply
    if len(ahead.order) * ahead.tokens(reflects=reflects) <= longest:
        turns, noted, calls = await _in_one_reply(scope, ahead)
    missing = [i for i in ahead.order if i not in turns]
    if missing:
        more, further = await _turns(scope, ahead, turns, missing)
        turns, calls = {**turns, **more}, [*calls, *further]
    silent = MINIMAL_THINKING if ahead.think else None
    unread = Turn.model_construct(thinking=silent, speaking=MINIMAL_SPEAKING)
    for i in ahead.order:
        if i not in turns:
            turns[i] = ahead.record_turn(scope, i, unread, calls[-1].address)
    taken = {i: turns[i].turn for i in hall.ids}
    recorded = {i: turns[i].recorded for i in hall.ids}
    round_ = Round(ahead.number, ahead.order, taken, recorded)
    if reflects:
        missing = [i for i in ahead.order if i not in noted]
        if missing:
            # A place of its own, by which exposure tells these questions from those for turns.
            apart = scope.at("reflect")
            late, further = await _reflections(apart, hall, (*earlier, round_), missing)
            noted, calls = {**noted, **late}, [*calls, *further]
        round_ = with_notes(round_, hall.ids, noted)
    if len(calls) > 1:
        lost = calls[0].missing
        why = f"the first was no use ({lost})" if lost else "too long for one reply of the session"
        scope.log(f"round {ahead.number} took {len(calls)} calls: {why}")
    return replace(round_, parts=len(calls)), calls


async def _in_one_reply(scope: Scope, ahead: UpcomingRound) -> tuple[Turns, Notes, list[Call]]:
    who, stage = session_of(ahead.hall), ahead.stage
    question = ahead.prompt(scope, list(ahead.order), {}, whole=True)
    longest = ahead.hall.longest_reply
    answer = WholeRound(ahead)
    got = await scope.exchange(who, question, answer=answer, max_tokens=longest, about=stage.about)
    call = call_of(stage, who, len(ahead.order), question, got)
    if isinstance(got.value, Missing):
        # Its residents are asked for again, so that no minimal structure stands for them yet.
        return {}, {}, [replace(call, minimal=0, parse_step=got.parse_step)]
    turns, reflections = got.value
    meeting, number = ahead.hall.meeting, ahead.number
    taken = {i: ahead.record_turn(scope, i, turn, got.address) for i, turn in turns.items()}
    noted = {
        i: record_note(scope, meeting, number, i, r, got.address) for i, r in reflections.items()
    }
    return taken, noted, [call]


def record_note(
    scope: Scope, meeting: Meeting, number: int, resident: str, reflection: Reflection, address: str
) -> Noted:
    """Record how a resident looked back in a reply of the shared session."""
    reply = reply_of(meeting, resident, number, address, shared=True)
    return Noted(reflection, record_reflection(scope, reply, reflection))


@dataclass(frozen=True, slots=True)
class WholeRound(Answer[tuple[dict[str, Turn], dict[str, Reflection]]]):
    """The answer type of a round in one reply: all turns, then all reflections on them."""

    ahead: UpcomingRound
    kind: str = "json"

    @property
    def schema(self) -> dict[str, object]:
        turns = each_of(self.ahead.turns()).schema
        schemas = {"turns": {**turns, "description": "the turn of each resident"}}
        if self.ahead.reflects:
            back = self._back(dict.fromkeys(self.ahead.order, "")).schema
            described = "how each resident looks back on the round"
            schemas["reflections"] = {**back, "description": described}
        return object_schema("Round", schemas)

    def _back(self, stances: Mapping[str, str]) -> JsonMap[Reflection]:
        return each_of(
            {i: reflection(self.ahead.hall.asked(i, stance=s)) for i, s in stances.items()}
        )

    def parse(
        self, reply: str
    ) -> Parsed[tuple[dict[str, Turn], dict[str, Reflection]]] | Unreadable | Missing:
        found = Json(AnyObject).parse(reply)
        if not isinstance(found, Parsed):
            return found
        raw = found.value.model_extra or {}
        each = each_of(self.ahead.turns())
        said = each.read(_object(raw, "turns", raw))
        if not isinstance(said, Parsed):
            return said
        turns = said.value.values
        stances = {i: turn.stance for i, turn in turns.items()} if self.ahead.reflects else {}
        own = self._back(stances)
        back = own.read(_object(raw, "reflections", {}))
        if not isinstance(back, Parsed):
            return Parsed((turns, {}), found.parse_step, said.repairs)
        reflections = back.value.values
        reflections |= dict.fromkeys(back.value.declined, Reflection.refused())
        return Parsed((turns, reflections), found.parse_step, (*said.repairs, *back.repairs))


class AnyObject(BaseModel):
    """Any JSON object; its parts are read one by one."""

    model_config = pin_schema("AnyObject", "", ConfigDict(extra="allow"))


async def _turns(
    scope: Scope, ahead: UpcomingRound, there: Turns, missing: list[str]
) -> tuple[Turns, list[Call]]:
    """Turns of those who are missing, in as many replies as they need."""

    def prompt(residents: list[str], given: Mapping[str, Taken]) -> str:
        return ahead.prompt(scope, residents, {**there, **given}, whole=False)

    def record(resident: str, turn: Turn, address: str) -> Taken:
        return ahead.record_turn(scope, resident, turn, address)

    turns = ahead.turns()
    each = {i: turns[i] for i in missing}
    group = Group(ahead.stage, each, ahead.tokens(reflects=False), prompt, record)
    found, calls = await ask_together(scope, ahead.hall, group)
    return found.values, calls


async def _reflections(
    scope: Scope, hall: Hall, rounds: tuple[Round, ...], missing: list[str]
) -> tuple[Notes, list[Call]]:
    """Ask the shared session for the reflections of some residents on the last of these rounds."""
    round_, meeting = rounds[-1], hall.meeting
    each = {i: reflection(hall.asked(i, stance=round_.turns[i].stance)) for i in missing}

    def prompt(residents: list[str], _: Mapping[str, Noted]) -> str:
        return scope.prompt(
            "shared_reflect",
            ids=meeting.ids_of(residents),
            **meeting.numbered(round_.number),
            earlier=meeting.history(meeting.remembered(rounds)[:-1]),
            statements=meeting.statements(round_),
            moderator=meeting.history([round_])[0]["moderator"],
            stances=[
                {"id": meeting.named[i]["id"], "stance": round_.quote_stance(i)} for i in residents
            ],
            answer_format=meeting.describe_format(each_of({i: each[i] for i in residents})),
        )

    def record(resident: str, reflection: Reflection, address: str) -> Noted:
        return record_note(scope, meeting, round_.number, resident, reflection, address)

    stage = Stage("reflect", round_.number, 1)
    group = Group(stage, each, REFLECTION_TOKENS, prompt, record)
    found, calls = await ask_together(scope, hall, group)
    return found.of_all(missing, UNREAD_NOTE, REFUSED_NOTE), calls


def _object(
    raw: Mapping[str, object], name: str, otherwise: Mapping[str, object]
) -> Mapping[str, object]:
    part = raw.get(name)
    return part if isinstance(part, Mapping) else otherwise


CODEBOOK = Path(__file__).parent / "codebooks" / "concern.yaml"
CONCERN = "concern"  # the name of the codebook


def concerns(discussion: Discussion, seed: int) -> list[coding.Text]:
    """What the coder reads, for each vulnerable resident and as many others, who are drawn by the
    seed and are the same at every level. Nothing for who never spoke: no concern was voiced."""
    meeting = discussion.meeting
    rng = generator(seed, ("town_hall", f"set{meeting.set.number:02d}", "concerns"))
    some = rng.permutation(len(meeting.general))[: len(meeting.vulnerable)]
    chosen = [*meeting.vulnerable, *(meeting.general[i] for i in sorted(some))]
    return [t for t in (_concern(discussion, i) for i in chosen) if t is not None]


def _concern(discussion: Discussion, me: str) -> coding.Text | None:
    """The points that a resident made aloud (without points, the statements), and all that others
    said and proposed after the first of them."""
    rounds, names = discussion.rounds, discussion.meeting.names
    spoke = [r for r in rounds if r.turns[me].speaking.full_statement]
    if not spoke:
        return None
    points = [p for r in spoke for p in r.turns[me].speaking.new_points]
    points = points or [one_line(r.turns[me].speaking.full_statement) for r in spoke]
    first = spoke[0].number
    said = [
        concatenate((s["name"], " (", s["id"], "): ", s["text"]), plain=None)
        for r in discussion.meeting.history([r for r in rounds if r.number > first], but=me)
        for s in r["statements"]
    ]
    chair = [on_one_line(r.moderator) for r in rounds[first - 1 :] if r.moderator]
    items = [quote_item(discussion.meeting, i.item_id, i.text) for i in discussion.outcomes]
    closing = discussion.consensus
    parts = [
        *said,
        *(concatenate(("The chair: ", words), plain=None) for words in chair if words),
        *(concatenate(("Proposal ", i["id"], ": ", i["text"]), plain=None) for i in items),
    ]
    if closing is not None and closing.text:
        parts.append(concatenate(("The final text: ", closing.quoted), plain=None))
    about = {"resident": f"{names[me]} ({me})", "concern": " ".join(dict.fromkeys(points))}
    return coding.Text(f"{discussion.meeting.id}/{me}", join("\n\n", parts), me, about)


async def code_concerns(session: Session[TownHallConfig], texts: Sequence[coding.Text]) -> None:
    """Code what became of the concerns (or only record the texts, where coding is off)."""
    if texts:
        await coding.code(session, CODEBOOK, texts)
