"""Phase 7: Socratic questioning from the opposing view, then the final vote of that condition."""

from __future__ import annotations

from folkmoot.conversation.answers import Missing
from folkmoot.conversation.dialogue import question_and_answer
from folkmoot.conversation.transcript import Speaker
from folkmoot.engine.session import Scope
from folkmoot.studies.cross_pollination.clarification import SATISFIED
from folkmoot.studies.cross_pollination.config import ACP, CrossPollinationConfig
from folkmoot.studies.cross_pollination.outputs import Records
from folkmoot.studies.cross_pollination.state import Participant, State
from folkmoot.studies.cross_pollination.voting import final_vote


async def adversarial_dialogue(
    scope: Scope, config: CrossPollinationConfig, state: State, records: Records
) -> State:
    """A dialogue with each adversarial participant who has an opposing view, and their vote."""

    async def one(scope: Scope, p: Participant) -> Participant:
        return records.over(await argued(scope, p.with_(cross_pollination_content=state.content)))

    async def argued(scope: Scope, p: Participant) -> Participant:
        told = {"base_system_prompt": p.system, "initial_choice": p.initial_choice}
        talk = await question_and_answer(
            scope,
            _moderator(scope, config, p),
            p.speaker(scope.prompt("adversarial_participant", **told)),
            opening=scope.prompt("adversarial_opening"),
            signal=SATISFIED,
            max_exchanges=config.max_socratic_exchanges,
        )
        p = p.with_(adversarial=talk.transcript)
        if talk.missing is not None:
            return p.failed(f"adversarial dialogue ({talk.silent})", talk.missing)
        if not talk.transcript:
            return p.failed("adversarial dialogue", Missing("moderator said nothing"))
        prompt = scope.prompt("final_vote_after_dialogue", dialogue=talk.transcript)
        return await final_vote(scope, p, scope.prompt("dialogue_voter", **told), prompt)

    facing = [p for p in state.chosen(ACP) if p.opposition_view is not None]
    return state.updated((await scope.each(facing, one)).values())


def _moderator(scope: Scope, config: CrossPollinationConfig, p: Participant) -> Speaker:
    return Speaker(
        "moderator",
        "Moderator",
        "moderator",
        scope.prompt(
            "adversarial_moderator",
            topic=config.topic,
            options=p.options,
            initial_choice=p.initial_choice,
            cross_pollination_content=p.cross_pollination_content,
            opposition_view=p.opposition_view,
        ),
    )
