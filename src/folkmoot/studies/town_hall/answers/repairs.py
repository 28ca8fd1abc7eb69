"""Functions that read ids, options and numbers in the various spellings that models use."""

# A value with a clear meaning is repaired. Any other value is dropped. `Repairer` notes both cases
# for the quality counts.

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import ValidationInfo
from rapidfuzz import fuzz

from folkmoot.conversation.answer_format import normalise_words
from folkmoot.conversation.answer_types import ValidationContext
from folkmoot.conversation.json_replies import CUT_MARK
from folkmoot.conversation.lenient_fields import fold_option, match_folded, read_number, read_text
from folkmoot.conversation.reply_forms import strip_accents
from folkmoot.studies.town_hall.answers.options import STANCES, OptionOrders

# Words that models use for the options of closed fields, by their folded spelling. The table has
# only words with one plain meaning, since a wrong synonym would change an answer.
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
    """Return the resident id that a text such as `a3` or `A03 (teacher)` names.

    Returns "" if the text names none of `ids`, or several ids, or does not begin with the id.
    """
    if not isinstance(raw, (str, int)) or isinstance(raw, bool):
        return ""
    if raw in ids:
        return str(raw)
    found_ids = ids_in(str(raw), ids)
    is_named_first = _ID_WORD.match(_remove_labels(str(raw)))
    return found_ids[0] if is_named_first and len(found_ids) == 1 and found_ids[0] in ids else ""


def ids_in(raw: str, ids: Sequence[str]) -> list[str]:
    """Return the resident ids in a text: first those in `ids`, then unknown ones.

    A word that only looks like an id, such as `A99`, is returned as an unknown id.
    """
    by_key = {_comparison_key(resident_id): resident_id for resident_id in ids}
    bare_number = re.fullmatch(r"(?:resident|agent)?[\s#_-]*(\d{1,4})", raw.strip(), re.IGNORECASE)
    if bare_number:
        numbered = [
            resident_id
            for resident_id in ids
            if re.sub(r"\D", "", resident_id).lstrip("0") == bare_number[1].lstrip("0")
        ]
        # A number in a longer text is more often a count or a year than an id.
        return numbered[:1]
    words = [match[0] for match in _ID_WORD.finditer(raw) if not match[0].isdecimal()]
    found = [by_key[_comparison_key(word)] for word in words if _comparison_key(word) in by_key]
    unknown = [
        word
        for word in words
        if _comparison_key(word) not in by_key and re.match(r"[Aa][\s_-]?\d", word)
    ]
    return list(dict.fromkeys(found)) + unknown


@functools.lru_cache(maxsize=4096)
def _comparison_key(name: str) -> str:
    letters, digits = re.sub(r"[\d\s_-]", "", name).casefold(), re.sub(r"\D", "", name)
    return f"{letters}{digits.lstrip('0') or '0'}"


# Parts of names that identify no one. They are compared without a final full stop.
TITLES = {
    *("mr", "mrs", "ms", "miss", "dr", "prof", "sir", "don", "herr", "frau", "madame", "monsieur")
}
# A word such as `A03`, or a number. The lookbehind keeps the time linear in a long text.
_ID_WORD = re.compile(r"(?<![A-Za-z])(?:[A-Za-z]+[\s_-]?)?\d+")
# Words before an id or a name that do not change who is meant. Other words may: "not A04".
_LABELS = re.compile(
    rf"\W*(?:(?:the|to|resident|agent|speaker|id|{'|'.join(sorted(TITLES))})(?![^\W_])[\W_]*)*",
    re.IGNORECASE,
)


def _remove_labels(text: str) -> str:
    labels = _LABELS.match(text)
    return text[labels.end() :] if labels else text


def _fold_name(text: str) -> str:
    return strip_accents(text.replace("’", "'"))


def _has_case(name: str) -> bool:
    # Scripts without upper and lower case may have no space after a name.
    return name.upper() != name.lower()


# A discussion asks for the same names in each reply.
@functools.lru_cache(maxsize=1024)
def _compile_name(name: str, all_names: tuple[str, ...]) -> re.Pattern[str]:
    """Return the pattern of a name, or of a part of it that only one of `all_names` has."""
    words = " ".join(all_names).split()
    # Parts of one or two letters are initials or particles, which match too easily.
    parts = [
        part
        for part in name.split()
        if len(part) > 2 and words.count(part) == 1 and part.strip(".").casefold() not in TITLES
    ]
    alternatives = [
        re.escape(part) + (r"(?!\w)" if _has_case(part) else "")
        for part in map(_fold_name, (name, *parts))
    ]
    return re.compile(rf"(?<!\w)(?:{'|'.join(alternatives)})")


# Minimum similarity (0 to 100, `rapidfuzz.fuzz.partial_ratio`) at which a passage counts as quoted.
# It allows for a changed word or ending in a sentence.
MIN_SIMILARITY = 85


def is_quoted(words: str, statement: str) -> bool:
    """Return whether a statement contains `words`, or nearly the same words."""
    # An ellipsis in `words` marks an omission. The parts before and after it are searched
    # separately.
    normalised = normalise_words(statement)
    parts = [part for part in map(normalise_words, re.split(r"…|\.\.\.", words)) if part]
    return bool(parts) and all(
        f" {part} " in f" {normalised} "
        or (len(part) <= len(normalised) and fuzz.partial_ratio(part, normalised) >= MIN_SIMILARITY)
        for part in parts
    )


# Five letters join most inflected forms of a word. Shorter words are mostly articles and pronouns.
def _word_stems(text: str) -> set[str]:
    return {word[:5] for word in normalise_words(text).split() if len(word) > 3}


def match_option(raw: object, options: Sequence[str]) -> str | None:
    """Return the option that matches a value.

    Returns None if no option matches.
    """
    # Case, spaces and hyphens are ignored, and plain synonyms are accepted.
    return match_folded(raw, options) or match_folded(_SYNONYMS.get(fold_option(raw)), options)


def parse_whole_number(raw: object, top: int) -> int | None:
    """Return a whole number that is written as digits, as a word, or as a score such as `4/5`.

    `top`: the highest score, which is the second number in `4/5`.

    Returns None for any other value.
    """
    number = read_number(raw, top)
    return int(number) if number is not None and number.is_integer() else None


@dataclass(frozen=True, slots=True)
class AskContext:
    """The facts needed to read an answer: known ids, names, option orders and the round."""

    # All residents.
    ids: Sequence[str] = ()
    # The id of the speaker.
    me: str = ""
    # The number of the round. In round 1 there is no earlier statement to react to.
    round: int = 2
    # The resident's recorded stance before a reflection, or "".
    stance: str = ""
    # True if the question asks for thoughts.
    think: bool = True
    # The maximum number of ballot items.
    most: int = 0
    # Resident id → name.
    names: Mapping[str, str] = field(default_factory=dict)
    # The orders of options in fields with a fixed list of options.
    options: OptionOrders = field(default_factory=OptionOrders)

    def find_resident(self, raw: object) -> str:
        """Return the id of the resident that a text names by id or name.

        Returns "" unless the text names exactly one resident.
        """
        # "A1…" was cut off and may be the beginning of "A12".
        if isinstance(raw, str) and raw.rstrip().endswith(CUT_MARK):
            return ""
        match = resolve_id(raw, self.ids)
        if match or not isinstance(raw, str):
            return match
        # A name of one word needs its capital ("rose" is also a flower), a longer one does not.
        folded = _fold_name(raw).strip().casefold()
        full_names = (
            (resident_id, _fold_name(name).casefold()) for resident_id, name in self.names.items()
        )
        matches = [
            resident_id for resident_id, name in full_names if " " in name and name == folded
        ]
        matches = matches or [name for name in self.names if self.is_mentioned(name, raw)]
        return matches[0] if len(matches) == 1 and self._is_named_first(matches[0], folded) else ""

    def _is_named_first(self, target: str, folded: str) -> bool:
        name, text = _fold_name(self.names[target]).casefold(), _remove_labels(folded)
        if not _has_case(name):
            return text.startswith(tuple(name.split()))
        return any(word in re.findall(r"\w+", name) for word in re.findall(r"\w+", text)[:1])

    def is_mentioned(self, target: str, text: str) -> bool:
        """Return whether a text names a resident."""
        # Accents and forms of apostrophes are ignored. A part of the name is enough ("Siobhán",
        # "O’Brien") if no other resident has it.
        name = _compile_name(self.names.get(target, target), tuple(self.names.values()))
        return name.search(_fold_name(text)) is not None

    def was_said_publicly(self, words: str, target: str, statement: str) -> bool:
        """Return whether a public statement seems to contain the reply `words` to `target`.

        Paraphrases of the reply are missed, so use this only as a robustness check.
        """
        # A sentence that names `target` and shares a word stem with `words` counts too.
        if is_quoted(words, statement):
            return True
        # The name itself does not count as a shared word, since the sentence names the target
        # anyway.
        content_stems = _word_stems(words) - _word_stems(self.names.get(target, target))
        return any(
            not content_stems or content_stems & _word_stems(sentence)
            for sentence in re.split(r"(?<=[.!?…;])\s", statement)
            if target in ids_in(sentence, self.ids) or self.is_mentioned(target, sentence)
        )


@dataclass(frozen=True, slots=True)
class Repairer:
    """Repairs the fields of one reply and notes each repair."""

    # Kinds of repair: unknown_id, self_reference, several_ids, spelling, out_of_range,
    # unknown_value, missing_value, repeated, too_many, no_origin, nothing_said_yet, contradiction,
    # wrong_shape.
    asked: AskContext
    reading: ValidationContext

    @classmethod
    def from_info(cls, info: ValidationInfo) -> Repairer:
        """Return the repairer for the answer that a pydantic validator checks."""
        # If the answer was built in Python and not read from a reply, the repairer knows no
        # residents.
        reading = ValidationContext.from_info(info)
        return cls(reading.context or AskContext(), reading)

    def note(self, field: str, kind: str, original: object, replacement: str = "") -> None:
        """Note a repair of a field.

        An empty `replacement` means that the value was dropped.
        """
        written = original if isinstance(original, bool) else read_text(original)
        self.reading.add_repair(field, kind, written, replacement)

    def has_dropped_unread(self, name: str) -> bool:
        """Return whether an entry of the list `name` was dropped that could not be read."""
        # A reference to oneself can be read: it refers to no other resident.
        return any(
            repair.is_dropped
            and repair.kind != "self_reference"
            and repair.field.partition(".")[0] == name
            for repair in self.reading.repairs
        )

    def target(self, raw: object, field: str) -> str:
        """Return the id of the resident that a value names.

        Returns "" unless the value names exactly one resident other than the speaker.
        """
        match = self.asked.find_resident(raw)
        if not match:
            has_several_ids = isinstance(raw, str) and len(ids_in(raw, self.asked.ids)) > 1
            self.note(field, "several_ids" if has_several_ids else "unknown_id", raw)
        # The measures count reactions of other residents, so a reference to oneself is dropped.
        elif match == self.asked.me:
            self.note(field, "self_reference", raw)
            return ""
        elif match != raw:
            self.note(field, "spelling", raw, match)
        return match

    def parse_targets(self, raw: Sequence[object], field: str) -> list[str]:
        """Return the ids of the residents that the values in `raw` name, each id once."""
        targets = [self.target(entry, field) for entry in raw]
        return list(dict.fromkeys(resident_id for resident_id in targets if resident_id))

    def choice(self, raw: object, options: Sequence[str], field: str) -> str | None:
        """Return the option that matches a value, and note a change of spelling.

        Returns None and notes the problem if no option matches.
        """
        option = match_option(raw, options)
        if option is None:
            self.note(field, "unknown_value" if raw else "missing_value", raw)
        elif option != raw:
            self.note(field, "spelling", raw, option)
        return option

    def stance_or_reask(self, raw: object, field: str) -> object:
        """Return the stance that matches a value.

        If no stance matches, the result fails validation, so the question is asked again.
        """
        stance = match_option(raw, STANCES)
        if stance is not None and stance != raw:
            self.note(field, "spelling", raw, stance)
        return stance if stance is not None else (raw or "none given")

    def parse_entries(self, value: object, name: str) -> list[Mapping[str, object]]:
        """Return the JSON objects in a list. All other entries are dropped."""
        # A single object counts as a list of one object.
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
