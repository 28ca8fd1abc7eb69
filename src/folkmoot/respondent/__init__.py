"""The embedded respondent (`--model synthetic`): a documented opinion-dynamics model that speaks.

The default where nothing is named: for demos, dry runs, cost and power estimates, planted truths.
All that it answers is marked SYNTHETIC and is no evidence about people. docs/respondent.md has the
model; this page says how a study makes use of it.

Text is its only channel, and of text only the content counts. It knows who is asked and what form
an answer has (`Pointers`, which point at parts of the messages and add nothing), and reads the
rest: a sentence is an argument for the option that it names if argument words stand in it; own
reasons are sentences in the first person; being argued with is an argument for another option
followed by own reasons. No phrase of a prompt is looked for, here or in a study's part.

A study needs nothing to be answered by form: options of a choice, numbers in the bounds that stand
in the text, JSON by its schema with a stable opinion behind each field, text with reasons for the
option held. What its answers *mean* it says with a `Part`:

    from folkmoot.respondent import Mind, Part

    STANCES = ("strong_oppose", "oppose", "neutral", "support", "strong_support")

    def stance(mind: Mind) -> dict[str, object]:
        '''The answer of the pydantic model `Stance`: the fields that we know; the schema fills in
        the others, and replaces what does not fit.'''
        view = mind.rating(mind.options[0])                   # −1 … 1, this person on this plan
        return {"stance": STANCES[round(2 * view + 2)], "statement": mind.say(mind.options[0])}

    def challenge(mind: Mind) -> str:
        '''A text of the role `moderator`.'''
        return f"What speaks against {mind.options[0]}?"

    STUDY = Study(
        …,
        respondent=Part(
            names=lambda config: [config.plan],               # what opinions are about
            answers={"Stance": stance, "moderator text": challenge},
        ),
    )

Keys of `answers`: the title of the JSON schema (the pydantic model's name; `JsonList` adds "List"),
else role and kind: "participant text", "moderator text", "participant number", "judge choice".
`names` are options, concept, proposals: one counts only where it stands in the messages, in any
case and white space. A function gives None to leave the answer to the shared part.

What a `Mind` offers:

    who            the persona: camp 0–2, susceptibility, warmth, voice, calling, lean(words)
    person         whether this is a person of the study (not a moderator, coder, …)
    text, reading  all that stands in the messages; .reading.prompt, .system, .question, .own_words
    options        what opinions are about here; held: the one that the person is for
    lean(words)    stable leaning on any matter, −1 … 1; two matters correlate as their words do
    rating(words)  the same with the noise of one asking: for answers on a scale
    judgement(words)  the same, moved by the arguments that were read for what the words name
    opinion(option), utilities()   liking (sd 1.3) after all that was read and heard
    choose(options)                one of them, with the noise of one asking
    agreement(statement)           −1 … 1, stable
    arguments(text)                option → argument words counted by camp ("" where none is named)
    dose           what was heard for other options, turns answered, whether interviewed
    say(about, n)  n sentences of reasons in the person's voice
    tongue         single sentences; draws: the random draws of this reply (never `random`)
    mind_of(persona text)          another person's mind, where one reply writes several parts
    unread()       say that the answer has no relation to what was asked; the run counts these
    schema, knobs

Who a person is follows from `Speaker(persona=…)`: the description as it stands in what they are
told; of several lines those that do. Without it the system message is the person, and a treatment
written there makes another person. A study whose topic has arguments of its own brings a `Lexicon`
(`Part.lexicon`; three camps, like lexicon.yaml): then no phrase of another topic is spoken.
"""

from __future__ import annotations

from folkmoot.models.request import Provider, ProviderSettings
from folkmoot.respondent.draws import VERSION, Draws
from folkmoot.respondent.knobs import PATHOLOGIES, Knobs, planted
from folkmoot.respondent.lexicon import Lexicon, general
from folkmoot.respondent.mind import Mind
from folkmoot.respondent.part import Part
from folkmoot.respondent.provider import MODEL_SERVED, Respondent

__all__ = [
    "MODEL_SERVED",
    "PATHOLOGIES",
    "VERSION",
    "Draws",
    "Knobs",
    "Lexicon",
    "Mind",
    "Part",
    "Respondent",
    "general",
    "planted",
    "provider",
]


def provider(settings: ProviderSettings) -> Provider:
    """The embedded respondent with these settings. InputError on an unknown option."""
    return Respondent(settings)
