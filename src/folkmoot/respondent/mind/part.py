"""`RespondentPart`, by which a study type computes answers of the embedded respondent.

The embedded respondent answers by rules in place of a model.
"""

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
    """The rules by which the embedded respondent answers the questions of one study type.

    - `option_names`: takes the configuration, and returns the names of the options on which people
      have opinions.
    - `answers`: a function for each kind of question. A key is the title of a JSON schema, or role
      and kind of answer.
    - `lexicon`: the argument phrases for the study's topics. They replace the general phrases.

    A function in `answers` takes a `SimulatedRespondent` and returns a text, a number or some
    fields of an object. General rules fill in the other fields. General rules give the whole answer
    if the function returns None.

    Example:

        RespondentPart(answers={"Stance": answer_stance, "moderator text": challenge})
    """

    # A name counts only if a passage of the request contains it.

    option_names: Callable[[C], Sequence[str]] = _no_options
    answers: Mapping[str, Answering] = field(default_factory=dict)
    lexicon: Lexicon | None = None
