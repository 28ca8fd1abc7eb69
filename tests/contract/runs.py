"""Run a small study, also with random latencies or a crash, and compare two runs by digests."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import folkmoot
from folkmoot.models.request import Completion, ModelRequest
from folkmoot.models.scripted import ScriptedProvider
from folkmoot.randomness import uniform_values
from tests.contract.small import people_of, small_study
from tests.turns import yield_to_loop

SerialRun = Callable[[str], folkmoot.Run]  # the fixture `serial_run`


class Crash(Exception):
    """Represents any error that ends a process in the middle of a run."""


def make_respondent(
    study: str, jitter: int | None = None, die_after: int | None = None
) -> ScriptedProvider:
    """Return the embedded respondent, optionally with random latencies or with a crash.

    `jitter` is the seed of the latencies. `die_after` is the number of calls before the crash.
    """
    inner = people_of(study)
    answered = 0

    async def answer(request: ModelRequest, address: str) -> Completion:
        nonlocal answered
        answered += 1
        if die_after is not None and answered > die_after:
            raise Crash
        if jitter is not None:
            await yield_to_loop(int(30 * uniform_values(jitter, address)))
        return await inner.complete_request(request, address=address)

    return ScriptedProvider(answer)


def digest(run: folkmoot.Run) -> tuple[str, str]:
    """Return the digest of the journal and a hash over all tables."""
    tables = hashlib.sha256()
    for path in sorted((run.path / "tables").iterdir()):
        tables.update(path.name.encode() + path.read_bytes())
    return run.folder.manifest["journal_digest"], tables.hexdigest()


def play(study: str, folder: Path, **options: Any) -> folkmoot.Run:
    source = small_study(study, folder.parent)
    return folkmoot.run(source, out=folder, **options)
