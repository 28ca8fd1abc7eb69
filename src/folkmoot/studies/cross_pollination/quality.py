"""What is asked about decisions beyond their change, each only where the study file wants it:
confidence and a ranking before and after, the opposing view restated, a third vote later.

An answer that cannot be had stays unknown; nobody leaves the study for it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import AfterValidator, BaseModel, create_model

from folkmoot.conversation.answers import Json, Missing, Text
from folkmoot.conversation.choices import Number
from folkmoot.engine.session import Scope, Session
from folkmoot.kit import coding
from folkmoot.studies.cross_pollination.asking import Put, vote
from folkmoot.studies.cross_pollination.config import CrossPollinationConfig
from folkmoot.studies.cross_pollination.participants import Participant, State

T = TypeVar("T")
BEFORE, AFTER = "before", "after"
RESTATED = Path(__file__).parent / "codebooks" / "restated.yaml"


async def rated(
    scope: Scope, config: CrossPollinationConfig, p: Participant, told: Put, when: str
) -> Participant:
    """The participant with confidence and ranking, asked with the vote in view."""
    who = p.speaker(told.system)
    if config.confidence:
        sure = await scope.at("confidence").ask(
            who, scope.prompt("confidence"), heard=told.heard, answer=Number(0, 100)
        )
        p = p.with_(**{f"confidence_{when}": _known(sure)})
    if config.ranking:
        ranked = await scope.at("ranking").ask(
            who,
            scope.prompt("ranking", options=p.options),
            heard=told.heard,
            answer=Json(_ranking_of(p.options), options={"ranking": p.options}),
        )
        order = None if isinstance(ranked, Missing) else ranked.model_dump()["ranking"]
        p = p.with_(**{f"ranking_{when}": order})
    return p


def _known(answer: T | Missing) -> T | None:
    return None if isinstance(answer, Missing) else answer


def _ranking_of(options: tuple[str, ...]) -> type[BaseModel]:
    """All options, each once."""

    def complete(ranking: list[str]) -> list[str]:
        if sorted(ranking) != sorted(options):
            raise ValueError(f"name each of the {len(options)} options once, in their exact words")
        return ranking

    return create_model("Ranking", ranking=(Annotated[list[str], AfterValidator(complete)], ...))


async def restated(scope: Scope, p: Participant, told: Put) -> Participant:
    """The participant with the opposing view in their words, asked with all in view that the final
    vote had."""
    if p.restated_option is None:
        return p
    said = await scope.at("restatement").ask(
        p.speaker(told.system),
        scope.prompt("restatement", option=p.restated_option),
        heard=told.heard,
        answer=Text(offered=(p.restated_option,)),
    )
    return p.with_(restatement=_known(said))


def with_other_views(config: CrossPollinationConfig, state: State) -> State:
    """Everybody with the option that they are to restate: the opposing view of their dialogue, else
    the most voted option that is not their own."""
    if not config.restatement:
        return state
    votes = state.votes()

    def other(p: Participant) -> str | None:
        rest = [o for o in config.topic.options if o != p.initial_choice and votes[o]]
        return p.opposition_view or max(rest, key=lambda o: votes[o], default=None)

    return state.updated(p.with_(restated_option=other(p)) for p in state.active)


async def code_restatements(session: Session[CrossPollinationConfig], state: State) -> None:
    """How far each restatement gives the view's reasons back, by a coder blind to condition."""
    reasons = {
        option: "\n".join(filter(None, (c.description for c in state.clusters_of(option))))
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


async def delayed_vote(scope: Scope, state: State) -> State:
    """A third vote of those who cast a final one, with nothing in view but that vote."""

    async def one(scope: Scope, p: Participant) -> Participant:
        prompt = scope.prompt(
            "delayed_vote",
            options=p.options,
            initial_choice=p.initial_choice,
            final_choice=p.final_choice,
        )
        return p.with_(delayed_choice=_known(await vote(scope, p, Put(p.system, prompt))))

    voted = [p for p in state.active if p.final_choice is not None]
    return state.updated((await scope.each(voted, one)).values())
