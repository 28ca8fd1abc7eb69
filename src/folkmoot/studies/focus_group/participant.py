"""A participant: a persona at the table, who can be asked."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from folkmoot.conversation.answers import Missing
from folkmoot.conversation.transcript import Speaker
from folkmoot.engine.session import Scope
from folkmoot.people.sources.grounded import Profile, character
from folkmoot.studies.focus_group import personality, speaking
from folkmoot.studies.focus_group.config import DiscussionConfig, DiscussionPhase
from folkmoot.studies.focus_group.discussion import DiscussionMessage, heard

ANSWER_TOKENS = 300


@dataclass(frozen=True)
class Participant:
    """One persona in one discussion. `system` is made once, by `build_system_prompt`."""

    persona: Profile
    config: DiscussionConfig
    system: str = ""

    @property
    def id(self) -> str:
        return self.persona.id

    @property
    def name(self) -> str:
        return self.persona.first_name

    def build_system_prompt(self, scope: Scope) -> str:
        """Who this is, in natural language: no score, no trait with a number."""
        persona, config = self.persona, self.config
        return scope.prompt(
            "persona_system",
            introduction=character.introduction(persona),
            background=persona.background,
            personality=personality.describe(persona),
            voice=personality.voice(persona.voice),
            buying=character.buying(persona),
            engagement=character.category_engagement(persona, config.category),
            who=persona.first_name,
            category=config.category,
            concept=config.product_concept,
            leaning=personality.leaning(persona.opinion.valence if persona.opinion else 0.0),
            opinion=persona.opinion.sentence if persona.opinion else "",
        )

    def seated(self, scope: Scope) -> Participant:
        """The same participant with the system prompt made."""
        return Participant(self.persona, self.config, self.build_system_prompt(scope))

    @property
    def speaker(self) -> Speaker:
        """This participant as the engine's conversations know them."""
        return Speaker(
            self.id,
            self.name,
            system=self.system,
            temperature=self.config.temperature,
            max_tokens=self.config.max_tokens or ANSWER_TOKENS,
        )

    def should_speak(self, rng: np.random.Generator, *, addressed: bool = False) -> bool:
        """Whether this participant takes up a question: by extraversion and chance, and always
        when addressed by name. One draw in any case, so that being named shifts nobody else's.
        """
        drawn = rng.random() < speaking.probability(self.persona.traits.extraversion)
        return addressed or bool(drawn)

    async def respond(
        self,
        scope: Scope,
        question: str,
        context: Sequence[DiscussionMessage],
        phase: DiscussionPhase,
        *,
        addressed: bool = False,
        probe: bool = False,
    ) -> str | Missing:
        """What this participant says to the moderator's question, having heard `context`."""
        shown = phase in (DiscussionPhase.REACTION, DiscussionPhase.SYNTHESIS)
        said_here = [m for m in context if m.by_participant and m.speaker_id != self.id]
        prompt = scope.prompt(
            "participant_response",
            question=question,
            phase=phase.value,
            addressed=addressed,
            probe=probe,
            others=bool(said_here),
            stimulus=self.config.stimulus_material if shown else None,
            length=personality.length_advice(self.persona),
            company=personality.company_advice(self.persona),
            max_words=self.config.max_words_per_response,
        )
        said = await scope.ask(
            self.speaker, prompt, heard=heard(tuple(context), self.config.context_messages)
        )
        if isinstance(said, Missing):
            return said
        words = spoken(said, self.persona)
        return words or Missing("empty", "a name and nothing said", raw=said)


def spoken(text: str, persona: Profile) -> str:
    """The words alone: no "Name:" before them, no quotation marks around them."""
    names = "|".join(re.escape(n) for n in (persona.name, persona.first_name))
    text = re.sub(rf"^\s*\**(?:{names})\**\s*(?:\([^)\n]*\))?\s*:\**\s*", "", text.strip())
    if len(text) > 1 and (text[0], text[-1]) in {('"', '"'), ("“", "”")} and '"' not in text[1:-1]:
        text = text[1:-1]
    return " ".join(text.split())
