"""Check a focus group's study file, and report what the researcher should know before a run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from folkmoot.engine.study.expected_rows import ExpectedRows
from folkmoot.errors import InputError, Problem
from folkmoot.measures.inference.estimates import FEWEST_UNITS
from folkmoot.measures.inference.power import DesignSize
from folkmoot.models.images import MIME_TYPES, UNSUPPORTED_TYPES, find_image_references
from folkmoot.people.sources.grounded.generator import check_quotas
from folkmoot.people.sources.grounded.panel import check_foreign_gaps, read_panel
from folkmoot.people.sources.grounded.profile import check_profile, first_name
from folkmoot.people.sources.table_files import first_line, group_problems
from folkmoot.studies.focus_group.config import DiscussionConfig, parse_amount
from folkmoot.studies.focus_group.discussion import MODERATOR
from folkmoot.studies.focus_group.participants import (
    available_seats,
    count_different_names,
    describe_shared_people,
    read_profiles,
)

# File types that a text can only name. A model would receive the name and not the content.
_MEDIA = (*MIME_TYPES, *UNSUPPORTED_TYPES, "pdf", "mp4", "mov", "webm", "avi", "mp3", "wav")
_FILE = re.compile(rf"[^\s()\[\]<>\"']+\.(?:{'|'.join(_MEDIA)})(?![\w/.-]*\w)", re.IGNORECASE)
_AS_ADDRESS = (
    "give the address of a PNG, JPEG, GIF or WebP image (https://… or data:image/png;base64,…)"
)


def check_config(config: DiscussionConfig, folder: Path) -> list[Problem]:
    """Return the problems that only show when keys are checked together or against files."""
    # Contradictions between keys, unknown quotas, and problems of the file of profiles.
    problems = [*_check_contradictions(config), *_check_guide(config), *check_quotas(config.quotas)]
    problems += check_images(config)
    if config.personas == "grounded":
        return [*problems, *_check_panel(config, folder)]
    if config.panel:
        hint = "remove one of them"
        problems.append(
            Problem("`panel` and a file of profiles exclude each other", key="panel", hint=hint)
        )
    if config.quotas:
        problems.append(
            Problem(
                "quotas work only with grounded personas, not with a file of profiles", key="quotas"
            )
        )
    try:
        rows = read_profiles(config, folder)
    except InputError as error:
        return [*problems, *(_at_personas(problem) for problem in error.problems)]
    path = folder / Path(config.personas).expanduser()
    first = first_line(path)
    row_problems: list[Problem] = []
    # The line of the file is kept with each problem. Problems of the same kind are grouped
    # afterwards.
    for line, row in enumerate(rows, first):
        problems_of_row = [*check_profile(row, str(line)), *check_foreign_gaps(row, str(line))]
        row_problems += [replace(problem, file=str(path)) for problem in problems_of_row]
        if config.first_opinion == "asked":
            row_problems += [
                Problem(
                    "the file gives an opinion, but participants are asked for their opinions",
                    file=str(path),
                    where=str(line),
                    key=key,
                    hint="set first_opinion: seeded, or delete the column",
                )
                for key in ("valence", "opinion")
                if key in row
            ]
    problems += group_problems(row_problems)
    if any(row["id"] == MODERATOR for row in rows):
        problems.append(Problem(f"no profile can have the id {MODERATOR!r}", key="personas"))
    # Transcripts and files name a speaker by the first name.
    if any(first_name(str(row.get("name", ""))).casefold() == MODERATOR for row in rows):
        problems.append(
            Problem(
                f"no profile can have the first name {MODERATOR.capitalize()!r}, which is the name "
                "of the moderator",
                key="personas",
                hint="give this person another name",
            )
        )
    if len(rows) < config.num_personas:
        problems.append(
            Problem(
                f"{config.num_personas} people are needed; the file has {len(rows)}",
                key="num_personas",
                hint=f"set num_personas: {len(rows)}, or add people",
            )
        )
    elif (different_count := count_different_names(rows)) < config.num_personas:
        problems.append(
            Problem(
                f"{config.num_personas} people are needed, but only {different_count} have "
                "different first names, by which they are addressed",
                key="personas",
                hint=f"give them different names, or set num_personas: {different_count}",
            )
        )
    return problems


def _check_contradictions(config: DiscussionConfig) -> list[Problem]:
    problems: list[Problem] = []

    def add_problem(key: str, message: str, hint: str = "") -> None:
        problems.append(Problem(message, key=key, hint=hint))

    if not config.product_concept and not config.stimuli:
        add_problem("product_concept", "no concept is given", "set it, or list `stimuli`")
    if len(set(config.phases)) != len(config.phases):
        add_problem("phases", "a phase can be listed only once")
    ids = [stimulus.id for stimulus in config.concepts]
    if len(set(ids)) != len(ids):
        add_problem("stimuli", "two stimuli have the same name")
    max_responses, participant_count = config.max_responses_per_question, config.num_personas
    # The default suits small groups as well. `study.yaml` of a run states it like any other value.
    default = type(config).model_fields["max_responses_per_question"].default
    if max_responses > participant_count and max_responses != default:
        add_problem(
            "max_responses_per_question",
            f"{max_responses} answers, but only {participant_count} people",
            f"set at most {participant_count}",
        )
    if config.appeal and config.first_opinion == "asked":
        add_problem("appeal", "appeal shifts only seeded opinions", "set first_opinion: seeded")
    if config.control == "alone" and config.first_opinion == "seeded":
        add_problem(
            "control",
            "`alone` needs stated positions, but opinions are seeded",
            "set first_opinion: asked",
        )
    if len({parse_amount(price) for price in config.prices}) != len(config.prices):
        add_problem("prices", "a price can be listed only once")
    questions = min(config.for_stimulus(stimulus).all_questions for stimulus in config.concepts)
    if not questions:
        add_problem(
            "phases", "without material there is no reaction phase", "set stimulus_material"
        )
    # Each participant must be able to speak at least once.
    elif questions * config.responses_cap < participant_count:
        add_problem(
            "num_personas",
            f"{participant_count} people cannot all speak in {questions} questions of at most "
            f"{config.responses_cap} answers",
        )
    return problems


def list_images(config: DiscussionConfig) -> list[str]:
    """Return the keys of the texts that contain images."""
    return [key for key, text in _displayed_texts(config) if find_image_references(text)]


def check_images(config: DiscussionConfig) -> list[Problem]:
    """Return a problem for each image that models cannot receive."""
    # Unsupported types, file names in place of images, and images in keys that must be text.
    problems: list[Problem] = []
    for key, text in _displayed_texts(config):
        images = find_image_references(text)
        remaining_text = text
        for image in images:
            remaining_text = remaining_text.replace(image.words, " ")
            if image.file_extension in UNSUPPORTED_TYPES:
                message = (
                    f"models accept no images of type {image.file_extension} ({image.url[:80]})"
                )
                problems.append(Problem(message, key=key, hint=_AS_ADDRESS))
        if images and not key.endswith("stimulus_material"):
            hint = "put it into stimulus_material"
            problems.append(Problem("this key must be text, not an image", key=key, hint=hint))
        for match in _FILE.finditer(remaining_text):
            message = f"{match[0][:80]} is a file name, and models would not receive the file"
            problems.append(Problem(message, key=key, hint=_AS_ADDRESS))
    return problems


def _displayed_texts(config: DiscussionConfig) -> Iterator[tuple[str, str]]:
    prefixed_parts = [
        ("", config),
        *((f"stimuli.{index}.", stimulus) for index, stimulus in enumerate(config.stimuli)),
    ]
    for prefix, part in prefixed_parts:
        for key in ("product_concept", "category", "stimulus_material"):
            text = getattr(part, key)
            if text:
                yield f"{prefix}{key}", text


def _check_guide(config: DiscussionConfig) -> list[Problem]:
    problems: list[Problem] = []
    for phase, guide_part in config.guide.items():
        key = f"guide.{phase.value}"
        if not all(line.strip() for line in (*guide_part.questions, *guide_part.probes)):
            problems.append(Problem("a question or probe is blank", key=key))
        if not all(phase in config.for_stimulus(concept).phases for concept in config.concepts):
            reason = "is not one of `phases`" if phase not in config.phases else "has no material"
            problems.append(
                Problem(f"the phase {reason}, so its questions would not be asked", key=key)
            )
    return problems


def _check_panel(config: DiscussionConfig, folder: Path) -> list[Problem]:
    if config.panel is None:
        return []
    try:
        read_panel(folder / Path(config.panel).expanduser())
    except InputError as error:
        return error.problems
    return []


def _at_personas(problem: Problem) -> Problem:
    column_text = f", {problem.key}" if problem.key else ""
    line_text = f" (line {problem.where}{column_text})" if problem.where else ""
    return Problem(
        f"{problem.message}{line_text}", file=problem.file, key="personas", hint=problem.hint
    )


def limit_groups(config: DiscussionConfig, groups: int) -> DiscussionConfig:
    """Return the settings with at most `groups` groups, but at least one."""
    return config.model_copy(update={"replications": min(config.replications, max(1, groups))})


def config_advisories(config: DiscussionConfig, folder: Path) -> list[str]:
    """Return facts that the researcher should know before a run."""
    advisories = []
    if config.replications < FEWEST_UNITS:
        advisory = f"fewer than {FEWEST_UNITS} groups are an illustration: no intervals, no tests"
        advisories.append(f"{advisory} (set `replications` to {FEWEST_UNITS} or more)")
    if config.personas != "grounded":
        advisories += describe_shared_people(seat.id for seat in available_seats(config, folder))
    if config.max_responses_per_question > config.num_personas:
        advisories.append(
            f"a question gets at most {config.num_personas} answers, one from each participant"
        )
    if image_keys := list_images(config):
        keys = ", ".join(image_keys)
        advisories.append(f"the estimate does not include the tokens of images in: {keys}")
    for concept in config.concepts:
        if len(config.for_stimulus(concept).phases) < len(config.phases):
            concept_text = f" of {concept.id}" if config.stimuli else ""
            advisories.append(
                f"the discussion{concept_text} has no reaction phase, because it has no material"
            )
    return advisories


def expected_rows(sealed: Mapping[str, Any]) -> list[ExpectedRows]:
    """Return how many rows each table must have according to the plan of the run."""
    # The table `personas` has one row per recruit. The table `statements` has at least one row for
    # each group and concept.
    rows = tuple(
        {"group": group, "persona_id": participant["id"], "name": participant["name"]}
        for group, participants in sealed.get("recruits", {}).items()
        for participant in participants
    )
    config = DiscussionConfig.model_validate(sealed["design"]["settings"])
    statement_rows = tuple(
        {"group": group, "stimulus": concept.id}
        for group in sealed.get("recruits", {})
        for concept in config.concepts
    )
    return [
        ExpectedRows("personas", ("group", "persona_id"), rows),
        ExpectedRows(
            "statements", ("group", "stimulus"), statement_rows, "discussion", part="group"
        ),
    ]


def design_size(config: DiscussionConfig, _folder: Path) -> DesignSize:
    """Return the size of the design, for `folkmoot power`."""
    # Every group discusses all concepts.
    concepts = max(2, len(config.stimuli))
    groups, key = config.replications, ("replications", config.replications)
    return DesignSize("paired", concepts, groups, config.num_personas, "group", key)
