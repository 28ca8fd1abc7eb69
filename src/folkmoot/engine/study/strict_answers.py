"""Compute findings a second time, without unclear answers.

An answer is unclear if it could be read only after a re-ask, or if the first reply names a
different option.
"""

# An answer is unclear if it was recorded only after a re-ask, or if the first reply names another
# option than the recorded one. Findings are computed with all parsed answers, and again without the
# unclear answers. If a conclusion differs, the finding says so.

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import polars as pl

from folkmoot.conversation.answer_types import CHOICE, NUMBER
from folkmoot.conversation.lenient_fields import UNREADABLE
from folkmoot.engine.seats.seat_manager import WITHDRAWN
from folkmoot.hints import join_first, join_words
from folkmoot.measures.inference.estimates import ALPHA, format_count, format_percent
from folkmoot.models.request import NO_REPLY, REFUSED
from folkmoot.storage.findings import Finding, IntervalChart, ResultTable, TableCell
from folkmoot.storage.partial_run import PartsView
from folkmoot.storage.run_folder import RunFolder

# The keys of the two findings of this module.
CLOSED_ANSWERS_KEY, STRICT_ANSWERS_KEY = "closed_answers", "strict_answers"
# The key of the finding on excluded parts.
EXCLUSIONS_KEY = "exclusions"
# Values of the columns `how` and `agrees` of `answers`.
STRICT_HOW = ("exact", "stated")
CONTRADICTING = ("other", "several")
HOW = (*STRICT_HOW, "clarified", REFUSED, NO_REPLY, UNREADABLE)
AGREES = ("same", *CONTRADICTING, "none")
# The columns of `answers` that a study type receives of the answers to leave out.
COLUMNS = ("address", "stage", "scope", "speaker_id", "role", "kind", "how", "agrees", "missing")

# Returns the tables of a run without some answers. Its arguments are the run and the rows of
# `answers` to leave out.
StrictTables = Callable[[RunFolder, pl.DataFrame], Mapping[str, pl.LazyFrame]]


class StrictRun(RunFolder):
    """A view of a run in which some tables lack the unclear answers.

    `tables`: a map from table name to the table without unclear answers.
    """

    def __init__(self, run: RunFolder, tables: Mapping[str, pl.LazyFrame]) -> None:
        super().__init__(run.path)
        self._run = run
        self._tables = tables

    def table_names(self) -> list[str]:
        return self._run.table_names()

    def has_table(self, name: str) -> bool:
        return self._run.has_table(name)

    def read_table(self, name: str) -> pl.DataFrame:
        """Return the table `name` without unclear answers.

        A table that `tables` does not contain is returned unchanged.
        """
        strict_table = self._tables.get(name)
        return self._run.read_table(name) if strict_table is None else strict_table.collect()

    def scan_table(self, name: str) -> pl.LazyFrame:
        """Return the same table as `read_table`, as a lazy frame."""
        strict_table = self._tables.get(name)
        return self._run.scan_table(name) if strict_table is None else strict_table


def add_strict_findings(
    findings: Sequence[Finding],
    run: RunFolder,
    strict_tables: StrictTables | None,
    compute: Callable[[RunFolder], list[Finding]],
) -> list[Finding]:
    """Return the findings of a run, with notes on which results unclear answers change.

    `compute`: computes the findings of a run folder.
    """
    # Two findings about unclear answers are added. If `strict_tables` is None, findings are
    # computed only once, and the added finding says so.
    if not run.has_table("answers"):
        return [*findings]
    answers = run.scan_table("answers")
    recorded_columns = answers.collect_schema().names()
    columns = [name for name in COLUMNS if name in recorded_columns]
    # Runs of earlier versions do not record how an answer was given, or its first reply.
    if "how" not in recorded_columns:
        is_closed = pl.col("kind").is_in((CHOICE, NUMBER))
        return [*findings, _describe_earlier_run(answers.select(is_closed.sum()).collect().item())]
    # The first reply is recorded for closed answers alone.
    closed = answers.filter(pl.col("said").is_not_null()).select(columns).collect()
    excluded = closed.filter(
        pl.col("missing").is_null()
        & (
            ~pl.col("how").is_in(STRICT_HOW)
            | pl.col("agrees").is_in(CONTRADICTING).fill_null(False)
        )
    )
    is_withdrawn = (pl.col("missing") == WITHDRAWN) & (pl.col("kind") != "text")
    withdrawn = answers.select(is_withdrawn.any()).collect().item()
    counts = _count_answers(
        closed, excluded.height, is_declared=strict_tables is not None, has_withdrawn=withdrawn
    )
    if excluded.is_empty() or strict_tables is None:
        return [*findings, counts]
    answer_count = closed["missing"].null_count()
    kept_text = f"{answer_count - excluded.height:,} of {format_count(answer_count, 'answer')}"
    try:
        strict_findings = {
            finding.key: finding
            for finding in compute(StrictRun(run, strict_tables(run, excluded)))
        }
    # A study type's findings may fail in any way if too few answers are left. The findings with all
    # answers are still valid.
    except Exception as error:
        statement = f"Cannot be computed with {kept_text}: {error}."
        return [
            *findings,
            counts,
            _build_noise_finding(STRICT_ANSWERS_KEY, "Exact and stated answers only", statement),
        ]
    compared = [
        _compare_conclusions(finding, strict_findings.get(finding.key), kept_text)
        for finding in findings
    ]
    return [
        *(finding for finding, _ in compared),
        counts,
        _summarise_comparison(compared, excluded.height),
    ]


# A finding, and its row in the table of comparisons. The row is empty if nothing changes.
ComparedFinding = tuple[Finding, Mapping[str, TableCell]]


def _compare_conclusions(
    finding: Finding, strict: Finding | None, kept_text: str
) -> ComparedFinding:
    # `strict` is the finding without unclear answers. The second result is the finding's row in the
    # comparison of all findings, or an empty row if nothing differs.
    differences = "; ".join(compare_conclusions(finding, strict))
    if strict is not None and strict.says == finding.says and not differences:
        return finding, {}
    row: Mapping[str, TableCell] = {
        "finding": finding.title,
        "with_all_answers": finding.says,
        "exact_and_stated_only": "cannot be computed" if strict is None else strict.says,
        "conclusion": f"differs: {differences}" if differences else "holds",
    }
    if not differences:
        return finding, row
    sentence = (
        f"The conclusion differs with exact and stated answers only ({kept_text}): {differences}."
    )
    return replace(finding, says=f"{finding.says} {sentence}"), row


def describe_exclusions(
    run: PartsView, findings: Sequence[Finding], included: Sequence[Finding]
) -> Finding:
    """Return the finding on the parts of a run, such as sessions, that a failed check excludes.

    - `findings`: computed without the excluded parts.
    - `included`: computed with the excluded parts.
    """
    with_all = {finding.key: finding for finding in included}
    rows = [
        {"finding": finding.title, "with_the_excluded": differences}
        for finding in findings
        for differences in ["; ".join(compare_conclusions(finding, with_all.get(finding.key)))]
        if differences and finding.key in with_all
    ]
    excluded, planned = run.parts.excluded, len(run.parts.planned)
    noun = format_count(planned, run.parts.unit)
    says = (
        f"{len(excluded)} of {noun} {'is' if len(excluded) == 1 else 'are'} left out of all "
        "figures, because a human failed a check for which the study file states this. "
    )
    if rows:
        says += f"With them, the conclusion differs in: {join_words([r['finding'] for r in rows])}."
    else:
        says += "With them, no conclusion differs."
    return Finding(
        EXCLUSIONS_KEY,
        "Exclusions stated beforehand",
        says,
        ResultTable.from_records(rows, "Conclusions that differ with the excluded."),
        notes=(
            f"Left out: {join_first(excluded)}. Their rows stay in the tables and files of the "
            "run. Counts of answers, controls and coding cover all participants.",
        ),
        section="Exclusions",
    )


def _summarise_comparison(compared: Sequence[ComparedFinding], excluded: int) -> Finding:
    rows = [row for _, row in compared if row]
    differing = [str(row["finding"]) for row in rows if row["conclusion"] != "holds"]
    introduction = (
        f"Without {format_count(excluded, 'answer')} that are neither exact nor stated, or that "
        "contradict their first reply, "
    )
    conclusion = (
        f"the conclusion differs in: {', '.join(differing)}."
        if differing
        else ("no conclusion differs.")
    )
    table = ResultTable.from_records(
        rows, "Findings that change with exact and stated answers only."
    )
    finding = _build_noise_finding(
        STRICT_ANSWERS_KEY, "Exact and stated answers only", introduction + conclusion, table
    )
    return replace(finding, headline=bool(differing))


def compare_conclusions(finding: Finding, strict: Finding | None) -> Iterator[str]:
    """Yield a description of each conclusion that changes when unclear answers are left out.

    `strict`: the finding without unclear answers, or None if it cannot be computed.
    """
    # A conclusion is one of these: an interval is above zero, below zero, or includes zero; a test
    # is significant, or is not; the text `conclusion` of the finding. If the chart has no line for
    # zero, a strict estimate with an interval must lie in the interval of all answers.
    if strict is None:
        yield "cannot be computed"
        return
    lines, strict_lines = _interval_rows(finding), _interval_rows(strict)
    zero = finding.chart.reference_line if isinstance(finding.chart, IntervalChart) else None
    # Without any common label, one message is better than one for each label.
    if lines and not strict_lines.keys() & lines.keys():
        yield "cannot be computed"
        return
    for label, (_, low, high) in lines.items():
        if label not in strict_lines:
            yield f"{label} cannot be computed"
            continue
        strict_value, strict_low, strict_high = strict_lines[label]
        if zero is not None:
            before = _describe_side(low, high, zero)
            after = _describe_side(strict_low, strict_high, zero)
            if before != after:
                yield f"{label} is {after} and not {before}"
        elif low < high and strict_low < strict_high and not low <= strict_value <= high:
            yield f"{label} lies outside the interval of all answers"
    tests, other_tests = _significant_rows(finding), _significant_rows(strict)
    for label, significant in tests.items():
        after_test = other_tests.get(label)
        # A label of the intervals was reported above.
        if after_test is None and label.split(": ")[0] not in lines:
            yield f"{label} cannot be tested"
        elif after_test is not None and after_test != significant:
            yield f"{label} is {'below' if after_test else 'not below'} .05"
    if finding.conclusion != strict.conclusion:
        yield f"{strict.conclusion or 'nothing'} instead of {finding.conclusion or 'nothing'}"


def _interval_rows(finding: Finding) -> dict[str, tuple[float, float, float]]:
    chart = finding.chart
    if not isinstance(chart, IntervalChart):
        return {}
    return {label: (value, low, high) for label, value, low, high in chart.items}


def _describe_side(low: float, high: float, zero: float) -> str:
    # The whole interval must lie on one side of zero. An estimate without an interval, which the
    # chart draws as a point, is no conclusion.
    if low < high and (low > zero or high < zero):
        return f"{'above' if low > zero else 'below'} {zero:g}"
    return "unclear"


def _significant_rows(finding: Finding) -> dict[str, bool]:
    # The label consists of the texts of the row. If the table has adjusted p-values, only these
    # count.
    table = finding.grid
    columns = [column for column in table.columns if column.endswith(("holm_p", "adjusted_p"))]
    columns = columns or [
        column for column in table.columns if column == "p" or column.endswith("_p")
    ]
    significant_by_label = {}
    for row in table.rows:
        cells = dict(zip(table.columns, row, strict=True))
        label = " − ".join(str(cell) for cell in row if isinstance(cell, str))
        for column in columns:
            p = cells[column]
            if isinstance(p, float) and math.isfinite(p):
                significant_by_label[f"{label}: {column.replace('_', ' ')}"] = p < ALPHA
    return significant_by_label


def _count_answers(
    closed: pl.DataFrame, excluded: int, *, is_declared: bool, has_withdrawn: bool
) -> Finding:
    # Without closed answers the shares below would divide by zero.
    if closed.is_empty() and has_withdrawn:
        return _build_noise_finding(
            CLOSED_ANSWERS_KEY,
            "How closed answers were obtained",
            "Not applicable: no single choice or number is left without the answers of people who "
            "withdrew.",
        )
    if closed.is_empty():
        return _build_noise_finding(
            CLOSED_ANSWERS_KEY,
            "How closed answers were obtained",
            "Not applicable: this run asked for no single choice or number. Votes and ratings "
            "in JSON answers can be declined and are never clarified.",
        )
    by_how = {how: closed.filter(pl.col("how") == how) for how in HOW}
    strict = sum(by_how[how].height for how in STRICT_HOW)
    agrees = Counter(closed["agrees"].drop_nulls())
    contradicted = sum(agrees[name] for name in CONTRADICTING)
    reasons = Counter(closed["missing"].drop_nulls())
    ways_out = ", ".join(f"{reason} {count:,}" for reason, count in sorted(reasons.items()))
    withdrawn = (
        " Answers of people who withdrew are not counted here. The options and numbers that they "
        "gave stay in the findings."
        if has_withdrawn
        else ""
    )
    if not excluded:
        # Findings also use texts and JSON answers, which are no closed answers.
        others = "otherwise " if has_withdrawn else ""
        consequence = f"The findings {others}use no other closed answers."
        if not strict:
            consequence = f"The findings {others}use no closed answers."
    elif is_declared:
        consequence = f"The strict findings exclude {format_count(excluded, 'answer')}."
    else:
        consequence = (
            "This study type does not declare which tables are based on these answers, so there "
            "are no strict findings."
        )
    contradict = format_count(
        contradicted, "answer contradicts its first reply", "answers contradict their first reply"
    )
    return _build_noise_finding(
        CLOSED_ANSWERS_KEY,
        "How closed answers were obtained",
        f"{strict:,} of {format_count(closed.height, 'closed answer')} "
        f"({format_percent(strict / closed.height)}"
        f") are exact or stated. {contradict} (agrees: other or several). "
        f"{f'Without a valid value: {ways_out}. ' if ways_out else ''}{consequence}{withdrawn}",
        ResultTable.from_records(
            [
                {
                    "how": how,
                    "answers": answers.height,
                    "answers_share": answers.height / closed.height,
                    **{
                        f"first reply: {agree}": answers.filter(pl.col("agrees") == agree).height
                        for agree in AGREES
                    },
                }
                for how, answers in by_how.items()
            ],
            "Agrees: the first reply names the recorded option (same), another, several or none.",
        ),
        notes=(
            "Exact: the reply is the answer. Stated: the reply states exactly one. Clarified: a "
            "further request was needed. The table answers holds each answer with its first "
            "reply (said).",
        ),
    )


def _describe_earlier_run(closed: int) -> Finding:
    if not closed:
        return _count_answers(pl.DataFrame(), 0, is_declared=False, has_withdrawn=False)
    return _build_noise_finding(
        CLOSED_ANSWERS_KEY,
        "How closed answers were obtained",
        "Cannot be computed: this run was made by an earlier version, which did not record how "
        f"its {format_count(closed, 'closed answer')} were obtained.",
    )


def _build_noise_finding(
    key: str, title: str, says: str, grid: ResultTable | None = None, **options: tuple[str, ...]
) -> Finding:
    return Finding(key, title, says, grid or ResultTable((), ()), section="Noise", **options)  # type: ignore[arg-type]
