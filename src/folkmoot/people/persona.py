"""The persona of a participant."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from folkmoot.hints import collapse_spaces

DEMOGRAPHIC_KEYS = (
    "age",
    "sex",
    "education",
    "income",
    "location_type",
    "political_leaning",
    "occupation",
)


@dataclass(frozen=True, slots=True)
class Persona:
    """The description of one participant.

    - `text`: the full description, which completes the sentence "You are …".
    - `base`: the raw line from which the persona was made.
    - `demographics`: the known demographics. The keys are among `DEMOGRAPHIC_KEYS`.
    - `source`: `persona_hub`, `quota`, `grounded`, `table` or `migrated`.
    - `extra`: further values that the source gives, as JSON values.
    """

    id: str
    text: str
    base: str = ""
    demographics: Mapping[str, Any] = field(default_factory=dict)
    source: str = ""
    name: str = ""
    extra: Mapping[str, object] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The key of the persona, made from the raw line. Personas with equal keys count as one."""
        return persona_key(self.base or self.text)

    def with_id(self, new_id: str) -> Persona:
        """Return a copy of the persona with the id `new_id`."""
        return replace(self, id=new_id)

    def to_json(self) -> dict[str, object]:
        """Return the persona as a JSON object, which `from_json` reads."""
        out: dict[str, object] = {
            "id": self.id,
            "name": self.name,
            "base_persona": self.base,
            "demographics": dict(self.demographics),
            "enriched_persona": self.text,
            "source": self.source,
        }
        if self.extra:
            out["extra"] = dict(self.extra)
        return out

    @classmethod
    def from_json(cls, data: Mapping[str, object], *, source: str = "") -> Persona:
        """Return the persona from a JSON object that `to_json` made.

        Raises ValueError if the description of the persona is missing or a field has the wrong
        type.
        """
        # Pools and runs of earlier versions use different keys for the description.
        text = data.get("enriched_persona") or data.get("text")
        base = data.get("base_persona") or ""
        demographics = data.get("demographics") or {}
        extra = data.get("extra") or {}
        if not isinstance(text, str) or not text.strip():
            raise ValueError("no `enriched_persona` text")
        if not isinstance(base, str):
            raise ValueError("`base_persona` is not text")
        if not isinstance(demographics, Mapping) or not isinstance(extra, Mapping):
            raise ValueError("`demographics` or `extra` is not an object")
        return cls(
            id=str(data.get("id") or data.get("participant_id") or ""),
            text=text.strip(),
            base=base.strip(),
            demographics=dict(demographics),
            source=str(source or data.get("source") or ""),
            name=str(data.get("name") or ""),
            extra=dict(extra),
        )


def indefinite_article(following: str) -> str:
    """Return the article ("a" or "an") that goes before the word `following`."""
    return "an" if re.match(r"[aeio]|8|(?:11|18)\b", following.lower()) else "a"


def persona_key(base: str) -> str:
    """Return the raw line `base` in lower case, with single spaces and no final full stop."""
    return collapse_spaces(base.casefold()).rstrip(".")
