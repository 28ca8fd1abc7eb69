"""What the fields of the studies' objects mean: values by field name, neighbours and prompt.

`Skills` answers the filler: which order to fill fields in, how many entries a list has, what a
field holds. `UNKNOWN` sends the filler back to the schema alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from folkmoot.models.synthetic import ballots, bargain, civic, forms, hall
from folkmoot.models.synthetic.mind import Mind
from folkmoot.models.synthetic.roster import ids_in, items, members

UNKNOWN: Final = object()
Around = Mapping[str, Any]
Value = Callable[[Mind, Mapping[str, Any], Around], Any]

_VALUES: Mapping[str, Value] = {
    "target_agent": civic.target,
    "target": civic.target,
    "agent_id": civic.target,
    "target_summary": civic.summary_of,
    "opinion_summary": civic.summary_of,
    "my_feeling": civic.feeling,
    "agree_level": civic.agree_level,
    "want_to_respond": civic.wants,
    "why_compelling": civic.why,
    "why_disagree": civic.why,
    "overall_stance": civic.stance,
    "strategic_notes": civic.strategy,
    "next_round_strategy": civic.strategy,
    "interaction_type": civic.interaction_type,
    "full_statement": civic.statement,
    "previous_stance": civic.previous_stance,
    "current_stance": civic.current_stance,
    "change_type": civic.change_type,
    "change_reason": civic.change_reason,
    "vote": ballots.vote,
    "satisfaction": ballots.satisfaction,
    "proposal": hall.proposal,
    "reasoning": hall.proposal_reason,
    "resident": hall.resident,
    "concern": hall.concern,
    "spoken": hall.spoken,
    "consensus": hall.consensus,
    "has_conflict": bargain.has_conflict,
    "conflict_description": bargain.conflict_description,
    "resolution_strategy": bargain.resolution_strategy,
    "resolution_explanation": bargain.resolution,
    "top_choice": bargain.top_choice,
    "resolved": bargain.resolved,
    "updated_resolution_explanation": bargain.updated,
    "targeted_feedback_question": bargain.targeted_question,
    "final_revised_decision": bargain.revised,
    "intent": bargain.intent,
    "response": forms.response,
    "choice": forms.choice,
    "speculation_score": forms.speculation,
}
# Lists of texts by field name.
_TEXTS: Mapping[str, Callable[[Mind], list[str]]] = {
    "underrepresented_opinions": hall.underrepresented,
    "invited_residents": hall.quiet,
}
# Lists of objects by field name: what each entry is about.
_ENTRIES: Mapping[str, Callable[[Mind], list[dict[str, Any]]]] = {
    "overlooked_concerns": hall.lonely_matters,
    "concerns_reflected": hall.taken_up,
    "items": hall.planned,
    "vote_items": hall.planned,
    "decision_points": hall.planned,
}
# Fields that are decided before others, whatever the schema's order.
_FIRST = ("member", "speaker", "has_conflict", "resolved", "top_choice", "acceptable")


class Skills:
    """Field knowledge for one person's part of a reply."""

    def __init__(self, mind: Mind) -> None:
        self.mind = mind
        self.text = mind.text

    def order(self, fields: Mapping[str, Any]) -> list[str]:
        """Fields in the order in which they are decided (a kind before its words)."""
        first = [k for k in _FIRST if k in fields]
        last = [k for k in ("dialogue",) if k in fields]
        return [*first, *(k for k in fields if k not in first and k not in last), *last]

    def mapping_keys(self, name: str) -> list[str]:
        """Keys of a free mapping: the members, items or ids that the prompt names."""
        return list(members(self.text)) or list(items(self.text)) or list(ids_in(self.text))

    def elements(
        self, name: str, fields: Sequence[str], inner: Mapping[str, Any], around: Around
    ) -> list[Any] | None:
        """Entries of a list: what each is about, or the texts themselves; None if unknown."""
        mind = self.mind
        if name == "reactions":
            return [
                {"id": k, "text": t, "score": mind.agreement(t)} for k, t in mind.heard.items() if t
            ]
        if name == "references":
            return _references(mind)
        if name == "questions" and fields:
            return _questions(mind)
        if name == "key_concerns":
            return civic.key_concerns(mind, 2)
        if name == "new_points":
            return civic.points(mind, 2)
        if name in {"originating_residents", "origin", "origins", "originators"}:
            return hall.origin(mind, around)
        if name == "acceptable":
            return bargain.acceptable(mind, inner, around)
        if name == "hard_no":
            return bargain.hard_no(mind, inner, around)
        if name == "ballots":
            return [{"member": m} for m in bargain.Table(mind).stated]
        if name == "dialogue":
            return _dialogue(mind, inner, around)
        if name in _TEXTS and not fields:
            return _TEXTS[name](mind)
        if name in _ENTRIES and fields:
            return _ENTRIES[name](mind)
        return None

    def value(self, name: str, schema: Mapping[str, Any], around: Around) -> Any:
        """The value of a field, or UNKNOWN."""
        known = _VALUES.get(name)
        if known is not None:
            return known(self.mind, schema, around)
        if name in {"speaker", "member"}:
            return (around.get("#entry") or {}).get(name, UNKNOWN)
        if name == "text" and "speaker" in around:
            return bargain.line(self.mind, schema, around)
        if name == "summary" and self.mind.history:
            return hall.overview(self.mind, schema, around)
        if name == "reason" and "satisfaction" in around:
            return ballots.satisfaction_reason(self.mind, schema, around)
        if name == "content" and "#entry" in around:
            return civic.content(self.mind, schema, around)
        if name in {"reason", "explanation", "why"} and "vote" in around:
            return ballots.vote_reason(self.mind, schema, around)
        if name == "reason" and "#entry" in around:
            return civic.reason(self.mind, schema, around)
        return UNKNOWN

    def object_entry(self, name: str) -> Mapping[str, Any] | None:
        """Whom an object of its own is about (the most compelling speaker, …)."""
        if name == "most_compelling":
            return civic.extreme(self.mind, True) or {}
        if name == "most_disagreed":
            return civic.extreme(self.mind, False) or {}
        wording = items(self.text).get(name)
        return {"wording": wording} if wording else None

    def sentence(self, name: str, around: Around) -> str:
        """Some fitting words where a text is wanted and nothing else is known."""
        return self.mind.tongue.reason("this")


def _dialogue(mind: Mind, inner: Mapping[str, Any], around: Around) -> list[dict[str, Any]]:
    """Who speaks: the one asked and the system in a feedback round, else the system and all."""
    if "resolved" in around:
        return bargain.feedback_cast(mind)
    speakers = ((inner.get("properties") or {}).get("speaker") or {}).get("enum") or ()
    return bargain.cast(mind, speakers)


def _references(mind: Mind) -> list[dict[str, Any]]:
    """Whom a speaker answers: up to three, those with the strongest pull, few for the quiet."""
    eager = civic.eagerness(mind)
    if mind.draws.chance((0.04, 0.22)[eager < 0]):
        mind.spoken["silent"] = "yes"
        return []
    noted = mind.thoughts.get("reactions")
    rated: list[tuple[float, str, str]] = []
    if isinstance(noted, list) and noted:
        for r in noted:
            if isinstance(r, Mapping) and r.get("want_to_respond"):
                value = (int(r.get("agree_level") or 3) - 3) / 2
                who = str(r.get("target_agent", ""))
                text = mind.heard.get(who) or str(r.get("target_summary", ""))
                rated.append((value * 0.9, who, text))
    else:
        rated = [(mind.agreement(t), k, t) for k, t in mind.heard.items() if t]
    low, high = ((0, 1), (1, 2), (1, 3))[int(eager) + 1]
    count = mind.draws.between(low, high)
    strong = sorted(rated, key=lambda r: -(abs(r[0]) + 0.5 * mind.draws.unit()))[:count]
    return [{"id": who, "text": text, "score": value} for value, who, text in strong]


def _questions(mind: Mind) -> list[dict[str, Any]]:
    if mind.spoken.get("silent") or not mind.draws.chance(0.3):
        return []
    concern = mind.concerns[-1] if mind.local else None
    noun = concern.noun if concern else mind.tongue.noun()
    frames = (
        "Who decides about {X}?",
        "What does the plan say on {X}?",
        "Could somebody explain {X} to us?",
        "When shall we know more about {X}?",
    )
    question = mind.tongue.frame(frames).format(X=noun)
    mind.spoken["question"] = question
    return [{"id": mind.draws.pick(("planner", "all")), "question": question}]
