"""Coding of a finished run by a model: a run below it, in `RUN/codings/<coder>/`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import Field

from folkmoot.engine.run.event_loop import Stopper
from folkmoot.engine.run.execution import RunOptions
from folkmoot.engine.run.verify import Verification
from folkmoot.engine.session.session import Session
from folkmoot.engine.settings.config import StudyConfig
from folkmoot.engine.study.study import Study
from folkmoot.errors import InputError, Problem, StorageError
from folkmoot.kit.coding.coder import Text, coded_by_models, same_model
from folkmoot.kit.coding.results import AFTERWARDS, codebook_in, codings
from folkmoot.kit.coding.tables import CodeRow
from folkmoot.kit.run_below import (
    Below,
    calling_settings,
    require_finished,
    run_below,
    verify_below,
)
from folkmoot.storage.amendments import amendments
from folkmoot.storage.run_folder import RunFolder

FOLDER = "codings"


class AfterwardsConfig(StudyConfig):
    """The settings of a coding of a finished run. `sample`: only the sample of each codebook."""

    sample: bool = Field(False, description="code only the sample of each codebook")


def code_afterwards(
    run: RunFolder,
    coder: str,
    options: RunOptions,
    *,
    sample: bool = False,
    stopper: Stopper | None = None,
) -> RunFolder:
    """Let a model code the texts of a finished run, all or only the sample; resumes a coding that
    stopped. Raises InputError for an unfinished run, one without texts, and a coder who has
    coded it already; otherwise what `run_study` raises."""
    refuse(run, coder)
    settings = {**calling_settings(run), "model": coder, "sample": sample}
    name = re.sub(r"[^\w.-]+", "-", coder)
    below = Below(study_of(run), f"{FOLDER}/{name}", AFTERWARDS, coder)
    return run_below(run, below, settings, options, stopper)


def refuse(run: RunFolder, coder: str) -> None:
    """Raise InputError where this coder cannot code this run."""
    require_finished(run)
    read = codings(run)
    if not read:
        raise InputError(
            Problem(
                f"{run.path}: there are no texts to code",
                hint="only a study with codebooks records them; an older run must be run anew",
            )
        )
    names = {c.name for codebook in read.values() for c in codebook.coders if c.by != "rule"}
    if any(same_model(coder, name, run.config.get("endpoints", {})) for name in names):
        raise InputError(
            Problem(
                f"{coder} has coded this run already, and its agreement with itself would say "
                "nothing about the codes",
                hint="name another model, or let a person code the sample: --sheet FILE --blind",
            )
        )


def study_of(run: RunFolder) -> Study[AfterwardsConfig]:
    """The coding of this run as a study type."""

    async def protocol(session: Session[AfterwardsConfig]) -> None:
        for name, texts, sample in texts_of(run):
            wanted = [t for t in texts if t.id in sample or not session.config.sample]
            await session.seal(f"codebook {name}", codebook_in(run, name).to_json())
            await coded_by_models(session, codebook_in(run, name), wanted, sample)

    return Study(
        "coding", "Coding of a finished run", AfterwardsConfig, protocol, tables=(CodeRow,)
    )


def texts_of(run: RunFolder) -> Iterator[tuple[str, list[Text], frozenset[str]]]:
    """Codebook, its texts, and the ids of its sample, as the run recorded them."""
    table = run.table("texts")
    for name in table["codebook"].unique(maintain_order=True):
        rows = list(table.filter(codebook=name).iter_rows(named=True))
        sample = frozenset(r["text_id"] for r in rows if r["sampled"])
        yield name, [_text(r) for r in rows], sample


def _text(row: Mapping[str, Any]) -> Text:
    about, slots = json.loads(row["about"] or "{}"), json.loads(row["slots"] or "{}")
    return Text(row["text_id"], row["text"] or "", row["participant_id"], about, slots)


def verify_codings(run: RunFolder) -> Iterator[tuple[str, Verification]]:
    """Every coding that the amendments name, replayed and compared like a run."""
    try:
        coded = [a for a in amendments(run.path) if a.kind == AFTERWARDS]
    except StorageError:  # what is wrong with the amendments is told with the run
        return
    yield from (verify_below(run, made, study_of(run)) for made in coded)
