"""The interface by which a study type tells the embedded respondent what its answers mean."""

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
    """A study type's extension of the embedded respondent: what the answers of the study mean.

    Args:
        option_names: takes the configuration and returns the names that opinions are about, such
            as options or proposals. A name counts only if a passage of the request contains it.
        answers: key of an answer → function that takes a `SimulatedRespondent` and returns the
            answer. The key is the title of the JSON schema ("Stance"), or role and kind
            ("moderator text"). The answer is a text, a number, or some fields of an object. Missing
            fields are filled in by general rules. They also answer if the function returns None.
        lexicon: the argument phrases of the study's topics, which replace the general phrases.
    """

    option_names: Callable[[C], Sequence[str]] = _no_options
    answers: Mapping[str, Answering] = field(default_factory=dict)
    lexicon: Lexicon | None = None
