"""Every vote: the first (phases 1 and 2), and the final ones after reading, after an adversarial
dialogue (phases 6 and 7), or after nothing at all; and what is asked beside a vote."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, Field, create_model

from folkmoot.conversation.answer_types import (
    WAYS_OUT,
    Json,
    Missing,
    Text,
    pin_schema,
    with_ways_out,
)
from folkmoot.conversation.choices import Choice, Number
from folkmoot.conversation.dialogue import Agenda, question_and_answer
from folkmoot.conversation.transcript import EMPTY, Speaker, Transcript, Utterance
from folkmoot.engine.seats.seats import YOURSELF
from folkmoot.engine.session.session import Scope, Session
from folkmoot.kit import coding
from folkmoot.provenance import cell, join, quote
from folkmoot.randomness import uniform
from folkmoot.storage.disk_store import Kept
from folkmoot.studies.cross_pollination.config import (
    EMPTY_ARGUMENT,
    NAMES_ONLY,
    SIMPLE_VOTING,
    CrossPollinationConfig,
)
from folkmoot.studies.cross_pollination.interviews import SATISFIED
from folkmoot.studies.cross_pollination.participants import (
    COMPLETE,
    Participant,
    State,
    quote_options,
    quote_topic,
)
from folkmoot.studies.cross_pollination.tables import (
    FirstVoteRow,
    record_participant,
    recorded_after,
)


@dataclass(frozen=True)
class Put:
    """A vote as it is put: who they are, what is asked, what was heard before."""

    system: str
    prompt: str
    heard: Transcript = EMPTY

    def answered(self, p: Participant, choice: str) -> Put:
        """The conversation with the vote in it, for whatever is asked about it next."""
        vote = (Utterance("", self.prompt), Utterance(p.id, choice))
        return Put(self.system, "", self.heard + vote)


async def vote(
    scope: Scope, config: CrossPollinationConfig, p: Participant, put: Put
) -> str | Missing:
    """One vote; the options are those of the topic in the participant's own order."""
    return await scope.ask(
        p.speaker(put.system),
        put.prompt,
        heard=put.heard,
        answer=Choice(p.options),
        about=config.topic.description,
    )


# --- what is asked beside a vote, where the study file wants it ----------------------------------

BEFORE, AFTER = "before", "after"
RESTATED = Path(__file__).parent / "codebooks" / "restated.yaml"


async def rated(
    scope: Scope, config: CrossPollinationConfig, p: Participant, told: Put, when: str
) -> Participant:
    """The participant with confidence and ranking, asked with the vote in view."""
    who = p.speaker(told.system)
    if config.confidence:
        sure = await scope.at("confidence").ask(
            who,
            scope.prompt("confidence"),
            heard=told.heard,
            answer=Number(0, 100),
            about="confidence in the choice",
        )
        p = p.with_answer(f"confidence_{when}", sure)
    if config.ranking:
        answer_type = Json(
            _ranking_of(p.options),
            options={"ranking": with_ways_out(p.options)},
            may_decline=True,
        )
        options, answer_format = quote_options(p.options), answer_type.describe_format({})
        ranked = await scope.at("ranking").ask(
            who,
            scope.prompt("ranking", options=options, answer_format=answer_format),
            heard=told.heard,
            answer=answer_type,
            about=config.topic.description,
        )
        p = p.with_answer(f"ranking_{when}", _order_of(ranked))
    return p


def _order_of(ranked: BaseModel | Missing) -> list[str] | Missing:
    if isinstance(ranked, Missing):
        return ranked
    order: list[str] = ranked.model_dump()["ranking"]
    return Missing(order[0]) if order[0] in WAYS_OUT else order


def _ranking_of(options: tuple[str, ...]) -> type[BaseModel]:
    """All options, each once, or a way out."""
    ways_out = [way for way in WAYS_OUT if way not in options]

    def complete(ranking: list[str]) -> list[str]:
        if taken := [way for way in ways_out if way in ranking]:
            return taken
        if sorted(ranking) != sorted(options):
            raise ValueError(f"name each of the {len(options)} options once, in their exact words")
        return ranking

    return create_model(
        "Ranking",
        __config__=pin_schema("Ranking"),
        ranking=(
            Annotated[list[str], AfterValidator(complete)],
            Field(description="the exact texts of all options, best first"),
        ),
    )


async def restated(scope: Scope, p: Participant, told: Put) -> Participant:
    """The participant with the opposing view in their words, asked with all in view that the final
    vote had."""
    if p.restated_option is None:
        return p
    scope, speaker = scope.at("restatement"), p.speaker(told.system)
    said = await scope.ask(
        speaker,
        scope.prompt("restatement", option=p.restated_option),
        heard=told.heard,
        answer=Text(offered=(p.restated_option,)),
        about=p.restated_option,
    )
    if not isinstance(said, Missing):
        said = scope.say(speaker, said, public=False, **p.marks).quoted
    return p.with_answer("restatement", said)


def with_other_views(config: CrossPollinationConfig, state: State) -> State:
    """Everybody with the option that they are to restate: the opposing view of their dialogue, else
    the most voted option that is not their own."""
    if not config.restatement:
        return state
    votes = state.votes()

    def find_option_to_restate(p: Participant) -> str | None:
        rest = [o for o in config.topic.options if o != p.initial_choice and votes[o]]
        option = p.opposition_view or max(rest, key=lambda o: votes[o], default=None)
        id = cell("participants.restated_option", p.id)
        return None if option is None else quote(str(option), "option", id)

    return state.updated(p.with_(restated_option=find_option_to_restate(p)) for p in state.active)


async def code_restatements(session: Session[CrossPollinationConfig], state: State) -> None:
    """How far each restatement gives the view's reasons back, by a coder blind to condition."""
    reasons = {
        option: join("\n", filter(None, (c.description for c in state.clusters_of(option))))
        for option in session.config.topic.options
    }
    texts = [
        coding.Text(
            p.id,
            p.restatement,
            p.id,
            about={
                "the opposing view": p.restated_option,
                "its reasons": reasons[p.restated_option] or "not known",
            },
        )
        for p in state.people.values()
        if p.restatement and p.restated_option
    ]
    await coding.code(session, RESTATED, texts)


async def delayed_vote(
    scope: Scope, config: CrossPollinationConfig, state: State, rows: Scope
) -> State:
    """A third vote of those who cast a final one, with nothing in view but that vote."""

    async def vote_again(scope: Scope, p: Participant) -> Participant:
        prompt = scope.prompt(
            "delayed_vote",
            options=quote_options(p.options),
            initial_choice=p.initial_choice,
            final_choice=p.final_choice,
        )
        choice = await vote(scope, config, p, Put(p.system, prompt))
        return record_participant(rows, p.with_answer("delayed_choice", choice))

    voted = [p for p in state.active if p.final_choice is not None]
    return state.updated((await scope.each(voted, vote_again)).values())


# --- phases 1 and 2, and how the final vote of every condition is taken --------------------------


async def initial_vote(scope: Scope, config: CrossPollinationConfig, state: State) -> State:
    """Phase 1: everybody chooses one option, without giving reasons."""

    async def vote_first(scope: Scope, p: Participant) -> Participant:
        p = prepared(p, scope, config)
        put = Put(p.system, scope.prompt("initial_vote", options=quote_options(p.options)))
        choice = await vote(scope, config, p, put)
        if isinstance(choice, Missing):
            return p.without_vote("initial_choice", "initial vote", choice)
        p = p.with_(initial_choice=choice, status=COMPLETE)
        return await rated(scope, config, p, put.answered(p, choice), BEFORE)

    state = state.updated((await scope.each(state.active, vote_first)).values())
    votes = state.votes()
    for option in config.topic.options if votes else ():
        share = round(100 * votes[option] / votes.total())
        scope.record(FirstVoteRow(option=option, votes=votes[option], share=share))
    return state


def prepared(p: Participant, scope: Scope, config: CrossPollinationConfig) -> Participant:
    """The participant with the order in which they see the options, and their system prompt."""
    options = config.topic.options
    if config.option_order == "random":
        options = tuple(sorted(options, key=lambda o: uniform(scope.seed, "option_order", p.id, o)))
    persona = quote(p.persona.text, "persona", cell("participants.persona", p.id), p.id)
    system = scope.prompt(
        "participant_system",
        persona=YOURSELF if scope.oneself(p.id) else persona,
        topic=quote_topic(config),
        options=quote_options(options),
    )
    return p.with_(options=options, told=scope.keep(system))


def threshold_check(scope: Scope, config: CrossPollinationConfig, state: State) -> State:
    """Phase 2: stop when the first vote is already (nearly) unanimous."""
    votes = state.votes()
    if votes.total() == 0:
        return _ended(scope, state, "no participant gave a valid first vote")
    if votes.total() < config.min_responses_for_threshold:
        scope.log(
            f"{votes.total()} votes, fewer than {config.min_responses_for_threshold}: no check"
        )
        return state
    option, most = max(votes.items(), key=lambda item: item[1])
    share = most / votes.total()
    if share < config.disagreement_threshold:
        return state
    return _ended(
        scope,
        state,
        f"{share:.1%} of {votes.total()} first votes are for {option!r} "
        f"(disagreement_threshold {config.disagreement_threshold:g})",
    )


def _ended(scope: Scope, state: State, reason: str) -> State:
    """The study stopped early: those whose part was still to come are skipped.

    Simple voting is complete with its first vote; a second one (`revote`) is our noise floor.
    """
    scope.root.warn(f"the study ends early: {reason}")
    rest = [p for p in state.active if p.condition != SIMPLE_VOTING]
    skipped = [p.skipped(f"terminated early: {reason}") for p in rest]
    return replace(state.updated(skipped), termination_reason=reason)


async def final_vote(
    scope: Scope, config: CrossPollinationConfig, p: Participant, put: Put
) -> Participant:
    """The participant with a final choice and what is asked about it; failed or skipped without
    one."""
    choice = await vote(scope, config, p, put)
    if isinstance(choice, Missing):
        return p.without_vote("final_choice", "final vote", choice)
    told = put.answered(p, choice)
    p = await rated(scope, config, p.with_(final_choice=choice), told, AFTER)
    return await restated(scope, p, told)


# --- phases 6 and 7: what everybody is shown, and the final votes of each kind -------------------


def show_summaries(scope: Scope, config: CrossPollinationConfig, state: State) -> State:
    """Phase 6, first part: what those who read are shown. It is the same for all of one draw, but
    for the order of the options, which is each participant's own."""

    @cache
    def render_page(draw: int, options: tuple[str, ...]) -> Kept[str] | None:
        page = format_cross_pollination_content(scope, config, state, draw, options)
        return scope.keep(page) if page else None

    def reading(p: Participant) -> Participant:
        page = render_page(p.summary_draw or 1, p.options)
        return p.skipped("there are no positions to show") if page is None else p.with_(page=page)

    return state.updated(map(reading, state.chosen(config.those_with("summaries"))))


def format_cross_pollination_content(
    scope: Scope,
    config: CrossPollinationConfig,
    state: State,
    draw: int,
    options: Sequence[str],
) -> str:
    """The viewpoints of all options, in the order given, as markdown; empty when there are no
    described clusters."""
    votes = state.votes()
    sections: list[dict[str, object]] = []
    for option in quote_options(options):
        drawn = (c.descriptions[draw - 1] for c in state.clusters_of(option))
        descriptions = [text for text in drawn if text]
        if descriptions:
            count = quote(votes[option], "value", cell("first_votes.votes", option))
            percent = round(100 * votes[option] / votes.total())
            share = quote(percent, "value", cell("first_votes.share", option))
            sections.append(
                {
                    "option": option,
                    "descriptions": descriptions,
                    "votes": count,
                    "share": share if config.include_vote_distribution else None,
                }
            )
    return scope.prompt("cross_pollination_content", sections=sections) if sections else ""


async def adversarial_dialogue(
    scope: Scope, config: CrossPollinationConfig, state: State, rows: Scope
) -> Iterable[Participant]:
    """Phase 7: Socratic questions from the opposing view, then the final vote."""

    async def argue_and_vote(scope: Scope, p: Participant) -> Participant:
        told = {"base_system_prompt": p.system, "initial_choice": p.initial_choice}
        challenges = scope.prompt(
            "adversarial_moderator",
            topic=quote_topic(config),
            options=quote_options(p.options),
            initial_choice=p.initial_choice,
            cross_pollination_content=p.cross_pollination_content or "",
            opposition_view=p.opposition_view,
        )
        talk = await question_and_answer(
            scope,
            Speaker("moderator", "Moderator", "moderator", challenges),
            p.speaker(scope.prompt("adversarial_participant", **told)),
            Agenda(
                scope.prompt("adversarial_opening"),
                SATISFIED,
                config.max_socratic_exchanges,
                about=p.opposition_view or "",
            ),
            **p.marks,
        )
        p = p.with_(dialogue=scope.keep(talk.transcript))
        if talk.missing is not None:
            return p.failed(f"adversarial dialogue ({talk.silent})", talk.missing)
        if not talk.transcript:
            return p.failed("adversarial dialogue", Missing("moderator said nothing"))
        in_view = config.in_view(p.condition)
        prompt = scope.prompt(
            "final_vote_after_dialogue",
            cross_pollination_content=p.cross_pollination_content if in_view.summaries else "",
            dialogue=talk.transcript,
        )
        system = scope.prompt("dialogue_voter", **told)
        return await final_vote(scope, config, p, Put(system, prompt, _interview(config, p)))

    arguing = state.chosen(config.those_with("dialogue"))
    vote_once = recorded_after(rows, config, argue_and_vote)
    return (await scope.each(arguing, vote_once)).values()


async def cross_pollination(
    scope: Scope, config: CrossPollinationConfig, state: State, rows: Scope
) -> Iterable[Participant]:
    """Phase 6, second part: those who only read vote on what they have read."""

    async def read_and_vote(scope: Scope, p: Participant) -> Participant:
        prompt = scope.prompt(
            "final_vote_after_summary", cross_pollination_content=p.cross_pollination_content
        )
        system = _system(scope, p, "summary_reader")
        return await final_vote(scope, config, p, Put(system, prompt, _interview(config, p)))

    arguing = config.those_with("dialogue")
    reading = [n for n in config.those_with("summaries") if n not in arguing]
    return (
        await scope.each(state.chosen(reading), recorded_after(rows, config, read_and_vote))
    ).values()


async def second_vote(
    scope: Scope, config: CrossPollinationConfig, state: State, rows: Scope
) -> Iterable[Participant]:
    """Votes of those who read nothing and argued with nobody: the noise floor, the placebo arms,
    and those who were interviewed and no more."""

    async def vote_again(scope: Scope, p: Participant) -> Participant:
        options = quote_options(p.options)
        if p.condition == NAMES_ONLY:
            prompt = scope.prompt("names_only_vote", options=options)
        elif p.condition == EMPTY_ARGUMENT:
            others = [o for o in options if o != p.initial_choice]
            other = others[int(scope.rng.integers(len(others)))]
            prompt = scope.prompt("empty_argument_vote", other_option=other)
        elif p.clarification:
            prompt = scope.prompt("final_vote_after_interview", options=options)
        else:
            prompt = scope.prompt("second_vote", options=options)
        system = _system(scope, p, "returning_voter")
        return await final_vote(scope, config, p, Put(system, prompt, _interview(config, p)))

    return (
        await scope.each(
            state.chosen(config.voting_otherwise), recorded_after(rows, config, vote_again)
        )
    ).values()


def _interview(config: CrossPollinationConfig, p: Participant) -> Transcript:
    """The participant's interview where it is in view at the final vote: a model has no memory but
    its prompt."""
    return (p.clarification or EMPTY) if config.in_view(p.condition).interview else EMPTY


def _system(scope: Scope, p: Participant, name: str) -> str:
    return scope.prompt(name, base_system_prompt=p.system, initial_choice=p.initial_choice)
