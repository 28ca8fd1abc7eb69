"""The first page of a report: the question, who saw what, the answer, and how far to trust it."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import polars as pl

from folkmoot.engine.settings.hypotheses import FINDINGS_SECTION as STATED
from folkmoot.engine.study.strict_answers import COMPARED
from folkmoot.engine.study.study import Study
from folkmoot.hints import join_words
from folkmoot.kit.exposure import ExposureRow, describe_deviations
from folkmoot.kit.findings import RESPONDENT_CHECKS_KEY
from folkmoot.measures.diagnostics import FAILED, NOT_KNOWN
from folkmoot.measures.inference.estimates import format_count, format_percent
from folkmoot.models.catalog import HUMAN_MODEL
from folkmoot.report.comparison.mixed import KEY as PEOPLE_AND_MODELS
from folkmoot.report.comparison.samples import EVERYBODY, PLAINER, condition_name
from folkmoot.storage.findings import ILLUSTRATION_LABEL, Finding, IntervalChart
from folkmoot.storage.manifest import MIXED_MARK
from folkmoot.storage.run_folder import RunFolder
from folkmoot.storage.tables import condition_column

Colour = Literal["red", "amber", "green"]
WORST: tuple[Colour, ...] = ("red", "amber", "green")
MEANS = {
    "red": "Do not rely on these figures",
    "amber": "Read the caveats first",
    "green": "All checks passed",
}
# Where study files say what they are about, the plainest first.
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
SENTENCES = 3
MOST_ARMS = 6  # named one by one in a question
OF_ALL = ("", "all")  # how studies name what is asked of everybody, whatever their arm
MOST_LISTED = 2  # decisions named one by one; more in a row are "first to last"
MOST_MISSING = 0.05  # of answers; above, the missing ones may decide


class Step(NamedTuple):
    """A decision of an arm, or several in a row with the same texts before them, and the kinds of
    text that stood in most of their prompts."""

    decision: str
    sees: tuple[str, ...]


class DesignLane(NamedTuple):
    """One arm, or several that saw the same: its size in words, and its decisions in order."""

    arm: str
    size: str
    steps: tuple[Step, ...]


class TrustLight(NamedTuple):
    """One reason to trust a run less, or the absence of any."""

    colour: Colour
    reason: str


@dataclass(frozen=True, slots=True)
class Front:
    """What stands before everything else. `answer` holds up to three sentences; `legend` says how
    their brackets and the drawing are read."""

    question: str
    lanes: tuple[DesignLane, ...]
    answer: tuple[str, ...]
    legend: str
    lights: tuple[TrustLight, ...]

    @property
    def colour(self) -> Colour:
        """The worst of the lights."""
        return min((light.colour for light in self.lights), key=WORST.index)

    @property
    def verdict(self) -> str:
        return MEANS[self.colour]


def build_front_page(
    run: RunFolder, study: Study, title: str, findings: Sequence[Finding], deviations: Sequence[str]
) -> Front:
    """The first page of a run's report."""
    main = main_answers(findings)[:SENTENCES]
    said = tuple(_summarise_findings(main))
    return Front(
        question_of(run.config) or _fallback_question(title, list(_arm_sizes(run, study)[1])),
        tuple(design_lanes(run, study)),
        said,
        _chart_legend(main, said),
        tuple(trust_lights(run, findings, deviations)),
    )


def main_answers(findings: Sequence[Finding]) -> list[Finding]:
    """The main findings that answer the question: hypotheses stated beforehand, then primary
    claims, then those that draw an estimate, then the rest. What is wrong with the run or the model
    is for the lights."""
    about_trust = (RESPONDENT_CHECKS_KEY, COMPARED)
    main = [
        finding for finding in findings if finding.headline and finding.says and not finding.alarms
    ]
    main = [finding for finding in main if finding.key not in about_trust]
    if any(finding.section == STATED for finding in main):  # they hold all primary claims already
        main = [
            finding for finding in main if finding.section == STATED or not _is_primary(finding)
        ]
    return sorted(
        main,
        key=lambda finding: (
            finding.section != STATED,
            not _is_primary(finding),
            not isinstance(finding.chart, IntervalChart),
        ),
    )


def _is_primary(finding: Finding) -> bool:
    """Whether a finding has primary claims."""
    columns = finding.grid.columns
    at = columns.index("family") if "family" in columns else None
    return at is not None and any(row[at] == "primary" for row in finding.grid.rows)


def _summarise_findings(main: Sequence[Finding]) -> Iterator[str]:
    """What findings say; that they are an illustration of so many units is said once, and so that
    these have no intervals."""
    before = ""
    for finding in main:
        opening = re.match(rf"{ILLUSTRATION_LABEL}: [^.]*\. ", finding.says)
        words = opening[0] if opening else ""
        says = finding.says.replace(" (no interval)", "") if words else finding.says
        yield says.removeprefix(before) if words == before else says
        before = words


def _chart_legend(main: Sequence[Finding], said: Sequence[str]) -> str:
    """What brackets, lines and open circles of these findings are."""
    drawn = next((finding for finding in main if finding.chart is not None), None)
    chart = drawn.chart if drawn is not None else None
    parts = []
    if any(re.search(r"\([^)]*\d to ", words) for words in said):
        # Primary claims and several hypotheses have levels of their own, which their tables name.
        own = any(
            finding.section == STATED or "level_share" in finding.grid.columns for finding in main
        )
        own = own or any("adjusted p" in words for words in said)
        parts.append(
            "Brackets and lines: intervals; those of primary claims hold together at 95 %."
            if own
            else "Brackets and lines: 95 % intervals."
        )
    if any("adjusted p" in words for words in said):
        parts.append("Adjusted p: p times the number of primary claims.")
    if drawn is not None and isinstance(chart, IntervalChart) and chart.unit_values:
        parts.append(f"Filled: the mean; open: each {drawn.unit}.")
    # Each hypothesis has a unit of its own, which its table names.
    units = (
        finding.independent
        for finding in main
        if not finding.illustrates and finding.section != STATED
    )
    return " ".join([*parts, *dict.fromkeys(filter(None, units))])


def question_of(config: Mapping[str, object]) -> str:
    """What a study file asks, from the keys in which such files say it; else empty."""
    for path in QUESTIONS:
        found: object = config
        for key in path:
            found = found.get(key) if isinstance(found, Mapping) else None
        if isinstance(found, str) and found.strip():
            words = " ".join(found.split())
            if path not in PRODUCTS or "?" in words:
                return words
            return f"{words if words[-1] in '.!' else words + '.'} {ASKED_OF_PRODUCTS}"
    return ""


def _fallback_question(title: str, arms: Sequence[str]) -> str:
    """The question of a study whose file does not say it: its title, or what its arms tell."""
    if "?" in title or not 1 < len(arms) <= MOST_ARMS:
        return title
    return f"What differs between {join_words([condition_name(arm) for arm in arms])}?"


def design_lanes(run: RunFolder, study: Study) -> Iterator[DesignLane]:
    """The design as it was: each arm with its decisions and what stood in their prompts.

    Arms with the same decisions are one lane, and so are decisions in a row with the same texts.
    Without a record of what was seen, the arms as they were planned.
    """
    by, sizes = _arm_sizes(run, study)
    if not run.has_table(ExposureRow.table):
        yield from (DesignLane(condition_name(arm), size, ()) for arm, size in sizes.items())
        return
    table = run.scan_table(ExposureRow.table).with_columns(pl.col("condition").fill_null(""))
    prompts = pl.struct("participant_id", "address").n_unique()
    asked = table.group_by("condition", "decision", maintain_order=True).agg(prompts=prompts)
    stood = table.filter(pl.col("texts") > 0).group_by("condition", "decision", "kind")
    shown = {
        (column, d, key): name
        for column, d, key, name in stood.agg(prompts=prompts).collect().iter_rows()
    }
    kinds = table.select(pl.col("kind").unique(maintain_order=True)).collect()["kind"].to_list()
    everybody = sizes.pop(EVERYBODY, "")
    steps: dict[str, list[Step]] = {arm: [] for arm in sizes}
    for arm, decision, count in asked.collect().iter_rows():
        sees = tuple(kind for kind in kinds if 2 * shown.get((arm, decision, kind), 0) > count)
        steps.setdefault(arm, []).append(Step(decision, sees))
    alike: dict[tuple[tuple[Step, ...], str], list[str]] = {}
    plain = [*OF_ALL, *PLAINER]
    for arm in sorted(steps, key=lambda arm: plain.index(arm) if arm in plain else len(plain)):
        size = everybody or sizes.get(arm, "")
        alike.setdefault((tuple(_merge_equal_steps(steps[arm])), size), []).append(arm)
    for (merged, size), arms in alike.items():
        each = " each" if size and len(arms) > 1 and not everybody else ""
        yield DesignLane(_arms_in_words(arms, by), size + each, merged)


def _arms_in_words(arms: Sequence[str], by: str) -> str:
    """ "Simple voting", "Levels 1, 2-1"."""
    named = ", ".join("Everybody" if arm in OF_ALL else condition_name(arm) for arm in arms)
    return f"{by.capitalize()}{'s' * (len(arms) > 1)} {named}" if named[0].isdigit() else named


def _merge_equal_steps(steps: Sequence[Step]) -> Iterator[Step]:
    """Steps with those in a row that see the same as one."""
    for sees, own in itertools.groupby(steps, key=lambda step: step.sees):
        names = [step.decision for step in own]
        few = len(names) <= MOST_LISTED
        yield Step(", ".join(names) if few else f"{names[0]} to {names[-1]}", sees)


def _arm_sizes(run: RunFolder, study: Study) -> tuple[str, dict[str, str]]:
    """What arms are called (condition, level …), and arm → its size ("300 participants"); the size
    of EVERYBODY where the plan knows no arms."""
    sealed = {name: part.get("data") for name, part in run.plan.get("sealed", {}).items()}
    for planned in study.expected_rows(sealed) if sealed else ():
        table = pl.LazyFrame(planned.rows, infer_schema_length=None)
        if condition_column(table) is None and run.has_table(planned.table):
            table = run.scan_table(planned.table)
        if (by := condition_column(table)) is not None:
            counts = Counter(table.select(pl.col(by).cast(pl.String)).collect()[by].drop_nulls())
            return by, {arm: format_count(n, planned.unit) for arm, n in counts.items()}
        return "", {EVERYBODY: format_count(table.select(pl.len()).collect().item(), planned.unit)}
    return "", {}


def trust_lights(
    run: RunFolder, findings: Sequence[Finding], deviations: Sequence[str]
) -> Iterator[TrustLight]:
    """Every reason for caution, the gravest first; one green light where there is none."""
    found = [TrustLight("red", alarm) for finding in findings for alarm in finding.alarms]
    found += [
        *_grave_lights(run, deviations),
        *_check_lights(run, findings),
        *_caution_lights(run, findings),
    ]
    if not found:
        answers = run.manifest.get("answers", {}).get("count", 0)
        found = [
            TrustLight(
                "green",
                f"{format_count(answers, 'answer')}, at most {format_percent(MOST_MISSING)} of "
                "them missing; no "
                "deviation from the plan; all checks of the model passed; compared with people.",
            )
        ]
    yield from sorted(found, key=lambda light: WORST.index(light.colour))


def _check_lights(run: RunFolder, findings: Sequence[Finding]) -> Iterator[TrustLight]:
    """What the checks of the model say: a failed one is red, one of unknown result amber."""
    verdicts: dict[str, list[str]] = {FAILED: [], NOT_KNOWN: []}
    made = False
    for finding in findings:
        if finding.key == RESPONDENT_CHECKS_KEY:
            made = True
            for row in finding.grid.rows:
                of_check = dict(zip(finding.grid.columns, row, strict=True))
                told = verdicts.setdefault(str(of_check["verdict"]), [])
                told.append(str(of_check["check"]).lower())
    if verdicts[FAILED]:
        yield TrustLight("red", f"Failed checks of the model: {', '.join(verdicts[FAILED])}.")
    if verdicts[NOT_KNOWN]:
        yield TrustLight("amber", f"Not known about the model: {', '.join(verdicts[NOT_KNOWN])}.")
    if not made:
        yield TrustLight("amber", "The model was not checked.")
    asked = {model["asked"] for model in run.manifest.get("models", [])}
    if asked - {HUMAN_MODEL} and PEOPLE_AND_MODELS not in {finding.key for finding in findings}:
        yield TrustLight(
            "amber", "No human benchmark: whether people would answer so is not known."
        )


def _grave_lights(run: RunFolder, deviations: Sequence[str]) -> Iterator[TrustLight]:
    if run.unusable_reason:
        yield TrustLight("red", f"Nothing in this run is usable: {run.unusable_reason}.")
    if run.partial:
        yield TrustLight("red", f"{run.partial.removeprefix('PARTIAL: ').capitalize()}.")
    if not (run.manifest.get("answers") or {}).get("count"):
        yield TrustLight("red", "No answer was recorded.")
    if run.is_synthetic:
        who = "in part by" if run.mark == MIXED_MARK else "by"
        told = f"Answered {who} the embedded respondent: no evidence about people."
        yield TrustLight("red", told)
    wrong = describe_deviations(run)
    if wrong:
        more = f" ({len(wrong) - 1} more below)" if len(wrong) > 1 else ""
        yield TrustLight("red", f"Prompts did not hold what the design shows. {wrong[0]}{more}")
    if deviations:
        more = f" ({len(deviations) - 1} more below)" if len(deviations) > 1 else ""
        yield TrustLight("amber", f"Differs from the sealed plan: {deviations[0]}{more}")


def _caution_lights(run: RunFolder, findings: Sequence[Finding]) -> Iterator[TrustLight]:
    answers = run.manifest.get("answers", {})
    missing = sum((answers.get("missing") or {}).values()) / max(1, answers.get("count") or 0)
    if missing > MOST_MISSING:
        yield TrustLight("amber", f"{format_percent(missing)} of answers are missing.")
    cut = run.manifest.get("cut_replies", {}).get("kept", 0)
    if cut:
        yield TrustLight(
            "amber", f"{format_count(cut, 'reply was', 'replies were')} cut by the token limit."
        )
    for finding in findings:
        if finding.key == COMPARED and finding.headline:
            yield TrustLight("amber", finding.says)
    few = [f"{finding.title} ({finding.counted})" for finding in findings if finding.illustrates]
    if few:
        yield TrustLight("amber", f"Too few independent units for a test: {few[0]}.")
