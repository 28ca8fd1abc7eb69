"""Phase 3: a neutral moderator interviews the clarified participants about their reasons.

Each interview is summarised at its end (the first part of the source's phase 4).
"""

from __future__ import annotations

from folkmoot.conversation.answers import Missing
from folkmoot.conversation.dialogue import question_and_answer
from folkmoot.conversation.transcript import Speaker
from folkmoot.engine.session import Scope
from folkmoot.studies.cross_pollination.config import CrossPollinationConfig
from folkmoot.studies.cross_pollination.participants import Participant, State

SATISFIED = "SATISFIED"
ANALYST = Speaker("summarizer", "Summarizer", "summarizer")


async def clarification(scope: Scope, config: CrossPollinationConfig, state: State) -> State:
    """Interview each participant whose condition has one until the moderator is satisfied."""

    async def one(scope: Scope, p: Participant) -> Participant:
        p = await interviewed(scope, config, p)
        return await summarised(scope.at("summary"), p) if p.active else p

    sitting = state.chosen(config.those_with("interview"))
    return state.updated((await scope.each(sitting, one)).values())


async def interviewed(scope: Scope, config: CrossPollinationConfig, p: Participant) -> Participant:
    """The participant with the transcript of their interview, or failed."""
    asks = scope.prompt(
        "clarification_moderator",
        topic=config.topic,
        options=p.options,
        initial_choice=p.initial_choice,
    )
    answers = scope.prompt(
        "clarification_participant", base_system_prompt=p.system, initial_choice=p.initial_choice
    )
    talk = await question_and_answer(
        scope,
        Speaker("moderator", "Moderator", "moderator", asks),
        p.speaker(answers),
        opening=scope.prompt("clarification_opening"),
        signal=SATISFIED,
        max_exchanges=config.max_clarification_exchanges,
    )
    if talk.missing is None and not talk.transcript:
        return p.failed("clarification", Missing("moderator asked nothing"))
    p = p.with_(interview=scope.keep(talk.transcript))
    return p if talk.missing is None else p.failed(f"clarification ({talk.silent})", talk.missing)


async def summarised(scope: Scope, p: Participant) -> Participant:
    """The participant with the interview in one to three sentences, or failed."""
    prompt = scope.prompt(
        "individual_summary", initial_choice=p.initial_choice, dialogue=p.clarification
    )
    summary = await scope.ask(ANALYST, prompt)
    if isinstance(summary, Missing):
        return p.failed("individual summary", summary)
    return p.with_(individual_summary=summary)
