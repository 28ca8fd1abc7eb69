"""The rules by which the embedded respondent answers the questions of a negotiation.

The embedded respondent answers in place of a model, for example in demos and dry runs.
"""

# The respondent recognises statements, options, names and shares by the sources that these texts
# carry. It does not read instructions. The study's own rules (`rules.tally`) find the options in a
# statement.

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Any

from folkmoot.conversation.answer_types import NONE_OF_THESE, WAYS_OUT
from folkmoot.files import packaged_yaml
from folkmoot.hints import capitalise, join_words, natural_sort_key
from folkmoot.respondent import Passage, RespondentPart, SimulatedRespondent, of_kind
from folkmoot.respondent.mind.draws import uniform_draw
from folkmoot.respondent.mind.passages import last_key
from folkmoot.studies.negotiation import quotes
from folkmoot.studies.negotiation.config import NegotiationConfig
from folkmoot.studies.negotiation.decision import SYSTEM, SYSTEM_SPEAKER
from folkmoot.studies.negotiation.rules.strategies import Member, load_topics
from folkmoot.studies.negotiation.rules.tally import (
    NEGATION_CUES,
    count_votes,
    find_mentions,
    match_option,
    text_scores,
    words_of,
)
from folkmoot.studies.negotiation.rules.vocabulary import EVERYONE, fold_name

# Planted effects: the chance that the mediator gives room to members without the most common first
# choice, and the chance that it names its strategy by the given id. We chose both.
FOLLOWS = 0.6
LABELS = 0.75
LATER = "another day"
# Labels that real models give to a strategy when they ignore the given id.
_VAGUE = ("compromise", "policy", "Family Friendly", "majority", "balanced approach", "fair_split")
Reply = dict[str, object]


def respondent_part(follows: float = FOLLOWS) -> RespondentPart[NegotiationConfig]:
    """Return the rules by which the embedded respondent answers the questions of a negotiation.

    `follows`: the chance, from 0 to 1, that the mediator grants the first choices of minorities.
    """
    return RespondentPart(
        option_names=_option_names,
        answers={
            "participant text": answer_in_words,
            "participant choice": answer_confirmation,
            "BallotForm": answer_ballot,
            "ScoreForm": answer_scores,
            "OwnScores": own_scores,
            "PlainSynthesis": lambda mind: answer_synthesis(mind, follows),
            "GuidedSynthesis": lambda mind: answer_synthesis(mind, follows),
            "FeedbackReply": lambda mind: answer_feedback(mind, follows),
        },
    )


def _option_names(config: NegotiationConfig) -> Sequence[str]:
    return [option for topic in load_topics(config.options) for option in topic.options]


@cache
def _load_wordings() -> Mapping[str, Any]:
    # The frames of sentences by kind, and the phrases of options under `phrases`. Some kinds have
    # one list for each voice.
    wordings: Mapping[str, Any] = packaged_yaml(__file__, "respondent.yaml")
    return wordings


def _option_phrases() -> Mapping[str, str]:
    phrases: Mapping[str, str] = _load_wordings()["phrases"]
    return phrases


def _fill_sentence(mind: SimulatedRespondent, kind: str, **names: str) -> str:
    frames, phrases = _load_wordings()[kind], _option_phrases()
    voice_frames = frames[mind.who.voice] if isinstance(frames, dict) else frames
    spelled_names = {key: phrases.get(name, name) for key, name in names.items()}
    text = mind.speech.pick_unused(voice_frames).format(**spelled_names)
    return capitalise(text)


# --- what is read -------------------------------------------------------------------------------


def _stated_preferences(mind: SimulatedRespondent) -> list[Passage]:
    utterances = of_kind(mind.reading.passages, "utterance")
    return [passage for passage in utterances if passage.source.id.startswith(quotes.PREFERENCES)]


def _listed_options(mind: SimulatedRespondent) -> list[str]:
    option_texts = (passage.text for passage in of_kind(mind.reading.passages, "option"))
    return list(dict.fromkeys(_usual_name(text, mind.at.names) for text in option_texts))


def _usual_name(text: str, options: Sequence[str]) -> str:
    # Prompts may write an option with capitals.
    return match_option(text, options) or text


def _on_table(mind: SimulatedRespondent, model: str, field: str) -> list[str]:
    # `model` is the answer type, or a model nested in it.
    schema = mind.schema.get("$defs", {}).get(model, mind.schema)
    allowed = schema.get("properties", {}).get(field, {}).get("enum", ())
    return [option for option in allowed if option not in WAYS_OUT] or _listed_options(mind)


# --- members -----------------------------------------------------------------------------------


def _option_liking(mind: SimulatedRespondent, options: Sequence[str]) -> dict[str, float]:
    persona_scores = text_scores(mind.who.key, options)
    return {
        option: mind.who.option_taste(option) + 0.8 * persona_scores[option] for option in options
    }


def answer_in_words(mind: SimulatedRespondent) -> str | None:
    """Return a member's response to an announced decision.

    If no decision is announced, returns the member's preference. Returns None if the request lists
    no options.
    """
    utterances = of_kind(mind.reading.passages, "utterance")
    announcements = [
        passage for passage in utterances if passage.source.speaker == SYSTEM_SPEAKER.id
    ]
    return answer_response(mind, announcements[-1].text) if announcements else answer_wish(mind)


def answer_response(mind: SimulatedRespondent, announcement: str) -> str:
    """Return a member's response to a decision that the mediator announces."""
    scores = text_scores(
        " ".join(passage.text for passage in _stated_preferences(mind) if passage.own),
        mind.at.names,
    )
    named = {mention.option for mention in find_mentions(announcement, mind.at.names)}
    best = max(scores, key=lambda option: scores[option], default="")
    first_choice = best if scores.get(best, 0) > 0 else None
    rejected = sorted(option for option in named if scores.get(option, 0) < 0)
    return _reaction_sentence(mind, first_choice, named, rejected, content=True)


def answer_wish(mind: SimulatedRespondent) -> str | None:
    """Return a member's preference among the listed options.

    Returns None if the request lists no options.
    """
    utilities = _option_liking(mind, _listed_options(mind))
    if not utilities:
        return None
    best, *rest = sorted(utilities, key=lambda option: -utilities[option])
    phrases = _option_phrases()
    sentences = [
        _fill_sentence(mind, "wish", W=best) if best in phrases else f"What I want most: {best}."
    ]
    if rest and utilities[rest[0]] > 0.8 and mind.draws.draw_chance(0.35):
        sentences.append(_fill_sentence(mind, "second", W=rest[0]))
    can_reject = not NEGATION_CUES & set(words_of(" ".join(utilities)))
    if rest and can_reject and utilities[rest[-1]] < -1 and mind.draws.draw_chance(0.4):
        sentences.append(_fill_sentence(mind, "reject", R=rest[-1]))
    return " ".join(sentences)


def answer_confirmation(mind: SimulatedRespondent) -> str | None:
    """Return "yes" if the mediator named every option of the decision, otherwise "no".

    Returns None if the question is not a confirmation.
    """
    if not {"yes", "no"} <= set(mind.reading.offered):
        return None
    recorded_options = {
        _usual_name(passage.text, mind.at.names)
        for passage in mind.shown_passages(quotes.SHARE_OPTION)
    }
    if not recorded_options:
        mind.mark_unread()
    utterances = of_kind(mind.reading.passages, "utterance")
    system_passages = [
        passage for passage in utterances if passage.source.speaker == SYSTEM_SPEAKER.id
    ]
    system_passages += mind.shown_passages(quotes.RESOLUTION)
    known_options = [*mind.at.names, *recorded_options]
    return (
        "yes"
        if recorded_options
        <= {
            mention.option
            for passage in system_passages
            for mention in find_mentions(passage.text, known_options)
        }
        else "no"
    )


def _own_view(
    mind: SimulatedRespondent, model: str, field: str
) -> tuple[dict[str, float], dict[str, int]]:
    # (option → the member's liking, option → its score in the member's statement)
    options = _on_table(mind, model, field)
    stated_scores = text_scores(
        " ".join(passage.text for passage in _stated_preferences(mind) if passage.own), options
    )
    return {
        option: value + stated_scores[option]
        for option, value in _option_liking(mind, options).items()
    }, stated_scores


def answer_ballot(mind: SimulatedRespondent) -> Reply:
    """Return a ballot that agrees with the member's stated preference."""
    utilities, stated_scores = _own_view(mind, "BallotForm", "top_choice")
    ranked = sorted(utilities, key=lambda option: (-stated_scores[option], -utilities[option]))
    rejected = [option for option in ranked if stated_scores[option] < 0]
    acceptable = [
        option
        for option in ranked[1:]
        if option not in rejected and (stated_scores[option] > 0 or utilities[option] > 0)
    ]
    top = next((option for option in ranked if option not in rejected), NONE_OF_THESE)
    return {"top_choice": top, "acceptable": acceptable[:2], "hard_no": rejected} | _NOTHING_ELSE


# The respondent never names an option that the request does not list.
_NOTHING_ELSE: Reply = {"new_option": "", "objection": ""}


def answer_scores(mind: SimulatedRespondent) -> Reply:
    """Return scores that agree with the member's stated preference."""
    utilities, stated_scores = _own_view(mind, "Score", "option")
    scores = {option: max(-4, min(4, round(value))) for option, value in utilities.items()}
    rejected = [option for option in utilities if stated_scores[option] < 0]
    score_items = [{"option": option, "score": score} for option, score in scores.items()]
    return {"scores": score_items, "hard_no": rejected} | _NOTHING_ELSE


def own_scores(mind: SimulatedRespondent) -> Reply:
    """Return scores that agree with the member's stated preference, with a reason."""
    # The reason names the option with the best score.
    utilities, _ = _own_view(mind, "Score", "option")
    best = max(utilities, key=lambda option: utilities[option], default="")
    return {"reason": _fill_sentence(mind, "wish", W=best) if best else ""} | answer_scores(mind)


def _reaction_sentence(
    mind: SimulatedRespondent,
    first_choice: str | None,
    received: Collection[str],
    rejected: Sequence[str],
    *,
    content: bool,
) -> str:
    # `content` is True if the member accepts a decision without the first choice.
    if first_choice in received:
        return _fill_sentence(mind, "glad", W=first_choice or "")
    if rejected:
        return _fill_sentence(mind, "against", R=rejected[0])
    if first_choice is None:
        return _fill_sentence(mind, "easy")
    return _fill_sentence(mind, "resigned" if content else "asks", W=first_choice)


# --- the mediator ------------------------------------------------------------------------------


class MediationPrompt:
    """The members, preferences and current decision that a mediator's prompt shows."""

    def __init__(self, mind: SimulatedRespondent) -> None:
        self.mind = mind
        line_fields = mind.schema.get("$defs", {}).get("Spoken", {}).get("properties", {})
        speakers: Sequence[str] = line_fields.get("speaker", {}).get("enum", ())
        self.voiced_names = [name for name in speakers if name != SYSTEM]
        # The answer type lists no members if they speak for themselves. The request names them.
        self.names = self.voiced_names or list(
            dict.fromkeys(passage.text for passage in mind.shown_passages(quotes.MEMBER_NAME))
        )
        by_id = {
            last_key(passage): self._member_name(passage.text)
            for passage in mind.shown_passages(quotes.MEMBER_NAME)
        }
        named_texts = (
            (by_id.get(passage.source.speaker, ""), passage.text)
            for passage in _stated_preferences(mind)
        )
        # Member's name → stated preference.
        self.texts = {name: text for name, text in named_texts if name}
        members = [Member(name, name, "") for name in self.names]
        self.tally = count_votes(members, self.texts, _on_table(mind, "Share", "option"))
        # The shares of the decision in the request.
        self.in_force = self._current_shares()
        self.told = mind.shown_text(quotes.SENTENCE).rstrip(". ")
        self.asked = self._member_name(mind.shown_text(quotes.TARGET_NAME))

    def _member_name(self, text: str) -> str:
        # Prompts may write a name with capitals.
        return next((name for name in self.names if fold_name(name) == fold_name(text)), text)

    def _current_shares(self) -> list[Reply]:
        times = {
            _row_key(passage): passage.text
            for passage in self.mind.shown_passages(quotes.SHARE_TIME)
        }
        members_by_row: dict[str, list[str]] = {}
        for passage in self.mind.shown_passages(quotes.SHARE_MEMBERS):
            members_by_row.setdefault(_row_key(passage), []).append(self._member_name(passage.text))
        share_by_row: dict[str, Reply] = {}
        for passage in self.mind.shown_passages(quotes.SHARE_OPTION):
            row = _row_key(passage)
            # A sentence shows shares of the same members as one, with the members of the first.
            member_names = members_by_row.get(row) or next(iter(members_by_row.values()), [])
            is_everyone = any(fold_name(name) == fold_name(EVERYONE) for name in member_names)
            share_by_row[row] = {
                "option": _usual_name(passage.text, self.tally.options),
                "members": [] if is_everyone else list(dict.fromkeys(member_names)),
                "when": times.get(row, ""),
            }
        return [share_by_row[row] for row in sorted(share_by_row, key=natural_sort_key)]

    def options_for(self, name: str, shares: Sequence[Reply]) -> set[str]:
        return {
            str(share["option"])
            for share in shares
            if not share["members"] or name in _as_list(share["members"])
        }

    def rejected_options(self, name: str, received: Collection[str]) -> list[str]:
        """Return the options in `received` that a member strongly rejects, by the alphabet."""
        # A proposal may contain options that are on no ballot that could be read.
        return [
            option
            for option in self.tally.options
            if option in received and name in self.tally.rejecting_voters(option)
        ]

    def propose_shares(self, follows: float) -> list[Reply]:
        """Return a proposal that gives all members the most common first choice.

        `follows`: the chance that the less common first choices are added, on a later day.
        """
        first_choices = self.tally.first_choices()
        wanted_options = list(first_choices.values()) or list(self.tally.ranked_options()[:1])
        if not wanted_options:
            return []
        majority_option = min(
            wanted_options,
            key=lambda option: (-wanted_options.count(option), -self.tally.total(option), option),
        )
        shares: list[Reply] = [{"option": majority_option, "members": [], "when": ""}]
        names_by_option: dict[str, list[str]] = {}
        for name, option in first_choices.items():
            if option != majority_option:
                names_by_option.setdefault(option, []).append(name)
        if names_by_option and _follows_minority(self.mind, follows):
            shares += [
                {"option": option, "members": names, "when": LATER}
                for option, names in names_by_option.items()
            ]
        return shares

    def dropped_options(self, shares: Sequence[Reply]) -> list[str]:
        given_options = {share["option"] for share in shares}
        return [option for option in self.tally.options if option not in given_options]

    def member_reaction(self, name: str, shares: Sequence[Reply], *, content: bool = True) -> str:
        """Return the sentence with which a member reacts to a decision.

        `content`: True if the member accepts a decision that lacks the member's first choice.
        """
        received, first_choice = self.options_for(name, shares), self.tally.first_choice(name)
        rejected = self.rejected_options(name, received)
        return _reaction_sentence(self.mind, first_choice, received, rejected, content=content)


def _row_key(passage: Passage) -> str:
    # The key of the row from which the passage was quoted.
    return passage.source.id.partition("/")[2]


def _follows_minority(mind: SimulatedRespondent, chance: float) -> bool:
    return uniform_draw(mind.at.seed, mind.at.address, "follows") < chance


def _as_list(value: object) -> list[str]:
    return value if isinstance(value, list) else []


def _shares_as_stated(shares: Sequence[Reply]) -> list[Reply]:
    return [
        {**share, "members": share["members"] or [EVERYONE], "new_option": ""} for share in shares
    ]


def _format_allocations(shares: Sequence[Reply]) -> str:
    parts = []
    for share in shares:
        names = join_words(_as_list(share["members"])) or "everyone"
        parts.append(
            f"{share['option']} for {names}" + (f" ({share['when']})" if share["when"] else "")
        )
    text = "; ".join(parts)
    return capitalise(text)


def answer_synthesis(mind: SimulatedRespondent, follows: float) -> Reply:
    """Return the mediator's proposal.

    `follows`: the chance that the proposal adds the first choices of minorities.
    """
    # If the request shows the operator's decision, the mediator states this decision.
    meeting = MediationPrompt(mind)
    shares = meeting.in_force or meeting.propose_shares(follows)
    wants = [
        f"{name} wants {_option_phrases().get(option, option)}"
        for name, option in meeting.tally.first_choices().items()
    ]
    proposal = (
        meeting.told
        or _format_allocations(shares)
        or "Nobody has named anything yet, so we look again on the spot"
    )
    return {
        "has_conflict": meeting.tally.has_conflict,
        "conflict_description": f"{join_words(wants)}."
        if meeting.tally.has_conflict and wants
        else "",
        "resolution_strategy": _strategy_label(mind),
        "resolution_explanation": f"{proposal}.",
        "decision": _shares_as_stated(shares),
        "dropped": meeting.dropped_options(shares),
        "dialogue": [
            {"speaker": "System", "text": _fill_sentence(mind, "proposes", D=f"{proposal}.")},
            *(
                {"speaker": name, "text": meeting.member_reaction(name, shares)}
                for name in meeting.voiced_names
            ),
        ],
    }


def _strategy_label(mind: SimulatedRespondent) -> str:
    # Real models sometimes write a vague label instead of the id.
    topic = {last_key(passage) for passage in mind.shown_passages(quotes.TOPIC_LABEL)}
    ids = [
        passage.text
        for passage in mind.shown_passages(quotes.STRATEGY_ID)
        if last_key(passage) in topic
    ]
    return ids[0] if ids and mind.draws.draw_chance(LABELS) else mind.draws.pick_item(_VAGUE)


def answer_feedback(mind: SimulatedRespondent, follows: float) -> Reply:
    """Return the mediator's reply in a feedback round.

    `follows`: the chance that the mediator adds the member's first choice to the decision.
    """
    # The option is added on another day.
    meeting = MediationPrompt(mind)
    name, shares = meeting.asked, meeting.in_force
    first_choice = meeting.tally.first_choice(name) if name else None
    received = meeting.options_for(name, shares)
    is_missing = first_choice is not None and first_choice not in received
    is_rejected = first_choice is None and bool(meeting.rejected_options(name, received))
    is_split = any(str(share["when"]).startswith("Group") for share in shares)
    adds_option = bool(is_missing and shares and not is_split and _follows_minority(mind, follows))
    resolved = not (is_missing or is_rejected) or adds_option or mind.draws.draw_chance(0.25)
    added_share: Reply = {"option": first_choice, "members": [name], "when": LATER}
    revised = [*shares, added_share] if adds_option else shares
    decision_text = (
        f"{name} gets {first_choice} on another day."
        if adds_option
        else "Nothing changes, the plan stands."
    )
    question = (
        f"would {first_choice} on another day answer your concern?"
        if is_missing
        else "are you content?"
    )
    reaction = [
        {
            "speaker": voiced_name,
            "text": meeting.member_reaction(name, shares, content=resolved and not adds_option),
        }
        for voiced_name in meeting.voiced_names
        if voiced_name == name
    ]
    return {
        "resolved": resolved,
        "updated_resolution_explanation": decision_text if adds_option else "",
        "targeted_feedback_question": f"{name}, {question}",
        "final_revised_decision": _format_allocations(revised) if adds_option else "",
        "decision": _shares_as_stated(revised),
        "dropped": meeting.dropped_options(revised),
        "hard_no": [],
        "objection": "",
        "dialogue": [*reaction, {"speaker": "System", "text": decision_text}],
    }


PART = respondent_part()
