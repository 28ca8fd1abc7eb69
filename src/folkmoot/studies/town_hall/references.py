"""Mends what a model wrote loosely: ids that do not exist, self-references, levels out of range.

Everything is repaired where the meaning is plain and dropped where it is not, and each case is
noted, so that nothing is scored silently. All functions are pure; the answer types use them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from folkmoot.studies.town_hall.cognition import (
    CHANGES,
    FEELINGS,
    INTERACTIONS,
    STANCES,
    change_between,
)
from folkmoot.studies.town_hall.spelling import ids_in, resolve, spelled, text, whole

EVERYONE = ("all", "moderator", "planner")


@dataclass(frozen=True, slots=True)
class Mend:
    """One thing that was mended. `became` is empty when it was dropped.

    `kind`: unknown_id, self_reference, several_ids, spelling, out_of_range, unknown_value,
    missing_value, repeated, too_many, no_origin, nothing_said_yet, contradiction, wrong_shape.
    """

    field: str
    kind: str
    was: str
    became: str = ""

    @property
    def dropped(self) -> bool:
        return not self.became


@dataclass(slots=True)
class Mender:
    """Mends one reply of one resident. `ids` are all residents, `me` who replied.

    `round` 1 has nothing to react to. `stance` is the resident's own stance before a reflection,
    empty where none is known.
    """

    ids: Sequence[str]
    me: str
    round: int = 2
    stance: str = ""
    mends: list[Mend] = field(default_factory=list)

    def thinking(self, raw: Mapping[str, Any]) -> dict[str, Any]:
        """A THINK reply; what cannot be mended is left for the strict type to refuse."""
        out = dict(raw)
        reactions = self._entries(raw, "reactions")
        kept: list[dict[str, Any]] = []
        for entry in reactions:
            target = self.target(entry.get("target_agent"), "reactions.target_agent")
            if not target:
                continue
            if any(k["target_agent"] == target for k in kept):
                self._note("reactions", "repeated", target)
                continue
            kept.append(
                {
                    "target_agent": target,
                    "target_summary": text(entry.get("target_summary")),
                    "my_feeling": self.choice(entry, "my_feeling", FEELINGS, "reactions"),
                    "agree_level": self.level(entry.get("agree_level")),
                    "reason": text(entry.get("reason")),
                    "want_to_respond": self.truth(entry.get("want_to_respond")),
                }
            )
        out["reactions"] = self._not_in_round_1(kept, "reactions")
        self._stance(out, "overall_stance")
        self._texts(out, "key_concerns")
        out["strategic_notes"] = text(raw.get("strategic_notes"))
        return out

    def speaking(self, raw: Mapping[str, Any]) -> dict[str, Any]:
        """A SPEAK reply; a missing `full_statement` is left for the strict type to refuse."""
        out = dict(raw)
        kept: list[dict[str, Any]] = []
        for entry in self._entries(raw, "references"):
            target = self.target(entry.get("target_agent"), "references.target_agent")
            if not target:
                continue
            kind = self.choice(entry, "interaction_type", INTERACTIONS, "references")
            if kind is None:
                continue
            kept.append(
                {
                    "target_agent": target,
                    "interaction_type": kind,
                    "content": text(entry.get("content")),
                }
            )
        out["references"] = self._not_in_round_1(kept, "references")
        out["questions"] = [q for q in map(self._question, self._entries(raw, "questions")) if q]
        self._texts(out, "new_points")
        if isinstance(raw.get("full_statement"), str):
            out["full_statement"] = raw["full_statement"].strip()
        return out

    def reflection(self, raw: Mapping[str, Any]) -> dict[str, Any]:
        """A REFLECT reply. The stance before is what the resident's own record says."""
        out = dict(raw)
        for name, why in (
            ("most_compelling", "why_compelling"),
            ("most_disagreed", "why_disagree"),
        ):
            entry = raw.get(name)
            out[name] = None
            if not isinstance(entry, Mapping):
                if entry:
                    self._note(name, "wrong_shape", entry)
                continue
            target = self.target(entry.get("agent_id"), f"{name}.agent_id")
            if target:
                summary = text(entry.get("opinion_summary"))
                out[name] = {
                    "agent_id": target,
                    "opinion_summary": summary,
                    why: text(entry.get(why)),
                }
        evolution = raw.get("stance_evolution")
        # Anything but an object is left as something that the strict type refuses.
        if isinstance(evolution, Mapping):
            out["stance_evolution"] = self._evolution(evolution)
        else:
            out["stance_evolution"] = evolution or ""
        out["next_round_strategy"] = text(raw.get("next_round_strategy"))
        return out

    def target(self, raw: Any, where: str, *, self_allowed: bool = False) -> str:
        """The id that is meant, or an empty text when it was dropped."""
        found = resolve(raw, self.ids)
        if not found:
            several = isinstance(raw, str) and len(ids_in(raw, self.ids)) > 1
            self._note(where, "several_ids" if several else "unknown_id", raw)
            return ""
        if found == self.me and not self_allowed:
            self._note(where, "self_reference", raw)
            return ""
        if found != raw:
            self._note(where, "spelling", raw, found)
        return found

    def choice(
        self, entry: Mapping[str, Any], name: str, options: Sequence[str], where: str
    ) -> str | None:
        """One of the options in the spelling that they have, or None when it was dropped."""
        raw = entry.get(name)
        found = spelled(raw, options)
        place = f"{where}.{name}"
        if found is None:
            self._note(place, "unknown_value" if raw else "missing_value", raw)
        elif found != raw:
            self._note(place, "spelling", raw, found)
        return found

    def level(self, raw: Any) -> int | None:
        """An agree level from 1 to 5; out of range is dropped, never moved to the nearest."""
        value = whole(raw, 5)
        if value is None:
            self._note("reactions.agree_level", "unknown_value" if raw else "missing_value", raw)
            return None
        if not 1 <= value <= 5:
            self._note("reactions.agree_level", "out_of_range", raw)
            return None
        if not isinstance(raw, int):
            self._note("reactions.agree_level", "spelling", raw, str(value))
        return value

    def truth(self, raw: Any) -> bool | None:
        """Yes or no, also when written as text."""
        if isinstance(raw, bool):
            return raw
        words = {"true": True, "yes": True, "false": False, "no": False}
        found = words.get(str(raw).strip().casefold())
        kind = "spelling" if found is not None else "unknown_value" if raw else "missing_value"
        self._note("reactions.want_to_respond", kind, raw, "" if found is None else str(found))
        return found

    def _question(self, entry: Mapping[str, Any]) -> dict[str, Any] | None:
        raw = entry.get("target")
        general = spelled(raw, EVERYONE)
        target = general or self.target(raw, "questions.target")
        return {"target": target, "content": text(entry.get("content"))} if target else None

    def _evolution(self, raw: Mapping[str, Any]) -> dict[str, Any]:
        out = dict(raw)
        self._stance(out, "previous_stance")
        self._stance(out, "current_stance")
        said = spelled(raw.get("change_type"), CHANGES)
        if self.stance and out["previous_stance"] != self.stance:
            was = out["previous_stance"]
            self._note("stance_evolution.previous_stance", "contradiction", was, self.stance)
            out["previous_stance"] = self.stance
        if out["previous_stance"] in STANCES and out["current_stance"] in STANCES:
            meant = change_between(out["previous_stance"], out["current_stance"])
            # One may soften or harden and stay on the same step of the scale.
            within = meant == "maintain" and said in ("soften", "harden")
            if said != meant and not within:
                self._note("stance_evolution.change_type", "contradiction", said or "", meant)
                said = meant
        out["change_type"] = said
        out["change_reason"] = text(raw.get("change_reason"))
        return out

    def _stance(self, out: dict[str, Any], name: str) -> None:
        raw = out.get(name)
        found = spelled(raw, STANCES)
        if found is not None and found != raw:
            self._note(name, "spelling", raw, found)
        # Without a stance there is no answer: the strict type refuses, and it is asked again.
        out[name] = found if found is not None else (raw or "none given")

    def _texts(self, out: dict[str, Any], name: str) -> None:
        raw = out.get(name)
        if isinstance(raw, str):
            self._note(name, "wrong_shape", raw, raw)
            raw = [raw]
        if isinstance(raw, Sequence):
            out[name] = [t for t in map(text, raw) if t]

    def _entries(self, raw: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
        value = raw.get(name)
        if isinstance(value, Mapping):
            self._note(name, "wrong_shape", "object", "list")
            value = [value]
        if not isinstance(value, Sequence) or isinstance(value, str):
            if value:
                self._note(name, "wrong_shape", value)
            return []
        kept = [entry for entry in value if isinstance(entry, Mapping)]
        for entry in value:
            if not isinstance(entry, Mapping):
                self._note(name, "wrong_shape", entry)
        return kept

    def _not_in_round_1(self, kept: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
        if self.round > 1:
            return kept
        for entry in kept:
            self._note(name, "nothing_said_yet", entry["target_agent"])
        return []

    def _note(self, where: str, kind: str, was: Any, became: str = "") -> None:
        self.mends.append(Mend(where, kind, text(was)[:80], became[:80]))
