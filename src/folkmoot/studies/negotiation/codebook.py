"""What the columns of a negotiation's tables mean."""

from __future__ import annotations

from typing import Any

import polars as pl

from folkmoot.records.run_folder import RunFolder
from folkmoot.studies.negotiation.measures import MEASURES

CODEBOOK: dict[str, Any] = {
    "group_id": "group of travellers",
    "group_type": "family, elder_young (multigenerational), colleagues, spouses or strangers",
    "condition": "C1 single user, C2 no mediation, C3 raw, C4 guided, C5 guided with feedback",
    "slot": "one of the seven slots, in their fixed order",
    "topic": "the decision: the slot, or for lodging room_type or house_rule",
    "member_id": "traveller within the group",
    "member_name": "how the member is called, by role",
    "resolved": "whether it ended in agreement",
    "parse_error": "the reply was unreadable; the protocol's minimal structure stands",
    "speaker": "System, or the member's name",
    "intent": "what the turn does, and for which slot",
    "phase": "preference, synthesis, vote or feedback",
    "groups": {
        "size": "number of members",
        "roles": "their roles, in order",
    },
    "members": {
        "role": "role within the group type",
        "weight": "weight in weighted averages",
        "persona": "description that the member answers by; empty where preferences were given",
        "preferences_given": "the user stated the preferences; nobody was asked",
    },
    "preferences": {
        "role": "role within the group type",
        "text": "the stated preference; empty where it could not be had",
        "given": "stated by the user's file",
        "options_shown": "usual options in the order in which this member saw them",
    },
    "ballots": {
        "top_choice": "option wanted most",
        "acceptable": "further options that would do",
        "hard_no": "options rejected",
        "missing": "no ballot could be had; the preference text counts alone",
    },
    "feedback": {
        "target": "member who was asked",
        "targeted": "the member was left out: no word in common with the decision",
        "question": "what was asked",
        "updated_explanation": "what was adjusted",
        "revised_decision": "the decision as revised",
        "refused_options": "options that a hard constraint had struck out; the revision fell",
    },
    "decisions": {
        "source": "what settled it: single_user, preferences, synthesis, operator, vote, feedback",
        "has_conflict": "whether the preferences conflict, as the mediator judged",
        "stated_conflict": "whether first choices differ or one is strongly rejected, by the texts",
        "strategy_id": "canonical strategy (C4, C5)",
        "operator": "the rule that decides",
        "proposed_strategy": "label that the model returned, before the clamp",
        "resolution_strategy": "label that stands: the canonical id",
        "drifted": "whether the proposed label was another than the canonical id",
        "selected_option": "the option that stands for the decision; empty where there is none",
        "resolution_text": "the decision in words, after feedback",
        "fell_back_to": "operator that decided where the canonical one could not",
        "infeasible": "every option breaks a hard constraint",
        "ballots": "collected, partial, missing (counted by texts), not_held; none without lock",
        "subgrouping_required": "the group must part for this slot",
        "subgrouping_optional": "the group may part for this slot",
        "feedback_rounds": "rounds of feedback held",
        "resolved": "whether feedback ended in agreement",
        "parse_error": "the synthesis reply was unreadable; the minimal structure stands",
        "words": "words spoken to come to the decision, stated preferences left out",
        "rung": "where on the ladder the synthesis reply was read",
    },
    "scores": {
        "option": "option on the table",
        "score": "the vote parser's score, with ballots where there were any",
        "text_score": "the same by the stated preference alone",
        "strong_rejection": "score of -2 or less",
        "primary": "the member's first choice",
    },
    "satisfaction": {
        "satisfaction": "the member's own score of what was decided for the member, -2 to 4",
        "covered": "share of what may happen in which the member gets something spoken for",
    },
    "measures": {name: what for name, (what, _) in MEASURES.items()},
}

_ONE = "group_id group_type condition slot topic "
TABLES = {
    "preferences": "group_id group_type member_id member_name role slot topic text missing finish "
    "given:bool options_shown",
    "utterances": f"{_ONE}turn:int phase round:int speaker intent text finish",
    "ballots": f"{_ONE}member_id top_choice acceptable hard_no missing:bool",
    "feedback": f"{_ONE}round:int target targeted:bool resolved:bool question "
    "updated_explanation revised_decision refused_options parse_error:bool",
    "scores": f"{_ONE}member_id option score:int text_score:int strong_rejection:bool primary:bool",
    "satisfaction": f"{_ONE}member_id satisfaction:float covered:float",
}


def unusable(run: RunFolder) -> str:
    """Why nothing in a run is of use: no preference was had, or nothing the mediator said."""
    if run.table("preferences")["text"].is_null().all():
        return "no member's preference could be had"
    mediated = run.table("decisions").filter(~pl.col("condition").is_in(["C1", "C2"]))
    unread = mediated["parse_error"].all() and not mediated.is_empty()
    return "no reply of the mediator could be read" if unread else ""
