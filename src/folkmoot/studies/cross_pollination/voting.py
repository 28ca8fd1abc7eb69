"""All votes of a cross-pollination run, and the questions that follow a vote."""
# The first vote (phases 1 and 2) comes before everything else. The final votes follow a page of
# summaries, an adversarial dialogue (phases 6 and 7), or neither.

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, Field, create_model

from folkmoot.conversation.answer_types import (
    DECLINED,
    WAYS_OUT,
    FieldForPeople,
    Json,
    Missing,
    ParsedAnswer,
    Text,
    parse_way_out,
    pin_schema,
    with_ways_out,
)
from folkmoot.conversation.choices import Choice, Number
from folkmoot.conversation.dialogue import Agenda, interview
from folkmoot.conversation.transcript import EMPTY_TRANSCRIPT, Speaker, Transcript, Utterance
from folkmoot.engine.seats.seats import SELF_DESCRIPTION_PLACEHOLDER
from folkmoot.engine.session.session import Scope, Session
from folkmoot.kit import coding
from folkmoot.provenance import cell_id, join_texts, quote_value
from folkmoot.randomness import uniform_values
from folkmoot.storage.disk_store import StoredValue
from folkmoot.studies.cross_pollination.config import (
    CONFIDENCE_SCALE,
    EMPTY_ARGUMENT,
    NAMES_ONLY,
    SIMPLE_VOTING,
    CrossPollinationConfig,
)
from folkmoot.studies.cross_pollination.interviews import SATISFIED
from folkmoot.studies.cross_pollination.participants import (
    COMPLETE,
    TERMINATED_EARLY,
    Participant,
    State,
    quote_options,
    quote_topic,
)
from folkmoot.studies.cross_pollination.tables import (
    FirstVoteRow,
    record_participant,
    with_recording,
)


@dataclass(frozen=True)
class VotePrompt:
    """Everything that a participant is shown before a vote: system prompt, history and question."""

    system: str
    # The question.
    prompt: str
    history: Transcript = EMPTY_TRANSCRIPT

    def with_vote(self, participant: Participant, choice: str) -> VotePrompt:
        """Return a copy for later questions: with the vote in the history, without a prompt."""
        # Questions about the vote (confidence, ranking, restatement) are asked with this history.
        vote = (Utterance("", self.prompt), Utterance(participant.id, choice))
        return VotePrompt(self.system, "", self.history + vote)


async def ask_vote(
    scope: Scope, config: CrossPollinationConfig, participant: Participant, vote_prompt: VotePrompt
) -> str | Missing:
    """Ask for one vote. Return the chosen option, or a `Missing` if there is no valid reply."""
    # The options of the topic are in the participant's own order.
    return await scope.ask(
        participant.speaker(vote_prompt.system),
        vote_prompt.prompt,
        history=vote_prompt.history,
        answer_type=Choice(participant.options),
        about=config.topic.description,
    )


# --- optional questions that follow a vote -----------------------------------------------------

BEFORE, AFTER = "before", "after"
RESTATED = Path(__file__).parent / "codebooks" / "restated.yaml"


async def ask_confidence_and_ranking(
    scope: Scope,
    config: CrossPollinationConfig,
    participant: Participant,
    vote_prompt: VotePrompt,
    when: str,
) -> Participant:
    """Ask the questions about confidence and ranking that the study file switches on.

    - `vote_prompt`: contains the vote in its history.
    - `when`: `before` or `after`, as in the field `confidence_before`.

    Returns the participant's record with the answers.
    """
    # The history of `vote_prompt` contains the vote. `when` is `before` or `after`, as in the field
    # `confidence_before`.
    speaker = participant.speaker(vote_prompt.system)
    if config.confidence:
        confidence = await scope.child("confidence").ask(
            speaker,
            scope.prompt("confidence"),
            history=vote_prompt.history,
            answer_type=Number(*CONFIDENCE_SCALE, name="confidence"),
            about="confidence in the choice",
        )
        participant = participant.with_answer(f"confidence_{when}", confidence)
    if config.ranking:
        answer_type = Json(
            _ranking_model(participant.options),
            options={"ranking": with_ways_out(participant.options)},
            may_decline=True,
            fields_for_people={"ranking": FieldForPeople("Your ranking", "ranking")},
        )
        options, answer_format = quote_options(participant.options), answer_type.describe_format({})
        answer = await scope.child("ranking").ask(
            speaker,
            scope.prompt("ranking", options=options, answer_format=answer_format),
            history=vote_prompt.history,
            answer_type=answer_type,
            about=config.topic.description,
        )
        participant = participant.with_answer(f"ranking_{when}", _parse_ranking(answer))
    return participant


def _parse_ranking(answer: BaseModel | Missing) -> list[str] | Missing:
    if isinstance(answer, Missing):
        return answer
    order: list[str] = answer.model_dump()["ranking"]
    return Missing(order[0]) if order[0] in WAYS_OUT else order


def _ranking_model(options: tuple[str, ...]) -> type[BaseModel]:
    # A participant may also decline.
    choice = Choice(options, with_labels=False, clarify=False)

    def complete_ranking(ranking: list[str]) -> list[str]:
        entries = [choice.parse_reply(entry) for entry in ranking]
        order = [entry.value for entry in entries if isinstance(entry, ParsedAnswer)]
        others = [
            parse_way_out(entry, WAYS_OUT)
            for entry, parsed in zip(ranking, entries, strict=True)
            if not isinstance(parsed, ParsedAnswer)
        ]
        stated_ways_out = [way_out.reason for way_out in others if way_out is not None]
        is_complete = sorted(order) == sorted(options)
        # The schema lists the ways out beside the options, so some replies name all of them.
        if stated_ways_out and (DECLINED in stated_ways_out or not is_complete):
            return stated_ways_out
        if not is_complete or len(stated_ways_out) < len(others):
            raise ValueError(f"name each of the {len(options)} options once, in their exact words")
        # The order of the list is the ranking. Other ranks in its entries contradict it, unless all
        # of them are the numbers that the options have in the prompt.
        ranks = [
            _stated_rank(entry, parsed.value)
            for entry, parsed in zip(ranking, entries, strict=True)
            if isinstance(parsed, ParsedAnswer)
        ]
        places = range(1, len(options) + 1)
        in_prompt = [options.index(option) + 1 for option in order]
        if not any(
            all(rank in (None, number) for rank, number in zip(ranks, numbers, strict=True))
            for numbers in (places, in_prompt)
        ):
            raise ValueError("the numbers of the options contradict their order, best first")
        return order

    return create_model(
        "Ranking",
        __config__=pin_schema("Ranking"),
        ranking=(
            Annotated[list[str], AfterValidator(complete_ranking)],
            Field(description="the exact texts of all options, best first"),
        ),
    )


_LEADING_NUMBER = re.compile(
    r"\W*(?:(?:option|choice|rank|place|number|no\.|nr\.)\s?)?\W*(\d{1,3})(?!\d)", re.IGNORECASE
)


def _stated_rank(entry: str, option: str) -> int | None:
    # None if the entry begins with no number, or with that of its option ("10 % tax").
    stated, own = _LEADING_NUMBER.match(entry), _LEADING_NUMBER.match(option)
    if stated is None or (own is not None and own[1] == stated[1]):
        return None
    return int(stated[1])


async def ask_restatement(
    scope: Scope, participant: Participant, vote_prompt: VotePrompt
) -> Participant:
    """Ask the participant to state the opposing view, and return the record with the answer."""
    # The participant sees the same conversation as at the final vote, and that vote. Nothing is
    # asked if the participant has no option to restate.
    if participant.restated_option is None:
        return participant
    scope, speaker = scope.child("restatement"), participant.speaker(vote_prompt.system)
    restatement = await scope.ask(
        speaker,
        scope.prompt("restatement", option=participant.restated_option),
        history=vote_prompt.history,
        answer_type=Text(offered_values=(participant.restated_option,)),
        about=participant.restated_option,
    )
    if not isinstance(restatement, Missing):
        restatement = scope.say(
            speaker, restatement, public=False, **participant.utterance_columns
        ).quoted_text
    return participant.with_answer("restatement", restatement)


def assign_restated_options(config: CrossPollinationConfig, state: State) -> State:
    """Assign to each participant the option of the restated reasons, and return the state.

    Returns `state` unchanged if the study file asks for no restatements.
    """
    # After a dialogue this is the option that the moderator argued for. For participants without a
    # dialogue it is the option with the most votes, apart from the participant's own choice.
    if not config.restatement:
        return state
    votes = state.votes()

    def find_option_to_restate(participant: Participant) -> str | None:
        other_options = [
            option
            for option in config.topic.options
            if option != participant.initial_choice and votes[option]
        ]
        option = participant.opposition_view or max(
            other_options, key=lambda option: votes[option], default=None
        )
        # The option reaches the prompt through a cell of the table, so its source is that cell.
        source_id = cell_id("participants.restated_option", participant.id)
        return None if option is None else quote_value(str(option), "option", source_id)

    return state.with_updates(
        participant.with_changes(restated_option=find_option_to_restate(participant))
        for participant in state.active_participants
    )


async def code_restatements(session: Session[CrossPollinationConfig], state: State) -> None:
    """Let a model judge how well each restatement gives the reasons for the opposing view."""
    # The coder is shown the opposing view and its reasons, but not the condition of the
    # participant.
    reasons = {
        option: join_texts(
            "\n", filter(None, (cluster.description for cluster in state.clusters_of(option)))
        )
        for option in session.config.topic.options
    }
    texts = [
        coding.TextToCode(
            participant.id,
            participant.restatement,
            participant.id,
            context={
                "the opposing view": participant.restated_option,
                "its reasons": reasons[participant.restated_option] or "not known",
            },
        )
        for participant in state.people.values()
        if participant.restatement and participant.restated_option
    ]
    await coding.code_texts(session, RESTATED, texts)


async def delayed_vote(
    scope: Scope, config: CrossPollinationConfig, state: State, rows: Scope
) -> State:
    """Ask for a third vote from all participants who gave a final vote, and return the state."""
    # The prompt contains the two earlier votes, but no summaries, interview or dialogue.

    async def vote_again(scope: Scope, participant: Participant) -> Participant:
        prompt = scope.prompt(
            "delayed_vote",
            options=quote_options(participant.options),
            initial_choice=participant.initial_choice,
            final_choice=participant.final_choice,
        )
        choice = await ask_vote(scope, config, participant, VotePrompt(participant.system, prompt))
        return record_participant(rows, participant.with_answer("delayed_choice", choice))

    voted = [
        participant
        for participant in state.active_participants
        if participant.final_choice is not None
    ]
    return state.with_updates((await scope.map(voted, vote_again)).values())


# --- phases 1 and 2, and the final vote of every condition -------------------------------------


async def initial_vote(scope: Scope, config: CrossPollinationConfig, state: State) -> State:
    """Ask every participant to choose one option without giving reasons."""

    async def vote_first(scope: Scope, participant: Participant) -> Participant:
        participant = with_option_order(participant, scope, config)
        # The system prompt depends on the order of the options, so the order is drawn before the
        # vote.
        vote_prompt = VotePrompt(
            participant.system,
            scope.prompt("initial_vote", options=quote_options(participant.options)),
        )
        choice = await ask_vote(scope, config, participant, vote_prompt)
        if isinstance(choice, Missing):
            return participant.without_vote("initial_choice", "initial vote", choice)
        participant = participant.with_changes(initial_choice=choice, status=COMPLETE)
        return await ask_confidence_and_ranking(
            scope, config, participant, vote_prompt.with_vote(participant, choice), BEFORE
        )

    state = state.with_updates((await scope.map(state.active_participants, vote_first)).values())
    votes = state.votes()
    for option in config.topic.options if votes else ():
        share = round(100 * votes[option] / votes.total())
        scope.record(FirstVoteRow(option=option, votes=votes[option], share=share))
    return state


def with_option_order(
    participant: Participant, scope: Scope, config: CrossPollinationConfig
) -> Participant:
    """Choose the order of options for a participant, and write the system prompt in this order.

    Returns the participant's record with both.
    """
    options = config.topic.options
    if config.option_order == "random":
        options = tuple(
            sorted(
                options,
                # Each option is ordered by a hash of seed, participant and option. So the order
                # does not depend on the number of draws made before, and a resume gives the same
                # order.
                key=lambda option: uniform_values(
                    scope.seed, "option_order", participant.id, option
                ),
            )
        )
    persona = quote_value(
        participant.persona.text,
        "persona",
        cell_id("participants.persona", participant.id),
        participant.id,
    )
    as_self = scope.speaks_as_self(participant.id)
    system = scope.prompt(
        "participant_system",
        persona=SELF_DESCRIPTION_PLACEHOLDER if as_self else persona,
        as_self=as_self,
        topic=quote_topic(config),
        options=quote_options(options),
    )
    return participant.with_changes(options=options, stored_system_prompt=scope.store(system))


def threshold_check(scope: Scope, config: CrossPollinationConfig, state: State) -> State:
    """End the study early if the first vote is unanimous or nearly unanimous."""
    votes = state.votes()
    if votes.total() == 0:
        return _terminate_study(scope, state, "no participant gave a valid first vote")
    if votes.total() < config.min_responses_for_threshold:
        scope.log(
            f"{votes.total()} votes, fewer than {config.min_responses_for_threshold}: no check"
        )
        return state
    option, vote_count = max(votes.items(), key=lambda item: item[1])
    share = vote_count / votes.total()
    if share < config.disagreement_threshold:
        return state
    return _terminate_study(
        scope,
        state,
        f"{share:.1%} of {votes.total()} first votes are for {option!r} "
        f"(disagreement_threshold {config.disagreement_threshold:g})",
    )


def _terminate_study(scope: Scope, state: State, reason: str) -> State:
    # The source study has one vote in simple voting. The second vote (`revote`) is an addition of
    # Folkmoot, so these participants are not skipped.
    scope.root.warn(f"the study ends early: {reason}")
    remaining = [
        participant
        for participant in state.active_participants
        if participant.condition != SIMPLE_VOTING
    ]
    skipped = [participant.with_skip(TERMINATED_EARLY + reason) for participant in remaining]
    return replace(state.with_updates(skipped), termination_reason=reason)


async def final_vote(
    scope: Scope, config: CrossPollinationConfig, participant: Participant, vote_prompt: VotePrompt
) -> Participant:
    """Ask for the final vote, and then ask the questions about this vote.

    Returns the participant's record with the answers.
    """
    # If the vote is missing, the status is skipped (the participant declined) or failed.
    choice = await ask_vote(scope, config, participant, vote_prompt)
    if isinstance(choice, Missing):
        return participant.without_vote("final_choice", "final vote", choice)
    after_vote = vote_prompt.with_vote(participant, choice)
    participant = await ask_confidence_and_ranking(
        scope, config, participant.with_changes(final_choice=choice), after_vote, AFTER
    )
    return await ask_restatement(scope, participant, after_vote)


# --- phases 6 and 7: the page of summaries, and the final votes of each kind -------------------


def show_summaries(scope: Scope, config: CrossPollinationConfig, state: State) -> State:
    """Give the page of summaries to all participants of conditions with summaries.

    Returns the state with the pages.
    """
    # If a model wrote the summaries several times, each reader gets one version.

    # Many readers share a draw and an order, so each page is rendered and stored once.
    @cache
    def render_page(draw: int, options: tuple[str, ...]) -> StoredValue[str] | None:
        page = format_cross_pollination_content(scope, config, state, draw, options)
        return scope.store(page) if page else None

    def assign_summary_page(participant: Participant) -> Participant:
        page = render_page(participant.summary_draw or 1, participant.options)
        return (
            participant.with_skip("there are no positions to show")
            if page is None
            else participant.with_changes(page=page)
        )

    return state.with_updates(
        map(assign_summary_page, state.participants_in(config.conditions_with("summaries")))
    )


def format_cross_pollination_content(
    scope: Scope,
    config: CrossPollinationConfig,
    state: State,
    draw: int,
    options: Sequence[str],
) -> str:
    """Return the page of summaries as markdown.

    - `draw`: the number of the version of the descriptions, from 1.
    - `options`: the options in the order of the page.

    Returns "" if no cluster has a description.
    """
    # `draw` says which version of the descriptions is shown, from 1. `options` gives the order.
    votes = state.votes()
    sections: list[dict[str, object]] = []
    for option in quote_options(options):
        all_descriptions = (cluster.descriptions[draw - 1] for cluster in state.clusters_of(option))
        descriptions = [text for text in all_descriptions if text]
        if descriptions:
            count = quote_value(votes[option], "value", cell_id("first_votes.votes", option))
            percent = round(100 * votes[option] / votes.total())
            share = quote_value(percent, "value", cell_id("first_votes.share", option))
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
    """Hold an adversarial dialogue with every participant in a condition that includes dialogues.

    After the dialogue, each participant gives the final vote.
    Returns the participants' records with their final votes.
    """
    # A moderator argues for the opposing view with Socratic questions. Only participants of
    # conditions with `dialogue` take part.

    async def argue_and_vote(scope: Scope, participant: Participant) -> Participant:
        variables = {
            "base_system_prompt": participant.system,
            "initial_choice": participant.initial_choice,
            "options": quote_options(participant.options),
        }
        moderator_prompt = scope.prompt(
            "adversarial_moderator",
            topic=quote_topic(config),
            options=quote_options(participant.options),
            initial_choice=participant.initial_choice,
            cross_pollination_content=participant.cross_pollination_content or "",
            opposition_view=participant.opposition_view,
        )
        result = await interview(
            scope,
            Speaker("moderator", "Moderator", "moderator", moderator_prompt),
            participant.speaker(scope.prompt("adversarial_participant", **variables)),
            Agenda(
                scope.prompt("adversarial_opening"),
                SATISFIED,
                config.max_socratic_exchanges,
                about=participant.opposition_view or "",
            ),
            **participant.utterance_columns,
        )
        # Stored before the checks, so that a failed participant keeps the dialogue so far.
        participant = participant.with_changes(dialogue=scope.store(result.transcript))
        if result.missing is not None:
            return participant.with_failure(
                f"adversarial dialogue ({result.silent_speaker})", result.missing
            )
        if not result.transcript:
            return participant.with_failure(
                "adversarial dialogue", Missing("moderator said nothing")
            )
        shown = config.shown_in_final_vote(participant.condition)
        prompt = scope.prompt(
            "final_vote_after_dialogue",
            cross_pollination_content=participant.cross_pollination_content
            if shown.summaries
            else "",
            dialogue=result.transcript,
        )
        system = scope.prompt("dialogue_voter", **variables)
        return await final_vote(
            scope,
            config,
            participant,
            VotePrompt(system, prompt, _interview_shown_in_final_vote(config, participant)),
        )

    arguing = state.participants_in(config.conditions_with("dialogue"))
    vote_once = with_recording(rows, config, argue_and_vote)
    return (await scope.map(arguing, vote_once)).values()


async def cross_pollination(
    scope: Scope, config: CrossPollinationConfig, state: State, rows: Scope
) -> Iterable[Participant]:
    """Ask for the final vote of participants who get summaries but no dialogue.

    Returns the participants' records with their final votes.
    """

    async def read_and_vote(scope: Scope, participant: Participant) -> Participant:
        prompt = scope.prompt(
            "final_vote_after_summary",
            cross_pollination_content=participant.cross_pollination_content,
        )
        system = _system_prompt(scope, participant, "summary_reader")
        return await final_vote(
            scope,
            config,
            participant,
            VotePrompt(system, prompt, _interview_shown_in_final_vote(config, participant)),
        )

    # Participants with a dialogue vote in `adversarial_dialogue`.
    dialogue_conditions = config.conditions_with("dialogue")
    reading_conditions = [
        name for name in config.conditions_with("summaries") if name not in dialogue_conditions
    ]
    return (
        await scope.map(
            state.participants_in(reading_conditions), with_recording(rows, config, read_and_vote)
        )
    ).values()


async def second_vote(
    scope: Scope, config: CrossPollinationConfig, state: State, rows: Scope
) -> Iterable[Participant]:
    """Ask for the second vote of participants who get neither summaries nor a dialogue.

    Returns the participants' records with their second votes.
    """
    # These are the participants of simple voting, of the placebos, and of an interview alone.

    async def vote_again(scope: Scope, participant: Participant) -> Participant:
        options = quote_options(participant.options)
        if participant.condition == NAMES_ONLY:
            prompt = scope.prompt("names_only_vote", options=options)
        elif participant.condition == EMPTY_ARGUMENT:
            others = [option for option in options if option != participant.initial_choice]
            # The placebo puts another option forward without a reason. The draw uses the
            # participant's own scope, so it does not depend on the order in which participants
            # vote.
            other = others[int(scope.rng.integers(len(others)))]
            prompt = scope.prompt("empty_argument_vote", other_option=other)
        elif participant.clarification_transcript:
            prompt = scope.prompt("final_vote_after_interview", options=options)
        else:
            prompt = scope.prompt("second_vote", options=options)
        system = _system_prompt(scope, participant, "returning_voter")
        return await final_vote(
            scope,
            config,
            participant,
            VotePrompt(system, prompt, _interview_shown_in_final_vote(config, participant)),
        )

    return (
        await scope.map(
            state.participants_in(config.uninformed_revote_conditions),
            with_recording(rows, config, vote_again),
        )
    ).values()


def _interview_shown_in_final_vote(
    config: CrossPollinationConfig, participant: Participant
) -> Transcript:
    # A model remembers only its prompt, so an interview outside the prompt has no influence on the
    # vote.
    return (
        (participant.clarification_transcript or EMPTY_TRANSCRIPT)
        if config.shown_in_final_vote(participant.condition).interview
        else EMPTY_TRANSCRIPT
    )


def _system_prompt(scope: Scope, participant: Participant, name: str) -> str:
    return scope.prompt(
        name, base_system_prompt=participant.system, initial_choice=participant.initial_choice
    )
