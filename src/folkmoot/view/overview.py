"""What a run found, its design as a drawing, its lights and its report: made once and cached.

They are made in a process of their own (`making.py`): figures of a large run take memory and
seconds that the server's pages should not wait for. The cache lies outside of the run folder.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from folkmoot.engine.session.folder_access import is_held
from folkmoot.errors import InputError
from folkmoot.report.document.front import question_of
from folkmoot.storage.amendments import AMENDMENTS_FILE
from folkmoot.storage.json_files import write_text
from folkmoot.storage.run_folder import MANIFEST, PLAN, TABLES, cache_folder
from folkmoot.view.people import file_stamp

FINDINGS = "findings.html"
MADE = "made"  # of what state of the run


def open_overview_cache(run: Path) -> Path:
    """The cache of a run (see `cache_folder`), made where it is not there yet."""
    folder = cache_folder(run)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def title_of(config: Mapping[str, object]) -> str:
    """What the page of a run is called: the study's name for itself, else its question."""
    return str(config.get("pilot_name") or config.get("title") or question_of(config))


class Overviews:
    """Makes what is not in the cache, one run at a time."""

    def __init__(self) -> None:
        self._one = asyncio.Lock()
        self._wanted: dict[Path, asyncio.Task[Path]] = {}

    async def overview_within(self, run: Path, seconds: float) -> Path | None:
        """What `get` gives, or None where it takes longer; it is made meanwhile, for who asks
        again. Raises InputError as `get` does."""
        task = self._wanted.get(run)
        if task is None:
            task = self._wanted[run] = asyncio.ensure_future(self.get(run))
            task.add_done_callback(_note_error)
        await asyncio.wait({task}, timeout=seconds)
        if not task.done():
            return None
        self._wanted.pop(run, None)  # the next one looks again whether the run has changed
        return task.result()

    async def get(self, run: Path) -> Path:
        """The folder in which `findings.html` and, where there is something to report,
        `report.html` lie. Raises InputError that says why they could not be made."""
        folder = open_overview_cache(run)
        async with self._one:
            made = folder / MADE
            while (state := _run_state(run)) != (
                made.read_text("utf-8") if made.exists() else None
            ):
                try:
                    await _make_overview(run, folder)
                except InputError:
                    if _run_state(run) == state:
                        raise
                else:  # where the run was written to meanwhile, it is made again
                    write_text(made, state)
        return folder


def _note_error(task: asyncio.Task[Path]) -> None:
    """Retrieve the error of a task, so that asyncio does not log it as never retrieved."""
    if not task.cancelled():
        task.exception()


async def _make_overview(run: Path, folder: Path) -> None:
    # -P: no module of the current folder, which a stranger may have sent.
    words = (sys.executable, "-P", "-m", "folkmoot.view.making", str(run.resolve()), str(folder))
    process = await asyncio.create_subprocess_exec(
        *words, stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    try:
        _, said = await process.communicate()
    except asyncio.CancelledError:
        process.kill()
        await process.wait()
        raise
    if process.returncode:
        last = said.decode("utf-8", "replace").strip().splitlines()[-1:]
        raise InputError(f"the findings could not be computed: {''.join(last)}")


def _run_state(run: Path) -> str:
    """What must be the same for a cached overview to be of the run as it is."""
    parts = [version("folkmoot"), "being written" if is_held(run) else ""]
    for name in (PLAN, MANIFEST, AMENDMENTS_FILE, TABLES):
        parts.append(f"{name} {file_stamp(run / name)}")
    return "\n".join(parts)
