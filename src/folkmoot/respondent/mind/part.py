"""What a study tells the embedded respondent: `Study(respondent=Part(...))`."""

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
    """A study's own part of the respondent: what its answers mean, not how its prompts say it.

    names    from the study's settings to the names of what opinions are about: its options, its
             concept, its proposals. A name counts only if it occurs in a passage.
    answers  who gives an answer of what kind → a function of the `SimulatedRespondent` that is
    asked. The key is
             the title of the answer's JSON schema ("Stance"), or role and kind ("moderator text",
             "participant number"). It gives the answer: text, a number, or of an object the fields
             that it knows (the schema fills in the others); None leaves it to the shared part.
    lexicon  the argument phrases of its topics, in place of the general ones.
    """

    option_names: Callable[[C], Sequence[str]] = _no_options
    answers: Mapping[str, Answering] = field(default_factory=dict)
    lexicon: Lexicon | None = None
