"""The measures of a discussion (source, section 7) for the vulnerable and for the general
residents, and the inclusion gap, vulnerable minus general, for each of them.

Ratios are pooled within a group (the sum of parts over the sum of wholes); counts are given as the
source's totals and per resident, because four are compared with sixteen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from folkmoot.studies.town_hall.cognition import INTERACTIONS
from folkmoot.studies.town_hall.records import Discussion
from folkmoot.studies.town_hall.tracking import SPECTRUM, Scale, Tracking, mean, ratio, tracking

# Figures that compare between groups of different sizes, and what each says.
FIGURES: Mapping[str, str] = {
    "weighted_inclusivity_score": "mean level of all possible reactions, 0 ignored to 4 agreed",
    "positive_reaction_ratio": "share of reactions that cite or agree",
    "reactions_per_resident": "reactions met with, per resident",
    "positive_reactions_per_resident": "citing or agreeing reactions met with, per resident",
    "interactions_per_resident": "public references to a resident, per resident",
    "avg_agree_level": "private agreement with what they said, 1 to 5",
    "response_rate": "share of private reactions that wished to respond",
    "compelling_citations_per_resident": "times named most compelling, per resident",
    "responders_per_resident": "different residents who responded, per resident",
    "opinion_survival": "share of later rounds in which their words were still taken up",
    "speaking_volume_per_resident": "new points and references made, per resident",
    "items_originated_per_resident": "vote items that go back to a resident, per resident",
    "items_passed_per_resident": "of these, passed, per resident",
    "opinion_reflection_rate": "share of the items they originated that passed",
    "concerns_in_final_per_resident": "concerns in the closing text, per resident",
    "pre_satisfaction": "satisfaction before, 1 to 10",
    "post_satisfaction": "satisfaction after, 1 to 10",
    "satisfaction_delta": "satisfaction after minus before",
}


def measures(discussion: Discussion, scale: Scale) -> dict[str, Any]:
    """All measures of one discussion: `vulnerable`, `general`, `gap`, `final_consensus`."""
    rows = tracking(discussion, scale)
    groups = {
        "vulnerable": group_measures(discussion, rows, discussion.vulnerable),
        "general": group_measures(discussion, rows, discussion.general),
    }
    return {
        **groups,
        "gap": {
            name: difference(groups["vulnerable"][name], groups["general"][name])
            for name in FIGURES
        },
        "final_consensus": final_consensus(discussion),
    }


def group_measures(
    discussion: Discussion, rows: Sequence[Tracking], members: Sequence[str]
) -> dict[str, Any]:
    """The totals of the source and the comparable figures for one group of residents."""
    own = [row for row in rows if row.agent_id in members]
    n = len(members)
    reactions = sum(r.total_reaction_count for r in own)
    positive = sum(r.positive_reaction_count for r in own)
    possible = sum(r.possible for r in own)
    interactions = sum(r.interaction_count for r in own)
    compelling = sum(r.cited_as_compelling_count for r in own)
    volume = sum(r.speaking_volume for r in own)
    return {
        "residents": n,
        "reaction_spectrum": {s: sum(r.spectrum[s] for r in own) for s in SPECTRUM},
        "total_possible_reactions": possible,
        "total_reaction_count": reactions,
        "positive_reaction_count": positive,
        "interaction_count": interactions,
        "interaction_types": {k: sum(r.interactions[k] for r in own) for k in INTERACTIONS},
        "cited_as_compelling_count": compelling,
        "questions_received": sum(r.questions_received for r in own),
        "speaking_volume": volume,
        "weighted_inclusivity_score": ratio(sum(r.score_sum for r in own), possible),
        "positive_reaction_ratio": ratio(positive, reactions),
        "reactions_per_resident": ratio(reactions, n),
        "positive_reactions_per_resident": ratio(positive, n),
        "interactions_per_resident": ratio(interactions, n),
        "avg_agree_level": mean([level for r in own for level in r.agree_levels]),
        "response_rate": mean([want for r in own for want in r.wants]),
        "compelling_citations_per_resident": ratio(compelling, n),
        "responders_per_resident": mean([len(responders(own, m)) for m in members]),
        "opinion_survival": mean(
            [s for m in members if (s := survival(own, m)["survival"]) is not None]
        ),
        "speaking_volume_per_resident": ratio(volume, n),
        **_carried(discussion, members),
        **_satisfaction(discussion, members),
    }


def responders(rows: Sequence[Tracking], resident: str) -> list[str]:
    """Who responded to a resident in any round, each once, in order of id."""
    return sorted({who for r in rows if r.agent_id == resident for who in r.responders})


def survival(rows: Sequence[Tracking], resident: str) -> dict[str, Any]:
    """How long a resident's words were taken up by others.

    `citations_by_round` counts public references to them; `survival` is the share of rounds from
    the second on with at least one, None where there was only one round.
    """
    own = [r for r in rows if r.agent_id == resident]
    later = [r for r in own if r.round > 1]
    cited = [r.round for r in later if r.interaction_count]
    return {
        "agent_id": resident,
        "citations_by_round": {str(r.round): r.interaction_count for r in own},
        "rounds_cited": cited,
        "survival": ratio(len(cited), len(later)),
        "survived_to_final_round": bool(later) and later[-1].round in cited,
    }


def final_consensus(discussion: Discussion) -> dict[str, Any]:
    """Source section 7.4. An item is vulnerable-originated if any of its origins is vulnerable.

    The reflection rate is passed ÷ originated, None where none was originated.
    """
    carried = {
        group: _carried(discussion, members)
        for group, members in (
            ("vulnerable", discussion.vulnerable),
            ("general", discussion.general),
        )
    }
    return {
        "total_vote_items": len(discussion.items),
        "items_passed": len(discussion.passed),
        "ties_failed": sum(o.tie for o in discussion.outcomes),
        "vulnerable_originated_items": carried["vulnerable"]["originated_items"],
        "vulnerable_items_passed": carried["vulnerable"]["items_passed"],
        "vulnerable_opinion_reflection_rate": carried["vulnerable"]["opinion_reflection_rate"],
        "vulnerable_concerns_in_final": _concerns(discussion, discussion.vulnerable),
        "general_originated_items": carried["general"]["originated_items"],
        "general_items_passed": carried["general"]["items_passed"],
        "general_opinion_reflection_rate": carried["general"]["opinion_reflection_rate"],
        "general_concerns_in_final": _concerns(discussion, discussion.general),
    }


def satisfaction_rows(discussion: Discussion) -> list[dict[str, Any]]:
    """Source section 7.5: one record per resident."""
    rows = []
    for resident in discussion.residents:
        before, after = discussion.before[resident.id], discussion.after[resident.id]
        rows.append(
            {
                "agent_id": resident.id,
                "is_vulnerable": resident.is_vulnerable,
                "pre_satisfaction": before.score,
                "post_satisfaction": after.score,
                "satisfaction_delta": difference(after.score, before.score),
                "pre_reason": before.reason,
                "post_reason": after.reason,
            }
        )
    return rows


def difference(a: float | None, b: float | None) -> float | None:
    """a − b; None where either is."""
    return None if a is None or b is None else a - b


def _concerns(discussion: Discussion, members: Sequence[str]) -> list[dict[str, str]]:
    return [
        {"resident": resident, "concern": concern}
        for resident, concern in discussion.consensus.concerns
        if resident in members
    ]


def _carried(discussion: Discussion, members: Sequence[str]) -> dict[str, Any]:
    originated = [i for i in discussion.items if set(i.origin) & set(members)]
    passed = [i for i in originated if i.id in discussion.passed]
    n = len(members)
    # Without a planner or a closing text there is nothing to count, which is not a zero.
    items_known, text_known = bool(discussion.items), not discussion.consensus.parse_error
    per_head = {
        name: ratio(sum(len(set(i.origin) & set(members)) for i in items), n)
        for name, items in (("originated", originated), ("passed", passed))
    }
    concerns = len(_concerns(discussion, members))
    return {
        "originated_items": len(originated),
        "items_passed": len(passed),
        "concerns_in_final": concerns,
        "items_originated_per_resident": per_head["originated"] if items_known else None,
        "items_passed_per_resident": per_head["passed"] if items_known else None,
        "opinion_reflection_rate": ratio(len(passed), len(originated)),
        "concerns_in_final_per_resident": ratio(concerns, n) if text_known else None,
    }


def _satisfaction(discussion: Discussion, members: Sequence[str]) -> dict[str, float | None]:
    rows = [r for r in satisfaction_rows(discussion) if r["agent_id"] in members]
    return {
        name: mean([r[name] for r in rows if r[name] is not None])
        for name in ("pre_satisfaction", "post_satisfaction", "satisfaction_delta")
    }
