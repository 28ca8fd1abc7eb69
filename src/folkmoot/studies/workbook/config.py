"""Settings of a workbook study: what all study types share, and the whole experiment as read."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from folkmoot.engine.config import NonNegative, Positive, StudyConfig
from folkmoot.errors import InputError
from folkmoot.models.catalog import HOSTED, resolve
from folkmoot.studies.workbook.model import Workbook

MOST_PERMUTATIONS = 1_000


class WorkbookConfig(StudyConfig):
    """A workbook as a study file. It is complete: a run can be repeated without the .xlsx."""

    workbook: Workbook = Field(description="the experiment, as read from the spreadsheet")
    source: str = Field("", description="name of the spreadsheet")
    max_permutations: Positive = Field(
        MOST_PERMUTATIONS,
        description="most experiments that the constants may spin off; raise it to allow more",
    )
    reasks: NonNegative = Field(
        5, description="how often an answer that fails validation is asked for again"
    )
    first_sessions: Positive | None = Field(
        None, description="play only so many sessions of each experiment (`--limit`)"
    )


def settings_of(workbook: Workbook) -> tuple[dict[str, Any], list[str]]:
    """The common settings that a workbook's own give, and notes about its model."""
    ours = workbook.settings
    values: dict[str, Any] = {"temperature": ours.temperature, "random_seed": ours.random_seed}
    notes: list[str] = []
    if ours.model_info == HOSTED:
        values["model"] = HOSTED
        if ours.api_endpoint:
            values["endpoints"] = {HOSTED: ours.api_endpoint}
        return values, notes
    if ours.api_endpoint:
        notes.append(f"api_endpoint is only used with {HOSTED}; it is ignored here")
    try:
        resolve(ours.model_info)
        values["model"] = ours.model_info
    except InputError:
        values["model"] = f"openai/{ours.model_info}"
        notes.append(
            f"the model {ours.model_info!r} is not in the catalog: it is asked for as "
            f"openai/{ours.model_info}, through the OpenAI-compatible API"
        )
    return values, notes
