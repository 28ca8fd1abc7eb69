"""Make and cache the overview of a run: findings, design, quality checks and report."""
# The overview of a large run takes seconds and much memory. A separate process makes it
# (`making.py`), so that the server does not wait. The cache is outside the run folder.

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from folkmoot.engine.session.folder_access import is_held
from folkmoot.errors import InputError
from folkmoot.report.document.front import question_of
from folkmoot.report.preregistration import title_of
from folkmoot.storage.amendments import AMENDMENTS_FILE
from folkmoot.storage.json_files import write_text
from folkmoot.storage.run_folder import MANIFEST, PLAN, TABLES, cache_folder
from folkmoot.view.people import file_stamp

FINDINGS = "findings.html"
# The folder of the cache with the charts as SVG and PNG files.
FIGURES = "figures"
# The file that records the state of the run that the cached overview shows.
MADE = "made"


def open_overview_cache(run: Path) -> Path:
    """Return the cache folder of a run. A missing folder is created."""
    folder = cache_folder(run)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def heading_of(config: Mapping[str, object]) -> str:
    """Return the title of a study as its report gives it, or the study's question."""
    return title_of(config) or question_of(config)


class Overviews:
    """The overviews of all runs, made when needed and one at a time."""

    def __init__(self) -> None:
        self._one = asyncio.Lock()
        self._tasks: dict[Path, asyncio.Task[Path]] = {}

    async def overview_within(self, run: Path, seconds: float) -> Path | None:
        """Wait for the overview of a run, and return the folder that holds the overview.

        Returns None if the overview is not ready after `seconds`.
        Raises InputError if the overview cannot be made.
        """
        # The work continues in the background, and a later call returns the result.
        task = self._tasks.get(run)
        if task is None:
            task = self._tasks[run] = asyncio.ensure_future(self.get(run))
            task.add_done_callback(_note_error)
        await asyncio.wait({task}, timeout=seconds)
        if not task.done():
            return None
        # The next call must check whether the run has changed.
        self._tasks.pop(run, None)
        return task.result()

    async def get(self, run: Path) -> Path:
        """Bring the overview of a run up to date, and return the folder that holds the overview.

        Raises InputError if the overview cannot be made.
        """
        # The folder holds `findings.html`, and `report.html` if there is something to report.
        folder = open_overview_cache(run)
        async with self._one:
            state_file = folder / MADE
            # A run may be written to while its overview is made. Then the overview is made again.
            while (state := _run_state(run)) != (
                state_file.read_text("utf-8") if state_file.exists() else None
            ):
                try:
                    await _make_overview(run, folder)
                except InputError:
                    if _run_state(run) == state:
                        raise
                else:
                    write_text(state_file, state)
        return folder


def _note_error(task: asyncio.Task[Path]) -> None:
    # Read the exception, so that asyncio does not log it as never retrieved.
    if not task.cancelled():
        task.exception()


async def _make_overview(run: Path, folder: Path) -> None:
    # With -P, Python imports no module from the current folder, where a downloaded study may have
    # put one.
    command = (sys.executable, "-P", "-m", "folkmoot.view.making", str(run.resolve()), str(folder))
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    try:
        _, error_output = await process.communicate()
    except asyncio.CancelledError:
        process.kill()
        await process.wait()
        raise
    if process.returncode:
        last_line = error_output.decode("utf-8", "replace").strip().splitlines()[-1:]
        raise InputError(f"the findings could not be computed: {''.join(last_line)}")


def _run_state(run: Path) -> str:
    # A cached overview is valid only for this state.
    parts = [version("folkmoot"), "being written" if is_held(run) else ""]
    for name in (PLAN, MANIFEST, AMENDMENTS_FILE, TABLES):
        parts.append(f"{name} {file_stamp(run / name)}")
    return "\n".join(parts)
