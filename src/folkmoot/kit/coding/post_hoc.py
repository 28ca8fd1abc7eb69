"""Code a finished run with a model, as a separate run in `RUN/codings/<coder>/`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import Field

from folkmoot.engine.run.event_loop import RunStopper
from folkmoot.engine.run.execution import RunOptions
from folkmoot.engine.run.verify import Verification
from folkmoot.engine.seats.withdrawal import select_since_withdrawal
from folkmoot.engine.session.session import Session
from folkmoot.engine.settings.config import StudyConfig
from folkmoot.engine.study.study import Study
from folkmoot.errors import InputError, Problem, StorageError
from folkmoot.kit.coding.coder import TextToCode, code_with_models, same_model
from folkmoot.kit.coding.results import (
    POST_HOC_CODING,
    no_texts_error,
    read_codings,
    sealed_codebook,
)
from folkmoot.kit.coding.tables import CodeRow
from folkmoot.kit.run_below import (
    Below,
    calling_settings,
    require_finished,
    run_below,
    verify_below,
)
from folkmoot.storage.amendments import read_amendments
from folkmoot.storage.run_folder import CODINGS, RunFolder


class PostHocCodingConfig(StudyConfig):
    """The settings of a coding of a finished run."""

    sample: bool = Field(False, description="code only the sample of each codebook")


def code_finished_run(
    run: RunFolder,
    coder: str,
    options: RunOptions,
    *,
    sample: bool = False,
    stopper: RunStopper | None = None,
) -> RunFolder:
    """Code the texts of a finished run with the model `coder`, or resume such a coding.

    `sample`: code only the texts that a second coder would get.
    Raises InputError if the run is unfinished, lacks texts, or was already coded by `coder`.
    Also raises the errors of `run_study`.
    """
    require_codable(run, coder)
    settings = {**calling_settings(run), "model": coder, "sample": sample}
    # A model name may contain slashes and colons, and not every file system allows them.
    name = re.sub(r"[^\w.-]+", "-", coder)
    below = Below(build_coding_study(run), f"{CODINGS}/{name}", POST_HOC_CODING, coder)
    return run_below(run, below, settings, options, stopper)


def require_codable(run: RunFolder, coder: str) -> None:
    """Raise InputError if this model cannot code this run."""
    require_finished(run)
    endpoints = run.config.get("endpoints", {})
    read = read_codings(run)
    if not read:
        raise no_texts_error(run)
    amendments = select_since_withdrawal(read_amendments(run.path), POST_HOC_CODING)
    for amendment in amendments:
        folder = str(amendment.data["folder"])
        if same_model(coder, amendment.author, endpoints) and run.open_subfolder(folder) is None:
            raise InputError(
                Problem(
                    f"{coder} has coded this run, but {run.path / folder} is missing",
                    hint="restore the folder from a copy, or name another model",
                )
            )
    names = {
        coder_result.name
        for codebook in read.values()
        for coder_result in codebook.coders
        if coder_result.coder_role != "rule"
    }
    if any(same_model(coder, name, endpoints) for name in names):
        raise InputError(
            Problem(
                f"{coder} has already coded this run, and the agreement of a model with itself is "
                "no evidence for its codes",
                hint="name another model, or let a human code the sample: --sheet FILE --blind",
            )
        )


def build_coding_study(run: RunFolder) -> Study[PostHocCodingConfig]:
    """Return a study type that codes the texts of this run."""

    async def run_coding(session: Session[PostHocCodingConfig]) -> None:
        for name, texts, sample in read_texts(run):
            selected_texts = [
                text_to_code
                for text_to_code in texts
                if text_to_code.id in sample or not session.config.sample
            ]
            # Use the codebook of the run's plan. The shipped file may have changed since the run.
            await session.seal(f"codebook {name}", sealed_codebook(run, name).to_json())
            await code_with_models(session, sealed_codebook(run, name), selected_texts, sample)

    return Study(
        "coding", "Coding of a finished run", PostHocCodingConfig, run_coding, tables=(CodeRow,)
    )


def read_texts(run: RunFolder) -> Iterator[tuple[str, list[TextToCode], frozenset[str]]]:
    """Yield, for each codebook, its name, its texts, and the ids of texts for a second coder."""
    table = run.read_table("texts")
    for name in table["codebook"].unique(maintain_order=True):
        rows = list(table.filter(codebook=name).iter_rows(named=True))
        sample = frozenset(row["text_id"] for row in rows if row["sampled"])
        yield name, [_text_from_row(row) for row in rows], sample


def _text_from_row(row: Mapping[str, Any]) -> TextToCode:
    about, slots = json.loads(row["about"] or "{}"), json.loads(row["slots"] or "{}")
    return TextToCode(row["text_id"], row["text"] or "", row["participant_id"], about, slots)


def verify_codings(run: RunFolder) -> Iterator[tuple[str, Verification]]:
    """Replay every coding of a run, and compare the coding with the stored results.

    Yields, for each coding, the folder and the result of the comparison.
    """
    try:
        coded = select_since_withdrawal(read_amendments(run.path), POST_HOC_CODING)
    except StorageError:
        # The verification of the run itself reports unreadable amendments.
        return
    yield from (verify_below(run, amendment, build_coding_study(run)) for amendment in coded)
