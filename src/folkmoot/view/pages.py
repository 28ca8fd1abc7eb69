"""The pages of the run viewer: every address and its content."""
# `/run/NAME/-/…` is one run, where NAME may be `grid/cell`. Ids and addresses of the run are in the
# query, so that they can contain any character.

from __future__ import annotations

import re
import secrets
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial, wraps
from inspect import iscoroutinefunction
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import Any
from urllib.parse import quote, urlencode
from zipfile import ZIP_DEFLATED, ZipFile

from markupsafe import Markup
from starlette.background import BackgroundTask
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

from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.engine.session.folder_access import is_held, open_run
from folkmoot.errors import FolkmootError, InputError, StorageError
from folkmoot.report.comparison.compare import compare_runs
from folkmoot.report.comparison.matrix import read_matrix
from folkmoot.report.document.style import svg_to_png
from folkmoot.report.document.trust import later_spending
from folkmoot.storage.run_folder import (
    CODEBOOK,
    ENGINE_FILES,
    PEOPLE,
    SEATS,
    STUDY_FILE_NAME,
    TABLES,
    RunFolder,
    RunSoFar,
)
from folkmoot.storage.table_buffer import ROWS
from folkmoot.view.overview import FIGURES, FINDINGS, Overviews, heading_of
from folkmoot.view.people import file_stamp, journal_of, names_in, table_of
from folkmoot.view.person import find_person
from folkmoot.view.rooms import find_rooms, in_room, room_columns
from folkmoot.view.run_list import (
    RunCollection,
    arrange_statuses,
    grid_names,
    read_run_status,
)
from folkmoot.view.search import (
    MAX_SPEAKERS,
    PER_PAGE,
    Searches,
    find_speakers,
    list_said_by,
)
from folkmoot.view.site import (
    UNREADABLE,
    Guard,
    LivePart,
    answer_poll,
    answer_unchanged,
    create_app,
    draw_live_part,
    is_loopback,
    is_shown,
    keep_if_unreadable,
    own_names,
    read_sent_number,
    render_page,
    serve_app,
    tag_of,
    template_environment,
)
from folkmoot.view.talk import base_of, build_call_view, replies_at

# A page waits this long for slow content. Then it is shown without it and asks again.
PATIENCE_SECONDS = 0.5
# In bytes. A larger archive is made on the disk.
MAX_ZIP_IN_MEMORY = 20_000_000
ZIP_CHUNK = 1 << 16
# Utterances shown before and after the one to which a link leads.
AROUND = 6
REPORT = "report.html"
# A report contains its styles and drawings and has no scripts. Its links save its drawings.
REPORT_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox allow-downloads"
)
TABS = (("Overview", ""), ("Participants", "people"), ("Rooms", "rooms"), ("Report", "report"))
# Colours of speakers, as in view.css. Leaders of a conversation have a separate colour.
COLOURS = 8
# Shapes of the marks of speakers, as in view.css.
SHAPES = 4
# A comparison reads the tables of all its runs.
MAX_COMPARED = 8
# Participants on a page.
STEP = 100
# Columns in the table of participants, unless the visitor asks for all.
FEW_COLUMNS = 10
# These files hold links and names of human participants.
NEVER_SHOWN = (SEATS, PEOPLE)


class Reader:
    """The request handlers of the run viewer for a folder of runs."""

    def __init__(self, runs: RunCollection) -> None:
        self.runs = runs
        self.overviews = Overviews()
        self.searches = Searches()

    def page_routes(self) -> list[Route]:
        """Return the routes of all pages."""
        pages_of_run: dict[str, Callable[[Request], object]] = {
            "": _retry_while_running(self.run),
            "live": keep_if_unreadable(self.live_run),
            "findings": self.findings_page,
            "report": self.report_page,
            "figure": self.download_figure,
            "file": _retry_while_running(self.download_run_file),
            "zip": _retry_while_running(self.download_zip),
            "people": _retry_while_running(self.people),
            "person": _retry_while_running(self.person_page),
            "rooms": _retry_while_running(self.rooms_page),
            "room": _retry_while_running(self.room_page),
            "room/live": keep_if_unreadable(self.live_room),
            "said": _retry_while_running(self.utterance_page),
            "call": _retry_while_running(self.call),
            "search": _retry_while_running(self.search_page),
        }
        return [
            Route("/", _retry_while_running(self.runs_page)),
            Route("/live", keep_if_unreadable(self.live_runs)),
            Route("/compare", _retry_while_running(self.compare_page)),
            Route("/grid/{grid}", _retry_while_running(self.grid_page)),
            Route("/beside", _retry_while_running(self.comparison_page)),
            Route("/search", _retry_while_running(self.search_all)),
            *(
                Route(f"/run/{{name:path}}/-/{path}", show_page)
                for path, show_page in pages_of_run.items()
            ),
        ]

    # --- all runs ------------------------------------------------------------------------------

    def runs_page(self, request: Request) -> Response:
        if self.runs.one:
            return RedirectResponse(_base_address(self.runs.run_names()[0]) + "/", 303)
        variables = {"root": str(self.runs.root), **self.describe_runs(request)}
        return render_page("runs.html.j2", variables)

    def describe_runs(self, request: Request) -> dict[str, object]:
        """Return the template variables of the page that lists the runs."""
        query, order = request.query_params.get("q", ""), request.query_params.get("sort", "")
        polled = urlencode({"q": query, "sort": order})
        return {
            "part": self._runs_part(request), "query": query, "sort": order,
            "live": f"/live?{polled}" if query or order else "/live",
            "grids": grid_names(self.runs.root),
        }  # fmt: skip

    def live_runs(self, request: Request) -> Response:
        """Return the table of runs for a page that updates itself."""
        # Empty if the page already shows the same table.
        return answer_poll(request, self._runs_part(request))

    def _runs_part(self, request: Request) -> LivePart:
        query, order = request.query_params.get("q", ""), request.query_params.get("sort", "")
        statuses = self.runs.list_statuses()
        runs = arrange_statuses(statuses, query, order)
        variables = {"runs": runs, "all": len(statuses), "query": query, "sort": order}
        return draw_live_part("_runs.html.j2", variables)

    def compare_page(self, request: Request) -> Response:
        """Show the comparison of the selected runs."""
        names = request.query_params.getlist("run")
        findings, problem = [], ""
        if 1 < len(names) <= MAX_COMPARED:
            try:
                findings = compare_runs([self.runs.run(name) for name in names])
            except FolkmootError as error:
                problem = str(error)
        else:
            problem = f"Select two to {MAX_COMPARED} runs in the list."
        bases = {name: _base_address(name) for name in names}
        variables = {"bases": bases, "findings": findings, "problem": problem}
        return render_page("compare.html.j2", variables)

    def grid_page(self, request: Request) -> Response:
        """Show the cells of a grid as a matrix."""
        # The query names the claim by which cells are compared.
        name = request.path_params["grid"]
        if name not in grid_names(self.runs.root):
            raise HTTPException(404, f"There is no grid {name} here.")
        matrix = read_matrix(self.runs.root / name, request.query_params.get("claim", ""))
        # Cells that have not started have no folder.
        statuses = {
            cell.cell.name: read_run_status(cell.folder, f"{name}/{cell.folder.name}")
            for _, cells in matrix.rows
            for cell in cells
            if cell.folder.is_dir()
        }
        return render_page("grid.html.j2", {"name": name, "g": matrix, "statuses": statuses})

    # --- one run -------------------------------------------------------------------------------

    def run(self, request: Request) -> Response:
        return render_page("run.html.j2", self.describe_run(request))

    def describe_run(self, request: Request) -> dict[str, object]:
        """Return the template variables of a run's first page."""
        run, context = self._resolve_run(request, "")
        study = run.path / STUDY_FILE_NAME
        sealed, config = _read_or_empty(lambda: run.plan), _read_or_empty(lambda: run.config)
        parts = sealed.get("sealed", {})
        return {
            **context,
            "part": _draw_progress(run, context),
            "title": heading_of(config) or run.id,
            "study": study.read_text("utf-8", "replace") if study.is_file() else "",
            "started": str(sealed.get("started_at", ""))[:16].replace("T", " "),
            "sealed": [(name, part["hash"]) for name, part in parts.items()],
            "files": _group_files(run),
        }

    def live_run(self, request: Request) -> Response:
        """Return the progress of a run for a page that updates itself."""
        # Empty if the page already shows the same progress.
        run, _ = self._resolve_run(request, "")
        status = read_run_status(run.path, request.path_params["name"])
        part = _draw_progress(run, {"r": status})
        return answer_poll(request, part, is_last=not status.running)

    async def findings_page(self, request: Request) -> Response:
        """Show the overview of a run, or a waiting page until the overview is made."""
        # The first page of a run loads the overview separately, because the computation takes
        # seconds.
        run, context = await run_in_threadpool(self._resolve_run, request, "")
        is_part = bool(request.headers.get("hx-request"))
        try:
            folder = await self.overviews.overview_within(run.path, PATIENCE_SECONDS)
            if folder is None:
                template = "_waiting.html.j2" if is_part else "waiting.html.j2"
                return render_page(template, {**context, "what": "the findings"})
            content = (folder / FINDINGS).read_text("utf-8")
        # The first page of the run stays usable, so the part shows the error.
        except InputError as error:
            content = str(Markup('<p class="alarm">{}</p>').format(error))
        if is_part:
            return HTMLResponse(content)
        return render_page("whole.html.j2", {**context, "content": Markup(content)})

    async def report_page(self, request: Request) -> Response:
        run, context = await run_in_threadpool(self._resolve_run, request, "report")
        if isinstance(run, RunSoFar) or not await run_in_threadpool(run.table_names):
            nothing_yet = Markup('<p class="lead">There is nothing to report yet.</p>')
            return render_page("whole.html.j2", {**context, "content": nothing_yet})
        folder = await self.overviews.overview_within(run.path, PATIENCE_SECONDS)
        if folder is None:
            return render_page("waiting.html.j2", {**context, "what": "the report"})
        path = folder / REPORT
        return HTMLResponse(path.read_bytes(), headers={"Content-Security-Policy": REPORT_POLICY})

    async def download_figure(self, request: Request) -> Response:
        """Send a chart of the report as an SVG or PNG file."""
        run, _ = await run_in_threadpool(self._resolve_run, request, "")
        name = request.query_params.get("name", "")
        figures = await self.overviews.get(run.path) / FIGURES
        # Only names of files in the folder are known, so no name can lead out of it.
        drawn = {path.name: path for path in figures.iterdir()} if figures.is_dir() else {}
        if name in drawn:
            return FileResponse(drawn[name], filename=name)
        svg = drawn.get(f"{name.removesuffix('.png')}.svg")
        if svg is None or not name.endswith(".png"):
            raise HTTPException(404, f"There is no figure {name} in {run.id}.")
        image = await run_in_threadpool(svg_to_png, svg.read_text("utf-8"))
        headers = {"Content-Disposition": f"attachment; filename*=utf-8''{quote(name)}"}
        return Response(image, media_type="image/png", headers=headers)

    def download_run_file(self, request: Request) -> Response:
        """Send a file of the run for download."""
        # Only files that the engine or the study type wrote are sent.
        run, _ = self._resolve_run(request, "")
        name = request.query_params.get("name", "")
        is_known = name in downloadable_files(run)
        path = (run.path / name).resolve() if is_known else run.path
        # A link in the folder must not give access to files outside of it.
        if not (path.is_file() and path.is_relative_to(run.path.resolve())):
            raise HTTPException(404, f"There is no file {name} in {run.id}.")
        return FileResponse(path, filename=path.name, media_type="application/octet-stream")

    def download_zip(self, request: Request) -> Response:
        """Send one archive with all files that may be downloaded."""
        run, _ = self._resolve_run(request, "")
        run_path = run.path.resolve()
        # The archive is closed by the background task, after the response was sent.
        archive = SpooledTemporaryFile(max_size=MAX_ZIP_IN_MEMORY)  # noqa: SIM115
        with ZipFile(archive, "w", ZIP_DEFLATED) as zip_file:
            for name in downloadable_files(run):
                if (run.path / name).resolve().is_relative_to(run_path):
                    zip_file.write(run.path / name, f"{run.path.name}/{name}")
        archive.seek(0)
        file_name = quote(f"{run.path.name}.zip", errors="replace")
        return StreamingResponse(
            iter(partial(archive.read, ZIP_CHUNK), b""),
            media_type="application/zip",
            headers={"Content-Disposition": f"attachment; filename*=UTF-8''{file_name}"},
            background=BackgroundTask(archive.close),
        )

    # --- who took part, and what was said -----------------------------------------------------

    def people(self, request: Request) -> Response:
        run, context = self._resolve_run(request, "people")
        parameters = request.query_params
        query, sort = parameters.get("q", ""), parameters.get("sort", "")
        page = table_of(run, query, sort, read_sent_number(parameters.get("start")) or 0, STEP)
        shows_all = "wide" in parameters
        columns = page.columns if shows_all else page.columns[:FEW_COLUMNS]
        rows = [(key, [row[column] for column in columns]) for key, row in page.rows]
        hidden_count = 0 if shows_all else len(page.columns) - len(columns)
        return render_page(
            "people.html.j2",
            {
                **context,
                "query": query,
                "sort": sort,
                "by": sort.removeprefix("-"),
                "down": sort.startswith("-"),
                "columns": columns,
                "rows": rows,
                "more": hidden_count,
                "total": page.total,
                "all": page.all,
                "people": page.people,
                "all_people": page.all_people,
                "levels": page.levels,
                "step": STEP,
                "others": page.others,
                "unknown": page.unknown,
                "start": read_sent_number(parameters.get("start")) or 0,
                "wide": "&wide=1" if shows_all else "",
            },
        )

    def person_page(self, request: Request) -> Response:
        run, context = self._resolve_run(request, "people")
        person = find_person(run, request.query_params.get("id", ""))
        return render_page(
            "person.html.j2", {**context, "p": person, "others": self.runs.run_names()}
        )

    def comparison_page(self, request: Request) -> Response:
        """Show two participants, or one participant in two runs, side by side."""
        parameters = request.query_params
        sides = [
            {
                "run": name,
                "base": _base_address(name),
                "p": find_person(self.runs.run(name), person_key),
            }
            for name, person_key in (
                (parameters.get("a", ""), parameters.get("x", "")),
                (parameters.get("b", ""), parameters.get("y", "")),
            )
        ]
        return render_page("beside.html.j2", {"sides": sides})

    def rooms_page(self, request: Request) -> Response:
        run, context = self._resolve_run(request, "rooms")
        columns = room_columns(run)
        rooms = find_rooms(run, columns) if columns else []
        empty_text = (
            "Each participant of this study talks alone with a moderator: see the participants."
        )
        if isinstance(run, RunSoFar):
            empty_text = "Nothing has been said in a room yet, or this study has none."
        return render_page(
            "rooms.html.j2", {**context, "columns": columns, "rooms": rooms, "empty": empty_text}
        )

    def room_page(self, request: Request) -> Response:
        run, context = self._resolve_run(request, "rooms")
        # The tag is read before the content, so it is never newer than the content.
        tag = _tag_of_room(run)
        return render_page("room.html.j2", {**context, **_room_content(run, request), "tag": tag})

    def live_room(self, request: Request) -> Response:
        """Return the utterances of a conversation for a page that updates itself."""
        # Empty if the page already shows all utterances.
        run, context = self._resolve_run(request, "rooms")
        # This is read before the run is opened, so the last poll shows the complete conversation.
        is_last = not is_held(run.path)
        current_run = open_run(run.path)
        try:
            tag = _tag_of_room(current_run)
            if is_shown(request, tag) and not is_last:
                return answer_unchanged(tag)
            room_context = {**context, **_room_content(current_run, request)}
        # The run may be changing a file. The next poll reads it.
        except HTTPException:
            return Response(status_code=204)
        html = template_environment().get_template("_room.html.j2").render(room_context)
        return answer_poll(request, LivePart(Markup(html), tag), is_last=is_last)

    def utterance_page(self, request: Request) -> Response:
        """Show the utterance at an address."""
        run, context = self._resolve_run(request, "said")
        address = request.query_params.get("at", "")
        with _open_journal(run) as journal:
            call = build_call_view(run, journal, address)
            if call is None:
                raise HTTPException(404, f"Nothing was asked at {address} in {run.id}.")
            scope = call.address.rpartition("/")[0]
            scope_addresses = journal.addresses_in_scope(scope) if scope else [call.address]
            neighbours = replies_at(
                run,
                journal,
                [address for address in scope_addresses if base_of(address) == address],
            )
        call_index = next(
            index for index, reply in enumerate(neighbours) if reply.address == call.address
        )
        neighbours = neighbours[max(0, call_index - AROUND) : call_index + AROUND + 1]
        return render_page("said.html.j2", {**context, "call": call, "around": neighbours})

    def call(self, request: Request) -> Response:
        """Show everything about one call, from the prompt to the cost."""
        run, context = self._resolve_run(request, "")
        with _open_journal(run) as journal:
            call = build_call_view(run, journal, request.query_params.get("at", ""))
        if call is None:
            raise HTTPException(404, "Nothing was asked there.")
        return render_page("_call.html.j2", {**context, "call": call})

    def search_page(self, request: Request) -> Response:
        run, context = self._resolve_run(request, "search")
        query, start = (
            request.query_params.get("q", ""),
            read_sent_number(request.query_params.get("start")) or 0,
        )
        speaker_id = request.query_params.get("by", "")
        results = (
            list_said_by(run, speaker_id, start)
            if speaker_id
            else self.searches.find_replies(run, query, start)
        )
        speakers = [] if speaker_id or start else find_speakers(run, query)
        return render_page(
            "search.html.j2",
            {**context, "find": query, "found": results, "start": start, "step": PER_PAGE,
             "by": speaker_id, "speakers": speakers[:MAX_SPEAKERS],
             "more_speakers": len(speakers) - MAX_SPEAKERS},
        )  # fmt: skip

    def search_all(self, request: Request) -> Response:
        """Search all runs until the time limit."""
        query, start = (
            request.query_params.get("q", ""),
            read_sent_number(request.query_params.get("start")) or 0,
        )
        names = self.runs.run_names()
        opened_later = [(name, partial(self.runs.run, name)) for name in names[start:]]
        found, searched_count = self.searches.find_in_runs(
            opened_later if query.strip() else (), query
        )
        bases = {in_run.run: _base_address(in_run.run) for in_run in found}
        return render_page(
            "search_all.html.j2",
            {"find": query, "found": found, "bases": bases, "start": start, "all": len(names),
             "upto": start + searched_count if query.strip() else len(names)},
        )  # fmt: skip

    def _resolve_run(self, request: Request, tab: str) -> tuple[RunFolder, dict[str, object]]:
        # The second result holds the template variables that all pages of the run need.
        name = request.path_params["name"]
        run = self.runs.run(name)
        status = read_run_status(run.path, name)
        return run, {"run": run, "r": status, "name": name, "base": _base_address(name), "tab": tab,
                     "tabs": TABS, "mark": status.mark}  # fmt: skip


def downloadable_files(run: RunFolder) -> list[str]:
    """Return the names of the files that the engine or the study type wrote."""
    # Other files in the folder may be private and cannot be downloaded.
    hashes = _read_or_empty(lambda: run.manifest).get("hashes", {})
    tables = [
        f"{TABLES}/{name}{suffix}" for name in run.table_names() for suffix in (".csv", ".parquet")
    ]
    names = dict.fromkeys((*ENGINE_FILES, *tables, *hashes))
    return [name for name in names if name not in NEVER_SHOWN and (run.path / name).is_file()]


def _draw_progress(run: RunFolder, context: Mapping[str, object]) -> LivePart:
    # The sums of a run leave out its controls and codings, which may cost more than the run.
    return draw_live_part("_progress.html.j2", {**context, "later": later_spending(run)})


def _group_files(run: RunFolder) -> list[tuple[str, list[tuple[str, str]]]]:
    groups: dict[str, list[tuple[str, str]]] = {
        "Results": [],
        "Tables": [],
        "Record of the run": [],
    }
    for name in downloadable_files(run):
        is_report = name.startswith("report.")
        is_record = name in ENGINE_FILES and not is_report and name != CODEBOOK
        is_table = name.startswith(f"{TABLES}/") or name == CODEBOOK
        title = "Record of the run" if is_record else "Tables" if is_table else "Results"
        groups[title].append((name, _format_size(run.path / name)))
    return [(title, files) for title, files in groups.items() if files]


def _open_journal(run: RunFolder) -> JournalReader:
    journal = journal_of(run)
    if journal is None:
        raise HTTPException(404, f"{run.id} has no journal: nothing has been asked yet.")
    return journal


def _retry_while_running(show_page: Callable[[Request], object]) -> Callable[[Request], object]:
    # The run may be replacing a file during the first call.
    if iscoroutinefunction(show_page):
        return show_page

    @wraps(show_page)
    def answer_request(request: Request) -> object:
        try:
            return show_page(request)
        except UNREADABLE:
            return show_page(request)

    return answer_request


def _room_content(run: RunFolder, request: Request) -> dict[str, object]:
    key, shows_private = request.query_params.getlist("id"), "private" in request.query_params
    columns = room_columns(run)
    if len(key) != len(columns) or not key:
        raise HTTPException(404, f"There is no such room in {run.id}.")
    with _open_journal(run) as journal:
        lines = in_room(run, journal, columns, key, names_in(run, key))
    public_lines = [line for line in lines if not line.private]
    if not lines:
        raise HTTPException(404, f"There is no room {' · '.join(key)} in {run.id}.")
    turns = Counter(line.speaker_id for line in public_lines)
    speakers = {line.speaker_id: line.speaker for line in (*public_lines, *lines)}
    leaders = {line.speaker_id for line in lines if line.leads}
    other_speakers = (speaker for speaker in speakers if speaker not in leaders)
    colours: dict[str, object] = dict.fromkeys(leaders, "lead")
    numbers = {speaker: number for number, speaker in enumerate(other_speakers)}
    colours |= {speaker: number % COLOURS for speaker, number in numbers.items()}
    return {
        "key": key,
        "lines": lines if shows_private else public_lines,
        "heard": len(public_lines),
        "so_far": isinstance(run, RunSoFar),
        "private": shows_private,
        "thoughts": len(lines) - len(public_lines),
        "seats": [
            (speaker, speakers[speaker], turn_count) for speaker, turn_count in turns.items()
        ],
        "colours": colours,
        # With the colour, the shape tells as many speakers apart as there are pairs of both.
        "shapes": {who: number // COLOURS % SHAPES for who, number in numbers.items()},
        "initials": {who: _initials_of(name) for who, name in speakers.items()},
        "here": urlencode([("id", part) for part in key]),
    }


def _initials_of(name: str) -> str:
    # If the last word ends in a number, as in "P2", return its last three digits.
    # The id of a participant in parentheses does not belong to the name.
    words = name.partition(" (")[0].replace("_", " ").split() or ["?"]
    if number := re.search(r"[0-9]+$", words[-1]):
        return number[0].lstrip("0")[-3:] or "0"
    return "".join(word[0].upper() for word in dict.fromkeys((words[0], words[-1])))


def _read_or_empty(read: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    # The state of the run already reports unreadable files.
    try:
        return read()
    except (StorageError, ValueError, TypeError):
        return {}


def _base_address(name: str) -> str:
    return f"/run/{quote(name, errors='replace')}/-"


def _format_size(path: Path) -> str:
    size = float(path.stat().st_size)
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"


def _tag_of_room(run: RunFolder) -> str:
    with _open_journal(run) as journal:
        row = journal.last_row()
    row_stamps = [file_stamp(run.path / f"{ROWS}{suffix}") for suffix in ("", "-wal")]
    return tag_of(row, *row_stamps, isinstance(run, RunSoFar))


def serve_reader(
    folder: Path, host: str, port: int, *, token: bool, tell: Callable[[str], None]
) -> None:
    """Serve the runs of a folder.

    - `tell`: called with the address to open.

    Raises InputError if there is no such folder or the address is not available.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; name the one that holds your runs")
    # Other machines can reach an address that is not loopback, so the pages then need a token.
    secret = secrets.token_urlsafe(24) if token or not is_loopback(host) else ""
    guard = Guard(own_names(host), secret)
    serve_app(
        create_app(Reader(RunCollection(folder)).page_routes(), guard), host, port, secret, tell
    )
