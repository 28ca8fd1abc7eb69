"""The labels of answer fields on the pages on which humans answer as residents."""

# The field descriptions in the answer types are written for models, as a part of their requests. So
# this module has separate texts for humans.

from __future__ import annotations

from collections.abc import Mapping

from folkmoot.conversation.answer_types import FieldForPeople

FIELDS_FOR_PEOPLE: Mapping[str, FieldForPeople] = {
    path: FieldForPeople(label)
    for path, label in {
        "reason": "Why, in one sentence",
        "satisfaction": "How satisfied you are",
        "vote": "Your vote",
        "reactions": "What you think of the others' opinions",
        "reactions.target_agent": "Whose opinion (the id of the resident)",
        "reactions.target_summary": "That opinion, in a few words",
        "reactions.my_feeling": "What you feel about it",
        "reactions.agree_level": "How far you agree, from 1 (not at all) to 5 (fully)",
        "reactions.reason": "Why",
        "reactions.want_to_respond": "Do you want to answer in public?",
        "overall_stance": "Your stance on the question",
        "key_concerns": "Your main concerns",
        "strategic_notes": "What you want to achieve with your statement, or keep to yourself",
        "references": "Whom you answer",
        "references.target_agent": "The id of the resident",
        "references.interaction_type": "How you answer",
        "references.content": "Your words to this resident",
        "new_points": "New points",
        "questions": "Your questions",
        "questions.target": "To whom (an id, all, moderator or planner)",
        "questions.content": "Your question",
        "full_statement": "Your statement, as the hall hears it. Leave it blank to stay silent.",
        "most_compelling": "What convinced you most",
        "most_disagreed": "What you disagree with most",
        "agent_id": "Whose opinion (the id of the resident)",
        "opinion_summary": "That opinion, in a few words",
        "why_compelling": "Why it convinced you",
        "why_disagree": "Why you disagree",
        "stance_evolution": "Your stance",
        "previous_stance": "As the round began",
        "current_stance": "Now",
        "change_type": "How it moved",
        "change_reason": "Why",
        "next_round_strategy": "What you want to bring to the next round",
    }.items()
}
