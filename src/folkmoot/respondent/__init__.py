"""The embedded respondent (`--model synthetic`): a documented opinion-dynamics model that speaks.

It answers if no model is named: in demos, dry runs, cost and power estimates and tests of planted
truths. All its answers are marked SYNTHETIC and are no evidence about people. docs/respondent.md
describes the model. This page says how a study uses it.

**What it reads.** Of a request it reads two things and nothing else:

- the passages: the texts of known source in the messages (`ModelRequest.spans`), each with its
kind, its
  id and its speaker. Instructions, which are all the characters outside the spans, are not read.
- the hints (`RespondentHints`): who is asked, in which role, for which kind of answer, about what
  (`ask(about=…)`), with which options, bounds and signal.

So any wording of the prompts gives the same effects, as long as the texts stand in them, and an
effect is gone if its text is not shown. Inside one passage it looks for argument words and for
names of options.

A study needs no code to be answered by form: options of a choice, numbers within the bounds of the
answer type, JSON by its schema with a stable opinion behind each field, text with reasons for the
option held. A `RespondentPart` says what its answers *mean*:

    from folkmoot.respondent import Mind, Part, of_kind

    STANCES = ("strong_oppose", "oppose", "neutral", "support", "strong_support")

    def answer_stance(mind: Mind) -> dict[str, object]:
        '''Return the known fields of the pydantic model `Stance`. The schema fills in the others,
        and replaces what does not fit.'''
        view = mind.rating(mind.options[0])                   # −1 … 1, this person on this plan
        heard = of_kind(mind.reading.passages, "utterance", own=False)
        view += 0.1 * sum(mind.agreement(passage.text) for passage in heard)
        return {"stance": STANCES[round(2 * view + 2)], "statement": mind.say(mind.options[0])}

    def challenge(mind: Mind) -> str:
        '''Return a text of the role `moderator`.'''
        return f"What speaks against {mind.options[0]}?"

    STUDY = Study(
        …,
        respondent=Part(
            names=lambda config: [config.plan],               # what opinions are about
            answers={"Stance": answer_stance, "moderator text": challenge},
        ),
    )

Keys of `answers`: the title of the JSON schema (the pydantic model's name; `JsonList` adds "List"),
else role and kind: "participant text", "moderator text", "participant number", "judge choice".
`names` are options, concept, proposals: one counts only if it occurs in a passage, in any case and
white space. A function returns None to leave the answer to the shared rules.

**`mind.reading`**, one request:

    role, kind      of the speaker (`Speaker.role`) and of the answer (`AnswerType.kind`, "json", …)
    speaker         the id of who is asked
    names           what the speakers of the history are called there, by id
    about           what is asked, in the words of `ask(about=…)`; for studies that do not give it,
                    the text outside all spans, and if there is none, the prompt itself
    passages        the texts of known source, in order: `Passage(text, source, message, own)`.
                    What stands inside another passage comes after it. `own`: the one who is asked
                    said or chose it. `of_kind(passages, "utterance", own=False)` selects.
    persona         who is asked: the `persona` passages whose speaker is `speaker`, one a line
    offered         the options of a choice, the bounds of a number, what a text is to speak for
    bounds          (low, high, whole numbers only) of a number; None if the answer type has none
    signal          the word with which a text may end a conversation; empty if there is none
    schema          the JSON schema that is asked for; None if there is none

**`mind`**, the one who answers:

    who             the persona: camp 0–2, susceptibility, warmth, voice, calling, lean(words)
    person          whether this is a person of the study (not a moderator, coder, …)
    options         what opinions are about here: the options offered, else the distinct texts of
                    `option` passages, else the `names` of the study that occur in passages
    held            the option that the person is for: the last own answer or utterance that is one
                    of the options, else the one liked best
    matters         what is talked about if there are no options: from `about`, then from passages
    lean(words)     stable leaning on any matter, −1 … 1; two matters correlate as their words do
    rating(words)   the same with the noise of one asking: for answers on a scale
    judgement(words)  the same, moved by the arguments that were read for what the words name
    opinion(option), utilities()   liking (sd 1.3) after all that was read and heard
    choose(options)                one of them, with the noise of one asking
    agreement(statement)           −1 … 1, stable
    arguments(text)                option → argument words counted by camp ("" where none is named)
    dose            what was heard for other options, turns answered, whether interviewed
    say(about, n)   n sentences of reasons in the person's voice
    tongue          single sentences; draws: the random draws of this reply (never `random`)
    mind_of(text)   another person's mind, by the text of their `persona` passage, if one reply
                    writes the parts of several people
    unread()        state that the answer has no relation to what was asked; the run counts these
    schema, knobs

Who a person is follows from their `persona` passage: `quote(card, "persona", id, speaker.id)` in
the system message or the prompt. Without one, the text of unknown source in the system message is
the person, and a treatment written there makes another person. A study with arguments of its own
topic brings a `Lexicon`
(`RespondentPart.lexicon`; three camps, like lexicon.yaml): then no phrase of another topic is
spoken.

**Studies without sources.** The prompt of an f-string is one unattributed passage. The respondent
reads it as one text of somebody else, and the run says so in its notes. `ask(shows=…)` and quoted
variables of templates make it better.
"""

from __future__ import annotations

from folkmoot.models.request import Provider, ProviderSettings
from folkmoot.respondent.mind.draws import VERSION, Draws
from folkmoot.respondent.mind.knobs import PATHOLOGIES, RespondentSettings, planted_effects
from folkmoot.respondent.mind.lexicon import Lexicon, general_lexicon
from folkmoot.respondent.mind.mind import SimulatedRespondent
from folkmoot.respondent.mind.part import RespondentPart
from folkmoot.respondent.mind.passages import Passage, of_kind
from folkmoot.respondent.provider import MODEL_SERVED, Respondent

__all__ = [
    "MODEL_SERVED",
    "PATHOLOGIES",
    "VERSION",
    "Draws",
    "Lexicon",
    "Passage",
    "Respondent",
    "RespondentPart",
    "RespondentSettings",
    "SimulatedRespondent",
    "general_lexicon",
    "of_kind",
    "planted_effects",
    "provider",
]


def provider(settings: ProviderSettings) -> Provider:
    """The embedded respondent with these settings. InputError on an unknown option."""
    return Respondent(settings)
