"""Sentences of the embedded respondent, made from the templates in `speech.yaml`.

The embedded respondent answers by rules in place of a model.
"""
# The slots of a template are filled with names and argument phrases.

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from folkmoot.files import packaged_yaml
from folkmoot.hints import capitalise
from folkmoot.respondent.mind.draws import Draws
from folkmoot.respondent.mind.lexicon import MIXTURES, Lexicon
from folkmoot.respondent.mind.persona import PersonaTraits

# Sentences of a reply by voice: minimum and maximum.
LENGTH = {"terse": (2, 2), "plain": (2, 3), "chatty": (3, 4), "formal": (2, 3)}
# Multiples of the golden ratio modulo 1 are spread evenly for any number of draws.
_GOLDEN = 0.6180339887498949


@cache
def load_frames() -> Mapping[str, Any]:
    """Return the templates of sentences, by kind of sentence."""
    # Within some kinds also by style ("terse", "formal").
    frames: Mapping[str, Any] = packaged_yaml(__file__, "speech.yaml")
    return frames


class SentenceGenerator:
    """A generator of sentences for one speaker in one reply."""

    # `earlier_text` holds the speaker's earlier utterances. Sentence templates and phrases that
    # occur in it are avoided.

    def __init__(
        self, persona: PersonaTraits, lexicon: Lexicon, draws: Draws, earlier_text: str = ""
    ) -> None:
        self.who = persona
        self.lexicon = lexicon
        self.draws = draws
        self._said = earlier_text.casefold()
        self._used: set[str] = set()
        self._at = -1.0

    def draw_camp(self) -> int:
        """Draw the camp (way to justify a choice) of the next argument phrase."""
        # Each speaker uses the camps in fixed proportions.
        # Steps of the golden ratio spread the draws evenly.
        self._at = (self._at + _GOLDEN) % 1.0 if self._at >= 0 else self.draws.unit()
        low, middle, _ = MIXTURES[self.who.camp]
        return 0 if self._at < low else 1 if self._at < low + middle else 2

    def draw_noun(self) -> str:
        return self.pick_unused(self.lexicon.camps[self.draw_camp()].nouns)

    def draw_verb(self) -> str:
        return self.pick_unused(self.lexicon.camps[self.draw_camp()].verbs)

    def pick_unused(self, items: Sequence[str]) -> str:
        """Return a random item that occurs neither in this reply nor in earlier utterances."""
        # If all items are used, any of them.
        start = self.draws.draw_integer(0, len(items) - 1)
        for offset in range(len(items)):
            item = items[(start + offset) % len(items)]
            if item not in self._used and _longest_fixed_part(item) not in self._said:
                break
        else:
            item = items[start]
        self._used.add(item)
        return item

    def fill_frame(self, frame: str, **names: str) -> str:
        """Fill the slots of the sentence template `frame`."""
        # `names` fill the slots of the same name, and drawn phrases fill all other slots.
        for slot, phrase in (
            ("N", self.draw_noun),
            ("M", self.draw_noun),
            ("V", self.draw_verb),
            ("W", self.draw_verb),
        ):
            if f"{{{slot}}}" in frame:
                names.setdefault(slot, phrase())
        return capitalise(frame.format(C=self.who.calling, **names))

    def draw_sentence(self, kind: str, **names: str) -> str:
        """Return a random sentence of this kind in the speaker's voice."""
        # The kinds are the keys of `speech.yaml`.
        frames = load_frames()[kind]
        voice_frames = frames[self.who.voice] if isinstance(frames, dict) else frames
        return self.fill_frame(self.pick_unused(voice_frames), **names)

    def draw_reasons(self, about: str, sentence_count: int = 0) -> str:
        """Return sentences with reasons for the option `about`."""
        # If `sentence_count` is 0, the speaker's way of speaking determines the number.
        count = sentence_count or self.draws.draw_integer(*LENGTH[self.who.voice])
        return " ".join(self.draw_sentence("reasons", O=about) for _ in range(count))

    def talk(self, topics: Sequence[str], sentence_count: int = 0) -> str:
        """Return sentences about topics, without reasons for or against an option."""
        # If `sentence_count` is 0, the speaker's way of speaking determines the number.
        count = sentence_count or self.draws.draw_integer(*LENGTH[self.who.voice])
        topic_order = self.draws.shuffled_copy(topics) * 2 * count
        frames = [item for item in load_frames()["talks"] if len(topics) > 1 or "{U}" not in item]
        sentences = [
            self.fill_frame(
                self.pick_unused(frames), T=topic_order[2 * i], U=topic_order[2 * i + 1]
            )
            for i in range(count)
        ]
        return " ".join(sentences)


def _longest_fixed_part(frame: str) -> str:
    # Without the `{slots}`, in lower case.
    parts = [part.split("}", 1)[-1] for part in frame.split("{")]
    return max(parts, key=len).strip(" .,;:!?").casefold()
