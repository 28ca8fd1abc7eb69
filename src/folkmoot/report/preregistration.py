"""The preregistration of a study: what its file fixes before the first call, in the fields of the
OSF preregistration template, and what of it the report of a run shows again.

Everything is read from the study file, the claims of its type, and the parts that a run seals
first. What no program can know is left to the authors.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from folkmoot.engine.run.execution import RunOptions, seal_registration
from folkmoot.engine.run.runner import folder_of, providers_of
from folkmoot.engine.session.plan import CLAIMS, DESIGN, SEATS, Plan, digest_registration
from folkmoot.engine.study.study import claims_of
from folkmoot.engine.study.study_file import StudyFile
from folkmoot.measures.inference.claims import Claim
from folkmoot.measures.inference.estimates import ALPHA, FEWEST_UNITS, dollars, percent, plural
from folkmoot.measures.inference.power import DesignSize
from folkmoot.storage.findings import Cell, Grid, cell_text, heading
from folkmoot.storage.rows import meanings
from folkmoot.storage.run_folder import PLAN, RunFolder
from folkmoot.storage.tables import ENGINE_COLUMNS

BLANK = "To be filled in by the authors."
NO_GRID = Grid((), ())
FAMILIES = ("primary", "secondary", "exploratory")


@dataclass(frozen=True, slots=True)
class Field:
    """A field of the template: paragraphs, then a numbered list, a table, and a verbatim text."""

    title: str
    paragraphs: tuple[str, ...] = (BLANK,)
    numbered: tuple[str, ...] = ()
    grid: Grid = NO_GRID
    verbatim: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """A section of the template."""

    title: str
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class Preregistration:
    """A preregistration, and the digest of the plan that a run of the same study seals."""

    title: str
    digest: str
    note: str
    sections: tuple[Section, ...]


def preregister(found: StudyFile, options: RunOptions) -> Preregistration:
    """The preregistration of a study file with these options, sealed as a run would seal it.

    Raises InputError for what a run would refuse as well.
    """
    providers = providers_of(found, options)
    with tempfile.TemporaryDirectory(prefix="folkmoot-plan-") as scratch:
        plan = Plan(Path(scratch) / PLAN, started_at="")  # sealed for its digest, never written
        seal_registration(plan, found, providers)
    sealed = {name: part["data"] for name, part in plan.data["sealed"].items()}  # type: ignore[attr-defined]
    claims = claims_of(found.study, found.config)
    title = title_of(found.config.model_dump()) or found.study.title
    begun = folder_of(found, options)
    return Preregistration(
        title,
        digest_registration(plan.data),
        f"A run of this study has begun already ({begun.name}): this text was not written before "
        "its data."
        if begun.exists()
        else "",
        (
            Section("Study information", _information(title, found, claims)),
            Section("Design plan", _design(found, claims, sealed)),
            Section("Sampling plan", _sampling(found, sealed)),
            Section("Variables", _variables(found, claims)),
            Section("Analysis plan", _analysis(found, claims)),
            Section("Other", _other(plan.data)),
        ),
    )


def title_of(config: Mapping[str, Any]) -> str:
    """What the study file calls itself; of a workbook, its experiment."""
    settings = config.get("workbook", {}).get("settings", {})
    experiment = str(settings.get("experiment_id") or "").replace("_", " ")
    named = config.get("pilot_name") or config.get("title") or experiment.capitalize()
    return str(named)


def of_family(claims: Iterable[Claim], *families: str) -> list[Claim]:
    """The claims of these families, family by family."""
    own = [*claims]
    return [claim for family in families for claim in own if claim.family == family]


def describe_size(size: DesignSize | None) -> str:
    """How many units there are in each arm, in words."""
    if size is None:
        return "The settings do not say how many take part in each condition."
    units = plural(size.units, size.unit_name)
    each = f" of {size.size} participants" if size.size > 1 else ""
    if size.kind == "paired":
        return f"{units}{each}, each observed in {size.arms} arms."
    return f"{plural(size.arms, 'arm')} with {units}{each} each."


# --- the fields of the template ------------------------------------------------------------------


def _information(title: str, found: StudyFile, claims: Sequence[Claim]) -> tuple[Field, ...]:
    shown = of_family(claims, "primary", "secondary")
    stated = found.config.hypotheses
    source = (
        "They are stated in the study file."
        if stated
        else f"They are the claims of the study type {found.study.name}."
    )
    expected = [h.expected for h in stated] or [None] * len(shown)
    return (
        Field("Title", (title,)),
        Field("Authors"),
        Field("Description", (f"{found.study.title}.", BLANK)),
        Field(
            "Hypotheses",
            (source if shown else "None: everything that the report shows is exploratory.",),
            tuple(_state(claim, aim) for claim, aim in zip(shown, expected, strict=True)),
        ),
    )


def _state(claim: Claim, expected: float | None) -> str:
    aim = "" if expected is None else f"Expected: {claim.signed(expected)}."
    return " ".join(filter(None, (f"{claim.says} ({claim.family}).", claim.estimand, aim)))


def _design(
    found: StudyFile, claims: Sequence[Claim], sealed: Mapping[str, Any]
) -> tuple[Field, ...]:
    size = found.study.size(found.config, found.folder)
    people = "participants played by people" if SEATS in sealed else "no people take part"
    seed = found.config.random_seed
    return (
        Field(
            "Study type",
            (f"Simulated experiment ({found.study.name}): language models answer; {people}.",),
        ),
        Field(
            "Blinding",
            (
                "The program assigns conditions, asks every question and reads every answer. A "
                "model is sent the prompts of its own condition.",
            ),
        ),
        Field("Is there any additional blinding in this study?"),
        Field("Study design", (describe_size(size),), grid=_contrasts(claims)),
        Field(
            "Randomization",
            (
                f"Every draw follows from the random seed {seed} and the place in the protocol. "
                "Who takes part, and in which condition, is sealed in plan.json before the calls "
                "that it governs.",
            ),
        ),
    )


def _contrasts(claims: Sequence[Claim]) -> Grid:
    rows: dict[tuple[str, str, str], dict[str, Cell]] = {}
    for claim in claims:
        within = " and ".join(claim.subject) if claim.paired else "different subjects"
        by = claim.by or "condition"
        row = rows.setdefault((by, within, claim.unit), {"compared_by": by, "arms": ""})
        arms = [*filter(None, str(row["arms"]).split(", ")), *reversed(claim.contrast)]
        row |= {"arms": ", ".join(dict.fromkeys(arms)), "within": within, "unit": claim.unit}
    return Grid.of(list(rows.values()), "What is compared, within what, and what is independent.")


def _sampling(found: StudyFile, sealed: Mapping[str, Any]) -> tuple[Field, ...]:
    config, design = found.config, sealed[DESIGN]
    models: list[dict[str, Cell]] = [{"role": "all others", "model": design["model"]}]
    models += [{"role": role, "model": name} for role, name in design["models"].items()]
    models += [{"role": "named by seats", "model": name} for name in design["seat_models"]]
    if design["embedding_model"]:
        models.append({"role": "embeddings", "model": design["embedding_model"]})
    limits = [
        *(
            [f"after spending {dollars(config.budget_usd)}"]
            if config.budget_usd is not None
            else []
        ),
        *([f"after {config.budget_calls:,} calls"] if config.budget_calls is not None else []),
    ]
    pause = (
        f"It pauses {' or '.join(limits)}; a paused run is resumed, or reported as partial."
        if limits
        else "No budget is set, so nothing else stops it."
    )
    return (
        Field(
            "Existing data",
            (
                "Answers are generated by the run. What the models were trained on is unknown and "
                "may hold similar studies.",
            ),
        ),
        Field("Explanation of existing data"),
        Field(
            "Data collection procedures",
            (
                "Each call sends a rendered prompt with what the speaker has heard, and is kept "
                "with its reply in the journal of the run.",
            ),
            grid=Grid.of(models, f"Models; temperature {_temperature(found)}."),
        ),
        Field("Sample size", (describe_size(found.study.size(config, found.folder)),)),
        Field(
            "Sample size rationale", ("`folkmoot power` computes the power of each claim.", BLANK)
        ),
        Field(
            "Stopping rule",
            (
                "The run ends when all units have come to their end. No interim result ends it.",
                pause,
            ),
        ),
    )


def _temperature(found: StudyFile) -> str:
    chosen = found.config.temperature
    return "that of the provider" if chosen is None else f"{chosen:g}"


def _variables(found: StudyFile, claims: Sequence[Claim]) -> tuple[Field, ...]:
    words = meanings(found.study.tables)

    def mean(measure: str) -> str:
        table, _, column = measure.rpartition(".")
        own = [words.get(table, {}), *words.values()] if table else [*words.values()]
        told = next((known[column] for known in own if column in known), "")
        return told or ENGINE_COLUMNS.get(column, "")

    by = {
        claim.by or "condition": f"{mean(claim.measure.rpartition('.')[0] + '.' + claim.by)}"
        for claim in claims
        if not claim.paired or claim.by != "when"
    }
    rows: dict[tuple[str, str], dict[str, Cell]] = {}
    for claim in claims:
        rows.setdefault(
            (claim.measure, claim.outcome),
            {
                "measure": claim.measure,
                "in_words": claim.outcome or None,
                "kind": claim.kind,
                "meaning": mean(claim.measure) or None,
            },
        )
    indices = [
        f"{claim.outcome or claim.measure}: {index}" for claim in claims if (index := _index(claim))
    ]
    return (
        Field(
            "Manipulated variables",
            tuple(f"{name}: {told or 'arms'}." for name, told in by.items()) or ("None.",),
        ),
        Field(
            "Measured variables",
            () if rows else ("None.",),
            grid=Grid.of(list(rows.values()), "Columns of tables."),
        ),
        Field("Indices", () if indices else ("None.",), tuple(dict.fromkeys(indices))),
    )


def _index(claim: Claim) -> str:
    """How a measure is made of its column; empty where it is the column."""
    if claim.at_least is not None:
        return f"whether {claim.measure} is at least {claim.at_least:g}"
    if claim.subject:
        return f"the mean of the rows of one subject ({', '.join(claim.subject)})"
    return ""


def _analysis(found: StudyFile, claims: Sequence[Claim]) -> tuple[Field, ...]:
    primary, secondary, rest = (of_family(claims, family) for family in FAMILIES)
    return (
        Field("Statistical models", METHODS, grid=_claims_grid([*primary, *secondary])),
        Field("Transformations", ("None beyond the indices above.",)),
        Field("Inference criteria", (*describe_families(claims), CRITERIA)),
        Field(
            "Data exclusion",
            (
                "Rows count that the claims name below. Answers that cannot be read, are declined "
                "or refused are missing, and are never scored. No participant is excluded for "
                "what was answered.",
                f"A model of which more than {percent(found.config.max_instruction_failures)} of "
                "the first replies need a further request, repeat themselves or are cut is named "
                "in the report; it is not excluded.",
            ),
            tuple(dict.fromkeys(_rows_that_count(claim) for claim in claims if claim.where)),
        ),
        Field(
            "Missing data",
            (
                *dict.fromkeys(claim.missing for claim in claims or [Claim("", ("", ""))]),
                "Who did not come to the end is lost, whatever is recorded. For shares the report "
                "gives the least and the greatest difference over all ways of filling in what is "
                "lost (Horowitz and Manski 2000).",
            ),
        ),
        Field(
            "Exploratory analysis",
            ("Everything else that the report shows is exploratory, these contrasts included:",)
            if rest
            else ("Everything else that the report shows is exploratory.",),
            tuple(claim.says for claim in rest),
        ),
    )


METHODS = (
    "One rule chooses the estimator of every claim by its measure and its independent unit. "
    "Subjects observed in both arms: differences within subjects, clustered by unit (CR2 with "
    "Satterthwaite's degrees of freedom; of shares with one value for each unit Tango's interval "
    "and McNemar's test). Units with several values: the CR2 sandwich. Otherwise of shares "
    "Newcombe's interval, of means Welch's.",
)
CRITERIA = (
    "All tests are two-sided and of one method with their interval. Supported: the whole interval "
    "lies where the claim says, beyond its margin. Contradicted: all of it lies elsewhere. "
    f"Undecided: anything else. With fewer than {FEWEST_UNITS} independent units nothing is tested."
)


def describe_families(claims: Sequence[Claim]) -> tuple[str, ...]:
    """How the number of claims of each family is allowed for."""
    primary, secondary, rest = (len(of_family(claims, family)) for family in FAMILIES)
    told = []
    if primary:
        level = percent(1 - ALPHA / primary, 1)
        told.append(
            f"Primary: {plural(primary, 'claim')}, intervals at a level of {level} each "
            "(Bonferroni), p values times their number."
            if primary > 1
            else "Primary: 1 claim, a 95 % interval."
        )
    told += [
        f"{name.capitalize()}: {plural(count, 'claim')}, 95 % intervals one by one, verdicts by "
        f"Holm's p among the {name} claims."
        for name, count in (("secondary", secondary), ("exploratory", rest))
        if count
    ]
    return tuple(told)


def _claims_grid(claims: Sequence[Claim]) -> Grid:
    return Grid.of(
        [
            {
                "family": claim.family,
                "claim": claim.says,
                "difference_of": claim.kind + "s",
                "margin": claim.size(claim.margin) if claim.margin else "none",
                "unit": claim.unit,
                "pairs": "within " + " and ".join(claim.subject) if claim.paired else "no",
            }
            for claim in claims
        ],
        "The difference is the first arm minus the second.",
    )


def _rows_that_count(claim: Claim) -> str:
    told = (
        f"{name}: {', '.join('empty' if v is None else str(v) for v in values)}"
        for name, values in claim.where
    )
    return f"{claim.outcome or claim.measure}: {'; '.join(told)}"


def _other(plan: Mapping[str, Any]) -> tuple[Field, ...]:
    sealed = plan["sealed"]
    design = sealed[DESIGN]["data"]
    parts: list[dict[str, Cell]] = [
        {"sealed_part": name, "digest": part["hash"]} for name, part in sealed.items()
    ]
    prompts: list[dict[str, Cell]] = [
        {"prompt": name, "sha_256": value} for name, value in sorted(design["prompts"].items())
    ]
    return (
        Field(
            "Digest of the sealed plan",
            (
                f"`{digest_registration(plan)}`",
                "`plan.json` of a run of this study file with the same options has it, and the "
                "report of the run prints it. It covers the parts below.",
            ),
            grid=Grid.of(parts),
        ),
        Field("Digests of the prompts", (), grid=Grid.of(prompts)),
        Field(
            "Settings as they are sealed",
            (),
            verbatim=json.dumps(design["settings"], indent=1, ensure_ascii=False, sort_keys=True),
        ),
    )


# --- what a run shows of it ----------------------------------------------------------------------


def registered_claims(run: RunFolder) -> list[Claim] | None:
    """The claims that a run sealed before its first call; None where it sealed none."""
    part = run.plan.get("sealed", {}).get(CLAIMS)
    if part is None:
        return None
    return [_claim_from(stated) for stated in part["data"]]


def _claim_from(stated: Mapping[str, Any]) -> Claim:
    known = {field.name for field in fields(Claim)}  # another version may have stated more
    own = {name: value for name, value in stated.items() if name in known}
    for name in {"contrast", "subject", "names"} & own.keys():
        own[name] = tuple(own[name])
    own["where"] = tuple((name, tuple(values)) for name, values in own.get("where", ()))
    return Claim(**own)


def registration_of_run(run: RunFolder) -> tuple[tuple[str, ...], Grid]:
    """What a run registered before its first call: sentences, and its claims as a table."""
    claims = registered_claims(run)
    if claims is None:
        return ("No claims were sealed before the first call of this run.",), Grid((), ())
    confirmatory = of_family(claims, "primary", "secondary")
    return (
        f"Digest of the sealed plan: {digest_registration(run.plan)}. `folkmoot plan` prints the "
        "same digest for the same study file and options.",
        *describe_families(claims),
        "Everything that is not in this table is exploratory.",
    ), _claims_grid(confirmatory)


# --- Markdown ------------------------------------------------------------------------------------


def as_markdown(text: Preregistration) -> str:
    """The preregistration as Markdown, for the form of a registry or a repository."""
    lines = [f"# Preregistration: {text.title}", "", f"Digest of the sealed plan: `{text.digest}`"]
    lines += ["", f"**{text.note}**"] if text.note else []
    for section in text.sections:
        lines += ["", f"## {section.title}"]
        for field in section.fields:
            lines += ["", f"### {field.title}"]
            for paragraph in field.paragraphs:
                lines += ["", paragraph]
            if field.numbered:
                lines += ["", *(f"{n}. {point}" for n, point in enumerate(field.numbered, 1))]
            if field.grid.rows:
                lines += ["", *_markdown_table(field.grid)]
            if field.verbatim:
                lines += ["", *(f"    {line}" for line in field.verbatim.splitlines())]
    return "\n".join(lines) + "\n"


def _markdown_table(grid: Grid) -> list[str]:
    def row(cells: Iterable[str]) -> str:
        return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"

    lines = [row(map(heading, grid.columns)), row("---" for _ in grid.columns)]
    for cells in grid.rows:
        lines.append(row(cell_text(v, c) for v, c in zip(cells, grid.columns, strict=True)))
    return [*lines, "", grid.caption] if grid.caption else lines
