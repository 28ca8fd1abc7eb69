"""Claims. A claim is a statement about one comparison, which the data support or contradict.

A claim names the measure, the two conditions, the direction, and the smallest difference that
matters.
"""

# Only `estimate_difference` chooses a method, by the kind of the measure and the independent units.
# Only `judge` gives a verdict. Only `families.judge_families` corrects for the number of claims.
# Findings, hypotheses, grids and comparisons print these results.

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, Literal, get_args

from folkmoot.hints import capitalise, join_first
from folkmoot.measures.inference.differences import (
    Bounds,
    Kind,
    Side,
    arm_means,
    bound_difference,
    estimate_difference,
)
from folkmoot.measures.inference.estimates import (
    ALPHA,
    FEWEST_UNITS,
    Estimate,
    format_count,
    format_p_value,
    format_percent,
    format_points,
    format_signed,
    needed_digits,
    round_half_away,
    share_digits,
)
from folkmoot.measures.inference.simultaneous import (
    IntervalFunction,
    JointInterval,
    p_above_value,
    p_below_value,
)
from folkmoot.measures.wording import NO_CONCLUSION, NOT_TESTED, Sentence, word

Direction = Literal["greater", "less", "different", "equivalent"]
Family = Literal["primary", "secondary", "exploratory"]
ClaimVerdict = Literal["supported", "contradicted", "neither shown nor ruled out"]
# A value of the column that holds the conditions.
Level = str | int | float | bool | None

SUPPORTED: ClaimVerdict = "supported"
CONTRADICTED: ClaimVerdict = "contradicted"
# The verdict is the phrase itself, so that tables and sentences cannot use different words.
UNDECIDED: ClaimVerdict = "neither shown nor ruled out"


# The direction of a claim after its two conditions were swapped. Others keep their direction.
MIRRORED: Mapping[Direction, Direction] = {"greater": "less", "less": "greater"}
# Percentages of fewer values have the count beside them.
FEWEST_FOR_PERCENT = 20
# At most this many claims of a study may be primary. Each one takes a share of the level of all.
MOST_PRIMARY = 3
# A value of `Claim.by`: the conditions are columns of one row. For the measure `score` and the
# conditions `before` and `after`, these are `before_score` and `after_score`.
ACROSS = "columns of a row"
# The unit of a claim that does not word it.
PARTICIPANT = "participant"
# The fields of a claim that only put it into words. They decide no figure.
WORDING_FIELDS = frozenset({"unit", "estimand", "outcome", "outcome_says_rows", "names", "missing"})
MISSING = "Subjects of whom the measure is not known are left out, counted, and bounded."


def is_same_comparison(earlier: Mapping[str, object], present: Mapping[str, object]) -> bool:
    """Return whether two claims make the same comparison. Each claim is given as a dictionary."""
    # Fields that `earlier` does not have were added by a newer version and are ignored.
    return all(
        present.get(name) == value for name, value in earlier.items() if name not in WORDING_FIELDS
    )


@dataclass(frozen=True, slots=True)
class Claim:
    """A comparison of two conditions in one measure, stated before the data are seen."""

    # `table.column`, or a column.
    measure: str
    # Two conditions. The difference is first minus second.
    contrast: tuple[str, str]
    # `share` for truth values, otherwise `mean`.
    kind: Kind = "share"
    # greater, less, different or equivalent.
    direction: Direction = "different"
    # The smallest difference that matters. For `equivalent`: the largest negligible one.
    margin: float = 0.0
    # primary, secondary or exploratory. At most `MOST_PRIMARY` claims are primary.
    family: Family = "exploratory"
    # The unit of analysis in words. The table decides the unit (see `unit_column`).
    unit: str = PARTICIPANT
    # Population, treatment, outcome and unit in one sentence.
    estimand: str = ""
    # The column that holds the conditions. Empty: the first such column of the table. `ACROSS`:
    # each condition is a column.
    by: str = ""
    # The rows that count: (column, values) pairs.
    where: tuple[tuple[str, tuple[Level, ...]], ...] = ()
    # The columns that identify the observed subject. Several rows of one subject in one condition
    # are averaged. Empty: each row is a subject.
    subject: tuple[str, ...] = ()
    # The columns that tell apart several rows of a subject, such as the rounds of a game. The
    # average of a subject then does not depend on which of them are missing.
    repeated: tuple[str, ...] = ()
    # True if each subject is observed in both conditions and compared with itself.
    paired: bool = False
    # A number. The measure is then the share of values that reach this number.
    at_least: float | None = None
    # The measure in words for readers.
    outcome: str = ""
    # The conditions in words for readers.
    names: tuple[str, str] = ("", "")
    # The rule for subjects with an unknown measure.
    missing: str = MISSING
    # True if the values of a mean are shares, so that differences are in points.
    is_mean_of_shares: bool = False
    # The column that holds the independent unit, such as the conversation. Empty: the first column
    # of the table with one of the usual names (`storage.tables.CLUSTER_COLUMNS`).
    unit_column: str = ""
    # True if `outcome` also says which rows count. Otherwise they are named after it.
    outcome_says_rows: bool = False

    def __post_init__(self) -> None:
        for name, allowed in (("kind", Kind), ("direction", Direction), ("family", Family)):
            if (value := getattr(self, name)) not in get_args(allowed):
                known = ", ".join(get_args(allowed))
                raise ValueError(f"{self.measure}: {name} {value!r} is not one of {known}")
        if len(self.contrast) != 2 or isinstance(self.contrast, str):
            raise ValueError(f"{self.measure}: a contrast names two conditions")
        if not (math.isfinite(self.margin) and self.margin >= 0):
            raise ValueError(f"{self.measure}: a margin is a number of at least 0")
        if self.unit_column and self.unit_column == self.by:
            raise ValueError(f"{self.measure}: the conditions are no independent units")
        if self.paired and not self.subject:
            raise ValueError(f"{self.measure}: a paired claim names its subjects")
        if self.repeated and not self.subject:
            raise ValueError(f"{self.measure}: a claim with repeated rows names its subjects")
        if self.at_least is not None and self.kind != "share":
            raise ValueError(f"{self.measure}: how many reach a number is a share")
        if self.is_mean_of_shares and self.kind != "mean":
            raise ValueError(f"{self.measure}: only a mean can be one of shares")

    @property
    def without_wording(self) -> Claim:
        """A copy of the claim without its unit and without texts for readers.

        The copies of two claims are equal if both claims make the same comparison.
        """
        # The unit follows from the table, so it is known only after a run.
        unworded: dict[str, Any] = {
            field.name: field.default for field in fields(self) if field.name in WORDING_FIELDS
        }
        return replace(self, **unworded)

    @property
    def named_table(self) -> str:
        """The table that `measure` names, or an empty string if it names only a column."""
        return self.measure.rpartition(".")[0]

    @property
    def column(self) -> str:
        """The column that `measure` names."""
        return self.measure.rpartition(".")[2]

    @property
    def participant_key(self) -> tuple[str, ...]:
        """The columns of the subject that tell no rounds apart."""
        # A column of both, such as the experiment, tells rounds apart: one participant is then
        # several subjects.
        return tuple(name for name in self.subject if name not in self.repeated)

    def is_same_measure(self, other: Claim) -> bool:
        """Return whether this claim and `other` are about the same measure in the same rows."""
        # A hypothesis may name its column without the table.
        tables = self.named_table, other.named_table
        is_same_column = self.column == other.column and (tables[0] == tables[1] or not all(tables))
        return is_same_column and (self.where, self.at_least) == (other.where, other.at_least)

    def is_same_contrast(self, other: Claim) -> bool:
        """Return whether this claim and `other` compare the same two conditions, in any order."""
        # A hypothesis does not name the column that holds the conditions.
        is_same_column = self.by == other.by or not (self.by and other.by)
        is_same_pair = {*self.contrast} == {*other.contrast}
        return is_same_column and is_same_pair and self.is_same_measure(other)

    @property
    def named_parts(self) -> int:
        """The number of parts with a name for readers, from 0 to 3.

        The three parts are the measure and the two conditions.
        """
        return sum(map(bool, (self.outcome, *self.names)))

    @property
    def in_points(self) -> bool:
        """True if differences in the measure are given in percentage points."""
        return self.kind == "share" or self.is_mean_of_shares

    @property
    def needs_both_bounds(self) -> bool:
        """True if the test of the claim needs both bounds of the interval."""
        # The claim is then that the difference lies within, or outside, ± the margin.
        return self.direction == "equivalent" or (self.direction == "different" and self.margin > 0)

    @property
    def arm_labels(self) -> tuple[str, str]:
        """The display names of the two conditions that the claim compares."""
        # A key of the tables is put into words as that of a measure is.
        first, second = (
            name or arm.replace("_", " ")
            for name, arm in zip(self.names, self.contrast, strict=True)
        )
        return first, second

    @property
    def label(self) -> str:
        """The display name of the measure that the claim is about."""
        rows = "" if self.outcome and self.outcome_says_rows else self.rows_label
        return f"{self.measure_label}{f' ({rows})' * bool(rows)}"

    @property
    def measure_label(self) -> str:
        """The outcome of the claim, or else the name of its column in words."""
        reached = "" if self.at_least is None else f" of at least {self.at_least:g}"
        return self.outcome or f"{self.column.replace('_', ' ')}{reached}"

    @property
    def rows_label(self) -> str:
        """The rows that count in words, such as "party: Red". Empty if all rows count."""
        return "; ".join(
            f"{name.replace('_', ' ')}: {join_first([*map(_level_label, levels)])}"
            for name, levels in self.where
        )

    @property
    def contrast_label(self) -> str:
        """The difference as a label for charts and tables, such as "ACP − Simple voting"."""
        return " − ".join(self.arm_labels)

    @property
    def says(self) -> str:
        """The claim as a sentence, without the result."""
        first, second = self.arm_labels
        by = f" by more than {self.size(self.margin)}" if self.margin else ""
        words = {
            "greater": f"{first} exceeds {second}{by}",
            "less": f"{first} falls below {second}{by}",
            "different": f"{first} and {second} differ{by}",
            "equivalent": f"{first} and {second} differ by less than {self.size(self.margin)}",
        }
        return f"{capitalise(self.label)}: {words[self.direction]}"

    def size(self, difference: float) -> str:
        """Return the size of a difference as text without a sign, such as "5 points" or "0.30"."""
        if self.in_points:
            return format_points(abs(difference)).lstrip("+−")
        return f"{abs(difference):.2g}"

    def format_signed(self, difference: float, more: int = 0) -> str:
        """Return a difference as text with a sign, such as "+5 points" or "−0.30".

        - `more`: the number of additional decimals.
        """
        if self.in_points and math.isfinite(difference):
            return format_points(difference, more)
        return format_signed(difference, 2 + more)

    def format_level(self, mean: float, more: int = 0) -> str:
        """Return the mean of one condition as text.

        - `more`: the number of additional decimals.
        """
        if self.in_points:
            return format_percent(mean, more)
        return f"{round_half_away(mean, 2 + more):.{2 + more}f}".replace("-", "−")

    def format_interval(self, e: Estimate, more: int = 0) -> str:
        """Return the interval of a difference as text, such as "+3 to +20".

        - `more`: the minimum number of additional decimals. `needed_more` may require a larger
          number.
        """
        if not e.has_interval:
            return "no interval"
        return " to ".join(self._format_ends((e.low, e.high), more))

    def format_joint_interval(self, joint: JointInterval, more: int) -> str:
        """Return a joint interval as text: "+2 to +21", or "above 0 to +24" if 0 is excluded.

        - `more`: the minimum number of additional decimals. `needed_more` may require a larger
          number.
        """
        low, high = (
            text if bound else "0"
            for text, bound in zip(self._format_ends(joint[:2], more), joint[:2], strict=True)
        )
        above, below = "above " * joint.is_low_excluded, "below " * joint.is_high_excluded
        return f"{above}{low} to {below}{high}"

    def _format_ends(self, ends: Sequence[float], more: int) -> list[str]:
        signed = (self.format_signed(end, max(more, self.needed_more(ends))) for end in ends)
        return [text.removesuffix("s").removesuffix(" point") for text in signed]

    def needed_more(self, ends: Iterable[float]) -> int:
        """Return how many additional decimals the ends of intervals need.

        With these decimals, no end is rounded to zero or to the margin. An end that is rounded to
        zero would wrongly seem to touch zero.
        """
        scale, fewest = (100, 0) if self.in_points else (1, 2)
        finite = [scale * end for end in ends if math.isfinite(end)]
        return needed_digits(finite, scale * self.margin, fewest) - fewest


def _level_label(level: Level) -> str:
    if level is None:
        return "empty"
    return str(level).lower() if isinstance(level, bool) else str(level)


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a claim: estimate, verdict, and possible effect of missing answers."""

    claim: Claim
    # The difference, with the 95 % interval of this claim by itself.
    estimate: Estimate
    verdict: str
    # The reason if there is no test, otherwise empty.
    why: str = ""
    # The range of the difference over all possible values of the missing answers.
    bounds: Bounds | None = None
    # Number of known values in both conditions.
    counts: tuple[int, int] = (0, 0)
    # Number of missing values in both conditions, with those of `pending`.
    lost: tuple[int, int] = (0, 0)
    # The p-value adjusted for the other claims tested with it, or NaN if there are none (see
    # `judge_families`).
    adjusted_p: float = math.nan
    # The interval that holds together with those of other primary claims, or None if there are
    # none.
    joint: JointInterval | None = None
    # The values of both conditions.
    means: tuple[float, float] = (math.nan, math.nan)
    # True if no independent unit is in both conditions. The number of units is then that of the
    # smaller condition.
    is_between_units: bool = False
    # The p-value of the margin (see `_test_margin`), or NaN if the claim has none.
    margin_p: float = math.nan
    # Number of subjects of both conditions that an unfinished run still asks.
    pending: int = 0
    # Number of rounds without a value in both conditions, of subjects that count.
    missing_rounds: tuple[int, int] = (0, 0)

    @property
    def p(self) -> float:
        """The p-value that decides the claim, adjusted if other claims are tested with it."""
        # It is adjusted if the family has several claims.
        is_alone = math.isnan(self.adjusted_p) and self.joint is None
        return self.unadjusted_p if is_alone else self.adjusted_p

    @property
    def unadjusted_p(self) -> float:
        """The p-value of the claim by itself: of its margin, or of no difference without one."""
        return self.margin_p if self.claim.margin else self.estimate.p

    @property
    def is_tested(self) -> bool:
        """True if the claim was tested."""
        return not self.why and math.isfinite(self.estimate.p)

    @property
    def is_concluded(self) -> bool:
        """True if the verdict may be printed: for primary claims, and for claims without a test."""
        return self.claim.family == "primary" or bool(self.why)

    @property
    def conclusion(self) -> str:
        """The verdict if it may be printed, otherwise the words for "no conclusion"."""
        return self.verdict if self.is_concluded else NO_CONCLUSION

    def as_interim(self) -> Result:
        """Return the result without verdict, p-values and joint interval."""
        # A run that is not complete continues and tests again. The units that finished first are
        # not a random sample of all units.
        why = word("refusal", "interim")
        says = word("refusal", "not tested because", why=why)
        return replace(
            self,
            estimate=replace(self.estimate, p=math.nan, why=self.estimate.why or why),
            verdict=self.verdict if self.why else says,
            why=self.why or says,
            adjusted_p=math.nan,
            joint=None,
            margin_p=math.nan,
        )

    def reverse(self) -> Result:
        """Return the same result with the conditions exchanged: second minus first."""
        claim, estimate, joint, bounds = self.claim, self.estimate, self.joint, self.bounds
        return replace(
            self,
            claim=replace(
                claim,
                contrast=claim.contrast[::-1],
                names=claim.names[::-1],
                direction=MIRRORED.get(claim.direction, claim.direction),
            ),
            estimate=replace(
                estimate,
                value=-estimate.value,
                low=-estimate.high,
                high=-estimate.low,
                each=tuple(-value for value in estimate.each),
            ),
            bounds=bounds and Bounds(-bounds.observed, -bounds.high, -bounds.low),
            joint=joint and JointInterval(-joint[1], -joint[0], joint[3], joint[2]),
            counts=self.counts[::-1],
            lost=self.lost[::-1],
            missing_rounds=self.missing_rounds[::-1],
            means=self.means[::-1],
        )

    @property
    def p_in_words(self) -> str:
        """The p-value as text, such as "adjusted p = .012". Empty if the claim has no p-value."""
        # The p-value of a claim with a margin tests the margin. Several primary claims of
        # equivalence, or of a difference of unknown sign beyond a margin, lack a p-value: only
        # joint intervals decide them.
        if not self.is_tested or not math.isfinite(self.p):
            return ""
        adjusted = "adjusted " * math.isfinite(self.adjusted_p)
        return f"{adjusted}{format_p_value(self.p)}{' for the margin' * bool(self.claim.margin)}"

    @property
    def interval_text(self) -> str:
        """The interval as text, such as "+2 to +21"."""
        # If there are several primary claims, each has two intervals: "by itself" at 95 %, and
        # "jointly", which agrees with the verdict.
        return self._format_intervals(self.more_digits)

    def _format_intervals(self, more: int) -> str:
        own = self.claim.format_interval(self.estimate, more)
        if self.joint is not None:
            joint = self.claim.format_joint_interval(self.joint, more)
            return f"{own} by itself, {joint} jointly"
        # An unadjusted interval may exclude zero (or show the claim of a margin) although the
        # adjusted p-value decides nothing.
        excludes_null = self.margin_p < ALPHA if self.claim.margin else self.estimate.excludes_zero
        alone = excludes_null and self.verdict == UNDECIDED and self.p >= ALPHA
        return f"{own}{' by itself' * alone}"

    @property
    def more_digits(self) -> int:
        """The number of additional decimals of the printed difference and intervals."""
        ends = [self.estimate.low, self.estimate.high] if self.estimate.has_interval else []
        return self.claim.needed_more([*ends, *(self.joint[:2] if self.joint else ())])

    @property
    def value_text(self) -> str:
        """The difference as text, with its sign and with as many decimals as its interval."""
        return self.claim.format_signed(self.estimate.value, self.more_digits)

    @property
    def is_primary(self) -> bool:
        """True if the claim is primary."""
        return self.claim.family == "primary"

    @property
    def is_shown(self) -> bool:
        """True if the claim is primary and supported."""
        return self.is_primary and self.verdict == SUPPORTED

    @property
    def says(self) -> Sentence:
        """The claim as a sentence, followed by the verdict and the numbers."""
        return word(
            "comparison",
            "statement",
            claim=self.claim.says,
            verdict=self.verdict,
            numbers=self.numbers_text,
        )

    @property
    def verdict_phrase(self) -> Sentence:
        """The verdict in words."""
        if self.why:
            why = self.estimate.why
            return word("refusal", "not tested because", why=why) if why else NOT_TESTED
        first, second = self.claim.arm_labels
        margin = self.claim.size(self.claim.margin)
        by, over = (
            f" {preposition} more than {margin}" * bool(self.claim.margin)
            for preposition in ("by", "of")
        )
        case = f"{self.verdict}, {self.claim.direction}"
        return word("comparison", case, first=first, second=second, by=by, over=over, margin=margin)

    @property
    def excluded(self) -> tuple[int, int] | None:
        """The subjects left out of each condition. None if no data were compared."""
        # Without data nothing is counted, also if all values of one condition are unknown.
        return self.lost if any(self.counts) else None

    @property
    def estimate_text(self) -> Sentence:
        """The difference and its 95 % interval as text, such as "A − B +8 points (+3 to +13)"."""
        estimate = self.estimate
        if not math.isfinite(estimate.value):
            return word("estimate", "unknown", contrast=self.claim.contrast_label, why=self.why)
        return word(
            "estimate",
            "one",
            contrast=self.claim.contrast_label,
            difference=self.value_text,
            interval=self.claim.format_interval(estimate, self.more_digits),
        )

    @property
    def answer_text(self) -> Sentence:
        """The values of both conditions, their difference, and the verdict in words."""
        if not math.isfinite(self.estimate.value):
            contrast = self.claim.contrast_label
            case = "answer without numbers"
            return word("comparison", case, contrast=contrast, verdict=self.verdict)
        # Readers subtract the values of the conditions, so levels, difference and interval have the
        # same digits. A decimal of a percentage of few values would mean nothing.
        more = self.more_digits
        is_fine = self.claim.in_points and share_digits(min(self.counts)) > 0
        more = max(more, 1) if is_fine else more
        of_few = zip(self.claim.arm_labels, self.means, self.counts, strict=True)
        levels = ", ".join(
            f"{arm} {self.claim.format_level(mean, more)}{self._hits(mean, n)}"
            for arm, mean, n in of_few
        )
        return word("comparison", "answer", levels=levels, **self._conclusion_parts_with(more))

    def _hits(self, mean: float, n: int) -> str:
        # A percentage of few values is easily overrated without their number. Averaged truth values
        # have no number of hits. Both conditions have one if either is small.
        hits = round(mean * n)
        is_few = self.claim.kind == "share" and min(self.counts) < FEWEST_FOR_PERCENT
        is_count = is_few and math.isclose(hits, mean * n, abs_tol=1e-6)
        return f" ({hits} of {n})" if is_count else ""

    @property
    def conclusion_text(self) -> Sentence:
        """The conditions, the difference, its interval and p-value, and the verdict in words."""
        if not math.isfinite(self.estimate.value):
            estimate, verdict = self.estimate_text, self.verdict_phrase
            case = "conclusion without numbers"
            return word("comparison", case, estimate=estimate, verdict=verdict)
        contrast = self.claim.contrast_label
        return word("comparison", "conclusion", contrast=contrast, **self._conclusion_parts)

    @property
    def difference_text(self) -> Sentence:
        """The difference, its interval and p-value, and the verdict in words."""
        return word("comparison", "difference", **self._conclusion_parts)

    @property
    def _conclusion_parts(self) -> dict[str, str]:
        return self._conclusion_parts_with(self.more_digits)

    def _conclusion_parts_with(self, more: int) -> dict[str, str]:
        numbers = (self._format_intervals(more), self.p_in_words)
        return {
            "difference": self.claim.format_signed(self.estimate.value, more),
            "numbers": ", ".join(filter(None, numbers)),
            "verdict": self.verdict_phrase,
        }

    @property
    def numbers_text(self) -> str:
        """The difference, its interval and p-value: " (+12 points, +3 to +20, p = .012)".

        Empty if the estimate is unknown.
        """
        estimate = self.estimate
        if not math.isfinite(estimate.value):
            return ""
        parts = [
            self.value_text,
            self.interval_text if estimate.has_interval else "",
            self.p_in_words,
        ]
        return f" ({', '.join(filter(None, parts))})"


def judge(direction: Direction, margin: float, e: Estimate, alpha: float = ALPHA) -> ClaimVerdict:
    """Return the verdict on a claim that follows from an estimate.

    The verdict is supported, contradicted or undecided.

    - `direction`: the direction that the claim states.
    - `margin`: the smallest difference that matters.
    - `e`: the estimate with its interval.
    - `alpha`: the level of the test.
    """
    # Supported: the whole interval is on the claimed side of the margin, and the test of the same
    # method agrees. Contradicted: the whole interval is on the other side. Undecided: all other
    # cases.
    if not e.has_interval:
        return UNDECIDED
    # Mirror a claim of "less", so that it is judged like "greater".
    low, high = (-e.high, -e.low) if direction == "less" else (e.low, e.high)
    above, below, within = low > margin, high < -margin, -margin <= low and high <= margin
    # An adjusted p-value may be larger than that of the interval, so both must agree.
    sure = not math.isfinite(e.p) or e.p < alpha
    if direction == "equivalent":
        return SUPPORTED if within else CONTRADICTED if above or below else UNDECIDED
    if direction == "different":
        if (above or below) and sure:
            return SUPPORTED
        return CONTRADICTED if within and margin else UNDECIDED
    if above and sure:
        return SUPPORTED
    return CONTRADICTED if high <= margin and (margin or sure) else UNDECIDED


def refuse_few_units(unit_count: int) -> Sentence:
    """Return the sentence that a comparison has too few independent units for a test."""
    units = format_count(unit_count, "independent unit is", "independent units are")
    return word("refusal", "few units", units=units)


def evaluate(claim: Claim, first: Side, second: Side, alpha: float = ALPHA) -> Result:
    """Return the result of a claim from the data of both conditions.

    - `alpha`: the level of the test. The interval has the level 1 − alpha.
    """
    estimate = estimate_claim(claim, first, second, 1 - alpha)
    why = ""
    verdict: str = judge(claim.direction, claim.margin, estimate, alpha)
    # If a claim cannot be tested, the reason takes the place of the verdict.
    if estimate.unit_count < FEWEST_UNITS:
        why = verdict = refuse_few_units(estimate.unit_count)
    elif estimate.why:
        why = verdict = word("refusal", "not tested because", why=estimate.why)
    # Only shares have bounds: a missing value of another kind could have any size.
    bounds = bound_difference(first, second) if claim.kind == "share" else None
    counts, lost = (len(first.values), len(second.values)), (first.lost, second.lost)
    means = arm_means(first, second)
    return Result(
        claim,
        estimate,
        verdict,
        why,
        bounds,
        counts,
        lost,
        means=means,
        is_between_units=set(first.units).isdisjoint(second.units),
        margin_p=_test_margin(claim, first, second)
        if claim.margin and estimate.has_interval
        else math.nan,
        pending=first.pending + second.pending,
        missing_rounds=(first.missing_rounds, second.missing_rounds),
    )


def estimate_claim(claim: Claim, first: Side, second: Side, level: float) -> Estimate:
    """Return the difference between the two conditions of a claim.

    - `level`: the confidence level of the interval.
    """
    are_shares = claim.is_mean_of_shares
    return estimate_difference(first, second, claim.kind, level, are_shares=are_shares)


def make_interval_function(claim: Claim, first: Side, second: Side) -> IntervalFunction:
    """Return the function from a confidence level to the interval of a claim's difference."""
    # Tests of both directions often ask for the same level.

    @cache
    def interval_at(level: float) -> tuple[float, float]:
        found = estimate_claim(claim, first, second, level)
        return found.low, found.high

    return interval_at


def _test_margin(claim: Claim, first: Side, second: Side) -> float:
    # The p-value agrees with the interval: it is below alpha if the interval at 1 − alpha lies on
    # one side of the margin. For a claim of equivalence, the interval must lie within ± the margin.
    # For a difference of unknown sign, it must lie outside.
    margin, interval_at = claim.margin, make_interval_function(claim, first, second)
    if claim.direction == "equivalent":
        one_sided = max(p_above_value(-margin, interval_at), p_below_value(margin, interval_at))
    elif claim.direction == "different":
        one_sided = min(p_above_value(margin, interval_at), p_below_value(-margin, interval_at))
    else:
        null = -margin if claim.direction == "less" else margin
        one_sided = min(p_above_value(null, interval_at), p_below_value(null, interval_at))
    return min(1.0, 2 * one_sided)


def fitted_result(claim: Claim, e: Estimate) -> Result:
    """Return the result of a claim if a regression estimated its difference.

    - `e`: the estimate. The regression uses the data of all conditions.
    """
    # The verdict uses the level 5 %, without a correction for other claims.
    verdict = judge(claim.direction, claim.margin, e)
    return Result(claim, e, verdict, e.why, counts=(e.n, e.n))


def without_result(claim: Claim, why: str) -> Result:
    """Return the result of a claim that the data cannot test.

    - `why`: the reason why no test is possible.
    """
    nothing = Estimate(math.nan, math.nan, math.nan, 0)
    return Result(claim, nothing, word("refusal", "cannot be tested", why=why), why)
