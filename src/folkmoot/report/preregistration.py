"""The preregistration of a study: what the study file fixes before a run calls a model.

The text has the fields of the OSF template. Authors fill in what a program cannot know.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from folkmoot.engine.run.execution import RunOptions, seal_registration
from folkmoot.engine.run.runner import create_router, run_folder_path
from folkmoot.engine.session.plan import (
    CLAIMS,
    DESIGN,
    REGISTERED,
    SEATS,
    Plan,
    digest_registration,
    sealed_data,
)
from folkmoot.engine.settings.claims import FAMILIES
from folkmoot.engine.settings.hypotheses import is_seal_intact
from folkmoot.engine.settings.run_claims import registered_claims
from folkmoot.engine.study.study import claims_of
from folkmoot.engine.study.study_file import StudyFile
from folkmoot.hints import capitalise, number_text
from folkmoot.measures.inference.claims import Claim
from folkmoot.measures.inference.estimates import (
    FEWEST_UNITS,
    format_count,
    format_dollars,
    format_percent,
)
from folkmoot.measures.inference.power import DesignSize
from folkmoot.storage.findings import ResultTable, TableCell, column_heading, format_cell
from folkmoot.storage.manifest import file_sha256
from folkmoot.storage.rows import column_meanings
from folkmoot.storage.run_folder import PLAN, RunFolder, first_versions
from folkmoot.storage.tables import ENGINE_COLUMNS

BLANK = "To be filled in by the authors."
NO_GRID = ResultTable((), ())
# Files of these types in a folder that a setting names: codebooks, prompts and profiles.
FOLDER_SUFFIXES = (".yaml", ".yml", ".md")
UNCOVERED = (
    "The digest of the sealed plan does not cover the content of these files, which settings name. "
    "Modules that a Python file imports are not listed. To show that a run used these files, "
    "compare their hashes."
)


@dataclass(frozen=True, slots=True)
class TemplateField:
    """A field of the preregistration template."""

    # Empty parts are left out. By default, the paragraph asks the authors to fill in the field.

    title: str
    paragraphs: tuple[str, ...] = (BLANK,)
    numbered: tuple[str, ...] = ()
    grid: ResultTable = NO_GRID
    verbatim: str = ""


@dataclass(frozen=True, slots=True)
class TemplateSection:
    """A section of the template."""

    title: str
    fields: tuple[TemplateField, ...]


@dataclass(frozen=True, slots=True)
class Preregistration:
    """A preregistration, with the digest of the plan.

    The plan is the design that a run fixes before the run calls a model.
    """

    title: str
    digest: str
    note: str
    sections: tuple[TemplateSection, ...]


def build_preregistration(study_file: StudyFile, options: RunOptions) -> Preregistration:
    """Return the preregistration of a study file.

    Raises InputError with all problems that would prevent a run.
    """
    providers = create_router(study_file, options)
    with tempfile.TemporaryDirectory(prefix="folkmoot-plan-") as scratch:
        # The plan is sealed only to compute its digest. It is never written.
        plan = Plan(Path(scratch) / PLAN, started_at="")
        seal_registration(plan, study_file, providers)
    sealed = sealed_data(plan.data)
    claims = claims_of(study_file.study, study_file.config)
    title = title_of(study_file.config.model_dump()) or study_file.study.title
    begun = run_folder_path(study_file, options)
    return Preregistration(
        title,
        digest_registration(plan.data),
        f"A run of this study has already started ({begun.name}), so this text was written after "
        "data collection began."
        if begun.exists()
        else "",
        (
            TemplateSection("Study information", _information_fields(title, study_file, claims)),
            TemplateSection("Design plan", _design_fields(study_file, claims, sealed)),
            TemplateSection("Sampling plan", _sampling_fields(study_file, sealed)),
            TemplateSection("Variables", _variable_fields(study_file, claims)),
            TemplateSection("Analysis plan", _analysis_fields(study_file, claims)),
            TemplateSection("Other", _other_fields(plan.data, study_file)),
        ),
    )


def title_of(config: Mapping[str, Any]) -> str:
    """Return the title of a study, or the name of the experiment if there is no title.

    Returns "" if there is neither.
    """
    # The settings of a run may come from an untrusted source.
    settings: object = config
    for key in ("workbook", "settings", "experiment_id"):
        settings = settings.get(key) if isinstance(settings, Mapping) else None
    experiment = str(settings or "").replace("_", " ")
    named = config.get("pilot_name") or config.get("title") or capitalise(experiment)
    return str(named)


def describe_setting(config: Mapping[str, Any], key: str) -> str:
    """Return the value of `temperature` or `max_tokens` in the settings of a study as text.

    A setting that is missing or empty is left to the provider.
    """
    value = config.get(key)
    if value is None:
        return "the provider's default"
    return number_text(value) if isinstance(value, float) else str(value)


def of_family(claims: Iterable[Claim], *families: str) -> list[Claim]:
    """Return the claims of the given families, one family after the other.

    `families`: names such as "primary".
    """
    own = [*claims]
    return [claim for family in families for claim in own if claim.family == family]


def describe_size(size: DesignSize | None) -> str:
    """Return the number of units in each condition in words."""
    if size is None:
        return "The settings do not give the number of participants in each condition."
    units = format_count(size.units, size.unit_name)
    each = f" of {size.size} participants" if size.size > 1 else ""
    if size.kind == "paired":
        return f"{units}{each}, each observed in {size.arms} arms."
    return f"{format_count(size.arms, 'arm')} with {units}{each} each."


# --- the fields of the template ------------------------------------------------------------------


def _information_fields(
    title: str, study_file: StudyFile, claims: Sequence[Claim]
) -> tuple[TemplateField, ...]:
    shown = of_family(claims, "primary", "secondary")
    stated = study_file.config.hypotheses
    source = (
        "They are stated in the study file."
        if stated
        else f"They are the claims of the study type “{study_file.study.title}”."
    )
    expected = [hypothesis.expected for hypothesis in stated] or [None] * len(shown)
    return (
        TemplateField("Title", (title,)),
        TemplateField("Authors"),
        TemplateField("Description", (f"{study_file.study.title}.", BLANK)),
        TemplateField(
            "Hypotheses",
            (source if shown else "None: all results in the report are exploratory.",),
            tuple(
                _state_hypothesis(claim, aim) for claim, aim in zip(shown, expected, strict=True)
            ),
        ),
    )


def _state_hypothesis(claim: Claim, expected: float | None) -> str:
    aim = "" if expected is None else f"Expected: {claim.format_signed(expected)}."
    return " ".join(filter(None, (f"{claim.says} ({claim.family}).", claim.estimand, aim)))


def _design_fields(
    study_file: StudyFile, claims: Sequence[Claim], sealed: Mapping[str, Any]
) -> tuple[TemplateField, ...]:
    size = study_file.study.size(study_file.config, study_file.study_folder)
    people = "people play some participants" if SEATS in sealed else "no people take part"
    seed = study_file.config.random_seed
    return (
        TemplateField(
            "Study type",
            (
                f"Simulated experiment ({study_file.study.title}): language models answer; "
                f"{people}.",
            ),
        ),
        TemplateField(
            "Blinding",
            (
                "The program assigns the conditions, asks all questions and parses all answers. A "
                "participant gets only the prompts of its own condition.",
            ),
        ),
        TemplateField("Is there any additional blinding in this study?"),
        TemplateField("Study design", (describe_size(size),), grid=_contrasts_table(claims)),
        TemplateField(
            "Randomization",
            (
                f"Every random draw is determined by the random seed {seed} and the step of the "
                "protocol. The participants and their conditions are sealed in plan.json before "
                "the calls that depend on them.",
            ),
        ),
    )


def _contrasts_table(claims: Sequence[Claim]) -> ResultTable:
    rows: dict[tuple[str, str, str], dict[str, TableCell]] = {}
    for claim in claims:
        within = " and ".join(claim.subject) if claim.paired else "different subjects"
        by = claim.by or "condition"
        row = rows.setdefault((by, within, claim.unit), {"compared_by": by, "arms": ""})
        arms = [*filter(None, str(row["arms"]).split(", ")), *reversed(claim.contrast)]
        row |= {"arms": ", ".join(dict.fromkeys(arms)), "within": within, "unit": claim.unit}
    return ResultTable.from_records(
        list(rows.values()), "Compared conditions, units of comparison, and independent units."
    )


def _sampling_fields(study_file: StudyFile, sealed: Mapping[str, Any]) -> tuple[TemplateField, ...]:
    config, design = study_file.config, sealed[DESIGN]
    models: list[dict[str, TableCell]] = [{"role": "all other roles", "model": design["model"]}]
    models += [{"role": role, "model": name} for role, name in design["models"].items()]
    models += [{"role": "single speakers", "model": name} for name in design["seat_models"]]
    if design["embedding_model"]:
        models.append({"role": "embeddings", "model": design["embedding_model"]})
    limits = [
        *(
            [f"after spending {format_dollars(config.budget_usd)}"]
            if config.budget_usd is not None
            else []
        ),
        *(
            [f"after {format_count(config.budget_calls, 'call')}"]
            if config.budget_calls is not None
            else []
        ),
    ]
    temperature = describe_setting(config.model_dump(), "temperature")
    pause = (
        f"It pauses {' or '.join(limits)}. A paused run can be resumed, or reported as partial."
        if limits
        else "No budget is set, so the run has no other limit."
    )
    return (
        TemplateField(
            "Existing data",
            (
                "The run generates all answers. The training data of the models are unknown and "
                "may contain similar studies.",
            ),
        ),
        TemplateField("Explanation of existing data"),
        TemplateField(
            "Data collection procedures",
            (
                "Each call sends a prompt with the earlier utterances that the speaker heard. The "
                "journal of the run stores the request and the reply.",
            ),
            grid=ResultTable.from_records(models, f"Models; temperature {temperature}."),
        ),
        TemplateField(
            "Sample size", (describe_size(study_file.study.size(config, study_file.study_folder)),)
        ),
        TemplateField(
            "Sample size rationale", ("`folkmoot power` computes the power of each claim.", BLANK)
        ),
        TemplateField(
            "Stopping rule",
            (*_describe_end(study_file), pause),
        ),
    )


def _describe_end(study_file: StudyFile) -> tuple[str, ...]:
    state_rule = study_file.study.stopping_rule
    if state_rule is None:
        # A protocol is code, so only the author of the study type knows.
        return (
            "The run ends when the protocol of the study ends. The study type does not state "
            "whether answers can end it early.",
            BLANK,
        )
    rule = state_rule(study_file.config) or "No interim result stops it."
    return (f"The run ends when all units have finished. {rule}",)


def _variable_fields(study_file: StudyFile, claims: Sequence[Claim]) -> tuple[TemplateField, ...]:
    words = column_meanings(study_file.study.tables)

    def describe_measure(measure: str) -> str:
        table, _, column = measure.rpartition(".")
        own = [words.get(table, {}), *words.values()] if table else [*words.values()]
        meaning = next((known[column] for known in own if column in known), "")
        return meaning or ENGINE_COLUMNS.get(column, "")

    by = {
        claim.by or "condition": describe_measure(f"{claim.named_table}.{claim.by}")
        for claim in claims
        if not claim.paired or claim.by != "when"
    }
    rows: dict[tuple[str, str], dict[str, TableCell]] = {}
    for claim in claims:
        rows.setdefault(
            (claim.measure, claim.outcome),
            {
                "measure": claim.measure,
                "in_words": claim.outcome or None,
                "kind": claim.kind,
                "meaning": describe_measure(claim.measure) or None,
            },
        )
    indices = [f"{claim.label}: {index}" for claim in claims if (index := _describe_index(claim))]
    return (
        TemplateField(
            "Manipulated variables",
            tuple(f"{name}: {meaning or 'arms'}." for name, meaning in by.items()) or ("None.",),
        ),
        TemplateField(
            "Measured variables",
            () if rows else ("None.",),
            grid=ResultTable.from_records(list(rows.values()), "Columns of tables."),
        ),
        TemplateField("Indices", () if indices else ("None.",), tuple(dict.fromkeys(indices))),
    )


def _describe_index(claim: Claim) -> str:
    if claim.at_least is not None:
        return f"whether {claim.measure} is at least {number_text(claim.at_least)}"
    if claim.subject:
        return f"the mean of the rows of one subject ({', '.join(claim.subject)})"
    return ""


def _describe_checks(study_file: StudyFile) -> list[str]:
    seats = study_file.config.seats
    checks = seats.checks if seats is not None else ()
    consequences = {
        "again": "asked until the answer is right",
        "note": "a human who fails it is listed and stays in the analysis",
        "exclude": "a human who fails it is left out of all figures, together with the group, "
        "session or set in which others have talked with them",
        "end": "a human who fails it takes no further part",
    }
    return [
        f"Check {number} of humans (“{check.question}”, right: {', '.join(check.right)}): "
        f"{consequences[check.on_failure]}."
        for number, check in enumerate(checks, start=1)
    ]


def _analysis_fields(study_file: StudyFile, claims: Sequence[Claim]) -> tuple[TemplateField, ...]:
    primary, secondary, rest = (of_family(claims, family) for family in FAMILIES)
    checks = _describe_checks(study_file)
    return (
        TemplateField("Statistical models", METHODS, grid=_claims_grid([*primary, *secondary])),
        TemplateField("Transformations", ("None beyond the indices above.",)),
        TemplateField("Inference criteria", (*describe_families(claims), CRITERIA)),
        TemplateField(
            "Data exclusion",
            (
                "Claims use all rows, or only the rows listed below. Answers that are unreadable, "
                "declined or refused are never scored. No participant is excluded "
                "because of an answer" + (", but for these checks." if checks else "."),
                *checks,
                "A first reply fails if it needs a further request, repeats itself or is cut by "
                "the token limit. The report names each model with more than "
                f"{format_percent(study_file.config.max_instruction_failures)} failed first "
                "replies. Such a model is not excluded.",
            ),
            tuple(dict.fromkeys(_rows_that_count(claim) for claim in claims if claim.where)),
        ),
        TemplateField(
            "Missing data",
            (
                *dict.fromkeys(claim.missing for claim in claims or [Claim("", ("", ""))]),
                "A participant who does not finish counts as lost, even if some answers are "
                "recorded. For shares, the report gives the smallest and the largest difference "
                "over all possible answers of lost participants (Horowitz and Manski 2000).",
            ),
        ),
        TemplateField(
            "Exploratory analysis",
            ("All other results in the report are exploratory, including these contrasts:",)
            if rest
            else ("All other results in the report are exploratory.",),
            tuple(claim.says for claim in rest),
        ),
    )


METHODS = (
    "The measure and the independent unit of a claim determine its estimator. For subjects "
    "observed in both arms: differences within subjects, clustered by unit (CR2 with "
    "Satterthwaite's degrees of freedom; for shares with one value per unit, Tango's interval and "
    "McNemar's test). For units with several values: the CR2 sandwich estimator. Otherwise: "
    "Newcombe's interval for shares, Welch's for means. Every subject counts equally, whatever the "
    "size of its unit.",
)
CRITERIA = (
    "All tests are two-sided and use the method of the interval. Supported: the whole interval (of "
    "several primary claims: the joint interval) is on the claimed side, beyond the margin. "
    "Contradicted: the whole interval is on the other side. Neither shown nor ruled out: all other "
    f"cases. With fewer than {FEWEST_UNITS} independent units, no claim is tested."
)


def describe_families(claims: Sequence[Claim]) -> tuple[str, ...]:
    """Return sentences on the adjustment of p-values in each family of claims."""
    primary, secondary, rest = (len(of_family(claims, family)) for family in FAMILIES)
    sentences = []
    if primary:
        sentences.append(
            f"Primary: {format_count(primary, 'claim')}, decided by Holm's method in each "
            "direction (half of the 5 % level each), with the joint 95 % intervals that fit it, "
            "and the 95 % interval of each claim by itself. Claims that cannot be tested are "
            "counted."
            if primary > 1
            else "Primary: 1 claim, a 95 % interval."
        )
    sentences += [
        f"{capitalise(name)}: {format_count(count, 'claim')}, separate 95 % intervals, and "
        f"p-values that Holm's method adjusts for all {name} claims. Nothing is concluded from "
        "them."
        for name, count in (("secondary", secondary), ("exploratory", rest))
        if count
    ]
    return tuple(sentences)


def _claims_grid(claims: Sequence[Claim]) -> ResultTable:
    return ResultTable.from_records(
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
    filters = (
        f"{name}: {', '.join('empty' if value is None else str(value) for value in values)}"
        for name, values in claim.where
    )
    return f"{claim.label}: {'; '.join(filters)}"


def _named_files(study_file: StudyFile) -> list[tuple[str, Path]]:
    # (name as the study file states it, path) of all files and files of folders that settings name,
    # such as a table of personas, a folder of codebooks, or the Python file of the study.
    files: dict[str, Path] = {}
    for name in _iterate_texts(study_file.config.model_dump(mode="json")):
        try:
            path = study_file.study_folder / Path(name).expanduser()
            if path.is_file():
                files[name] = path
            elif path.is_dir():
                inside = (found for found in path.iterdir() if found.suffix in FOLDER_SUFFIXES)
                files |= {f"{name.rstrip('/')}/{found.name}": found for found in sorted(inside)}
        # A text that is no name: it is too long, or begins with "~" and no user.
        except (OSError, ValueError, RuntimeError):
            continue
    return sorted(files.items())


def _iterate_texts(settings: object) -> Iterator[str]:
    if isinstance(settings, Mapping):
        settings = [*settings.values()]
    if isinstance(settings, list):
        for setting in settings:
            yield from _iterate_texts(setting)
    elif isinstance(settings, str) and settings.strip(" ."):
        yield settings


def _other_fields(plan: Mapping[str, Any], study_file: StudyFile) -> tuple[TemplateField, ...]:
    sealed = plan["sealed"]
    design = sealed[DESIGN]["data"]
    parts: list[dict[str, TableCell]] = [
        {"sealed_part": name, "digest": part["hash"]} for name, part in sealed.items()
    ]
    prompts: list[dict[str, TableCell]] = [
        {"prompt": name, "sha_256": value} for name, value in sorted(design["prompts"].items())
    ]
    files: list[dict[str, TableCell]] = [
        {"file": name, "sha_256": file_sha256(path)} for name, path in _named_files(study_file)
    ]
    return (
        TemplateField(
            "Digest of the sealed plan",
            (
                f"`{digest_registration(plan)}`",
                "A run of this study file with the same options has this digest in `plan.json` "
                "and in its report. The digest covers the parts below.",
            ),
            grid=ResultTable.from_records(parts),
        ),
        TemplateField("Digests of the prompts", (), grid=ResultTable.from_records(prompts)),
        TemplateField(
            "Digests of the files",
            (UNCOVERED if files else "The settings name no files.",),
            grid=ResultTable.from_records(files),
        ),
        TemplateField(
            "Sealed settings",
            (),
            verbatim=json.dumps(design["settings"], indent=1, ensure_ascii=False, sort_keys=True),
        ),
    )


# --- the registration in the report of a run ----------------------------------------------------


def is_registration_intact(run: RunFolder) -> bool:
    """Return whether the sealed plan of a run has claims, and no part was edited later."""
    sealed, first = run.plan.get("sealed", {}), first_versions(run.plan)
    parts = [parts[name] for parts in (sealed, first) for name in REGISTERED if name in parts]
    return CLAIMS in sealed and all(map(is_seal_intact, parts))


def registration_of_run(run: RunFolder) -> tuple[tuple[str, ...], ResultTable]:
    """Return sentences on what a run registered before it called a model, and a table of claims."""
    claims = registered_claims(run)
    if claims is None:
        return ("No claims were sealed before the first call of this run.",), ResultTable((), ())
    confirmatory = of_family(claims, "primary", "secondary")
    return (
        f"Digest of the sealed plan: {digest_registration(run.plan)}. `folkmoot plan` prints the "
        "same digest for the study file and options with which the run started. It does not cover "
        "the content of files that settings name, such as codebooks, tables of people and the "
        "Python file of a study. `folkmoot plan` lists hashes of these files.",
        *describe_families(claims),
        "All results that are not in this table are exploratory."
        if confirmatory
        else "All results are exploratory.",
    ), _claims_grid(confirmatory)


# --- Markdown ------------------------------------------------------------------------------------


def as_markdown(text: Preregistration) -> str:
    """Return the preregistration as Markdown."""
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


def _markdown_table(grid: ResultTable) -> list[str]:
    def format_table_row(cells: Iterable[str]) -> str:
        return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"

    lines = [
        format_table_row(map(column_heading, grid.columns)),
        format_table_row("---" for _ in grid.columns),
    ]
    for cells in grid.rows:
        lines.append(
            format_table_row(
                format_cell(cell, column) for cell, column in zip(cells, grid.columns, strict=True)
            )
        )
    return [*lines, "", grid.caption] if grid.caption else lines
