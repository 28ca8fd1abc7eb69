"""The persona of a participant, independent of its source."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

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
    """The description of one participant, made by one of the sources.

    - `text`: the full description, which completes the sentence "You are …".
    - `base`: the raw line from which the persona was made. Two personas with the same line count as
      the same persona.
    - `demographics`: the known values of `DEMOGRAPHIC_KEYS`.
    - `source`: `persona_hub`, `quota`, `grounded`, `table` or `migrated`.
    - `extra`: further values of a source (JSON values only).
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
        """The key by which two personas count as the same, see `persona_key`."""
        return persona_key(self.base or self.text)

    def with_id(self, new_id: str) -> Persona:
        """Return the persona under another id (`p_0001` in one run, `p_0042` in the next)."""
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
        """Return the persona from an object that `to_json` or an earlier version wrote.

        Raises ValueError if there is no description or a field has the wrong type.
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
    """Return "a" or "an" for the following word: an artist, an 18-year-old, a user."""
    return "an" if re.match(r"[aeio]|8|(?:11|18)\b", following.lower()) else "a"


def persona_key(base: str) -> str:
    """Return the key of a raw persona line.

    Lines that differ only in case, spaces or a final full stop have the same key.
    """
    return " ".join(base.casefold().split()).rstrip(".")
