"""What the fields of the studies' objects mean: values by field name, neighbours and prompt.

`Skills` answers the filler: which order to fill fields in, how many entries a list has, what a
field holds. `UNKNOWN` sends the filler back to the schema alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from folkmoot.models.synthetic.draws import Draws
from folkmoot.models.synthetic.grammar import REASONS, Tongue
from folkmoot.models.synthetic.knobs import Knobs
from folkmoot.models.synthetic.latents import Persona
from folkmoot.models.synthetic.reading import Reading
from folkmoot.models.synthetic.roster import ids_in, items, members

UNKNOWN: Final = object()


@dataclass(frozen=True)
class Situation:
    """One request for an object: who answers, what was read, and the run's settings."""

    reading: Reading
    who: Persona
    meet: Callable[..., Persona]
    knobs: Knobs
    seed: int
    address: str


class Skills:
    """Field knowledge for one reply."""

    def __init__(self, situation: Situation) -> None:
        self.at = situation
        self.draws = Draws(situation.seed, situation.address, "object")
        self.tongue = Tongue(situation.who, self.draws)
        self.text = situation.reading.prompt

    def order(self, fields: Mapping[str, Any]) -> list[str]:
        return list(fields)

    def mapping_keys(self, name: str) -> list[str]:
        return list(members(self.text)) or list(items(self.text)) or list(ids_in(self.text))

    def elements(
        self, name: str, fields: Sequence[str], inner: Mapping[str, Any], around: Mapping[str, Any]
    ) -> list[Any] | None:
        return None

    def value(self, name: str, schema: Mapping[str, Any], around: Mapping[str, Any]) -> Any:
        return UNKNOWN

    def sentence(self, name: str, around: Mapping[str, Any]) -> str:
        return self.tongue.fill(self.tongue.frame(REASONS[self.at.who.voice]), O="this")
