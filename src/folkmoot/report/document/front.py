"""The first page of a report: the question, the texts that prompts contain, and the answer."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import polars as pl

from folkmoot.engine.seats.withdrawal import describe_pending_withdrawals, read_withdrawals
from folkmoot.engine.session.plan import sealed_data
from folkmoot.engine.settings.hypotheses import FINDINGS_SECTION as STATED
from folkmoot.engine.study.strict_answers import EXCLUSIONS_KEY, STRICT_ANSWERS_KEY
from folkmoot.engine.study.study import Study
from folkmoot.hints import capitalise, collapse_spaces, join_words
from folkmoot.kit.exposure import ExposureRow, describe_deviations
from folkmoot.kit.findings import RESPONDENT_CHECKS_KEY, condition_name
from folkmoot.measures.diagnostics import FAILED, NOT_KNOWN, PASSED, Verdict
from folkmoot.measures.inference.claims import Result
from folkmoot.measures.inference.estimates import FEWEST_UNITS, format_count, format_percent
from folkmoot.measures.reply_checks import CODERS
from folkmoot.measures.wording import FIXED_BEFOREHAND, ILLUSTRATION_LABEL
from folkmoot.report.comparison.samples import EVERYBODY, PLAINER
from folkmoot.report.document.validity import CHECKS_ON_CARD, FINDINGS_ON_CARD, SPREADS, CardRow
from folkmoot.report.preregistration import is_registration_intact, title_of
from folkmoot.storage.findings import Finding, IntervalChart
from folkmoot.storage.manifest import MIXED_MARK, describe_cut_replies
from folkmoot.storage.partial_run import PartialRun
from folkmoot.storage.run_folder import RunFolder
from folkmoot.storage.tables import condition_column

Colour = Literal["red", "amber", "green"]
COLOURS_WORST_FIRST: tuple[Colour, ...] = ("red", "amber", "green")
VERDICT_BY_COLOUR = {
    "red": "Do not rely on these figures",
    "amber": "Read the caveats first",
    "green": "All checks passed",
}
COLOUR_BY_VERDICT: Mapping[Verdict, Colour] = {FAILED: "red", NOT_KNOWN: "amber", PASSED: "green"}
# Keys under which the study types state their question. The most explicit key comes first.
PRODUCTS = (
    ("product", "description"),
    ("product", "name"),
    ("product_concept",),
    ("concept",),
)
QUESTIONS = (
    ("question",),
    ("topic", "description"),
    ("topic", "title"),
    ("topic", "question"),
    *PRODUCTS,
    ("case",),
)
ASKED_OF_PRODUCTS = "What do people think of it, and would they buy it?"
NO_VALUE = (
    "Differences are computed before rounding. They show how far two conditions are apart, not "
    "which of them is better."
)
INTERIM = (
    "The run is not complete, so these are interim results without a verdict: they cover only "
    "those who were done first."
)
# At most this many sentences answer the question on the first page, and at least one beside the
# contrasts.
SENTENCES = 3
# The fallback question names conditions one by one up to this number.
MOST_ARMS = 6
# Study types use these names for questions to all participants, whatever their condition.
OF_ALL = ("", "all")
# Up to two equal decisions are listed. A longer series is shown as "first to last".
MOST_LISTED = 2
# A share of answers. If more are missing, the missing answers may decide the result.
MOST_MISSING = 0.05
# The text of a condition without decisions. In an unfinished run its decisions may still follow.
NOTHING_ASKED = "nothing is asked of participants"
NOTHING_COVERED = "no decision in what the figures cover so far"


class Step(NamedTuple):
    """One kind of decision in a condition, and the kinds of text that its prompts contain."""

    # The design chart shows one box for each step.

    decision: str
    # The kinds of text that more than half of the prompts contained.
    sees: tuple[str, ...]


class DesignLane(NamedTuple):
    """One line of the design chart: conditions in which participants saw the same texts."""

    arm: str
    # The number of participants or other units, in words.
    size: str
    # The decisions in order.
    steps: tuple[Step, ...]
    # The text in place of steps, if there are none.
    without_steps: str


class PrimaryContrast(NamedTuple):
    """A primary claim on the first page."""

    # The measure of the claim.
    outcome: str
    # The result of the claim.
    answer: str
    # The estimand in one sentence.
    estimand: str


class TrustLight(NamedTuple):
    """A coloured light on the first page, and the reason for the colour."""

    colour: Colour
    reason: str


@dataclass(frozen=True, slots=True)
class Front:
    """The first page of a report."""

    question: str
    # The lines of the design chart.
    lanes: tuple[DesignLane, ...]
    # A sentence on what a failed check of a human excludes, or empty.
    excluded: str
    # A sentence on where the contrasts come from.
    fixed: str
    # The primary claims with their results.
    contrasts: tuple[PrimaryContrast, ...]
    # Up to three statements of other findings.
    answer: tuple[str, ...]
    # An explanation of brackets and symbols.
    legend: str
    # Reasons to trust the run less.
    lights: tuple[TrustLight, ...]
    # The validity card.
    card: tuple[CardRow, ...]

    @property
    def colour(self) -> Colour:
        """The worst colour on the first page."""
        colours = [light.colour for light in self.lights]
        return min(
            [*colours, *(COLOUR_BY_VERDICT[row.verdict] for row in self.card)],
            key=COLOURS_WORST_FIRST.index,
        )

    @property
    def coloured_card(self) -> tuple[tuple[Colour, CardRow], ...]:
        """The rows of the validity card, each with a colour."""
        return tuple((COLOUR_BY_VERDICT[row.verdict], row) for row in self.card)

    @property
    def verdict(self) -> str:
        return VERDICT_BY_COLOUR[self.colour]


def build_front_page(
    run: RunFolder,
    study: Study,
    findings: Sequence[Finding],
    deviations: Sequence[str],
    results: Sequence[Result] = (),
    card: Sequence[CardRow] = (),
) -> Front:
    """Return the first page of a run's report.

    - `deviations`: the differences from the plan, as sentences.
    - `results`: the results of all claims.
    - `card`: the rows of the validity card.
    """
    primary = [result for result in results if result.claim.family == "primary"]
    contrasts = tuple(_contrast(result) for result in primary)
    main = main_answers(findings)
    # The contrasts say what these findings say.
    stated = [finding for finding in main if finding.primary or finding.section == STATED]
    others = [finding for finding in main if not (contrasts and finding in stated)]
    others = others[: max(1, SENTENCES - len(contrasts))]
    fixed = _introduce_contrasts(run, primary, is_stated=any(f.section == STATED for f in findings))
    said = tuple(_summarise_findings(others, is_labelled=ILLUSTRATION_LABEL in fixed))
    shown = [*(stated if contrasts else ()), *others]
    return Front(
        question_of(run.config) or _fallback_question(run, study),
        tuple(design_lanes(run, study, names_of(results))),
        next((finding.says for finding in findings if finding.key == EXCLUSIONS_KEY), ""),
        fixed,
        contrasts,
        said,
        _chart_legend(shown, [*(contrast.answer for contrast in contrasts), *said]),
        tuple(trust_lights(run, findings, deviations)),
        tuple(card),
    )


def names_of(results: Sequence[Result]) -> dict[str, str]:
    """Return the names that claims have for conditions, such as "C5 (active mediator)"."""
    return {
        arm: name
        for result in results
        for arm, name in zip(result.claim.contrast, result.claim.names, strict=True)
        if name
    }


def _contrast(result: Result) -> PrimaryContrast:
    claim = result.claim
    return PrimaryContrast(capitalise(claim.label), result.answer_text, claim.estimand)


def _introduce_contrasts(run: RunFolder, primary: Sequence[Result], *, is_stated: bool) -> str:
    if not primary:
        return ""
    source = "Hypotheses of the study file" if is_stated else "The study's own question"
    sealed = f", {FIXED_BEFOREHAND}" if is_registration_intact(run) else ""
    sentences = [f"{source}{sealed}."]
    # The parts that are complete first are not a random sample, and a later look at the data is a
    # second test.
    sentences += [INTERIM] if run.partial else []
    few = {
        format_count(result.estimate.unit_count, result.claim.unit.partition(" ")[0])
        + " in a condition" * result.is_between_units
        for result in primary
        if 0 < result.estimate.unit_count < FEWEST_UNITS
    }
    sentences += [f"{ILLUSTRATION_LABEL}: {join_words(sorted(few))}."] if few else []
    return " ".join([*sentences, NO_VALUE])


def main_answers(findings: Sequence[Finding]) -> list[Finding]:
    """Return the headline findings that answer the study's question, the most important first."""
    # The order: hypotheses of the study file, primary claims, findings that draw an estimate,
    # others. Findings on the quality of the run or of the model answer no question.
    about_trust = (RESPONDENT_CHECKS_KEY, STRICT_ANSWERS_KEY)
    main = [
        finding for finding in findings if finding.headline and finding.says and not finding.alarms
    ]
    main = [finding for finding in main if finding.key not in about_trust]
    # The findings on hypotheses already contain all primary claims.
    if any(finding.section == STATED for finding in main):
        main = [finding for finding in main if finding.section == STATED or not finding.primary]
    return sorted(
        main,
        key=lambda finding: (
            finding.section != STATED,
            not finding.primary,
            not isinstance(finding.chart, IntervalChart),
        ),
    )


def _summarise_findings(main: Sequence[Finding], *, is_labelled: bool) -> Iterator[str]:
    # If consecutive statements have the same beginning, only the first keeps it. The label is left
    # out if the page already has it.
    before = ""
    for finding in main:
        opening = re.match(rf"{ILLUSTRATION_LABEL}: [^.]*\. ", finding.says)
        words = opening[0] if opening else ""
        says = finding.says.replace(" (no interval)", "") if words else finding.says
        says = says.removeprefix(before) if words == before else says
        yield says.removeprefix(f"{ILLUSTRATION_LABEL}: ") if is_labelled else says
        before = words


def _chart_legend(main: Sequence[Finding], said: Sequence[str]) -> str:
    drawn = next((finding for finding in main if finding.chart is not None), None)
    chart = drawn.chart if drawn is not None else None
    parts = []
    # A number before "to" inside brackets shows that the statement gives an interval.
    if any(re.search(r"\([^)]*\d to ", words) for words in said):
        has_joint_intervals = any(" jointly" in words for words in said)
        parts.append(
            "Brackets and lines: 95 % intervals, each by itself. Jointly: for all primary claims "
            "at once, in agreement with the verdicts, and so often wider."
            if has_joint_intervals
            else "Brackets and lines: 95 % intervals, each by itself."
        )
    # Holm's method decides more claims than joint intervals of the usual kind. The price is that an
    # interval ends where the decision does.
    if any(re.search(r"(?:above|below) [^)]* jointly", words) for words in said):
        parts.append("Above or below a value: only the side is shown.")
    if any("adjusted p" in words for words in said):
        parts.append("Adjusted p: by Holm's method.")
    if drawn is not None and isinstance(chart, IntervalChart) and chart.unit_values:
        parts.append(f"Filled circle: the mean. Open circles: one for each {drawn.unit}.")
    # Hypotheses may have different independent units. Their table gives these units.
    units = (
        finding.independent
        for finding in main
        if not finding.illustrates and finding.section != STATED
    )
    return " ".join([*parts, *dict.fromkeys(filter(None, units))])


def question_of(config: Mapping[str, object]) -> str:
    """Return the question in a study file, or an empty string if there is none."""
    for path in QUESTIONS:
        found: object = config
        for key in path:
            found = found.get(key) if isinstance(found, Mapping) else None
        if isinstance(found, str) and found.strip():
            words = collapse_spaces(found)
            if path not in PRODUCTS or "?" in words:
                return words
            return f"{words if words[-1] in '.!' else words + '.'} {ASKED_OF_PRODUCTS}"
    return ""


def _fallback_question(run: RunFolder, study: Study) -> str:
    # A question needs at least two conditions, and few enough for one sentence.
    title = title_of(run.config) or study.title
    arms = list(_arm_sizes(run, study)[1])
    if "?" in title or not 1 < len(arms) <= MOST_ARMS:
        return title
    return f"What differs between {join_words([condition_name(arm) for arm in arms])}?"


def design_lanes(
    run: RunFolder, study: Study, names: Mapping[str, str] | None = None
) -> Iterator[DesignLane]:
    """Yield the lines of the design chart."""
    # Conditions with the same decisions and sizes share a line. Consecutive decisions with the same
    # texts are joined. Without recorded exposure, each planned condition has a line without
    # decisions.
    by, sizes = _arm_sizes(run, study)
    if not run.has_table(ExposureRow.table):
        for arm, size in sizes.items():
            yield DesignLane(condition_name(arm), size, (), _without_steps(run, arm))
        return
    table = run.scan_table(ExposureRow.table).with_columns(pl.col("condition").fill_null(""))
    prompts = pl.struct("participant_id", "address").n_unique()
    asked = table.group_by("condition", "decision", maintain_order=True).agg(prompts=prompts)
    contained = table.filter(pl.col("texts") > 0).group_by("condition", "decision", "kind")
    shown = {
        (column, d, key): name
        for column, d, key, name in contained.agg(prompts=prompts).collect().iter_rows()
    }
    kinds = table.select(pl.col("kind").unique(maintain_order=True)).collect()["kind"].to_list()
    # If all participants pass through all conditions, one size holds for every lane.
    everybody = sizes.pop(EVERYBODY, "")
    steps: dict[str, list[Step]] = {arm: [] for arm in sizes}
    for arm, decision, count in asked.collect().iter_rows():
        sees = tuple(kind for kind in kinds if 2 * shown.get((arm, decision, kind), 0) > count)
        # A kind of text counts as seen if more than half of the prompts contained it.
        steps.setdefault(arm, []).append(Step(decision, sees))
    alike: dict[tuple[tuple[Step, ...], str, str], list[str]] = {}
    plain = [*OF_ALL, *PLAINER]
    for arm in sorted(steps, key=lambda arm: plain.index(arm) if arm in plain else len(plain)):
        size = everybody or sizes.get(arm, "")
        lane = tuple(_merge_equal_steps(steps[arm])), size, _without_steps(run, arm)
        alike.setdefault(lane, []).append(arm)
    for (merged, size, without_steps), arms in alike.items():
        each = " each" if size and len(arms) > 1 and not everybody else ""
        yield DesignLane(
            _arms_in_words(arms, by, names or {}),
            size + each,
            merged,
            without_steps,
        )


def _without_steps(run: RunFolder, arm: str) -> str:
    # A complete part has all decisions of its condition. If it has none, there will be none.
    if not run.partial:
        return NOTHING_ASKED
    parts = run.parts if isinstance(run, PartialRun) else None
    is_covered = parts is not None and parts.complete and arm not in parts.empty_arms
    return NOTHING_ASKED if is_covered else NOTHING_COVERED


def _arms_in_words(arms: Sequence[str], by: str, names: Mapping[str, str]) -> str:
    # `by` is the word for a condition, such as "Level". It is added if the names are numbers.
    # A claim may explain a code: "C5 (active mediator)", "level 4 (moderator)".
    after_word = {arm: name.removeprefix(f"{by} ") for arm, name in names.items()}
    explained = {arm: name for arm, name in after_word.items() if name.startswith(arm)}
    named = ", ".join(
        "Everybody" if arm in OF_ALL else explained.get(arm) or condition_name(arm) for arm in arms
    )
    return f"{capitalise(by)}{'s' * (len(arms) > 1)} {named}" if named[0].isdigit() else named


def _merge_equal_steps(steps: Sequence[Step]) -> Iterator[Step]:
    for sees, own in itertools.groupby(steps, key=lambda step: step.sees):
        names = [step.decision for step in own]
        few = len(names) <= MOST_LISTED
        yield Step(", ".join(names) if few else f"{names[0]} to {names[-1]}", sees)


def _arm_sizes(run: RunFolder, study: Study) -> tuple[str, dict[str, str]]:
    # Such as ("condition", {"control": "300 participants"}), or ("", {EVERYBODY: …}) without
    # conditions.
    sealed = sealed_data(run.plan)
    for planned in study.expected_rows(sealed) if sealed else ():
        plan = pl.LazyFrame(planned.rows, infer_schema_length=None)
        table, mark = plan, " planned" if run.partial else ""
        # The planned rows may not name conditions. Then the table of the run may name them.
        if condition_column(plan) is None and run.has_table(planned.table):
            table = run.scan_table(planned.table)
        by = condition_column(table)
        # Participants with several rows, such as the waves of a panel, count once.
        ids = () if planned.unit else planned.participant_key
        noun = "participant" if ids else planned.noun
        if by is None:
            rows = plan if run.partial else table
            return "", {EVERYBODY: format_count(_count_distinct(rows, ids), noun) + mark}
        rows = table.unique([by, *ids], maintain_order=True) if ids else table
        counts = Counter(rows.select(pl.col(by).cast(pl.String)).collect()[by].drop_nulls())
        if run.partial and table is not plan:
            # The table of a partial run has rows of complete parts only. The plan has the size of
            # a condition only if that is the only one.
            if len(counts) == 1:
                counts = Counter(dict.fromkeys(counts, _count_distinct(plan, ids)))
            else:
                mark = " so far"
        return by, {arm: format_count(n, noun) + mark for arm, n in counts.items()}
    return "", {}


def _count_distinct(rows: pl.LazyFrame, ids: Sequence[str]) -> int:
    # The number of rows, or of distinct values of the columns `ids`.
    rows = rows.unique([*ids]) if ids else rows
    return int(rows.select(pl.len()).collect().item())


def trust_lights(
    run: RunFolder, findings: Sequence[Finding], deviations: Sequence[str]
) -> Iterator[TrustLight]:
    """Yield one light for each reason for caution, the most serious first.

    If there is no reason for caution, yield one green light.
    """
    found = [
        TrustLight("red", alarm)
        for finding in findings
        # The validity card below the lights shows these with their consequence.
        if finding.key not in FINDINGS_ON_CARD
        for alarm in finding.alarms
    ]
    found += [
        *_serious_lights(run, deviations),
        *_check_lights(findings),
        *_caution_lights(run, findings),
    ]
    if not found:
        answers, _ = _count_answers(run)
        found = [
            TrustLight(
                "green",
                f"{format_count(answers, 'answer')}, at most {format_percent(MOST_MISSING)} of "
                "them without a valid value; no deviation from the plan; all checks outside the "
                "card passed.",
            )
        ]
    yield from sorted(found, key=lambda light: COLOURS_WORST_FIRST.index(light.colour))


def _check_lights(findings: Sequence[Finding]) -> Iterator[TrustLight]:
    verdicts: dict[str, list[str]] = {FAILED: [], NOT_KNOWN: []}
    made = False
    for finding in findings:
        if finding.key == RESPONDENT_CHECKS_KEY:
            made = True
            for row in finding.grid.rows:
                of_check = dict(zip(finding.grid.columns, row, strict=True))
                # The card shows the spread of answers only if it fails.
                is_open = of_check["verdict"] == NOT_KNOWN and of_check["check"] in SPREADS
                if of_check["check"] in CHECKS_ON_CARD and not is_open:
                    continue
                names = verdicts.setdefault(str(of_check["verdict"]), [])
                names.append(str(of_check["check"]).lower())
    if verdicts[FAILED]:
        yield TrustLight("red", f"Failed checks of the model: {', '.join(verdicts[FAILED])}.")
    if verdicts[NOT_KNOWN]:
        yield TrustLight(
            "amber", f"Checks of the model without a verdict: {', '.join(verdicts[NOT_KNOWN])}."
        )
    if not made:
        yield TrustLight("amber", "The model was not checked.")


def _serious_lights(run: RunFolder, deviations: Sequence[str]) -> Iterator[TrustLight]:
    if run.unusable_reason:
        yield TrustLight("red", f"This run has no usable result: {run.unusable_reason}.")
    if run.partial:
        yield TrustLight("red", f"{capitalise(run.partial.removeprefix('PARTIAL: '))}.")
    if pending := describe_pending_withdrawals(run):
        yield TrustLight("red", pending)
    # While a process writes the run, its answers have not been counted.
    if "answers" in run.manifest and not (run.manifest["answers"] or {}).get("count"):
        calls = run.manifest.get("calls", 0) if run.partial else 0
        yield TrustLight("red", _describe_no_answer(calls))
    if run.is_synthetic:
        who = "in part by" if run.mark == MIXED_MARK else "by"
        yield TrustLight("red", f"Answered {who} the embedded respondent.")
    wrong = describe_deviations(run)
    if wrong:
        more = f" ({len(wrong) - 1} more below)" if len(wrong) > 1 else ""
        yield TrustLight("red", f"Some prompts do not match the design. {wrong[0]}{more}")
    if deviations:
        more = f" ({len(deviations) - 1} more below)" if len(deviations) > 1 else ""
        yield TrustLight("amber", f"Differs from the sealed plan: {deviations[0]}{more}")


def _describe_no_answer(calls: int) -> str:
    # Rows are recorded when an item of the protocol ends, so replies of a killed run may have none.
    if not calls:
        return "The run recorded no answer."
    return (
        f"The tables hold no answer: {format_count(calls, 'call')} ended, but no part of the run "
        "that records answers did."
    )


def _count_answers(run: RunFolder) -> tuple[int, int]:
    # The number of answers, and of those without a valid value. The manifest counts the replies of
    # coders too, but a text without a code is no missing answer.
    counted = run.manifest.get("answers") or {}
    answers, missing = counted.get("count") or 0, sum((counted.get("missing") or {}).values())
    if answers and run.has_table("answers"):
        of_coders = run.scan_table("answers").filter(pl.col("role").is_in(CODERS))
        reasons = of_coders.select("missing").collect()["missing"]
        answers -= len(reasons)
        missing -= (reasons.fill_null("") != "").sum()
    return answers, missing


def _caution_lights(run: RunFolder, findings: Sequence[Finding]) -> Iterator[TrustLight]:
    if withdrawn := len(read_withdrawals(run.path)):
        yield TrustLight(
            "amber",
            f"{format_count(withdrawn, 'person', 'people')} withdrew. Their words are deleted. "
            "Their answers are gone from the table of answers and from figures made of it, such as "
            "the comparison of people and models. Options and numbers that they gave stay in the "
            "study's own tables and in the figures made of these.",
        )
    answers, missing = _count_answers(run)
    if missing > MOST_MISSING * answers:
        share = format_percent(missing / max(1, answers))
        yield TrustLight("amber", f"{share} of answers have no valid value.")
    if cut := run.manifest.get("cut_replies", {}).get("kept", 0):
        finishes = (finish for (finish,) in run.rows("answers", "finish"))
        # The table says which limit cut them. It may have been changed after the run.
        statement = f"{format_count(cut, 'reply was', 'replies were')} cut."
        yield TrustLight("amber", describe_cut_replies(finishes) or statement)
    for finding in findings:
        if finding.key == STRICT_ANSWERS_KEY and finding.headline:
            yield TrustLight("amber", finding.says)
    few = [f"{finding.title} ({finding.counted})" for finding in findings if finding.illustrates]
    if few:
        more = f"; {len(few) - 1} more below" if len(few) > 1 else ""
        yield TrustLight("amber", f"Too few independent units for a test: {few[0]}{more}.")
