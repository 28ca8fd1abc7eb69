"""Findings about changes: who changed, from which option to which, and what each exposure does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from folkmoot.kit.claims import LEVELS, claims_finding, result_cells
from folkmoot.kit.findings import (
    Row,
    cells,
    intervals,
    listed,
    share,
    shares,
)
from folkmoot.measures.diagnostics import agreeing_share
from folkmoot.measures.inference.claims import Claim, adjust_families, fitted_result
from folkmoot.measures.inference.estimates import FEWEST_UNITS, Estimate, percent, plural
from folkmoot.measures.inference.factorial import factorial
from folkmoot.measures.inference.paired_votes import (
    IntArray,
    bowker,
    mcnemar,
    moves_towards,
    stuart_maxwell,
    towards_target,
    transition_table,
)
from folkmoot.measures.inference.proportions import holm
from folkmoot.measures.inference.regression import Column, Logit, logistic
from folkmoot.measures.wording import ESTIMATES, EXPLORATORY, EXPLORATORY_TESTS
from folkmoot.storage.findings import Bars, Finding, Flow, Grid, Intervals
from folkmoot.studies.cross_pollination.config import CHANGED, PLACEBOS, Exposed, label
from folkmoot.studies.cross_pollination.findings.votes import Arm, Voter, Votes

ONE_POOL = (
    "Everybody was shown the same summaries, so the intervals tell how sure the figures are for "
    "this set of summaries, not for another draw of them (`summary_draws`)."
)
SEVERAL_POOLS = (
    "Readers were divided over {draws} draws of the summaries. Intervals allow for what differs "
    "between draws, so they hold for other descriptions of the same interviews as well."
)
FEW_POOLS = (
    "Readers were divided over {draws} draws of the summaries, and the intervals tell how sure the "
    "figures are for these draws together. So few do not tell how another draw would come out: "
    "take five or more (`summary_draws`)."
)
NOT_BY_DRAW = (
    "These intervals do not allow for what differs between draws of the summaries: for so many "
    "coefficients the draws are too few."
)
SOURCE_EXPOSURE = (
    "With the source's exposure in {wording} (`exposure: source`) clarified passive is simple "
    "passive under another name, and the adversarial condition argues but does not read: it "
    "differs from the readers in two things."
)
OWN_AMONG_OTHERS = (
    "The page of summaries is made of all interviews, so whoever was interviewed also reads their "
    "own reasons on it, as those of other participants (the source shows it so)."
)
DEMOGRAPHICS = ("age", "sex", "education", "income", "location_type", "political_leaning")
# Fewer changes (or keeps) per coefficient than this make odds ratios unreliable.
EVENTS_PER_TERM = 5


def position_change(votes: Votes) -> Finding:
    """The share of each condition whose final vote differs from the first: the headline."""
    of = {a.condition: votes.rate(a) for a in votes.twice}
    rows = []
    for a in votes.arms:
        status = Counter(r.status for r in a.rows)
        rows.append(
            {
                "condition": a.name,
                "completed": status["complete"],
                "failed": status["failed"],
                "skipped": status["skipped"],
                "changed": a.changed if a.n else None,
                **cells(of.get(a.condition), "changed_rate", "_rate"),
            }
        )
    return Finding(
        "position_change",
        "Who changed their choice",
        _rates_aloud(votes, of),
        Grid.of(rows, "Participants whose final vote differs from their first; 95 % Wilson."),
        intervals(
            {a.name: of[a.condition] for a in votes.twice}, "changed their choice", percent=True
        ),
        notes=caveats(votes),
        headline=True,
        alarms=_unseen(votes),
        **votes.basis,
    )


def caveats(votes: Votes) -> tuple[str, ...]:
    """Of which summaries the figures tell."""
    if not votes.having("summaries"):
        return ()
    several = FEW_POOLS if votes.draws < FEWEST_UNITS else SEVERAL_POOLS
    pools = several.format(draws=votes.draws) if votes.draws > 1 else ONE_POOL
    notes = [pools]
    if any(votes.shown(arm).interview for arm in votes.having("summaries")):
        notes.append(OWN_AMONG_OTHERS)
    if not votes.compared_by_one_thing:
        notes.append(SOURCE_EXPOSURE.format(wording=votes.wording))
    return tuple(notes)


def _unseen(votes: Votes) -> tuple[str, ...]:
    if not votes.undescribed or not votes.having("summaries"):
        return ()
    return (
        "Part of what people said was shown to nobody, because the model gave no description of "
        f"{plural(len(votes.undescribed), 'cluster')}: {', '.join(votes.undescribed)}.",
    )


def _rates_aloud(votes: Votes, of: Mapping[str, Estimate]) -> str:
    if not of and not votes.terminated:
        return "Nobody voted twice, so changes cannot be reported."
    said = []
    if votes.terminated:
        said.append(f"The study ended before anybody could change: {votes.terminated}.")
    elif not any(a.changed for a in votes.twice):
        said.append("Nobody changed their choice.")
    if of:
        said.append(
            listed(
                f"{a.name}: {a.changed} of {a.n} changed, {share(of[a.condition], digits=1)}"
                for a in votes.twice
            )
        )
    return " ".join(said)


def differences(votes: Votes) -> Finding | None:
    """All pairs of conditions, the primary claims first; None with fewer than two that voted
    twice."""
    return claims_finding(
        "change_differences",
        "Differences between conditions",
        votes.results,
        axis="changed their choice",
        notes=caveats(votes),
        **votes.basis,
    )


def tallies(votes: Votes) -> Finding | None:
    """Votes per option before and after, by condition; None if nobody voted."""
    first = votes.counts(r.initial_choice for r in votes.people)
    if not any(first):
        return None
    before = {a: votes.counts(r.initial_choice for r in a.rows) for a in votes.arms}
    after = {a: votes.counts(r.final_choice for r in a.rows) for a in votes.arms}
    rows = [
        {
            "option": option,
            **{
                a.name: f"{before[a][i]} → {after[a][i]}" if a.n else str(before[a][i])
                for a in votes.arms
            },
        }
        for i, option in enumerate(votes.options)
    ]
    top = max(range(len(first)), key=first.__getitem__)
    return Finding(
        "votes",
        "Votes before and after",
        f"Most voted at first: “{votes.options[top]}”, {first[top]:,} of {sum(first):,} "
        f"({percent(first[top] / sum(first))}).{_describe_missing(votes)}",
        Grid.of(rows, "First → final votes; a single number where there was no final vote."),
        headline=True,
        conclusion=f"most voted “{votes.options[top]}”",
    )


def _describe_missing(votes: Votes) -> str:
    """Say how many votes name no option, by reason; empty where all do."""
    said = []
    for which, name in (("First", "initial_choice"), ("Final", "final_choice")):
        all_reasons = (r.missing_answers.get(name) for r in votes.people)
        reasons = Counter(reason for reason in all_reasons if reason)
        if reasons:
            counted = ", ".join(f"{reason} {n:,}" for reason, n in sorted(reasons.items()))
            said.append(f" {which} votes for no option: {counted}.")
    return "".join(said)


def transitions(votes: Votes) -> Finding | None:
    """The flow of votes per condition; None if nobody voted twice."""
    links = [
        (arm.name, a, b, int(n))
        for arm in votes.twice
        for a, row in zip(votes.options, _table(votes, arm), strict=True)
        for b, n in zip(votes.options, row, strict=True)
        if n
    ]
    if not links:
        return None
    says = "No vote moved."
    if moved := [link for link in links if link[1] != link[2]]:
        panel, a, b, n = max(moved, key=lambda link: link[3])
        says = (
            f"{plural(sum(m[3] for m in moved), 'vote')} moved. The largest single move: "
            f"{n} from “{a}” to “{b}” ({panel})."
        )
    return Finding(
        "transitions",
        "From first to final vote",
        says,
        Grid(
            ("condition", "first_vote", "final_vote", "participants"),
            tuple(links),
            "How many went from which option to which.",
        ),
        Flow(tuple(links)),
    )


def marginal_homogeneity(votes: Votes) -> Finding | None:
    """Did moves cancel out, or did they shift the outcome? Per condition, exploratory."""
    if not votes.twice:
        return None
    tables = [_table(votes, arm) for arm in votes.twice]
    tests = {
        "bowker": [bowker(t) for t in tables],
        "stuart_maxwell": [*map(stuart_maxwell, tables)],
    }
    holms = {name: holm([t.p for t in some]) for name, some in tests.items()}
    rows: list[Row] = []
    for at, arm in enumerate(votes.twice):
        row: Row = {"condition": arm.name, "n": arm.n}
        for name, some in tests.items():
            test = some[at]
            row |= {name: test.statistic, f"{name}_df": test.df, f"{name}_p": test.p}
            row[f"{name}_holm_p"] = holms[name][at]
        df = tests["bowker"][at].df
        rows.append({**row, "reliable": df > 0 and arm.changed >= 5 * df})
    shifts = dict(zip((arm.name for arm in votes.twice), tests["stuart_maxwell"], strict=True))
    most = max(shifts, key=lambda name: shifts[name].statistic)
    return Finding(
        "marginal_homogeneity",
        "Did the outcome shift?",
        "Stuart and Maxwell's statistic for a shift of the totals per option is largest in "
        f"{most}: {shifts[most].statistic:.1f} on {shifts[most].df} degrees of freedom."
        if shifts[most].df
        else "The moves between options are too few for a test of whether the totals shifted.",
        Grid.of(rows, "Bowker's test of symmetry and Stuart and Maxwell's of equal totals."),
        notes=(
            "Noise makes people change without favouring an option; persuasion that draws one way "
            "shows here. “reliable” is false where there are fewer than five moves per degree of "
            "freedom.",
            EXPLORATORY_TESTS,
        ),
        **votes.given_these,
    )


class Shift(NamedTuple):
    """How many of an arm chose an option first, at last, and both times."""

    arm: Arm
    option: str
    first: int
    final: int
    kept: int

    @property
    def gained(self) -> int:
        return self.final - self.kept

    @property
    def lost(self) -> int:
        return self.first - self.kept

    @property
    def net(self) -> int:
        return self.final - self.first

    @property
    def p(self) -> float:
        return mcnemar(self.gained, self.lost).p


def option_shifts(votes: Votes) -> Finding | None:
    """Option by option: gained, lost, and McNemar's test."""
    shifts = [
        Shift(arm, option, *(int(n) for n in (table[i].sum(), table[:, i].sum(), table[i, i])))
        for arm in votes.twice
        for table in [_table(votes, arm)]
        for i, option in enumerate(votes.options)
    ]
    if not shifts:
        return None
    adjusted_p = holm([shift.p for shift in shifts])
    top = max(shifts, key=lambda shift: abs(shift.net))
    rows: list[Row] = [
        {
            "condition": s.arm.name,
            "option": s.option,
            "first_share": s.first / s.arm.n,
            "final_share": s.final / s.arm.n,
            "gained": s.gained,
            "lost": s.lost,
            "p": s.p,
            "holm_p": holm_p,
        }
        for s, holm_p in zip(shifts, adjusted_p, strict=True)
    ]
    bars = ((s.arm.name, s.option, s.net / s.arm.n) for s in shifts)
    return Finding(
        "option_shifts",
        "What each option gained and lost",
        f"Largest net shift: “{top.option}” {top.net:+d} in {top.arm.name} "
        f"({top.gained} gained, {top.lost} lost)."
        if top.net
        else "No option gained or lost on balance.",
        Grid.of(rows, "p: McNemar's test per option (exact below 25 moves)."),
        Bars(tuple(bars), unit="net change in share", percent=True),
        notes=(EXPLORATORY_TESTS,),
        **votes.given_these,
    )


def towards_opposition(votes: Votes) -> Finding | None:
    """Of those with a dialogue: who moved to the view that was argued against them."""
    facing = votes.facing
    if not facing:
        return None
    found = moves_towards(
        [str(r.initial_choice) for r in facing],
        [str(r.final_choice) for r in facing],
        [str(r.opposition_view) for r in facing],
        len(votes.options),
    )
    says = (
        f"Of {plural(found.n, 'participant')} who faced an opposing view, {found.to_target} "
        f"moved to it, {found.elsewhere} to another option, {found.stayed} stayed."
    )
    if excess := towards_target(found.moved, found.to_target, len(votes.options)):
        says += (
            f" Of those who moved that is {share(excess.share)}; moving at random would give "
            f"{percent(excess.expected)}."
        )
    if agreeing := agreeing_share(votes.rebuttals):
        says += f" {percent(agreeing.value)} of their replies open by agreeing."
    counts = {
        "to the opposing view": found.to_target,
        "to another option": found.elsewhere,
        "stayed": found.stayed,
    }
    parts = shares(counts)
    arms = votes.having("dialogue")
    where = arms[0].name if len(arms) == 1 else "With a dialogue"
    return Finding(
        "towards_opposition",
        "Moved towards the opposing view",
        says,
        Grid.of(
            [
                {"move": move, "participants": n, "participants_share": parts[move]}
                for move, n in counts.items()
            ],
            "Participants of a dialogue, by what they did with their vote.",
        ),
        Bars(
            tuple((where, move, n / found.n) for move, n in counts.items()),
            unit="share of those who faced an opposing view",
            percent=True,
        ),
        notes=(
            "Above chance may be persuasion or giving in; the condition `empty_argument` tells the "
            "two apart. The share that opens by agreeing is a rough count of English phrases.",
        ),
        unit=votes.given_these["unit"],
        units=len(facing),
    )


def _table(votes: Votes, arm: Arm) -> IntArray:
    return transition_table(arm.first, arm.final, votes.options)


def regression(votes: Votes) -> Finding | None:
    """Odds of changing by condition and first choice, with demographics if the data bear them."""
    if len(votes.twice) < 2:
        return None
    title = "Change by condition, with first choices held equal"
    rows = [r for a in votes.twice for r in a.moved]
    order = [a.condition for a in votes.twice]
    fitted, with_people = _fit(rows, order[0], votes)
    if not fitted.terms:
        return Finding("regression", title, _why_not(fitted), Grid((), ()))
    base = label(order[0]).lower()
    arms = [t for t in fitted.terms if t.variable == "condition"]
    arms.sort(key=lambda t: order.index(t.level))
    others = [t for t in fitted.terms if t.variable != "condition"]
    odds = tuple((label(t.level), t.odds_ratio, t.low, t.high) for t in arms)
    return Finding(
        "regression",
        title,
        # The claims say how conditions differ; a second sentence on it might contradict them.
        f"The table has the odds of changing against {base}, with first choice"
        f"{' and demographics' if with_people else ''} held equal: exploratory, no conclusion."
        if arms
        else "This model gives no estimate for the conditions.",
        Grid.of(
            [
                {
                    "variable": t.variable,
                    "level": label(t.level) if t in arms else t.level,
                    "odds_ratio": t.odds_ratio,
                    "low": t.low,
                    "high": t.high,
                }
                for t in (*arms, *others)
            ],
            f"Logistic regression, {fitted.estimator}, errors {fitted.errors}.",
        ),
        Intervals(odds, f"odds ratio of changing, against {base}", 1.0, ratios=True)
        if odds
        else None,
        notes=(*_notes(fitted, with_people), *([NOT_BY_DRAW] if votes.draws > 1 else [])),
        **votes.given_these,
    )


def _fit(rows: list[Voter], base: str, votes: Votes) -> tuple[Logit, bool]:
    """The fit, and whether demographics are in it."""
    outcome = [bool(r.position_changed) for r in rows]
    columns: dict[str, Column] = {
        "condition": [str(r.condition) for r in rows],
        "first choice": [r.initial_choice for r in rows],
    }
    demographics = {
        d.replace("_", " "): [r.demographics.get(d) for r in rows] for d in DEMOGRAPHICS
    }
    people = columns | {
        d: values for d, values in demographics.items() if len(set(values) - {None}) > 1
    }
    reference = {"condition": base, "first choice": votes.options[0]}
    rarer = min(sum(outcome), len(outcome) - sum(outcome))
    terms = sum(_width(c) for c in people.values())
    if len(people) > len(columns) and rarer >= EVENTS_PER_TERM * terms:
        full = logistic(outcome, people, reference=reference)
        if full.terms and full.incomplete <= 0.2 * len(rows):
            return full, True
    return logistic(outcome, columns, reference=reference), False


def _width(values: Column) -> int:
    """How many coefficients a column needs."""
    kinds = {v for v in values if v is not None}
    numbers = all(isinstance(v, (int, float)) for v in kinds)
    return 1 if numbers else max(0, len(kinds) - 1)


def _why_not(fitted: Logit) -> str:
    who = {0: "Nobody", fitted.n: "Everybody"}.get(fitted.events)
    if who:
        return f"{who} changed, so no regression can be fitted."
    return f"Too few participants ({fitted.n}) for a regression."


def _notes(fitted: Logit, with_people: bool) -> list[str]:
    against = ", ".join(
        f"{name}: {label(level) if name == 'condition' else level}"
        for name, level in fitted.reference.items()
    )
    notes = [
        f"Odds ratios against — {against}. {fitted.n} participants, {fitted.events} changed.",
        EXPLORATORY,
        "Coefficients other than those of conditions are there to hold things equal.",
    ]
    if fitted.estimator.startswith("Firth"):
        notes.append(
            "Some group changed never or always, where plain odds ratios run to infinity; Firth's "
            "penalised likelihood keeps them finite."
        )
    if not with_people:
        notes.append(
            "Demographics are left out: unknown, or too few changes for so many coefficients."
        )
    if fitted.incomplete:
        notes.append(f"{fitted.incomplete} participants lack a value and are left out.")
    if fitted.left_out:
        notes.append(f"Left out for lack of information: {', '.join(fitted.left_out)}.")
    return notes


# --- what summaries, interview and dialogue each do ----------------------------------------------

SWITCHES = tuple(Exposed.model_fields)


def main_effects(votes: Votes) -> Finding | None:
    """Each switch's effect over all arms; None with no more arms than it takes to add switches one
    by one, where the differences between them say it all."""
    arms = [a for a in votes.twice if a.condition not in PLACEBOS]
    varied = [s for s in SWITCHES if len({getattr(votes.shown(a), s) for a in arms}) > 1]
    if not votes.compared_by_one_thing or len({votes.shown(a) for a in arms}) <= len(varied) + 1:
        return None
    found = factorial(
        [changed for a in arms for changed in a.moves],
        {s: [getattr(votes.shown(a), s) for a in arms for _ in a.moved] for s in varied},
        [unit for a in arms for unit in votes.units(a)],
    )
    effects = {name.capitalize(): e for name, e in found.main.items()}
    effects |= {f"{a.capitalize()} × {b}": e for (a, b), e in found.pairs.items()}
    if not effects:
        return None
    results = adjust_families(
        [fitted_result(_effect_claim(name, votes), e) for name, e in effects.items()]
    )
    said = (f"{r.claim.outcome} {r.claim.signed(r.estimate.value)} ({r.span})" for r in results)
    return Finding(
        "main_effects",
        "What summaries, interview and dialogue each do",
        f"Change in the share that changed, over {len(arms)} conditions. {ESTIMATES} "
        f"{listed(said)}",
        Grid.of(
            [
                {"effect": r.claim.outcome, **result_cells(r, "change_points", "_points")}
                for r in results
            ],
            "Least squares, switches coded −½ and ½.",
        ),
        intervals(effects, "change in the share that changed", zero=0.0, percent=True),
        notes=(
            LEVELS,
            "A main effect is on minus off, averaged over the other switches. A × B is how much "
            "more A does where B is on. What these conditions cannot tell apart is left out, and "
            "interactions that are left out are taken to be none.",
            EXPLORATORY,
            *caveats(votes),
        ),
        **votes.basis,
    )


def _effect_claim(effect: str, votes: Votes) -> Claim:
    """The exploratory claim that a switch, or how it changes another's effect, does something."""
    return Claim(
        CHANGED,
        ("on", "off"),
        unit=votes.basis["unit"],
        estimand=f"{effect}, over all conditions, by least squares on the switches of conditions.",
        outcome=effect,
    )
