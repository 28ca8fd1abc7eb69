"""The first page of a report: the question, who saw what, the answer, and how far to trust it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import polars as pl

from folkmoot.kit.exposure import ExposureRow, differences
from folkmoot.kit.findings import FITNESS
from folkmoot.measures.estimates import percent, plural
from folkmoot.report.samples import condition_name
from folkmoot.storage.findings import Finding
from folkmoot.storage.manifest import MIXED_MARK
from folkmoot.storage.run_folder import RunFolder

Colour = Literal["red", "amber", "green"]
WORST: tuple[Colour, ...] = ("red", "amber", "green")
MEANS = {
    "red": "Do not rely on these figures",
    "amber": "Read the caveats first",
    "green": "Nothing was flagged",
}
# Where study files say what they are about, the plainest first.
QUESTIONS = (
    ("question",),
    ("topic", "description"),
    ("topic", "title"),
    ("topic", "question"),
    ("product", "description"),
    ("product", "name"),
    ("concept",),
    ("case",),
)
SENTENCES = 3
MOST_MISSING = 0.05  # of answers; above, the missing ones may decide


class Step(NamedTuple):
    """A decision of an arm and the kinds of text that stood in most of its prompts."""

    decision: str
    sees: tuple[str, ...]


class Lane(NamedTuple):
    """One arm: how many took part, and its decisions in order."""

    arm: str
    people: int
    steps: tuple[Step, ...]


class Light(NamedTuple):
    """One reason to trust a run less, or the absence of any."""

    colour: Colour
    reason: str


@dataclass(frozen=True, slots=True)
class Front:
    """What stands before everything else. `answer` holds up to three sentences."""

    question: str
    lanes: tuple[Lane, ...]
    answer: tuple[str, ...]
    lights: tuple[Light, ...]

    @property
    def colour(self) -> Colour:
        """The worst of the lights."""
        return min((light.colour for light in self.lights), key=WORST.index)

    @property
    def verdict(self) -> str:
        return MEANS[self.colour]


def front(
    run: RunFolder, title: str, findings: Sequence[Finding], deviations: Sequence[str]
) -> Front:
    """The first page of a run's report."""
    return Front(
        question_of(run.config) or title,
        tuple(lanes(run)),
        tuple(said(findings)),
        tuple(lights(run, findings, deviations)),
    )


def question_of(config: Mapping[str, Any]) -> str:
    """What a study file asks, from the keys in which such files say it; else empty."""
    for path in QUESTIONS:
        found: Any = config
        for key in path:
            found = found.get(key) if isinstance(found, Mapping) else None
        if isinstance(found, str) and found.strip():
            return " ".join(found.split())
    return ""


def lanes(run: RunFolder) -> Iterator[Lane]:
    """The design as it was: each arm with its decisions and what stood in their prompts."""
    if not run.has_table(ExposureRow.table):
        return
    table = run.table(ExposureRow.table).with_columns(pl.col("condition").fill_null(""))
    people = dict(
        table.group_by("condition", maintain_order=True)
        .agg(pl.col("participant_id").n_unique())
        .iter_rows()
    )
    asked = table.group_by("condition", "decision", maintain_order=True).agg(
        prompts=pl.struct("participant_id", "address").n_unique()
    )
    stood = (
        table.filter(pl.col("texts") > 0)
        .group_by("condition", "decision", "kind", maintain_order=True)
        .agg(prompts=pl.struct("participant_id", "address").n_unique())
    )
    shown = {(c, d, k): n for c, d, k, n in stood.iter_rows()}
    steps: dict[str, list[Step]] = {arm: [] for arm in people}
    for arm, decision, prompts in asked.iter_rows():
        sees = (
            k for (c, d, k), n in shown.items() if (c, d) == (arm, decision) and 2 * n > prompts
        )
        steps[arm].append(Step(decision, tuple(sees)))
    for arm, count in people.items():
        yield Lane(condition_name(arm) if arm else "Everybody", count, tuple(steps[arm]))


def said(findings: Sequence[Finding]) -> list[str]:
    """The first sentences of the main findings, one finding after another."""
    return [f.says for f in findings if f.headline and f.says and not f.alarms][:SENTENCES]


def lights(
    run: RunFolder, findings: Sequence[Finding], deviations: Sequence[str]
) -> Iterator[Light]:
    """Every reason for caution, the gravest first; one green light where there is none."""
    found = [*_grave(run, deviations), *_cautions(run, findings)]
    if not found:
        answers = run.manifest.get("answers", {}).get("count", 0)
        found = [
            Light(
                "green",
                f"{plural(answers, 'answer')}, at most {percent(MOST_MISSING)} of them missing; no "
                "deviation from the plan; no check of the model raised a flag.",
            )
        ]
    yield from sorted(found, key=lambda light: WORST.index(light.colour))


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
        if finding.key == FITNESS:
            at = finding.grid.columns.index("flag")
            flagged = [str(row[0]).lower() for row in finding.grid.rows if row[at] == "flagged"]
            if flagged:
                yield Light("amber", f"Flags about the model: {', '.join(flagged)}.")
    few = [f"{f.title} ({f.counted})" for f in findings if f.illustrates]
    if few:
        yield Light("amber", f"Too few independent units for a test: {few[0]}.")
