"""`RespondentPart`: how a study type computes the answers of the embedded respondent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from folkmoot.respondent.mind.lexicon import Lexicon

if TYPE_CHECKING:
    from folkmoot.respondent.mind.mind import SimulatedRespondent

C = TypeVar("C")
Answering = Callable[["SimulatedRespondent"], object]


def _no_options(_config: object) -> Sequence[str]:
    return ()


@dataclass(frozen=True, slots=True, eq=False)
class RespondentPart(Generic[C]):
    """How the rule-based embedded respondent answers the questions of one study type.

    - `option_names`: takes the configuration and returns the names that opinions are about.
    - `answers`: functions that answer, by JSON schema title or by role and kind.
    - `lexicon`: the argument phrases of the study's topics, in place of the general phrases.

    A function takes a `SimulatedRespondent` and returns a text, a number or fields of an object.
    General rules fill in missing fields, and they answer if the function returns None.

    Example:

        RespondentPart(answers={"Stance": answer_stance, "moderator text": challenge})
    """

    # A name counts only if a passage of the request contains it.

    option_names: Callable[[C], Sequence[str]] = _no_options
    answers: Mapping[str, Answering] = field(default_factory=dict)
    lexicon: Lexicon | None = None
