"""The pages of the reader: every address, and what stands on it.

`/run/NAME/-/…` is one run, where NAME may be `grid/cell`. Free text (ids, addresses) stands in the
query, so that it can hold any character.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from markupsafe import Markup
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import (
    FileResponse,
    HTMLResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route

from folkmoot.errors import StorageError
from folkmoot.report.front import question_of
from folkmoot.storage.amendments import AMENDMENTS
from folkmoot.storage.run_folder import (
    CODEBOOK,
    JOURNAL,
    LOG,
    LOG_LINES,
    MANIFEST,
    PLAN,
    STUDY_FILE,
    TABLES,
    RunFolder,
)
from folkmoot.view.overview import FINDINGS, Overviews
from folkmoot.view.shelf import Shelf, standing
from folkmoot.view.site import environment, page

EVERY = 1.0  # seconds between two looks at a run under way
REPORT = "report.html"
# A report has its style and drawings in itself, and no script.
REPORT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox"
TABS = (("Overview", ""),)
ENGINES_FILES = (
    *(STUDY_FILE, PLAN, MANIFEST, JOURNAL, CODEBOOK, AMENDMENTS, LOG, LOG_LINES),
    *(REPORT, "report.pdf"),
)


class Reader:
    """The pages over a shelf of runs."""

    def __init__(self, shelf: Shelf) -> None:
        self.shelf = shelf
        self.overviews = Overviews()

    def routes(self) -> list[Route]:
        """Address → page."""
        of_run: dict[str, Callable[[Request], object]] = {
            "": self.run,
            "live": self.live_run,
            "findings": self.findings,
            "report": self.report,
            "file": self.file,
        }
        return [
            Route("/", self.runs),
            Route("/live", self.live_runs),
            *(Route(f"/run/{{name:path}}/-/{path}", way) for path, way in of_run.items()),
        ]

    # --- all runs ------------------------------------------------------------------------------

    def runs(self, _request: Request) -> Response:
        if self.shelf.one:
            return RedirectResponse(_base(self.shelf.names()[0]) + "/", 303)
        found = {"runs": self.shelf.standings(), "root": str(self.shelf.root)}
        return page("runs.html.j2", found)

    async def live_runs(self, request: Request) -> Response:
        def drawn() -> str:
            return _rendered("_runs.html.j2", {"runs": self.shelf.standings()})

        return StreamingResponse(_moving(request, "runs", drawn), media_type="text/event-stream")

    # --- one run -------------------------------------------------------------------------------

    def run(self, request: Request) -> Response:
        run, shown = self._run(request, "")
        study = run.path / STUDY_FILE
        sealed, config = _tried(lambda: run.plan), _tried(lambda: run.config)
        parts = sealed.get("sealed", {})
        return page(
            "run.html.j2",
            {
                **shown,
                "title": config.get("pilot_name") or config.get("title") or question_of(config)
                or run.id,
                "study": study.read_text("utf-8", "replace") if study.is_file() else "",
                "started": str(sealed.get("started_at", ""))[:16].replace("T", " "),
                "sealed": [(name, part["hash"]) for name, part in parts.items()],
                "files": [(n, _size(run.path / n)) for n in downloads(run)],
            },
        )  # fmt: skip

    async def live_run(self, request: Request) -> Response:
        run, _ = await run_in_threadpool(self._run, request, "")

        def drawn() -> str:
            now = standing(run.path, request.path_params["name"])
            return _rendered("_progress.html.j2", {"r": now}) if now.running else ""

        moving = _moving(request, "progress", drawn)
        return StreamingResponse(moving, media_type="text/event-stream")

    async def findings(self, request: Request) -> Response:
        """The overview that takes its time, for a page that is there already."""
        run, shown = await run_in_threadpool(self._run, request, "")
        made = await self.overviews.of(run.path)
        content = (made / FINDINGS).read_text("utf-8")
        if request.headers.get("hx-request"):
            return HTMLResponse(content)
        return page("whole.html.j2", {**shown, "content": Markup(content)})

    async def report(self, request: Request) -> Response:
        run, _ = await run_in_threadpool(self._run, request, "")
        path = await self.overviews.of(run.path) / REPORT
        if not path.is_file():
            raise HTTPException(404, f"There is nothing to report of {run.id} yet.")
        return HTMLResponse(path.read_bytes(), headers={"Content-Security-Policy": REPORT_POLICY})

    def file(self, request: Request) -> Response:
        """A file of the run, to be saved: one of those that the run wrote, and no other."""
        run, _ = self._run(request, "")
        name = request.query_params.get("name", "")
        path = (run.path / name).resolve()
        inside = path.is_relative_to(run.path.resolve())
        if name not in downloads(run) or not inside or not path.is_file():
            raise HTTPException(404, f"There is no file {name} in {run.id}.")
        return FileResponse(path, filename=path.name, media_type="application/octet-stream")

    def _run(self, request: Request, tab: str) -> tuple[RunFolder, dict[str, object]]:
        """The run that an address names, and what every page of a run shows."""
        name = request.path_params["name"]
        run = self.shelf.run(name)
        now = standing(run.path, name)
        return run, {"run": run, "r": now, "name": name, "base": _base(name), "tab": tab,
                     "tabs": TABS, "mark": "SYNTHETIC" if now.synthetic else ""}  # fmt: skip


def downloads(run: RunFolder) -> list[str]:
    """The files of a run that may be saved: those that the engine or the study wrote. Whatever
    else lies in the folder is not for the page."""
    hashed = _tried(lambda: run.manifest).get("hashes", {})
    tables = [f"{TABLES}/{name}{kind}" for name in run.tables() for kind in (".csv", ".parquet")]
    names = dict.fromkeys((*ENGINES_FILES, *tables, *hashed))
    return [name for name in names if (run.path / name).is_file()]


def _tried(read: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What a file of the run holds; nothing where it can't be read, which its standing says."""
    try:
        return read()
    except (StorageError, ValueError, TypeError):
        return {}


def _base(name: str) -> str:
    return f"/run/{quote(name)}/-"


def _size(path: Path) -> str:
    size = float(path.stat().st_size)
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"


def _rendered(template: str, found: Mapping[str, object]) -> str:
    return environment().get_template(template).render(found)


async def _moving(request: Request, event: str, drawn: Callable[[], str]) -> AsyncIterator[str]:
    """Server-sent events: a drawing each time that it changes; `over` when there is none."""
    last = None
    while not await request.is_disconnected():
        now = await run_in_threadpool(drawn)
        if not now:
            yield "event: over\ndata: \n\n"
            return
        if now != last:
            lines = "".join(f"data: {line}\n" for line in now.splitlines())
            yield f"event: {event}\n{lines}\n"
            last = now
        await asyncio.sleep(EVERY)
