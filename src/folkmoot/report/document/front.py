"""The first page of a report: the question, who saw what, the answer, and how far to trust it."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import polars as pl

from folkmoot.engine.settings.hypotheses import SECTION as STATED
from folkmoot.engine.study.strict_answers import COMPARED
from folkmoot.engine.study.study import Study
from folkmoot.hints import enumerated
from folkmoot.kit.exposure import ExposureRow, differences
from folkmoot.kit.findings import FITNESS
from folkmoot.measures.diagnostics import FAILED, NOT_KNOWN
from folkmoot.measures.inference.estimates import percent, plural
from folkmoot.models.catalog import HUMAN
from folkmoot.report.comparison.mixed import KEY as PEOPLE_AND_MODELS
from folkmoot.report.comparison.samples import EVERYBODY, PLAINER, condition_name
from folkmoot.storage.findings import ILLUSTRATION, Finding, Intervals
from folkmoot.storage.manifest import MIXED_MARK
from folkmoot.storage.run_folder import RunFolder
from folkmoot.storage.tables import by_column

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


class Lane(NamedTuple):
    """One arm, or several that saw the same: its size in words, and its decisions in order."""

    arm: str
    size: str
    steps: tuple[Step, ...]


class Light(NamedTuple):
    """One reason to trust a run less, or the absence of any."""

    colour: Colour
    reason: str


@dataclass(frozen=True, slots=True)
class Front:
    """What stands before everything else. `answer` holds up to three sentences; `legend` says how
    their brackets and the drawing are read."""

    question: str
    lanes: tuple[Lane, ...]
    answer: tuple[str, ...]
    legend: str
    lights: tuple[Light, ...]

    @property
    def colour(self) -> Colour:
        """The worst of the lights."""
        return min((light.colour for light in self.lights), key=WORST.index)

    @property
    def verdict(self) -> str:
        return MEANS[self.colour]


def front(
    run: RunFolder, study: Study, title: str, findings: Sequence[Finding], deviations: Sequence[str]
) -> Front:
    """The first page of a run's report."""
    main = answers(findings)[:SENTENCES]
    said = tuple(_said(main))
    return Front(
        question_of(run.config) or _asked(title, list(_sizes(run, study)[1])),
        tuple(lanes(run, study)),
        said,
        _legend(main, said),
        tuple(lights(run, findings, deviations)),
    )


def answers(findings: Sequence[Finding]) -> list[Finding]:
    """The main findings that answer the question: hypotheses stated beforehand, then primary
    claims, then those that draw an estimate, then the rest. What is wrong with the run or the model
    is for the lights."""
    about_trust = (FITNESS, COMPARED)
    main = [f for f in findings if f.headline and f.says and not f.alarms]
    main = [f for f in main if f.key not in about_trust]
    if any(f.section == STATED for f in main):  # they hold all primary claims already
        main = [f for f in main if f.section == STATED or not _is_primary(f)]
    return sorted(
        main,
        key=lambda f: (f.section != STATED, not _is_primary(f), not isinstance(f.chart, Intervals)),
    )


def _is_primary(finding: Finding) -> bool:
    """Whether a finding has primary claims."""
    columns = finding.grid.columns
    at = columns.index("family") if "family" in columns else None
    return at is not None and any(row[at] == "primary" for row in finding.grid.rows)


def _said(main: Sequence[Finding]) -> Iterator[str]:
    """What findings say; that they are an illustration of so many units is said once, and so that
    these have no intervals."""
    before = ""
    for finding in main:
        opening = re.match(rf"{ILLUSTRATION}: [^.]*\. ", finding.says)
        words = opening[0] if opening else ""
        says = finding.says.replace(" (no interval)", "") if words else finding.says
        yield says.removeprefix(before) if words == before else says
        before = words


def _legend(main: Sequence[Finding], said: Sequence[str]) -> str:
    """What brackets, lines and open circles of these findings are."""
    drawn = next((f for f in main if f.chart is not None), None)
    chart = drawn.chart if drawn is not None else None
    parts = []
    if any(re.search(r"\([^)]*\d to ", words) for words in said):
        # Primary claims and several hypotheses have levels of their own, which their tables name.
        own = any(f.section == STATED or "level_share" in f.grid.columns for f in main)
        own = own or any("adjusted p" in words for words in said)
        parts.append(
            "Brackets and lines: intervals; those of primary claims hold together at 95 %."
            if own
            else "Brackets and lines: 95 % intervals."
        )
    if any("adjusted p" in words for words in said):
        parts.append("Adjusted p: p times the number of primary claims.")
    if drawn is not None and isinstance(chart, Intervals) and chart.each:
        parts.append(f"Filled: the mean; open: each {drawn.unit}.")
    # Each hypothesis has a unit of its own, which its table names.
    units = (f.independent for f in main if not f.illustrates and f.section != STATED)
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


def _asked(title: str, arms: Sequence[str]) -> str:
    """The question of a study whose file does not say it: its title, or what its arms tell."""
    if "?" in title or not 1 < len(arms) <= MOST_ARMS:
        return title
    return f"What differs between {enumerated([condition_name(arm) for arm in arms])}?"


def lanes(run: RunFolder, study: Study) -> Iterator[Lane]:
    """The design as it was: each arm with its decisions and what stood in their prompts.

    Arms with the same decisions are one lane, and so are decisions in a row with the same texts.
    Without a record of what was seen, the arms as they were planned.
    """
    by, sizes = _sizes(run, study)
    if not run.has_table(ExposureRow.table):
        yield from (Lane(condition_name(arm), size, ()) for arm, size in sizes.items())
        return
    table = run.lazy(ExposureRow.table).with_columns(pl.col("condition").fill_null(""))
    prompts = pl.struct("participant_id", "address").n_unique()
    asked = table.group_by("condition", "decision", maintain_order=True).agg(prompts=prompts)
    stood = table.filter(pl.col("texts") > 0).group_by("condition", "decision", "kind")
    shown = {(c, d, k): n for c, d, k, n in stood.agg(prompts=prompts).collect().iter_rows()}
    kinds = table.select(pl.col("kind").unique(maintain_order=True)).collect()["kind"].to_list()
    everybody = sizes.pop(EVERYBODY, "")
    steps: dict[str, list[Step]] = {arm: [] for arm in sizes}
    for arm, decision, count in asked.collect().iter_rows():
        sees = tuple(k for k in kinds if 2 * shown.get((arm, decision, k), 0) > count)
        steps.setdefault(arm, []).append(Step(decision, sees))
    alike: dict[tuple[tuple[Step, ...], str], list[str]] = {}
    plain = [*OF_ALL, *PLAINER]
    for arm in sorted(steps, key=lambda a: plain.index(a) if a in plain else len(plain)):
        size = everybody or sizes.get(arm, "")
        alike.setdefault((tuple(_merged(steps[arm])), size), []).append(arm)
    for (merged, size), arms in alike.items():
        each = " each" if size and len(arms) > 1 and not everybody else ""
        yield Lane(_arms_in_words(arms, by), size + each, merged)


def _arms_in_words(arms: Sequence[str], by: str) -> str:
    """ "Simple voting", "Levels 1, 2-1"."""
    named = ", ".join("Everybody" if arm in OF_ALL else condition_name(arm) for arm in arms)
    return f"{by.capitalize()}{'s' * (len(arms) > 1)} {named}" if named[0].isdigit() else named


def _merged(steps: Sequence[Step]) -> Iterator[Step]:
    """Steps with those in a row that see the same as one."""
    for sees, own in itertools.groupby(steps, key=lambda step: step.sees):
        names = [step.decision for step in own]
        few = len(names) <= MOST_LISTED
        yield Step(", ".join(names) if few else f"{names[0]} to {names[-1]}", sees)


def _sizes(run: RunFolder, study: Study) -> tuple[str, dict[str, str]]:
    """What arms are called (condition, level …), and arm → its size ("300 participants"); the size
    of EVERYBODY where the plan knows no arms."""
    sealed = {name: part.get("data") for name, part in run.plan.get("sealed", {}).items()}
    for planned in study.planned(sealed) if sealed else ():
        table = pl.LazyFrame(planned.rows, infer_schema_length=None)
        if by_column(table) is None and run.has_table(planned.table):
            table = run.lazy(planned.table)
        if (by := by_column(table)) is not None:
            counts = Counter(table.select(pl.col(by).cast(pl.String)).collect()[by].drop_nulls())
            return by, {arm: plural(n, planned.unit) for arm, n in counts.items()}
        return "", {EVERYBODY: plural(table.select(pl.len()).collect().item(), planned.unit)}
    return "", {}


def lights(
    run: RunFolder, findings: Sequence[Finding], deviations: Sequence[str]
) -> Iterator[Light]:
    """Every reason for caution, the gravest first; one green light where there is none."""
    found = [Light("red", alarm) for f in findings for alarm in f.alarms]
    found += [*_grave(run, deviations), *_checks(run, findings), *_cautions(run, findings)]
    if not found:
        answers = run.manifest.get("answers", {}).get("count", 0)
        found = [
            Light(
                "green",
                f"{plural(answers, 'answer')}, at most {percent(MOST_MISSING)} of them missing; no "
                "deviation from the plan; all checks of the model passed; compared with people.",
            )
        ]
    yield from sorted(found, key=lambda light: WORST.index(light.colour))


def _checks(run: RunFolder, findings: Sequence[Finding]) -> Iterator[Light]:
    """What the checks of the model say: a failed one is red, one of unknown result amber."""
    verdicts: dict[str, list[str]] = {FAILED: [], NOT_KNOWN: []}
    made = False
    for finding in findings:
        if finding.key == FITNESS:
            made = True
            for row in finding.grid.rows:
                of_check = dict(zip(finding.grid.columns, row, strict=True))
                told = verdicts.setdefault(str(of_check["verdict"]), [])
                told.append(str(of_check["check"]).lower())
    if verdicts[FAILED]:
        yield Light("red", f"Failed checks of the model: {', '.join(verdicts[FAILED])}.")
    if verdicts[NOT_KNOWN]:
        yield Light("amber", f"Not known about the model: {', '.join(verdicts[NOT_KNOWN])}.")
    if not made:
        yield Light("amber", "The model was not checked.")
    asked = {model["asked"] for model in run.manifest.get("models", [])}
    if asked - {HUMAN} and PEOPLE_AND_MODELS not in {finding.key for finding in findings}:
        yield Light("amber", "No human benchmark: whether people would answer so is not known.")


def _grave(run: RunFolder, deviations: Sequence[str]) -> Iterator[Light]:
    if run.unusable:
        yield Light("red", f"Nothing in this run is usable: {run.unusable}.")
    if run.partial:
        yield Light("red", f"{run.partial.removeprefix('PARTIAL: ').capitalize()}.")
    if not (run.manifest.get("answers") or {}).get("count"):
        yield Light("red", "No answer was recorded.")
    if run.synthetic:
        who = "in part by" if run.mark == MIXED_MARK else "by"
        told = f"Answered {who} the embedded respondent: no evidence about people."
        yield Light("red", told)
    wrong = differences(run)
    if wrong:
        more = f" ({len(wrong) - 1} more below)" if len(wrong) > 1 else ""
        yield Light("red", f"Prompts did not hold what the design shows. {wrong[0]}{more}")
    if deviations:
        more = f" ({len(deviations) - 1} more below)" if len(deviations) > 1 else ""
        yield Light("amber", f"Differs from the sealed plan: {deviations[0]}{more}")


def _cautions(run: RunFolder, findings: Sequence[Finding]) -> Iterator[Light]:
    answers = run.manifest.get("answers", {})
    missing = sum((answers.get("missing") or {}).values()) / max(1, answers.get("count") or 0)
    if missing > MOST_MISSING:
        yield Light("amber", f"{percent(missing)} of answers are missing.")
    cut = run.manifest.get("cut_replies", {}).get("kept", 0)
    if cut:
        yield Light("amber", f"{plural(cut, 'reply was', 'replies were')} cut by the token limit.")
    for finding in findings:
        if finding.key == COMPARED and finding.headline:
            yield Light("amber", finding.says)
    few = [f"{f.title} ({f.counted})" for f in findings if f.illustrates]
    if few:
        yield Light("amber", f"Too few independent units for a test: {few[0]}.")
