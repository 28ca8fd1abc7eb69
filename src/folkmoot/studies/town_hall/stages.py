"""The stages of a discussion: what everybody is shown and asked, and what counts.

Each takes who can be asked and the discussion so far, and gives its result with the calls made.
Thoughts and reflections go into no prompt but their owner's. At a level with a shared session one
reply holds all residents' turns of a round; a reply that would be too long is split, and residents
it did not reach are asked for again (`Round.parts` counts the calls).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import TypedDict

from pydantic import BaseModel, ConfigDict

from folkmoot.conversation.answers import (
    Json,
    JsonMap,
    Missing,
    Parsed,
    Unreadable,
    object_schema,
    pin_schema,
)
from folkmoot.conversation.template_sentences import FieldSentences
from folkmoot.conversation.transcript import Speaker
from folkmoot.engine.session import Scope, Session
from folkmoot.kit import coding
from folkmoot.randomness import generator
from folkmoot.studies.town_hall import answers
from folkmoot.studies.town_hall.answers import (
    MINIMAL_CLOSING,
    MINIMAL_MODERATION,
    MINIMAL_REFLECTION,
    MINIMAL_SPEAKING,
    MINIMAL_THINKING,
    NO_BALLOT,
    REFUSED_SATISFACTION,
    SATISFACTION,
    UNKNOWN,
    UNREAD_BALLOT,
    Ballot,
    Closing,
    Item,
    Moderation,
    Reflection,
    Satisfaction,
    Speaking,
    Thinking,
    Turn,
    ballot,
    reflection,
    refused_ballot,
    turn,
)
from folkmoot.studies.town_hall.config import TownHallConfig
from folkmoot.studies.town_hall.discussion import (
    Call,
    Discussion,
    Got,
    Group,
    Hall,
    Round,
    Stage,
    all_heard,
    ask_alone,
    ask_one,
    ask_together,
    call_of,
    each_of,
    heard,
    one_line,
    session_of,
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
    outcomes, consensus = with_outcomes(so_far), so_far.closing.consensus

    async def alone(own: Scope, who: Speaker) -> Got[Satisfaction]:
        known = heard(hall, so_far.rounds, who.id)
        if after:
            votes = so_far.ballots[who.id].votes
            items = [{**i, "mine": votes.get(i["id"], "")} for i in outcomes]
            prompt = own.prompt(AFTER, items=items, consensus=consensus, **known)
        else:
            prompt = own.prompt(BEFORE, me=who.id)
        return await ask_one(own, who, prompt, SATISFACTION, Stage(when, None, len(known["own"])))

    def together(residents: list[str], _: object) -> str:
        known = all_heard(hall, so_far.rounds)
        return scope.prompt(
            "shared_satisfaction",
            ids=residents,
            after=after,
            items=outcomes,
            consensus=consensus,
            **known,
        )

    if hall.session is None:
        found, calls = await ask_alone(scope, hall, alone)
    else:
        stage = Stage(when, None, len(so_far.rounds))
        each = dict.fromkeys(hall.ids, SATISFACTION)
        group = Group(stage, each, SATISFACTION_TOKENS, together)
        found, calls = await ask_together(scope, hall, group)
    return found.of_all(hall.ids, UNKNOWN, REFUSED_SATISFACTION), calls


async def take_turns(scope: Scope, hall: Hall, earlier: Rounds) -> tuple[Round, list[Call]]:
    """THINK and SPEAK of residents in separate sessions, side by side: nobody hears the others
    of the same round."""
    number, meeting = len(earlier) + 1, hall.meeting

    async def take_turn(own: Scope, who: Speaker) -> tuple[Turn, list[Call]]:
        calls = []
        thoughts: Thinking | None = None
        if meeting.level.think:
            got = await think(own, hall, who, earlier)
            thoughts = got.or_else(MINIMAL_THINKING, Thinking.refused())
            calls.append(got.call)
        said = await speak(own, hall, (who, thoughts), earlier)
        spoken = said.or_else(MINIMAL_SPEAKING, Speaking.refused())
        turn = Turn.model_construct(thinking=thoughts, speaking=spoken)
        return turn, [*calls, said.call]

    taken = await scope.each([hall.seats[i] for i in hall.ids], take_turn)
    turns = {resident: turn for resident, (turn, _) in taken.items()}
    order = meeting.orders[number - 1]
    return Round(number, order, turns), [c for _, calls in taken.values() for c in calls]


async def think(scope: Scope, hall: Hall, who: Speaker, earlier: Rounds) -> Got[Thinking]:
    """THINK: private reactions to the round before, and where one stands."""
    number, last = len(earlier) + 1, earlier[-1] if earlier else None
    known = heard(hall, earlier, who.id)
    reflection = last.reflections.get(who.id) if last else None
    remembered = reflection is not None and not reflection.unanswered
    prompt = scope.prompt(
        "think",
        round=number,
        rounds=hall.meeting.rounds,
        **known,
        reflection=reflection.to_prompt() if reflection and remembered else None,
        options=hall.meeting.set.options,
    )
    answer = answers.thinking(hall.asked(who.id, round=number))
    stage = Stage("think", number, len(known["own"]) + remembered)
    return await ask_one(scope, who, prompt, answer, stage)


async def speak(
    scope: Scope, hall: Hall, mind: tuple[Speaker, Thinking | None], earlier: Rounds
) -> Got[Speaking]:
    """SPEAK: what the hall hears, from one's own thoughts (if asked for) and what was said."""
    who, thoughts = mind
    number = len(earlier) + 1
    noted = thoughts.to_prompt() if thoughts is not None and not thoughts.unanswered else None
    if noted and not noted["reactions"]:
        del noted["reactions"]  # as in the first round, which has none
    prompt = scope.prompt(
        "speak",
        round=number,
        rounds=hall.meeting.rounds,
        thoughts=noted,
        heard=bool(earlier),
        **heard(hall, earlier, who.id),
        moderated=hall.meeting.level.moderated,
        options=hall.meeting.set.options,
    )
    answer = answers.speaking(hall.asked(who.id, round=number))
    return await ask_one(scope, who, prompt, answer, Stage("speak", number, int(bool(noted))))


async def moderate(scope: Scope, hall: Hall, rounds: Rounds) -> tuple[Moderation, Call]:
    """The moderator sums up, names opinions that got too little room, invites quiet residents and
    points to overlooked concerns of vulnerable ones. The hall hears it before it looks back on the
    round.

    The moderator has the rounds before them that residents have, and always their own last words.
    """
    assert hall.moderator is not None
    round_, meeting = rounds[-1], hall.meeting
    earlier = meeting.history(meeting.remembered(rounds)[:-1])
    if not earlier and len(rounds) > 1:
        earlier = [{**meeting.history(rounds[-2:-1])[0], "statements": []}]
    prompt = scope.prompt(
        "moderator",
        round=round_.number,
        rounds=meeting.rounds,
        earlier=earlier,
        statements=meeting.statements(round_),
        quiet=[f"{i} ({meeting.names[i]})" for i in quiet(round_)],
        questions=meeting.questions([round_], "moderator", "all"),
    )
    answer = Json(Moderation, about=hall.asked("moderator"))
    stage = Stage("moderate", round_.number, sum(bool(e["moderator"]) for e in earlier))
    got = await ask_one(scope, hall.moderator, prompt, answer, stage)
    return got.value or MINIMAL_MODERATION, got.call


def quiet(round_: Round) -> list[str]:
    """Who said nothing, or less than half of what the middle resident said, in order of id."""
    words = {i: len(t.speaking.full_statement.split()) for i, t in round_.turns.items() if t.heard}
    middle = median(words.values()) if words else 0
    return sorted(i for i, n in words.items() if n == 0 or n < middle / 2)


async def reflect(scope: Scope, hall: Hall, rounds: Rounds) -> tuple[Round, list[Call]]:
    """REFLECT: each looks back on the last of these rounds, on what was said and on what the
    moderator said of it; that round with the reflections."""
    round_ = rounds[-1]
    if hall.session is not None:
        reflections, calls = await _reflections(scope, hall, rounds, list(round_.order))
        parts, planned_parts = round_.parts + len(calls), round_.planned_parts + 1
        round_ = replace(round_, parts=parts, planned_parts=planned_parts)
        return replace(round_, reflections=reflections), calls

    async def look_back(own: Scope, who: Speaker) -> Got[answers.Reflection]:
        turn = round_.turns[who.id]
        prompt = own.prompt(
            "reflect",
            round=round_.number,
            rounds=hall.meeting.rounds,
            **heard(hall, rounds, who.id),
            own_statement=turn.speaking.full_statement,
            stance=turn.stance,
            options=hall.meeting.set.options,
        )
        answer = answers.reflection(hall.asked(who.id, stance=turn.stance))
        return await ask_one(own, who, prompt, answer, Stage("reflect", round_.number, 1))

    found, calls = await ask_alone(scope, hall, look_back)
    reflections = found.of_all(hall.ids, MINIMAL_REFLECTION, Reflection.refused())
    return replace(round_, reflections=reflections), calls


async def draw_up_ballot(
    scope: Scope, hall: Hall, so_far: Discussion
) -> tuple[tuple[Item, ...], list[Call]]:
    """The planner words decision points as yes/no items, credited to residents.

    No items when the planner could not be read.
    """
    rounds, most = so_far.rounds, hall.meeting.config.max_vote_items
    prompt = scope.prompt(
        "planner",
        history=hall.meeting.history(rounds),
        questions=hall.meeting.questions(rounds, "planner"),
        most=most,
    )
    answer = answers.planned(hall.asked("planner", most=most))
    got = await ask_one(scope, hall.planner, prompt, answer, Stage("plan", None, len(rounds)))
    planned = got.value.items if got.value else ()
    items = tuple(
        Item(f"V{number}", i.proposal, i.reasoning, i.originating_residents)
        for number, i in enumerate(planned, start=1)
    )
    return items, [got.call]


async def vote(
    scope: Scope, hall: Hall, so_far: Discussion
) -> tuple[dict[str, Ballot], list[Call]]:
    """Yes or no with a reason on each item, from each resident; nobody else votes."""
    rounds, items = so_far.rounds, so_far.items
    listed = [{"id": i.id, "text": i.text} for i in items]
    options = hall.meeting.set.options
    answer = ballot(items, options.votes)

    async def alone(own: Scope, who: Speaker) -> Got[Ballot]:
        known = heard(hall, rounds, who.id)
        prompt = own.prompt("vote", **known, items=listed, options=options)
        return await ask_one(own, who, prompt, answer, Stage("vote", None, len(known["own"])))

    def together(residents: list[str], _: object) -> str:
        known = all_heard(hall, rounds)
        return scope.prompt("shared_vote", ids=residents, **known, items=listed, options=options)

    if not items:
        return dict.fromkeys(hall.ids, NO_BALLOT), []
    if hall.session is None:
        found, calls = await ask_alone(scope, hall, alone)
    else:
        tokens, each = ITEM_TOKENS * len(items), dict.fromkeys(hall.ids, answer)
        group = Group(Stage("vote", None, len(rounds)), each, tokens, together)
        found, calls = await ask_together(scope, hall, group)
    return found.of_all(hall.ids, UNREAD_BALLOT, refused_ballot(items)), calls


async def write_consensus(
    scope: Scope, hall: Hall, so_far: Discussion
) -> tuple[Closing, list[Call]]:
    """The closing text, written by the planner from the votes and the discussion."""
    said = hall.meeting.history(so_far.rounds)
    prompt = scope.prompt("consensus", items=with_outcomes(so_far), history=said)
    answer = Json(Closing, about=hall.asked("planner"))
    stage = Stage("consensus", None, len(said))
    got = await ask_one(scope, hall.planner, prompt, answer, stage)
    return got.value or MINIMAL_CLOSING, [got.call]


class CameOut(TypedDict):
    """An item and how it came out, for prompts."""

    id: str
    text: str
    passed: bool
    yes: int
    no: int
    tie: bool


def with_outcomes(so_far: Discussion) -> list[CameOut]:
    """Items with how they came out."""
    return [
        {"id": i.id, "text": i.text, "passed": o.passed, "yes": o.yes, "no": o.no, "tie": o.tie}
        for i, o in zip(so_far.items, so_far.outcomes, strict=True)
    ]


# Tokens that one resident's part is expected to take: the fixed fields and each reaction.
TURN_TOKENS, REACTION_TOKENS, REFLECTION_TOKENS = 330, 55, 200

Turns = dict[str, Turn]
Reflections = dict[str, Reflection]


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
        last = self.earlier[-1] if self.earlier else None
        noted = last.reflections if last else {}
        said = {i: one_line(t.speaking.full_statement) for i, t in there.items()}
        return scope.prompt(
            "shared_round",
            ids=residents,
            round=self.number,
            rounds=self.hall.meeting.rounds,
            **all_heard(self.hall, self.earlier),
            notes=[
                {"id": i, "reflection": noted[i].to_prompt()}
                for i in residents
                if i in noted and not noted[i].unanswered
            ],
            already=self.hall.meeting.lines(said.items()),
            think=self.think,
            reflect=self.reflects and whole,
            whole=whole,
            moderated=self.hall.meeting.level.moderated,
            options=self.hall.meeting.set.options,
        )


async def shared_round(
    scope: Scope, hall: Hall, earlier: tuple[Round, ...], *, reflects: bool
) -> tuple[Round, list[Call]]:
    """One round: turns of all residents and, where wanted, their reflections."""
    ahead = UpcomingRound(hall, earlier, reflects)
    turns: Turns = {}
    reflections: Reflections = {}
    calls: list[Call] = []
    longest = hall.longest_reply
    if len(ahead.order) * ahead.tokens(reflects=reflects) <= longest:
        turns, reflections, calls = await _in_one_reply(scope, ahead)
    missing = [i for i in ahead.order if i not in turns]
    if missing:
        more, further = await _turns(scope, ahead, turns, missing)
        turns, calls = {**turns, **more}, [*calls, *further]
    silent = MINIMAL_THINKING if ahead.think else None
    unread = Turn.model_construct(thinking=silent, speaking=MINIMAL_SPEAKING)
    round_ = Round(ahead.number, ahead.order, {i: turns.get(i, unread) for i in hall.ids})
    if reflects:
        missing = [i for i in ahead.order if i not in reflections]
        if missing:
            late, further = await _reflections(scope, hall, (*earlier, round_), missing)
            reflections, calls = {**reflections, **late}, [*calls, *further]
        round_ = replace(round_, reflections={i: reflections[i] for i in hall.ids})
    if len(calls) > 1:
        lost = calls[0].missing
        why = f"the first was no use ({lost})" if lost else "too long for one reply of the session"
        scope.log(f"round {ahead.number} took {len(calls)} calls: {why}")
    return replace(round_, parts=len(calls)), calls


async def _in_one_reply(
    scope: Scope, ahead: UpcomingRound
) -> tuple[Turns, Reflections, list[Call]]:
    who = session_of(ahead.hall)
    question = ahead.prompt(scope, list(ahead.order), {}, whole=True)
    longest = ahead.hall.longest_reply
    got = await scope.exchange(who, question, answer=WholeRound(ahead), max_tokens=longest)
    call = call_of(ahead.stage, who, ahead.order, question, got)
    if isinstance(got.value, Missing):
        # Its residents are asked for again, so that no minimal structure stands for them yet.
        return {}, {}, [replace(call, minimal=0, parse_step=got.parse_step)]
    turns, reflections = got.value
    return turns, reflections, [call]


@dataclass(frozen=True, slots=True)
class WholeRound:
    """The answer type of a round in one reply: all turns, then all reflections on them."""

    ahead: UpcomingRound
    kind: str = "json"
    sentences: FieldSentences = field(default_factory=dict)

    @property
    def schema(self) -> dict[str, object]:
        schemas = {"turns": each_of(self.ahead.turns()).schema}
        if self.ahead.reflects:
            schemas["reflections"] = self._back(dict.fromkeys(self.ahead.order, "")).schema
        return object_schema("Round", schemas)

    def _back(self, stances: Mapping[str, str]) -> JsonMap[Reflection]:
        return each_of(
            {i: reflection(self.ahead.hall.asked(i, stance=s)) for i, s in stances.items()}
        )

    def with_sentences(self, sentences: FieldSentences) -> WholeRound:
        """Return the same answer type, which leaves out what prompts say of the fields."""
        return replace(self, sentences=sentences)

    def parse(self, reply: str) -> Parsed[tuple[Turns, Reflections]] | Unreadable | Missing:
        found = Json(AnyObject).parse(reply)
        if not isinstance(found, Parsed):
            return found
        raw = found.value.model_extra or {}
        each = each_of(self.ahead.turns()).with_sentences(self.sentences)
        said = each.read(_object(raw, "turns", raw))
        if not isinstance(said, Parsed):
            return said
        turns = said.value.values
        stances = {i: turn.stance for i, turn in turns.items()} if self.ahead.reflects else {}
        own = self._back(stances).with_sentences(self.sentences)
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

    def prompt(residents: list[str], given: Mapping[str, Turn]) -> str:
        return ahead.prompt(scope, residents, {**there, **given}, whole=False)

    turns = ahead.turns()
    group = Group(ahead.stage, {i: turns[i] for i in missing}, ahead.tokens(reflects=False), prompt)
    found, calls = await ask_together(scope, ahead.hall, group)
    return found.values, calls


async def _reflections(
    scope: Scope, hall: Hall, rounds: tuple[Round, ...], missing: list[str]
) -> tuple[Reflections, list[Call]]:
    """Ask the shared session for the reflections of some residents on the last of these rounds."""
    round_, meeting = rounds[-1], hall.meeting

    def prompt(residents: list[str], _: Mapping[str, Reflection]) -> str:
        return scope.prompt(
            "shared_reflect",
            ids=residents,
            round=round_.number,
            rounds=meeting.rounds,
            earlier=meeting.history(meeting.remembered(rounds)[:-1]),
            statements=meeting.statements(round_),
            moderator=meeting.history([round_])[0]["moderator"],
            stances=[{"id": i, "stance": round_.turns[i].stance} for i in residents],
            options=meeting.set.options,
        )

    stage = Stage("reflect", round_.number, 1)
    each = {i: reflection(hall.asked(i, stance=round_.turns[i].stance)) for i in missing}
    group = Group(stage, each, REFLECTION_TOKENS, prompt)
    found, calls = await ask_together(scope, hall, group)
    return found.of_all(missing, MINIMAL_REFLECTION, Reflection.refused()), calls


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
        f"{s['name']} ({s['id']}): {s['text']}"
        for r in discussion.meeting.history([r for r in rounds if r.number > first], but=me)
        for s in r["statements"]
    ]
    chair = [one_line(r.moderation.spoken) for r in rounds[first - 1 :] if r.moderation]
    closing = discussion.closing.consensus
    parts = [
        *said,
        *(f"The chair: {words}" for words in chair if words),
        *(f"Proposal {i.id}: {i.text}" for i in discussion.items),
        *([f"The final text: {closing}"] if closing else []),
    ]
    about = {"resident": f"{names[me]} ({me})", "concern": " ".join(dict.fromkeys(points))}
    return coding.Text(f"{discussion.meeting.id}/{me}", "\n\n".join(parts), me, about)


async def code_concerns(session: Session[TownHallConfig], texts: Sequence[coding.Text]) -> None:
    """Code what became of the concerns (or only record the texts, where coding is off)."""
    if texts:
        await coding.code(session, CODEBOOK, texts)
