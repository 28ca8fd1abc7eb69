"""The recruits of each group, and `Participant`, which plays one recruit in a conversation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from folkmoot.conversation.answer_types import (
    FieldForPeople,
    Json,
    Missing,
    Text,
    pin_schema,
)
from folkmoot.conversation.choices import Choice
from folkmoot.conversation.lenient_fields import require_text
from folkmoot.conversation.reply_forms import without_own_heading
from folkmoot.conversation.transcript import Speaker, Transcript
from folkmoot.engine.seats.seats import SELF_DESCRIPTION_PLACEHOLDER, Seat
from folkmoot.engine.session.session import Scope, Session
from folkmoot.hints import capitalise, collapse_spaces, number_text
from folkmoot.measures.inference.estimates import format_count
from folkmoot.measures.wording import word
from folkmoot.people.enrichment import match_listed_value
from folkmoot.people.sources import table
from folkmoot.people.sources.grounded import PersonaGenerator, Profile, character
from folkmoot.people.sources.grounded.panel import read_panel
from folkmoot.people.sources.grounded.profile import (
    LISTED,
    Given,
    first_name,
    with_blank_locations,
    without_refused_answers,
)
from folkmoot.people.sources.grounded.survey_answers import read_sex
from folkmoot.people.sources.table_files import is_weight_column
from folkmoot.provenance import Quoted, SourcedText, quote_value
from folkmoot.randomness import generator
from folkmoot.studies.focus_group.config import (
    DiscussionConfig,
    DiscussionPhase,
    Stimulus,
    parse_amount,
)
from folkmoot.studies.focus_group.discussion import (
    INTENTS,
    DiscussionMessage,
    InterviewTime,
    PurchaseIntent,
    Statement,
    recent_transcript,
)
from folkmoot.studies.focus_group.positions import DECIMALS, describe_position
from folkmoot.studies.focus_group.tables import say_statement
from folkmoot.studies.focus_group.texts import DiscussionTexts, quote_intents, quote_phase

# Maximum length of a reply in tokens, unless the study file sets `max_tokens`.
ANSWER_TOKENS = 300
# Probabilities of answering a question without being addressed, by extraversion. They are those of
# the source study.
HIGH, MEDIUM, LOW = 0.85, 0.60, 0.35

# The `source` of the profile of a human who answers as themselves.
ONESELF = "oneself"
# The parts of a persona's description, in the order of the prompt.
DESCRIBED = (
    *("introduction", "circumstances", "background", "personality", "voice", "buying"),
    "engagement",
)

# Advice on length, by extraversion in five bands from low to high.
LENGTH_ADVICE = (
    "Keep it to one short sentence, two at most; you leave most of the talking to others.",
    "Keep it short: one or two sentences.",
    "Say it in two or three sentences.",
    "Say it in two to four sentences; you do not mind having the floor.",
    "Take three or four sentences; you enjoy having the floor and you are sure of yourself.",
)
# Advice on how to respond to others, by agreeableness in five bands from low to high.
STYLE_ADVICE = (
    "You tend to find the weak spot in what others said, and you say so; you do not agree in order "
    "to be nice.",
    "You take issue readily where you see things differently, even if you are the only one.",
    "You agree where you agree, and you object where you do not.",
    "You like to pick up what was good in what others said before you add your own; you still say "
    "it when you cannot go along.",
    "You look for common ground first and disagree gently and seldom; you do not give up what you "
    "really think for the sake of peace.",
)


# The part of the plan that names the recruits of each group.
RECRUITS = "recruits"

# --- recruits ----------------------------------------------------------------------------------


def available_seats(config: DiscussionConfig, folder: Path) -> list[Seat]:
    """Return the seats that humans can take."""
    # A human in a seat replaces one recruit in all discussions of the recruit's group.
    recruits = recruit_all_groups(config, folder, lambda path: generator(config.random_seed, path))
    return [Seat(profile.id, (group,)) for group, people in recruits.items() for profile in people]


def recruit_groups(session: Session[DiscussionConfig]) -> dict[str, list[Profile]]:
    """Return the recruits of each group. Humans who speak for themselves are anonymous profiles."""

    def recruit(*, group_by_group: bool) -> dict[str, list[Profile]]:
        groups = recruit_all_groups(
            session.config,
            session.study_folder,
            lambda path: session.child(*path).rng,
            group_by_group=group_by_group,
        )
        recruits = {
            group: [
                _anonymous_profile(profile, f"P{number}")
                if session.speaks_as_self(profile.id, group)
                else profile
                for number, profile in enumerate(people, start=1)
            ]
            for group, people in groups.items()
        }
        return {
            group: with_own_opinions(people, session.config) for group, people in recruits.items()
        }

    groups = recruit(group_by_group=False)
    recorded = session.recorded_design(RECRUITS)
    # Earlier versions drew each group from the whole file. Their runs go on with these people.
    if recorded and recorded != as_sealed(groups):
        earlier_groups = recruit(group_by_group=True)
        if recorded == as_sealed(earlier_groups):
            return earlier_groups
    return groups


def as_sealed(groups: Mapping[str, Sequence[Profile]]) -> dict[str, list[dict[str, object]]]:
    """Return the recruits of each group as the plan of the run holds them."""
    return {
        group: [profile.model_dump(mode="json") for profile in people]
        for group, people in groups.items()
    }


def _anonymous_profile(profile: Profile, name: str) -> Profile:
    # No prompt contains the attributes that were drawn for this seat.
    changes = {
        "name": name,
        "described": True,
        "opinion": None,
        "background": "",
        "source": ONESELF,
    }
    return profile.model_copy(update=changes)


def recruit_all_groups(
    config: DiscussionConfig,
    folder: Path,
    rng_of: Callable[[tuple[str, ...]], np.random.Generator],
    *,
    group_by_group: bool = False,
) -> dict[str, list[Profile]]:
    """Return the recruits of each group, before humans replace some of the recruits.

    - `rng_of`: returns the random generator for names such as ("recruits", "group_001").
    - `group_by_group`: True to draw each group from all people of a file, as earlier versions did.
      Otherwise a person sits in several groups only if the file has too few people.
    """
    rows = read_profiles(config, folder)
    names = [first_name(str(row.get("name", ""))) for row in rows]
    panel = read_panel(folder / Path(config.panel).expanduser()) if config.panel else None
    persona_generator = PersonaGenerator(appeal=config.appeal, panel=panel)
    groups: dict[str, list[Profile]] = {}
    # How many groups each row sits in so far.
    uses = Counter[int]()
    for number, group in enumerate(config.groups):
        rng = rng_of(("recruits", group))
        if rows:
            groups_left = 1 if group_by_group else len(config.groups) - number
            chosen = choose_rows(names, config.num_personas, rng, uses, groups_left)
            if not group_by_group:
                uses.update(chosen)
            people = persona_generator.from_profiles([rows[index] for index in chosen], rng)
        else:
            people = persona_generator.generate_profiles(
                config.num_personas, rng, config.quotas or None
            )
        groups[group] = people
    return groups


def describe_shared_people(ids: Iterable[str]) -> list[str]:
    """Return a sentence that says how many people of a file sit in several groups, if any do.

    `ids`: the id of each person of the file, once for each group. Ids of generated personas do not
    belong here, because they are the same in each group.
    """
    shared = sum(number > 1 for number in Counter(ids).values())
    if not shared:
        return []
    people = format_count(shared, "person sits", "people sit")
    return [word("description", "people in several groups", people=people)]


def with_own_opinions(people: Sequence[Profile], config: DiscussionConfig) -> list[Profile]:
    """Remove the generated opinions, unless the setting `first_opinion` is `seeded`."""
    # The study asks for opinions instead.
    if config.first_opinion == "seeded":
        return list(people)
    return [profile.model_copy(update={"opinion": None}) for profile in people]


def read_profiles(config: DiscussionConfig, folder: Path) -> list[dict[str, object]]:
    """Read the file with profiles of real people, and return one dict per profile.

    Raises InputError if the file cannot be read. Returns an empty list if personas are generated.
    """
    # Each row gets a text `background` with the data for which the generator has no field.
    if config.personas == "grounded":
        return []
    path = folder / Path(config.personas).expanduser()
    rows: list[dict[str, object]] = []
    for persona in table.read_personas(path):
        row = {"id": persona.id, "name": persona.name, **persona.demographics, **persona.extra}
        given = without_refused_answers(row)
        generated_text = table.describe_person(persona.name, persona.demographics, persona.extra)
        written_texts = [persona.text, persona.base] if persona.text != generated_text else []
        background_texts = [*dict.fromkeys(written_texts), str(given.get("background", ""))]
        background_texts += [
            f"{attribute.replace('_', ' ')}: {table.in_words(value)}"
            for attribute, value in given.items()
            if table.in_words(value)
            and (
                (attribute not in Given.model_fields and not is_weight_column(attribute))
                or (
                    attribute in LISTED
                    and match_listed_value(value, LISTED[attribute]) not in LISTED[attribute]
                )
                or (attribute == "sex" and read_sex(value) == "X")
                or attribute == "income_usd"
                or (written_texts and attribute in persona.demographics)
            )
        ]
        given["described"] = bool(written_texts)
        given["background"] = " ".join(f"{text.rstrip('.')}." for text in background_texts if text)
        rows.append(
            {attribute: value for attribute, value in given.items() if value not in (None, "")}
        )
    return with_blank_locations(rows)


def choose_rows(
    given_names: Sequence[str],
    count: int,
    rng: np.random.Generator,
    uses: Mapping[int, int],
    groups_left: int,
) -> list[int]:
    """Return the numbers of `count` randomly drawn rows, no two of which have the same first name.

    - `given_names`: the first name of each row, empty if the row has none.
    - `uses`: in how many groups each row sits already. Rows in fewer groups are taken first.
    - `groups_left`: how many groups have no people yet, this one included.
    """
    # `check_config` makes sure that the file has enough different names.
    # A row without a name gets a new one.
    names = [name or str(number) for number, name in enumerate(given_names)]
    drawn = [int(number) for number in rng.permutation(len(names))]
    free = Counter(names[number] for number in drawn if not uses.get(number, 0))
    # A name can sit in each group once. If it has as many unused rows as groups are left, leaving
    # it out of this group wastes a row. So it comes first if there is no row to spare.
    abundant = {name for name, number in free.items() if number >= groups_left}
    spare = sum(min(number, groups_left) for number in free.values()) - groups_left * count
    in_order = sorted(drawn, key=lambda number: uses.get(number, 0))
    first_of_name = {names[number]: number for number in reversed(in_order)}
    urgent = [
        number
        for number in in_order
        if names[number] in abundant and first_of_name[names[number]] == number
    ]
    chosen: dict[str, int] = {}
    for number in (*urgent[: max(0, len(abundant) - spare)], *in_order):
        if len(chosen) < count:
            chosen.setdefault(names[number], number)
    return list(chosen.values())


def count_different_names(rows: Sequence[Mapping[str, object]]) -> int:
    """Return how many of the rows one group can have without repeating a first name."""
    # A row without a name always counts, because its participant is given a new name.
    names = [first_name(str(row.get("name", ""))) for row in rows]
    return len({name for name in names if name}) + names.count("")


def with_seeded_opinion(
    session: Session[DiscussionConfig], group: str, people: Sequence[Profile], stimulus: Stimulus
) -> list[Profile]:
    """Return the participants, each with a randomly drawn first opinion on `stimulus`.

    The participants are unchanged if the study asks them for first opinions.
    """
    # The opinions are drawn instead of asked for. Participants are unchanged if the study asks for
    # first opinions, and in a study with one concept, because its recruits already have an opinion.
    config = session.config
    if len(config.concepts) == 1 or config.first_opinion == "asked":
        return list(people)
    generator = PersonaGenerator(appeal=config.appeal)
    return [
        profile
        if profile.source == ONESELF
        else generator.with_new_opinion(
            profile, session.child("recruits", group, "opinions", stimulus.id, profile.id).rng
        )
        for profile in people
    ]


# --- a participant -----------------------------------------------------------------------------


class PrivateOpinion(BaseModel):
    """The answer to a private question about the concept: words, and a position from −1 to 1."""

    model_config = pin_schema(
        "PrivateOpinion",
        "What somebody thinks of the concept: in words, and as a position in −1 … 1.",
        ConfigDict(frozen=True, extra="ignore", str_strip_whitespace=True),
    )

    opinion: Annotated[str, Field(min_length=1), AfterValidator(require_text)] = Field(
        description="what you think, in your own words, one to three sentences"
    )
    position: Annotated[float | None, Field(ge=-1, le=1)] = Field(
        description="where that leaves you, a number from -1 (strongly against it) through 0 "
        "(undecided) to 1 (strongly in favor of it); null if you cannot say"
    )


PRIVATE_OPINION = Json(
    PrivateOpinion,
    may_decline=True,
    fields_for_people={
        "opinion": FieldForPeople("What you think, in one to three sentences"),
        "position": FieldForPeople(
            "Where that leaves you, from -1 (strongly against it) through 0 (undecided) to 1 "
            "(strongly in favour of it)"
        ),
    },
)


@dataclass(frozen=True)
class Participant:
    """One persona in one discussion, or in an interview."""

    # `alone` marks an interview.

    persona: Profile
    config: DiscussionConfig
    group: str = ""
    stimulus: str = ""
    alone: bool = False
    # The words of the first opinion. Their source is the private statement.
    first_words: Quoted | None = None

    @property
    def id(self) -> str:
        return self.persona.id

    @property
    def name(self) -> str:
        return self.persona.first_name

    @property
    def texts(self) -> DiscussionTexts:
        """The object that builds the texts for the prompts of this discussion."""
        return DiscussionTexts(self.config, self.group, self.stimulus)

    @property
    def speaks_as_self(self) -> bool:
        """True for a human who answers as themselves and plays no persona."""
        return self.persona.source == ONESELF

    @property
    def first_position(self) -> float | None:
        """The position before the discussion.

        Returns None if the position is not known.
        """
        return self.persona.opinion.valence if self.persona.opinion else None

    @property
    def opinion_words(self) -> str:
        """The words of the first opinion.

        Returns "" if there are none.
        """
        opinion = self.persona.opinion
        return self.first_words or (opinion.sentence if opinion else "")

    @property
    def description(self) -> dict[str, str]:
        """The parts of the persona's description, in plain words."""
        # Without trait scores.
        persona = self.persona
        if self.speaks_as_self:
            introduction = f"{SELF_DESCRIPTION_PLACEHOLDER} The others call you {persona.name}."
            return dict.fromkeys(DESCRIBED, "") | {"introduction": introduction}
        # A profile with a text of its own is described by that text. Drawn attributes might
        # contradict it.
        is_described = persona.described
        return {
            "introduction": f"{persona.name}."
            if is_described
            else character.describe_introduction(persona),
            "circumstances": "" if is_described else character.describe_circumstances(persona),
            "background": persona.background,
            "personality": character.describe_temperament(persona.traits),
            "voice": character.describe_manner(persona.voice),
            "buying": character.describe_buying(persona),
            "engagement": character.category_engagement(persona, self.config.category),
        }

    def build_system_prompt(self, scope: Scope) -> str:
        """Return the system prompt: the persona and the setting of the discussion."""
        opinion, texts = self.persona.opinion, self.texts
        leaning = describe_position(opinion.valence) if opinion else ""
        return scope.prompt(
            "persona_system",
            **texts.description(self.id, self.description),
            who=SourcedText("yourself") if self.speaks_as_self else texts.name(self.id, self.name),
            category=texts.category,
            concept=texts.concept,
            alone=self.alone,
            leaning=texts.first_leaning(self.id, leaning),
            opinion=self.opinion_words,
        )

    def speaker(self, scope: Scope) -> Speaker:
        """Return this participant as a speaker with a system prompt."""
        return Speaker(
            self.id,
            self.name,
            system=self.build_system_prompt(scope),
            temperature=self.config.temperature,
            max_tokens=self.config.max_tokens or ANSWER_TOKENS,
            images=self.config.images,
        )

    def should_speak(self, rng: np.random.Generator, *, addressed: bool = False) -> bool:
        """Decide at random whether the participant answers a question.

        - `addressed`: True if the question names this participant.
        """
        # Addressed participants always answer. The probability of others depends on extraversion.
        # A number is drawn for all, so that addressing one participant does not change later draws.
        chance = speaking_probability(self.persona.traits.extraversion)
        is_willing = rng.random() < (MEDIUM if self.speaks_as_self else chance)
        return addressed or bool(is_willing)

    async def respond(
        self,
        scope: Scope,
        question: DiscussionMessage,
        context: Sequence[DiscussionMessage],
        *,
        addressed: bool = False,
    ) -> str | Missing:
        """Ask this participant the moderator's question and return the answer.

        - `context`: all messages so far.
        - `addressed`: True if the question names this participant.

        Returns Missing if the participant gives no words.
        """
        # Only the last `context_messages` messages are in the prompt.
        shows_material = question.phase in (DiscussionPhase.REACTION, DiscussionPhase.SYNTHESIS)
        prompt = scope.prompt(
            "participant_response",
            question=question.quoted_text,
            phase=quote_phase(question.phase),
            addressed=addressed,
            probe=question.probe,
            alone=self.alone,
            others=any(
                message.by_participant and message.speaker_id != self.id for message in context
            ),
            stimulus=self.texts.material if shows_material else None,
            # The advice follows from the persona, but its words are instructions of the study and
            # not part of the persona.
            length=SourcedText("" if self.speaks_as_self else length_advice(self.persona)),
            company=SourcedText(
                "" if self.speaks_as_self or self.alone else conversation_style_advice(self.persona)
            ),
            max_words=self.texts.max_words,
        )
        # Models sometimes go on as another speaker, who did not say it.
        others = (message.speaker_name for message in context if message.speaker_id != self.id)
        reply = await scope.ask(
            self.speaker(scope),
            prompt,
            history=self._latest_messages(context),
            answer_type=Text(
                own_names=(self.persona.name, self.name), other_names=tuple(dict.fromkeys(others))
            ),
            about=question.content,
        )
        if isinstance(reply, Missing):
            return reply
        if not (text := clean_reply(reply, self.persona)):
            return Missing("empty", "a name and nothing said")
        return quote_value(text, "utterance", scope.address, self.id)

    async def state_opinion(
        self, scope: Scope, when: InterviewTime, context: Sequence[DiscussionMessage]
    ) -> Statement:
        """Ask for a private opinion, record the opinion and return it.

        - `context`: the messages that the participant remembers.
        """
        prompt = scope.prompt(
            "private_opinion",
            talked=when is InterviewTime.AFTER,
            alone=when is InterviewTime.ALONE,
            **self._shown_texts(self.texts.price),
            answer_format=PRIVATE_OPINION.describe_format(),
        )
        result = await scope.ask_detailed(
            self.speaker(scope),
            prompt,
            history=self._latest_messages(context),
            answer_type=PRIVATE_OPINION,
            about=f"your opinion of: {self.config.product_concept}",
        )
        answer = result.value
        if isinstance(answer, Missing):
            return Statement(persona_id=self.id, when=when, missing=answer.reason)
        statement = Statement(
            persona_id=self.id,
            when=when,
            position=None if answer.position is None else round(answer.position, DECIMALS),
            words=answer.opinion,
            missing=result.reason_of_null("position") if answer.position is None else None,
        )
        return say_statement(scope, self.texts, statement, self.name, scope.address)

    async def state_purchase_intent(
        self, scope: Scope, when: InterviewTime, context: Sequence[DiscussionMessage]
    ) -> tuple[PurchaseIntent, ...]:
        """Ask in private whether the participant would buy, at each price of the study."""
        # These are the product's own price and the ladder prices of the study file. Each price is a
        # separate question, and its prompt contains no answer to another price.
        answers = [await self._would_buy(scope, when, context, self.texts.price)]
        for price in self.texts.ladder:
            price_scope = scope.child(number_text(parse_amount(price)))
            answers.append(await self._would_buy(price_scope, when, context, price, ladder=True))
        return tuple(answers)

    async def _would_buy(
        self,
        scope: Scope,
        when: InterviewTime,
        context: Sequence[DiscussionMessage],
        price: str | None,
        *,
        ladder: bool = False,
    ) -> PurchaseIntent:
        prompt = scope.prompt(
            "purchase_intent", options=quote_intents(), **self._shown_texts(price)
        )
        answer = await scope.ask(
            self.speaker(scope),
            prompt,
            history=self._latest_messages(context),
            answer_type=Choice(INTENTS),
            about=f"whether you would buy: {self.config.product_concept}",
        )
        answer_fields = (
            {"answer": None, "missing": answer.reason}
            if isinstance(answer, Missing)
            else {"answer": answer}
        )
        return PurchaseIntent(
            persona_id=self.id, when=when, price=price, ladder=ladder, **answer_fields
        )

    def _shown_texts(self, price: str | None) -> dict[str, object]:
        return {
            "concept": self.texts.concept,
            "stimulus": self.texts.material,
            "price": price,
        }

    def _latest_messages(self, context: Sequence[DiscussionMessage]) -> Transcript:
        return recent_transcript(context, self.config.context_messages)


def speaking_probability(extraversion: int) -> float:
    """Return the probability that a participant answers a question to someone else or to all.

    `extraversion` is from 0 to 100.
    """
    # The probability is high from 67 on, low below 34, and medium in between.
    if extraversion >= 67:
        return HIGH
    return LOW if extraversion < 34 else MEDIUM


def length_advice(profile: Profile) -> str:
    """Return the sentence of the prompt on how long answers should be."""
    # It depends on extraversion.
    return LENGTH_ADVICE[character.score_band(profile.traits.extraversion)]


def conversation_style_advice(profile: Profile) -> str:
    """Return the sentence of the prompt on how to respond to other participants."""
    # It depends on agreeableness.
    return STYLE_ADVICE[character.score_band(profile.traits.agreeableness)]


def clean_reply(text: str, persona: Profile) -> str:
    """Remove from a reply the leading "Name:" and the quotation marks around the text."""
    text = without_own_heading(text.strip(), (persona.name, persona.first_name))
    if len(text) > 1 and (text[0], text[-1]) in {('"', '"'), ("“", "”")} and '"' not in text[1:-1]:
        text = text[1:-1]
    return collapse_spaces(text)


def title_of(profile: Profile) -> str:
    """Return the name of a participant for reports, such as `Emma (27, Marketing Coordinator)`."""
    # If the researcher wrote a description, only the first name is given, because the other
    # attributes are drawn at random.
    if profile.described:
        return profile.first_name
    lower_case_words = {"of", "and", "the", "in", "for", "at", "between"}
    words = [
        word if word in lower_case_words else capitalise(word)
        for word in profile.occupation.split()
    ]
    return f"{profile.first_name} ({profile.age}, {' '.join(words)})"
