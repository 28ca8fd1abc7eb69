"""What a model meant: ids, options and numbers in the many ways in which they get written.

What has a plain meaning is repaired and the rest is dropped. A `Repairer` notes each case, so that
nothing is scored silently.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import ValidationInfo
from rapidfuzz import fuzz

from folkmoot.conversation.answer_types import ValidationContext
from folkmoot.conversation.lenient_fields import fold_option, match_folded, read_number, read_text
from folkmoot.studies.town_hall.answers.options import OptionOrders

_SYNONYMS = {
    "partially_agree": "partial_agree",
    "partial_agreement": "partial_agree",
    "agreement": "agree",
    "support": "agree",
    "disagreement": "disagree",
    "oppose": "disagree",
    "refute": "disagree",
    "citation": "cite",
    "reference": "cite",
    "ask": "question",
    "strongly_support": "strong_support",
    "strongly_oppose": "strong_oppose",
    "maintained": "maintain",
    "softened": "soften",
    "hardened": "harden",
    "flipped": "flip",
    "everyone": "all",
    "everybody": "all",
    "the_moderator": "moderator",
    "the_planner": "planner",
    "urban_planner": "planner",
    "the_urban_planner": "planner",
}


def resolve_id(raw: object, ids: Sequence[str]) -> str:
    """The one id that a text names (`a3`, `Resident A03`, `A03 (teacher)` are A03), or ''."""
    if not isinstance(raw, (str, int)) or isinstance(raw, bool):
        return ""
    if raw in ids:
        return str(raw)
    found = ids_in(str(raw), ids)
    return found[0] if len(found) == 1 and found[0] in ids else ""


def ids_in(raw: str, ids: Sequence[str]) -> list[str]:
    """Ids named in a text, each once; then what looks like an id but is not one (`A99`).

    A bare number counts only when it stands alone.
    """
    by_key = {_comparison_key(resident_id): resident_id for resident_id in ids}
    alone = re.fullmatch(r"\s*(?:resident|agent)?[\s#_-]*(\d{1,4})\s*", raw, re.IGNORECASE)
    if alone:
        numbered = [
            resident_id
            for resident_id in ids
            if re.sub(r"\D", "", resident_id).lstrip("0") == alone[1].lstrip("0")
        ]
        return numbered[:1]
    words = re.findall(r"[A-Za-z]+[\s_-]?\d+", raw)
    found = [by_key[_comparison_key(word)] for word in words if _comparison_key(word) in by_key]
    unknown = [
        word
        for word in words
        if _comparison_key(word) not in by_key and re.match(r"[Aa][\s_-]?\d", word)
    ]
    return list(dict.fromkeys(found)) + unknown


def _comparison_key(name: str) -> str:
    letters, digits = re.sub(r"[\d\s_-]", "", name).casefold(), re.sub(r"\D", "", name)
    return f"{letters}{digits.lstrip('0') or '0'}"


TITLES = {"mr", "mrs", "miss", "dr", "prof", "sir", "don", "herr", "frau", "madame", "monsieur"}


def _strip_accents(said: str) -> str:
    """Without accents, and with one kind of apostrophe."""
    plain = unicodedata.normalize("NFKD", said.replace("’", "'"))
    return unicodedata.normalize(
        "NFC", "".join(column for column in plain if not unicodedata.combining(column))
    )


def _has_case(name: str) -> bool:
    """Where a script has no capitals, words may follow a name without a space."""
    return name.upper() != name.lower()


ALIKE = 85  # of 100: how like its words a passage of a statement must be


def is_quoted(words: str, statement: str) -> bool:
    """Do these words stand in a statement, but for spelling, marks and what an ellipsis omits?"""
    said = _normalise_words(statement)
    parts = [part for part in map(_normalise_words, re.split(r"…|\.\.\.", words)) if part]
    return bool(parts) and all(
        f" {part} " in f" {said} "
        or (len(part) <= len(said) and fuzz.partial_ratio(part, said) >= ALIKE)
        for part in parts
    )


def _normalise_words(said: str) -> str:
    return " ".join(re.findall(r"\w+", unicodedata.normalize("NFKC", said).casefold()))


def _word_stems(said: str) -> set[str]:
    return {word[:5] for word in _normalise_words(said).split() if len(word) > 3}


def match_option(raw: object, options: Sequence[str]) -> str | None:
    """The option that is meant but for case, spaces, hyphens and a few plain synonyms."""
    return match_folded(raw, options) or match_folded(_SYNONYMS.get(fold_option(raw)), options)


def parse_whole_number(raw: object, top: int) -> int | None:
    """A whole number, also in words, or as `4/5` on a scale up to `top` = 5."""
    number = read_number(raw, top)
    return int(number) if number is not None and number.is_integer() else None


@dataclass(frozen=True, slots=True)
class AskContext:
    """Who was asked: `ids` are all residents (`names` by id), `me` who replied.

    `options`: the orders in which closed fields list their options. In `round` 1 there is nothing
    to react to. `stance` is the resident's own stance before a
    reflection, empty where none is known. `think`: are thoughts asked for? `most`: items that a
    ballot may have.
    """

    ids: Sequence[str] = ()
    me: str = ""
    round: int = 2
    stance: str = ""
    think: bool = True
    most: int = 0
    names: Mapping[str, str] = field(default_factory=dict)
    options: OptionOrders = field(default_factory=OptionOrders)

    def find_resident(self, raw: object) -> str:
        """The one resident that a text names, by id or by name, or ''."""
        found = resolve_id(raw, self.ids)
        if found or not isinstance(raw, str):
            return found
        # A name of one word needs its capital ("rose" is also a flower), a longer one does not.
        said = _strip_accents(raw).strip().casefold()
        full = (
            (resident_id, _strip_accents(name).casefold())
            for resident_id, name in self.names.items()
        )
        named = [resident_id for resident_id, name in full if " " in name and name == said]
        named = named or [name for name in self.names if self.calls(name, raw)]
        return named[0] if len(named) == 1 else ""

    def calls(self, target: str, said: str) -> bool:
        """Do these words name a resident: by the whole name, or a part of it that is theirs alone
        ("Siobhán", "O’Brien"), whatever the accents and apostrophes?"""
        name, others = self.names.get(target, target), " ".join(self.names.values())
        parts = [part for part in name.split() if len(part) > 2 and others.split().count(part) == 1]
        said = _strip_accents(said)
        return any(
            re.search(rf"(?<!\w){re.escape(part)}" + (r"(?!\w)" if _has_case(part) else ""), said)
            for part in map(
                _strip_accents,
                (name, *(part for part in parts if part.strip(".").casefold() not in TITLES)),
            )
        )

    def was_said_publicly(self, words: str, target: str, statement: str) -> bool:
        """Can the hall have heard this answer to `target` in a statement, by a rule over words?

        It is a robustness check and decides nothing: people answer each other in words that no
        rule finds. By the rule the words occur there, or a sentence that names `target` shares one
        with it: models copy their words into what they say only roughly.
        """
        if is_quoted(words, statement):
            return True
        told = _word_stems(words) - _word_stems(self.names.get(target, target))
        return any(
            not told or told & _word_stems(sentence)
            for sentence in re.split(r"(?<=[.!?…;])\s", statement)
            if target in ids_in(sentence, self.ids) or self.calls(target, sentence)
        )


@dataclass(frozen=True, slots=True)
class Repairer:
    """Repairs one reply and notes each repair.

    `kind` of a repair: unknown_id, self_reference, several_ids, spelling, out_of_range,
    unknown_value, missing_value, repeated, too_many, no_origin, nothing_said_yet, contradiction,
    wrong_shape.
    """

    asked: AskContext
    reading: ValidationContext

    @classmethod
    def from_info(cls, info: ValidationInfo) -> Repairer:
        """The repairer of a validator; one that knows nobody where an answer is made in Python."""
        reading = ValidationContext.from_info(info)
        return cls(reading.context or AskContext(), reading)

    def note(self, where: str, kind: str, was: object, became: str = "") -> None:
        self.reading.add_repair(where, kind, read_text(was), became)

    def target(self, raw: object, where: str) -> str:
        """The id that is meant, or an empty text when it was dropped."""
        found = self.asked.find_resident(raw)
        if not found:
            several = isinstance(raw, str) and len(ids_in(raw, self.asked.ids)) > 1
            self.note(where, "several_ids" if several else "unknown_id", raw)
        elif found == self.asked.me:
            self.note(where, "self_reference", raw)
            return ""
        elif found != raw:
            self.note(where, "spelling", raw, found)
        return found

    def parse_targets(self, raw: Sequence[object], where: str) -> list[str]:
        """The ids that are meant, each once."""
        found = [self.target(one, where) for one in raw]
        return list(dict.fromkeys(resident_id for resident_id in found if resident_id))

    def choice(self, raw: object, options: Sequence[str], where: str) -> str | None:
        """One of the options in its own spelling, or None when it was dropped."""
        found = match_option(raw, options)
        if found is None:
            self.note(where, "unknown_value" if raw else "missing_value", raw)
        elif found != raw:
            self.note(where, "spelling", raw, found)
        return found

    def choice_or_reask(self, raw: object, options: Sequence[str], where: str) -> object:
        """One of the options in its own spelling; else something that the type refuses."""
        found = match_option(raw, options)
        if found is not None and found != raw:
            self.note(where, "spelling", raw, found)
        return found if found is not None else (raw or "none given")

    def parse_entries(self, value: object, name: str) -> list[Mapping[str, object]]:
        """The objects of a list; anything else in it is dropped."""
        if isinstance(value, Mapping):
            self.note(name, "wrong_shape", "object", "list")
            value = [value]
        if not isinstance(value, Sequence) or isinstance(value, str):
            if value:
                self.note(name, "wrong_shape", value)
            return []
        for entry in value:
            if not isinstance(entry, Mapping):
                self.note(name, "wrong_shape", entry)
        return [entry for entry in value if isinstance(entry, Mapping)]
