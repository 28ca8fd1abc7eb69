"""The embedded respondent (`--model synthetic`), a documented model of opinion dynamics.

The respondent answers by rules in place of a language model: in demos, dry runs, estimates of cost
and power, tests with known effects, and whenever the study file names no model. All its answers are
labelled SYNTHETIC and are no evidence about real people. docs/respondent.md describes the model of
opinion dynamics. This text tells study authors how to use the respondent.

**What it reads.** The respondent reads two parts of a request and nothing else:

- the passages: the texts of known source in the messages (`ModelRequest.spans`). Each passage has a
  kind, an id and a speaker. Instructions, which are all characters outside the spans, are not read.
- the hints (`RespondentHints`): the speaker, the role, the kind of answer, the question
  (`ask(about=…)`), and the options, bounds and signal.

So all prompts with the same passages have the same effects, however the instructions are worded. A
text has no effect if the prompt does not contain this text. Inside a passage, the respondent looks
for argument words and for names of options.

**Without code of the study,** the respondent answers by the form of the answer: one of the options,
a number within the bounds, JSON according to its schema, or a text with reasons for the current
option. Each field follows from a stable opinion. A `RespondentPart` adds the study's own answers:

    from folkmoot.respondent import RespondentPart, SimulatedRespondent, of_kind

    STANCES = ("strong_oppose", "oppose", "neutral", "support", "strong_support")

    def answer_stance(mind: SimulatedRespondent) -> dict[str, object]:
        '''Return the known fields of the pydantic model `Stance`. The schema fills in the other
        fields and replaces values that do not fit.'''
        view = mind.draw_rating(mind.options[0])              # −1 … 1, this participant, this plan
        heard = of_kind(mind.reading.passages, "utterance", own=False)
        view += 0.1 * sum(mind.agreement_with(passage.text) for passage in heard)
        stance = STANCES[max(0, min(4, round(2 * view + 2)))]
        return {"stance": stance, "statement": mind.compose_reasons(mind.options[0])}

    def challenge(mind: SimulatedRespondent) -> str:
        '''Return a text of the role `moderator`.'''
        return f"What speaks against {mind.options[0]}?"

    STUDY = Study(
        …,
        respondent_part=RespondentPart(
            option_names=lambda config: [config.plan],        # what opinions are about
            answers={"Stance": answer_stance, "moderator text": challenge},
        ),
    )

A key of `answers` is the title of the JSON schema, which is the name of the pydantic model
(`JsonList` adds "List"). For other answers, the key is role and kind: "participant text",
"moderator text", "participant number", "judge choice". `option_names` returns options, a concept or
proposals. A name counts only if it occurs in a passage. Case and white space are ignored. If a
function returns None, the shared rules give the answer.

**`mind.reading`** is the reading of one request:

    role              the role of the speaker who is asked (`Speaker.role`)
    kind              the kind of the answer (`AnswerType.kind`)
    speaker           the id of the speaker who is asked
    names             the names of the speakers of the history, by id
    about             the question, from `ask(about=…)`. If `about` is not set: the text outside all
                      passages. If there is no such text: the prompt itself
    passages          the texts of known source, in order: `Passage(text, source, message, own,
                      inner)`. `own` passages were said or chosen by the speaker who is asked. A
                      nested passage comes after the passage around it. `of_kind(passages,
                      "utterance", own=False)` returns the utterances of other speakers
    persona           the `persona` passages of the speaker, one per line
    heard_passages    passages of other speakers that can contain arguments
    own_utterances    earlier utterances of the speaker
    offered           the options of a choice, the bounds of a number, or the option that a text
                      argues for
    number_bounds     (low, high, whole numbers only), or None if the answer type has no bounds
    signal            the word by which a text may end a conversation, or ""
    schema            the JSON schema of the answer, or None

**`mind`** is the speaker who answers:

    who               the persona: camp, susceptibility, warmth, voice, calling, tastes. The camp
                      is a number from 0 to 2 and means a way to justify choices
    person            True for a participant, False for other roles, such as moderator or coder
    options           the options that opinions are about: the offered options. If none are offered:
                      the texts of `option` passages. If there are no such passages: the
                      `option_names` that occur in passages
    current_option    the option that the speaker chose last. Before the first choice: the option
                      that the persona likes best
    talked_about_matters
                      the topics to talk about if there are no options. They come from `about` and
                      from passages
    stable_leaning(words)
                      the person's tendency on any matter, from −1 (against) to 1 (in favour).
                      The value is the same in every reply. Values for two matters correlate if the
                      matters share words
    draw_rating(words)     `stable_leaning` with random noise, for answers on a scale
    draw_judgement(words)  `draw_rating`, moved by the arguments in the passages for these words
    shown_passages("items.text"), shown_text("items.text")
                      the passages that quote a column of a table or a key of the study file, in
                      order, and the text of the last one
    option_utilities()  the utility of each option (standard deviation 1.3) after all passages
    choose_option(options), choose_on_scale(options, about)
                      one of the options, with random noise
    agreement_with(statement)
                      agreement (−1 … 1) with a statement, the same in every reply
    arguments_by_option(text)
                      the number of argument words for each option, by camp. Words that
                      support no named option are under the key ""
    exposure_dose     the arguments for options other than the speaker's choice, the turns in which
                      the speaker answered these arguments, and whether the speaker was interviewed
    compose_reasons(about, n)
                      n sentences of reasons in the persona's voice
    speech, draws     single sentences, and the random draws of this reply (never use `random`)
    mind_of(text)     the mind of the person with this `persona` passage, for a reply that contains
                      utterances of several people
    mark_unread()     record that the answer has no relation to the question. The run counts such
                      answers
    schema, knobs     the JSON schema ({} if there is none) and the settings

The `persona` passage determines the person. Create the passage with `quote_value(text, "persona",
id, speaker.id)` in the system message or the prompt. Without a `persona` passage, the text of
unknown source in the system message determines the person. If this text contains a treatment, the
treatment changes the person. A study type can bring arguments about its topic as a `Lexicon` with
three camps (`RespondentPart.lexicon`, see lexicon.yaml). The respondent then uses no phrase of
another topic.

**Studies without sources.** A prompt from an f-string is one passage without a known source. The
respondent reads this passage as one text of another speaker, and the notes of the run say so.
`ask(shows=…)` and quoted variables of templates add sources.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from folkmoot.lazy_names import lazy_names

if TYPE_CHECKING:
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
]

# These names are imported when they are first used. The settings of every study are in this
# package, and a run with hosted models needs nothing else of it.
__getattr__ = lazy_names(
    __name__,
    {
        "mind.draws": ("VERSION", "Draws"),
        "mind.knobs": ("PATHOLOGIES", "RespondentSettings", "planted_effects"),
        "mind.lexicon": ("Lexicon", "general_lexicon"),
        "mind.mind": ("SimulatedRespondent",),
        "mind.part": ("RespondentPart",),
        "mind.passages": ("Passage", "of_kind"),
        "provider": ("MODEL_SERVED", "Respondent"),
    },
)


def __dir__() -> list[str]:
    return list(__all__)
