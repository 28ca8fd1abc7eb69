"""Findings about the quality of decisions: how the votes spread, beside people's; confidence,
rankings, restatements and delayed votes where they were asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from folkmoot.kit import coding
from folkmoot.kit.findings import (
    Row,
    cells,
    change,
    intervals,
    listed,
    rates,
    share,
)
from folkmoot.measures.bands import Band, human_band, show
from folkmoot.measures.diversity import (
    effective_number,
    effective_ratio,
    esteban_ray,
    evenness,
    jensen_shannon,
    polarisation,
    total_variation,
)
from folkmoot.measures.inference.clustered import skewed_mean
from folkmoot.measures.inference.estimates import Estimate
from folkmoot.measures.inference.paired_votes import IntArray, transition_table
from folkmoot.storage.findings import Bars, Finding, Grid
from folkmoot.studies.cross_pollination.findings.votes import Arm, Voter, Votes

# --- how spread the votes are, and how that compares with people ---------------------------------

SHORT = {
    "top_choice_changed": "changed their choice",
    "effective_number_ratio": "options after over before",
    "normalised_entropy": "evenness",
}


def diversity(votes: Votes) -> Finding | None:
    """Effective number of options, entropy and polarisation before and after, per condition."""
    if not votes.twice:
        return None
    rows: list[Row] = []
    bars = []
    parts = []
    for arm in votes.twice:
        numbers = []
        for when, counts in zip(("before", "after"), _counts(votes, arm), strict=True):
            numbers.append(effective_number(counts))
            rows.append(
                {
                    "condition": arm.name,
                    "vote": when,
                    "n": arm.n,
                    "effective_options": numbers[-1],
                    "evenness": evenness(counts).value,
                    "esteban_ray": esteban_ray(counts),
                    "van_der_eijk_polarisation": polarisation(counts),
                }
            )
            bars.append((arm.name, when, numbers[-1]))
        parts.append(f"{arm.name} from {numbers[0]:.2f} to {numbers[1]:.2f}")
    ratios = {a.name: effective_ratio(count_moves(votes, a)) for a in votes.twice}
    says = [f"Effective number of the {len(votes.options)} options: {'; '.join(parts)}."]
    if any(r.has_interval for r in ratios.values()):
        told = (f"{name} {r.value:.2f} ({r.low:.2f} to {r.high:.2f})" for name, r in ratios.items())
        says.append(f"After over before: {listed(told)}")
    return Finding(
        "diversity",
        "How spread the votes are",
        " ".join(says),
        Grid.of(rows, "Esteban–Ray at unit distance (largest: .25 for two equal camps)."),
        Bars(tuple(bars), unit="effective number of options"),
        notes=(
            "The effective number of options is how many equally liked options would be as "
            "diverse. Evenness is entropy over its maximum, less its bias in small samples. Van "
            "der Eijk's polarisation, (1 − A)/2, reads the options as an ordered scale from the "
            "first to the last of the study file: for options without an order, ignore it.",
        ),
        section="Diversity",
        **votes.given_these,
    )


def shift(votes: Votes) -> Finding | None:
    """How far the distribution of votes moved in each condition."""
    if not votes.twice:
        return None
    rows: list[Row] = []
    moved = {}
    for arm in votes.twice:
        before, after = _counts(votes, arm)
        moved[arm.name] = total_variation(before, after)
        rows.append(
            {
                "condition": arm.name,
                "changed_rate": arm.changed / arm.n,
                "total_variation_share": moved[arm.name],
                "jensen_shannon_bits": jensen_shannon(before, after),
            }
        )
    far = max(moved, key=lambda name: moved[name])
    return Finding(
        "outcome_shift",
        "How far the outcome moved",
        f"The outcome moved most in {far}: at least {100 * moved[far]:.0f} % of the votes would "
        "have to be moved to turn the first result into the final one. Where far more people "
        "changed than that, their moves cancelled out."
        if moved[far]
        else "In no condition did the result change: every option kept its number of votes.",
        Grid.of(rows, "Total variation and Jensen–Shannon divergence of first and final votes."),
        section="Diversity",
    )


def count_moves(votes: Votes, arm: Arm) -> IntArray:
    """The first votes (rows) and last votes (columns) of a condition, in the order of options."""
    return transition_table(arm.first, arm.final, votes.options)


def human_bands(votes: Votes) -> Finding | None:
    """Simulated values beside what people have been seen to do, in words."""
    change, ratio = human_band("top_choice_changed"), human_band("effective_number_ratio")
    level = human_band("normalised_entropy")
    of = rates({a.name: (a.changed, a.n) for a in votes.informed})
    ratios = {a.name: effective_ratio(count_moves(votes, a)) for a in votes.informed}
    first = votes.counts(r.initial_choice for r in votes.people)
    even = {"all first votes": evenness(first)} if sum(first) else {}
    every = ((change, of), (ratio, ratios), (level, even))
    told = [(band, values) for band, values in every if values]
    if not told:
        return None
    bands = (change, ratio, level)
    return Finding(
        "human_bands",
        "Compared with people",
        " ".join(_band_aloud(band, values) for band, values in told),
        Grid.of(
            [_band_row(what, band, e) for band, values in told for what, e in values.items()],
            "Ranges over cases with real people. No verdict where their design differs: hours "
            "or days of talk are no norm for minutes of reading.",
        ),
        intervals(of, change.label, percent=True, bands=(("people", change.low, change.high),)),
        notes=(
            *(f"{SHORT[b.key].capitalize()}: {b.range}. {b.caveat}" for b in bands),
            *dict.fromkeys(f"Source: {b.source}." for b in bands),
        ),
        section="Human bands",
        **(votes.basis if of else {"unit": "participant", "units": sum(first)}),
    )


def _band_aloud(band: Band, values: Mapping[str, Estimate]) -> str:
    """One band and all values that belong to it, in one sentence."""
    people = f"{show(band.low, band)} to {show(band.high, band)} in people ({band.design})"
    simulated = ", ".join(f"{what} {show(e.value, band)}" for what, e in values.items())
    return f"{band.label.capitalize()}: {people}; here {simulated}."


def _band_row(what: str, band: Band, e: Estimate) -> Row:
    return {
        "what": f"{what}: {SHORT[band.key]}",
        **cells(e, "simulated"),
        "people_low": band.low,
        "people_high": band.high,
        "people_centre": band.centre,
        "people_design": band.design,
    }


def _counts(votes: Votes, arm: Arm) -> tuple[list[int], list[int]]:
    return votes.counts(arm.first), votes.counts(arm.final)


# --- decision quality, where it was asked for ----------------------------------------------------

QUALITY = "Decision quality"


def quality(votes: Votes) -> list[Finding]:
    """A finding for each measure that somebody answered."""
    found = (_confidence(votes), _ranking(votes), _restated(votes), _delayed(votes))
    return [finding for finding in found if finding is not None]


def _mean(votes: Votes, arm: Arm, of: Callable[[Voter], float | None]) -> Estimate | None:
    """The mean over those of an arm of whom it is known; with draws of the summaries, by draw."""
    known = {n: value for n, r in enumerate(arm.moved) if (value := of(r)) is not None}
    units = votes.units(arm)
    return skewed_mean([*known.values()], [units[n] for n in known]) if known else None


def _confidence(votes: Votes) -> Finding | None:
    def gained(r: Voter) -> float | None:
        before, after = r.confidence_before, r.confidence_after
        return None if before is None or after is None else after - before

    by = {a: e for a in votes.twice if (e := _mean(votes, a, gained)) is not None}
    if not by:
        return None
    rows: list[Row] = []
    for arm, e in by.items():
        both = [r for r in arm.moved if gained(r) is not None]
        levels = {
            "before": sum(r.confidence_before or 0.0 for r in both) / len(both),
            "after": sum(r.confidence_after or 0.0 for r in both) / len(both),
        }
        rows.append(
            {"condition": arm.name, "participants": len(both), **levels, **cells(e, "change")}
        )
    return Finding(
        "confidence",
        "How sure they are of their choice",
        "Change in confidence (0 to 100): "
        + listed(f"{a.name} {change(e)}" for a, e in by.items()),
        Grid.of(rows, "Means; those asked before and after."),
        intervals({a.name: e for a, e in by.items()}, "change in confidence", zero=0.0),
        notes=(
            "Confidence is what the model says of itself. It is a measure of quality only together "
            "with whether the choice is a good one.",
        ),
        section=QUALITY,
        **votes.basis,
    )


def _ranking(votes: Votes) -> Finding | None:
    def moved(r: Voter) -> float | None:
        before, after = r.ranking_before, r.ranking_after
        return _discordant(before, after) if before and after else None

    found = {a: e for a in votes.twice if (e := _mean(votes, a, moved)) is not None}
    by = {a: e.within(0.0, 1.0) for a, e in found.items()}
    if not by:
        return None
    return Finding(
        "rankings",
        "How far the rankings of all options moved",
        "Share of pairs of options that changed places: "
        + listed(f"{a.name} {share(e)}" for a, e in by.items()),
        Grid.of(
            [
                {
                    "condition": a.name,
                    "participants": e.n,
                    **cells(e, "pairs_share", "_share"),
                    "top_is_the_vote_share": _top_is_vote(a),
                }
                for a, e in by.items()
            ],
            "Kendall's distance of the rankings before and after, as a share of all pairs.",
        ),
        intervals({a.name: e for a, e in by.items()}, "pairs that changed places", percent=True),
        notes=(
            "`top is the vote`: how many rank first, after the final vote, what they voted for.",
        ),
        section=QUALITY,
        **votes.basis,
    )


def _discordant(before: tuple[str, ...], after: tuple[str, ...]) -> float:
    """The share of pairs that two rankings of the same options order differently."""
    place = {option: n for n, option in enumerate(after)}
    pairs = [(a, b) for i, a in enumerate(before) for b in before[i + 1 :]]
    return sum(place[a] > place[b] for a, b in pairs) / len(pairs)


def _top_is_vote(arm: Arm) -> float | None:
    tops = [(r.ranking_after, r.final_choice) for r in arm.moved]
    known = [ranked[0] == vote for ranked, vote in tops if ranked]
    return sum(known) / len(known) if known else None


def _restated(votes: Votes) -> Finding | None:
    read = coding.codings(votes.run).get("restated")
    if read is None:
        return None
    title = "Can they state the opposing view?"
    if not read.supports:
        return Finding(
            "restated",
            title,
            "The restatements are recorded; nothing can be said of them yet.",
            Grid((), ()),
            notes=(read.note,),
            section=QUALITY,
        )
    codes = {a: [read.one(r.participant_id) for r in a.moved] for a in votes.twice}
    counts = {a.name: (c.count("restated"), len(c) - c.count(None)) for a, c in codes.items()}
    by = rates(counts)
    return Finding(
        "restated",
        title,
        "Gave the main reason of the opposing view so that its holders would recognise it: "
        + listed(f"{name} {share(e)}" for name, e in by.items()),
        Grid.of(
            [
                {
                    "condition": a.name,
                    "coded": counts[a.name][1],
                    **{code: c.count(code) for code in ("restated", "partly", "not_restated")},
                    **cells(by.get(a.name), "restated_rate", "_rate"),
                }
                for a, c in codes.items()
            ],
            "Coded blind to condition; 95 % Wilson.",
        ),
        intervals(by, "restated", percent=True),
        notes=(read.note,),
        section=QUALITY,
        **votes.basis,
    )


def _delayed(votes: Votes) -> Finding | None:
    counts = {
        a.name: [
            (r.delayed_choice == r.final_choice, r.delayed_choice == r.initial_choice)
            for r in a.moved
            if r.delayed_choice is not None
        ]
        for a in votes.twice
    }
    kept = rates({name: (sum(k for k, _ in c), len(c)) for name, c in counts.items()})
    if not kept:
        return None
    return Finding(
        "delayed_vote",
        "Does the change last?",
        "Vote as in the final vote when asked later: "
        + listed(f"{name} {share(e)}" for name, e in kept.items()),
        Grid.of(
            [
                {
                    "condition": name,
                    "participants": len(counts[name]),
                    **cells(e, "kept_rate", "_rate"),
                    "back_to_first": sum(first and not final for final, first in counts[name]),
                }
                for name, e in kept.items()
            ],
            "Third votes, with nothing in view but both earlier votes; 95 % Wilson.",
        ),
        intervals(kept, "vote as in the final vote", percent=True),
        notes=(
            "A model neither forgets nor thinks on between two calls: this tests whether the "
            "choice stands without the texts that led to it.",
        ),
        section=QUALITY,
        **votes.basis,
    )
