"""Images in a workbook: where its texts show one, and which of them no model could be shown."""

from __future__ import annotations

from collections.abc import Iterator

from folkmoot.models.images import NOT_TAKEN, Image, images_in
from folkmoot.studies.workbook.answers import Listed
from folkmoot.studies.workbook.config import Role, Workbook, WorkbookConfig
from folkmoot.studies.workbook.experiments import Experiment, build, combinations
from folkmoot.studies.workbook.placeholders import TemplateProblem, names_in, render
from folkmoot.studies.workbook.room import NOT_AVAILABLE, known_beforehand
from folkmoot.studies.workbook.sheets import Problems

MOST_PERMUTATIONS_CHECKED = 1_000
_SEND_AS = "save it as PNG, JPEG, GIF or WebP"


def cells_with_images(config: WorkbookConfig) -> list[str]:
    """The cells whose texts show images, in the order of the sheets."""
    cells: dict[str, None] = {}
    if not _may_show(config.workbook):
        return []
    for experiment in permutations(config.workbook):
        cells.update(dict.fromkeys(where for _, where in shown_images(experiment)))
    return list(cells)


def permutations(workbook: Workbook) -> Iterator[Experiment]:
    """The experiments that the constants spin off, up to a bound that keeps a check quick."""
    for number, values in enumerate(combinations(workbook), 1):
        if number > MOST_PERMUTATIONS_CHECKED:
            return
        yield build(workbook, values, number, workbook.settings.experiment_id)[0]


def image_problems(experiment: Experiment, problems: Problems) -> None:
    """Images that cannot be sent, or cannot be answered with."""
    for image, where in shown_images(experiment):
        if image.ending in NOT_TAKEN:
            message = f"models take no images of type {image.ending} ({image.url[:80]})"
            problems.add(message, where, _SEND_AS)
    for play in experiment.tasks.values():
        each = play.options.values() if isinstance(play.options, dict) else [play.options]
        for options in each:
            if isinstance(options, Listed) and any(map(images_in, options.options)):
                problems.add(
                    "an option is an image, which nobody can answer with",
                    play.task.at.get("response_options", ""),
                    "show the images in the prompt and give the options names",
                )


def shown_images(experiment: Experiment) -> Iterator[tuple[Image, str]]:
    """The images of an experiment's texts, each with its cell. Text that depends on answers is
    looked through as it is written, so that a branch that is not taken now counts too."""
    if not _may_show(experiment.workbook):  # spares large workbooks a second rendering
        return
    for text, told, where in texts(experiment):
        yield from ((image, where) for image in images_in(text))
        for treatment in experiment.treatments if "{" in text else ():
            try:
                names, _ = names_in(text)
                values = known_beforehand(experiment, treatment, told)
                filled = render(text, {**dict.fromkeys(names, NOT_AVAILABLE), **values})
            except TemplateProblem:  # the checks of the placeholders report it
                continue
            yield from ((image, where) for image in images_in(filled))


def _may_show(workbook: Workbook) -> bool:
    parts = (*workbook.treatments, *workbook.roles, *workbook.tasks, *workbook.constants)
    written = "".join(map(str, parts))
    return "://" in written or "data:image" in written


def texts(experiment: Experiment) -> list[tuple[str, Role | None, str]]:
    """All texts that a speaker is shown, with the role that is told them and their cell."""
    return [
        *(
            (treatment.description, None, treatment.at.get("treatment_description", ""))
            for treatment in experiment.treatments.values()
        ),
        *(
            (role.description, role, role.at.get("role_description", ""))
            for role in experiment.roles.values()
        ),
        *(
            (text, experiment.roles.get(label), play.task.at.get("llm_text", ""))
            for play in experiment.tasks.values()
            for label, text in play.prompts.items()
        ),
    ]
