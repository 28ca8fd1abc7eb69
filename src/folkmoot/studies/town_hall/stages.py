"""The stages of a discussion in which everybody is asked: what each is shown, and what counts.

Each takes who can be asked and the discussion so far, and gives its result with the calls made.
Thoughts and reflections go into no prompt but their owner's.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from typing import Any

from folkmoot.conversation.answers import Json
from folkmoot.conversation.transcript import Speaker
from folkmoot.engine.session import Scope
from folkmoot.studies.town_hall import answers
from folkmoot.studies.town_hall.answers import (
    MINIMAL_CLOSING,
    MINIMAL_MODERATION,
    MINIMAL_REFLECTION,
    MINIMAL_SPEAKING,
    MINIMAL_THINKING,
    Closing,
    Moderation,
    Speaking,
    Thinking,
    Turn,
)
from folkmoot.studies.town_hall.ballots import (
    NO_BALLOT,
    SATISFACTION,
    UNKNOWN,
    Ballot,
    Item,
    Planned,
    Satisfaction,
    ballot,
)
from folkmoot.studies.town_hall.discussion import (
    Call,
    Discussion,
    Round,
)
from folkmoot.studies.town_hall.sessions import (
    Got,
    Group,
    Hall,
    Stage,
    all_heard,
    ask_alone,
    ask_one,
    ask_together,
    heard,
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
    ending: dict[str, Any] = {"items": with_outcomes(so_far), "consensus": so_far.closing.consensus}

    async def alone(own: Scope, who: Speaker) -> Got[Satisfaction]:
        known = heard(hall, so_far.rounds, who.id)
        if after:
            votes = so_far.ballots[who.id].votes
            items = [{**i, "mine": votes.get(i["id"], "")} for i in ending["items"]]
            prompt = own.prompt(AFTER, **{**ending, "items": items}, **known)
        else:
            prompt = own.prompt(BEFORE, me=who.id)
        return await ask_one(own, who, prompt, SATISFACTION, Stage(when, None, len(known["own"])))

    def together(residents: list[str], _: Any) -> str:
        known = all_heard(hall, so_far.rounds)
        return scope.prompt("shared_satisfaction", ids=residents, after=after, **known, **ending)

    if hall.session is None:
        found, calls = await ask_alone(scope, hall, alone)
    else:
        stage = Stage(when, None, len(so_far.rounds))
        each = dict.fromkeys(hall.ids, SATISFACTION)
        group = Group(stage, each, SATISFACTION_TOKENS, together)
        found, calls = await ask_together(scope, hall, group)
    return {i: found.get(i, UNKNOWN) for i in hall.ids}, calls


async def take_turns(scope: Scope, hall: Hall, earlier: Rounds) -> tuple[Round, list[Call]]:
    """THINK and SPEAK of residents in separate sessions, side by side: nobody hears the others
    of the same round."""
    number, meeting = len(earlier) + 1, hall.meeting

    async def take_turn(own: Scope, who: Speaker) -> tuple[Turn, list[Call]]:
        calls = []
        thoughts: Thinking | None = None
        if meeting.level.think:
            got = await think(own, hall, who, earlier)
            thoughts = got.value or MINIMAL_THINKING
            calls.append(got.call)
        said = await speak(own, hall, (who, thoughts), earlier)
        turn = Turn.model_construct(thinking=thoughts, speaking=said.value or MINIMAL_SPEAKING)
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
    remembered = reflection is not None and not reflection.parse_error
    prompt = scope.prompt(
        "think",
        round=number,
        rounds=hall.meeting.rounds,
        **known,
        reflection=reflection.to_json() if reflection and remembered else None,
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
    noted = thoughts.to_json() if thoughts is not None and not thoughts.parse_error else None
    if noted and not noted["reactions"]:
        del noted["reactions"]  # as in the first round, which has none
    prompt = scope.prompt(
        "speak",
        round=number,
        rounds=hall.meeting.rounds,
        thoughts=noted,
        heard=bool(earlier),
        **heard(hall, earlier, who.id),
    )
    answer = answers.speaking(hall.asked(who.id, round=number))
    return await ask_one(scope, who, prompt, answer, Stage("speak", number, int(bool(noted))))


async def moderate(scope: Scope, hall: Hall, round_: Round) -> tuple[Moderation, Call]:
    """The moderator sums up, names opinions that got too little room, invites quiet residents and
    points to overlooked concerns of vulnerable ones. The hall hears it in the next round.
    """
    assert hall.moderator is not None
    prompt = scope.prompt(
        "moderator",
        round=round_.number,
        rounds=hall.meeting.rounds,
        statements=hall.meeting.statements(round_),
        quiet=[f"{i} ({hall.meeting.names[i]})" for i in quiet(round_)],
        questions=hall.meeting.questions([round_], "moderator", "all"),
    )
    answer = Json(Moderation, about=hall.asked("moderator"))
    stage = Stage("moderate", round_.number)
    got = await ask_one(scope, hall.moderator, prompt, answer, stage)
    return got.value or MINIMAL_MODERATION, got.call


def quiet(round_: Round) -> list[str]:
    """Who said nothing, or less than half of what the middle resident said, in order of id."""
    words = {i: len(t.speaking.full_statement.split()) for i, t in round_.turns.items() if t.heard}
    middle = median(words.values()) if words else 0
    return sorted(i for i, n in words.items() if n == 0 or n < middle / 2)


async def reflect(scope: Scope, hall: Hall, rounds: Rounds) -> tuple[Round, list[Call]]:
    """REFLECT: each looks back on the last of these rounds; that round with the reflections."""
    round_ = rounds[-1]

    async def look_back(own: Scope, who: Speaker) -> Got[answers.Reflection]:
        turn = round_.turns[who.id]
        prompt = own.prompt(
            "reflect",
            round=round_.number,
            rounds=hall.meeting.rounds,
            **heard(hall, rounds, who.id),
            own_statement=turn.speaking.full_statement,
            stance=turn.stance,
        )
        answer = answers.reflection(hall.asked(who.id, stance=turn.stance))
        return await ask_one(own, who, prompt, answer, Stage("reflect", round_.number, 1))

    found, calls = await ask_alone(scope, hall, look_back)
    reflections = {i: found.get(i, MINIMAL_REFLECTION) for i in hall.ids}
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
    answer = Json(Planned, about=hall.asked("planner", most=most))
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
    answer = ballot(items)

    async def alone(own: Scope, who: Speaker) -> Got[Ballot]:
        known = heard(hall, rounds, who.id)
        prompt = own.prompt("vote", **known, items=listed)
        return await ask_one(own, who, prompt, answer, Stage("vote", None, len(known["own"])))

    def together(residents: list[str], _: Any) -> str:
        return scope.prompt("shared_vote", ids=residents, **all_heard(hall, rounds), items=listed)

    if not items:
        return dict.fromkeys(hall.ids, NO_BALLOT), []
    if hall.session is None:
        found, calls = await ask_alone(scope, hall, alone)
    else:
        tokens, each = ITEM_TOKENS * len(items), dict.fromkeys(hall.ids, answer)
        group = Group(Stage("vote", None, len(rounds)), each, tokens, together)
        found, calls = await ask_together(scope, hall, group)
    return {i: found.get(i, NO_BALLOT) for i in hall.ids}, calls


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


def with_outcomes(so_far: Discussion) -> list[dict[str, Any]]:
    """Items with how they came out, for prompts."""
    return [
        {"id": i.id, "text": i.text, "passed": o.passed, "yes": o.yes, "no": o.no, "tie": o.tie}
        for i, o in zip(so_far.items, so_far.outcomes, strict=True)
    ]
