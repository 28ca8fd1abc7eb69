"""The statements that a resident has heard.

Built-in rules, which answer in place of a model, react to these statements.
"""

# The embedded respondent responds more often to residents who are named.

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

# Weight of being named by a resident. The weight of a leader is 1.
ASIDE_WEIGHT = 0.25
# Maximum number of residents named in a sentence before it is a list.
MAX_NAMED_RESIDENTS = 4
# Weighted number of sentences at which being named has half of its maximum effect.
HALF_SATURATION = 2.0
# The moderator and the planner together, as those who name residents.
LEADER = ""
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")


def split_sentences(text: str) -> list[str]:
    """Split a text at the ends of sentences and lines."""
    return _SENTENCE.split(text)


@lru_cache(maxsize=256)
def _any_name(names: tuple[str, ...]) -> re.Pattern[str]:
    longest_first = map(re.escape, sorted(names, key=len, reverse=True))
    # Without names, the pattern matches nothing.
    return re.compile(rf"\b(?:{'|'.join(longest_first) or '(?!)'})\b")


class HeardStatements:
    """The public statements of a meeting, as one prompt shows them."""

    def __init__(
        self,
        # (Resident id, text) in order.
        statements: Sequence[tuple[str, str]],
        # Resident id → name.
        names: Mapping[str, str],
        # Utterances of moderator and planner.
        leader_texts: Sequence[str] = (),
        # Resident id → text of the questions that the resident asked.
        questions: Mapping[str, str] | None = None,
    ) -> None:
        self.statements, self.names, self.leader_texts, self.questions = (
            tuple(statements),
            names,
            leader_texts,
            questions or {},
        )
        self.last = dict(self.statements)
        self._id_by_name = {resident_id: resident_id for resident_id in (*names, *self.last)}
        for resident_id, name in names.items():
            # A prompt may write names in capitals, and a statement may not.
            self._id_by_name |= dict.fromkeys((name, name.title(), name.upper()), resident_id)
        self._name_pattern = _any_name(tuple(self._id_by_name))
        self._mentions: list[tuple[str, set[str]]] = []
        for speaker, text in (
            *self.statements,
            *((LEADER, leader_text) for leader_text in leader_texts),
        ):
            for sentence in split_sentences(text):
                named_ids = self.named_in(sentence)
                # A list of residents addresses none of them in particular.
                if 0 < len(named_ids) <= MAX_NAMED_RESIDENTS:
                    self._mentions.append((speaker, named_ids))

    def with_statements(self, statements: Sequence[tuple[str, str]]) -> HeardStatements:
        """Return a copy with `statements` added at the end.

        `statements`: pairs of a speaker id and a text.
        """
        return HeardStatements(
            (*self.statements, *statements), self.names, self.leader_texts, self.questions
        )

    def named_in(self, text: str) -> set[str]:
        """Return the ids of the residents that a text names by id or by name."""
        return {self._id_by_name[name] for name in self._name_pattern.findall(text)}

    def statements_by(self, speaker_id: str) -> str:
        """Return all statements of a resident as one text."""
        return " ".join(text for resident_id, text in self.statements if resident_id == speaker_id)

    def name(self, resident_id: str) -> str:
        return self.names.get(resident_id, resident_id)

    def naming_weight(self, resident_id: str, excluding: str = LEADER) -> float:
        """Return a weighted count of the sentences by other speakers that name a resident.

        `excluding`: the id of a speaker. Sentences of this speaker are not counted.
        """
        # Sentences of the moderator or planner weigh more than those of residents.
        # An invitation to speak by moderator or planner (`LEADER`) is not yet a response.
        return math.fsum(
            1.0 if speaker == LEADER else ASIDE_WEIGHT
            for speaker, named_ids in self._mentions
            if resident_id in named_ids and speaker not in (resident_id, excluding)
        )


def saturating_share(amount: float) -> float:
    """Return how strong the effect of being named is, from 0 to almost 1.

    `amount`: the weighted number of sentences that name the resident. The effect grows with
    `amount`, but ever more slowly.
    """
    return amount / (amount + HALF_SATURATION)
