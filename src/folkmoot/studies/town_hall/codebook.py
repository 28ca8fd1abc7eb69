"""What the columns of this study's tables mean."""

from __future__ import annotations

from typing import Any

from folkmoot.records.run_folder import RunFolder
from folkmoot.studies.town_hall.measures import FIGURES

_REACTIONS = {
    "reactions_ignore": "others who could have reacted and made no reference (level 0)",
    "reactions_refute": "others who disagreed (level 1)",
    "reactions_question": "others who asked (level 2)",
    "reactions_cite": "others who cited without judgement (level 3)",
    "reactions_agree": "others who agreed (level 4)",
    "total_reaction_count": "others who reacted at all",
    "positive_reaction_count": "others who cited or agreed (levels 3 and 4)",
    "positive_ratio": "positive of all reactions; empty when there was none",
    "weighted_inclusivity_score": "sum of levels over possible reactions, 0–4",
    "possible_reactions": "others who could have reacted (readable statements, from round 2)",
    "interaction_count": "public references to the resident",
    "avg_agree_level": "mean private agreement with the resident, 1–5",
    "response_rate": "share of private reactions that wished to respond",
    "cited_as_compelling_count": "times named most compelling in reflections on the round",
    "cited_as_disagreed_count": "times named most disagreed with in reflections on the round",
    "questions_received": "public questions put to the resident",
    "speaking_volume": "new points and references that the resident made",
    "responders": "who reacted, ids joined by |",
}
_RESIDENT = {
    "id": "id of the resident",
    "age_group": "age group",
    "gender": "gender",
    "residence_years": "years lived in the quarter",
    "ownership": "owner or tenant",
    "occupation": "occupation",
    "assertiveness": "personality, 1–5",
    "openness": "personality, 1–5",
    "risk_tolerance": "personality, 1–5",
    "community_orientation": "personality, 1–5",
    "income_level": "low, middle or high",
    "can_afford_contribution": "could the resident pay the owners' contribution",
    "economic_pressure": "comfortable, moderate or struggling",
    "participation_tendency": "active, moderate or passive",
    "information_access": "high, medium or low",
    "community_engagement": "active, moderate or minimal",
    "label": "short name of a vulnerable profile",
}
_COMPARED = {
    "figure": "measure that is compared; levels.json says what each is",
    "group": "vulnerable, general, or gap (vulnerable minus general)",
    "estimate": "mean over sets (of the difference within sets, in `differences`)",
    "low": "lower end of the 95 % interval, t over sets; empty with one set",
    "high": "upper end of the 95 % interval",
    "sets": "sets that have this figure",
    "p": "two-sided p of no difference (sign flips of sets, with up to 12 of them)",
    "from_level": "level that is compared from",
    "to_level": "level that is compared to",
    "consecutive": "whether the two levels follow each other in the main comparison",
    "switches_changed": "switches in which the two levels differ, joined by |",
}

CODEBOOK: dict[str, Any] = {
    "discussion_id": "one discussion: a set at a level",
    "set": "number of the set; the same residents at every level",
    "level": "level of technical implementation",
    "part": "main comparison or supplementary",
    "round": "round of discussion, from 1",
    "agent_id": "the resident (or who else answered)",
    "is_vulnerable": "one of the vulnerable residents",
    "vulnerable_type": "housing or participation; empty for general residents",
    **_RESIDENT,
    **_REACTIONS,
    **_COMPARED,
    "rounds": {
        "seat_model": "model dealt to this seat by the level; empty for the run's own",
        "overall_stance": "stance in THINK; empty where thinking is off or unread",
        "silent": "chose to say nothing",
        "words": "words of the public statement",
        "thinking_parse_error": "THINK could not be read: the minimal structure stands",
        "speaking_parse_error": "SPEAK could not be read: left out of possible reactions",
        "new_points": "points that answer nobody",
        "references_made": "public references that the resident made",
        "stance_after": "stance in REFLECT after the round",
        "change_type": "maintain, soften, harden or flip",
        "most_compelling": "who convinced the resident most in this round",
        "most_disagreed": "with whom the resident disagreed most in this round",
    },
    "reactions": {
        "speaker": "who could react",
        "target": "to whom",
        "reaction_level": "0 ignore, 1 refute, 2 question, 3 cite, 4 agree",
        "reaction": "name of the reaction's level",
        "interaction_types": "interaction types of the references, joined by |",
        "agree_level": "private agreement of the speaker with the target, 1–5",
        "my_feeling": "private feeling of the speaker",
        "want_to_respond": "did the speaker wish to respond",
        "speaker_vulnerable": "is the speaker one of the vulnerable residents",
        "target_vulnerable": "is the target one of the vulnerable residents",
    },
    "utterances": {
        "turn": "place in which the statement is listed to those who hear it",
        "speaker_id": "who spoke",
        "speaker_role": "resident or moderator",
        "text": "what was said",
        "silent": "chose to say nothing",
        "unread": "the answer could not be read",
    },
    "item_id": "item of the ballot",
    "items": {
        "text": "the proposal",
        "origin": "residents that it goes back to, joined by |",
        "vulnerable_originated": "does it go back to a vulnerable resident",
        "yes": "votes for it",
        "no": "votes against it",
        "uncast": "ballots that could not be read",
    },
    "passed": "more yes than no; a tie fails",
    "tie": "as many yes as no, which fails",
    "votes": {
        "originated": "does the item go back to this resident",
        "vote": "yes or no; empty when the ballot could not be read",
        "reason": "the reason given",
    },
    "pre_satisfaction": "satisfaction before the discussion, 1–10",
    "post_satisfaction": "satisfaction after the outcome, 1–10",
    "satisfaction_delta": "after minus before",
    "pre_reason": "reason given before",
    "post_reason": "reason given after",
    "mends": {
        "stage": "part of the discussion",
        "field": "field that was mended",
        "kind": "what was wrong with it",
        "was": "what the model wrote",
        "became": "what it was repaired to; empty when it was dropped",
        "dropped": "was it dropped",
    },
    "discussions": {
        **{
            f"{group}_{name}": f"{group} residents: {words}"
            for group in ("vulnerable", "general")
            for name, words in FIGURES.items()
        },
        **{f"gap_{name}": f"vulnerable minus general: {words}" for name, words in FIGURES.items()},
        "total_vote_items": "items on the ballot",
        "items_passed": "items that passed",
        "ties_failed": "items that failed by a tie",
        "vulnerable_originated_items": "items that go back to a vulnerable resident",
        "vulnerable_items_passed": "of these, passed",
        "vulnerable_opinion_reflection_rate": "passed of originated; empty where none was",
        "answers": "answers asked for",
        "reasks": "answers that had to be asked for again",
        "minimal_structures": "residents for whom the minimal structure stands",
        "silent_turns": "turns in which a resident chose to say nothing",
        "votes_uncast": "votes that could not be read",
        "repaired": "fields that were repaired",
        "dropped": "fields that were dropped",
        "rounds_split": "rounds of a shared session that took more than one call",
    },
}

_ONE = "discussion_id set:int level part "
TABLES = {
    "utterances": f"{_ONE}round:int turn:int speaker_id speaker_role is_vulnerable:bool text "
    "silent:bool unread:bool finish",
    "reactions": f"{_ONE}round:int speaker target reaction_level:int reaction interaction_types "
    "agree_level:int my_feeling want_to_respond:bool speaker_vulnerable:bool "
    "target_vulnerable:bool",
    "items": f"{_ONE}item_id text origin vulnerable_originated:bool yes:int no:int uncast:int "
    "passed:bool tie:bool",
    "votes": f"{_ONE}item_id agent_id is_vulnerable:bool originated:bool vote reason passed:bool",
    "satisfaction": f"{_ONE}agent_id is_vulnerable:bool pre_satisfaction:int "
    "post_satisfaction:int satisfaction_delta:int pre_reason post_reason",
    "mends": f"{_ONE}stage round:int agent_id field kind was became dropped:bool",
    "differences": "part from_level to_level consecutive:bool switches_changed figure group "
    "estimate:float low:float high:float sets:int p:float",
}


def unusable(run: RunFolder) -> str:
    """Why nothing in a run is of use: no resident was heard in any discussion."""
    said = run.table("utterances")
    residents = said.filter(said["speaker_role"] == "resident")
    unheard = residents["unread"].all() and not residents.is_empty()
    return "no resident's statement could be read" if unheard else ""
