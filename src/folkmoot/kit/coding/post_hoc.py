"""Coding of a finished run: a run of its own in `RUN/codings/<coder>/`, with its own journal.

The run itself stays as it is, its journal and digest too; an amendment names the coding and the
digest of its journal, so that `folkmoot verify` tells it from a folder that somebody put there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from pydantic import Field

from folkmoot.engine.run.event_loop import Stopper
from folkmoot.engine.run.execution import RunOptions
from folkmoot.engine.run.runner import from_python, providers_of, run_study
from folkmoot.engine.run.verify import Verification, verify_run
from folkmoot.engine.session.folder_access import held_folder
from folkmoot.engine.session.session import Session
from folkmoot.engine.settings.config import StudyConfig
from folkmoot.engine.study.study import Study
from folkmoot.errors import InputError, Problem, StorageError
from folkmoot.kit.coding.coder import Text, coded_by_models, same_model
from folkmoot.kit.coding.results import AFTERWARDS, codebook_in, codings
from folkmoot.kit.coding.tables import CodeRow
from folkmoot.storage.amendments import Amendment, amend, amendments
from folkmoot.storage.run_folder import STUDY_FILE, RunFolder

FOLDER = "codings"
# How the run called models; a coding calls them alike.
KEPT = (
    *("endpoints", "concurrency", "max_api_retries", "api_retry_base_seconds"),
    *("api_sleep_seconds", "request_timeout_seconds", "max_reply_mb", "quota_wait_seconds"),
    *("random_seed", "local"),
)


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
    settings = {k: v for k, v in run.config.items() if k in KEPT}
    settings |= {"model": coder, "sample": sample}
    folder = run.path / FOLDER / re.sub(r"[^\w.-]+", "-", coder)
    found = from_python(study_of(run), settings, options)
    options.consent.require_sending(
        run.path / STUDY_FILE, found.config, providers_of(found, options)
    )
    done = run_study(found, replace(options, out=folder, resume=folder.exists()), stopper)
    with held_folder(run.path):
        made = {
            "folder": folder.relative_to(run.path).as_posix(),
            "journal_digest": done.manifest["journal_digest"],
        }
        amend(run.path, [Amendment(AFTERWARDS, coder, done.manifest["finished_at"], made)])
    return done


def refuse(run: RunFolder, coder: str) -> None:
    """Raise InputError where this coder cannot code this run."""
    if not run.finished:
        hint = "end it with --resume first"
        raise InputError(Problem(f"{run.path}: the run is not finished", hint=hint))
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
    for made in coded:
        name = str(made.data["folder"])
        folder = run.path / name
        if not folder.is_dir():
            yield name, Verification([f"{name} is gone."])
            continue
        found = verify_run(RunFolder(folder), study_of(run))
        if found.content_digest != made.data["journal_digest"]:
            found.differences.append(f"{name}: its journal has changed since it was amended.")
        yield name, found
