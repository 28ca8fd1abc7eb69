"""The pages of the studio: every address, and what it does.

`/study/NAME/-/…` is one study, where NAME is the path of its file. All pages of the reader are here
too; the first page of a run has controls. What is sent holds the token of the studio's forms, since
a page of another server on this machine counts as the same site to a browser.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import ChoiceLoader, Environment, FileSystemLoader
from markupsafe import Markup, escape
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from folkmoot.engine.settings.yaml_tree import parse_yaml
from folkmoot.engine.study.consent import Consent
from folkmoot.engine.study.study import Study, find_study, load_installed_studies
from folkmoot.engine.study.study_file import load_study_file
from folkmoot.errors import FolkmootError, InputError, Problem
from folkmoot.files import write_bytes
from folkmoot.models.catalog import KNOWN_MODELS, SYNTHETIC_MODEL
from folkmoot.randomness import digest
from folkmoot.storage.run_folder import PLAN
from folkmoot.studio.fields import (
    change_rows,
    make_form,
    place_problems,
    read_form,
    walk_fields,
)
from folkmoot.studio.processes import Keys, Processes, run_words
from folkmoot.studio.projects import Projects, own_prompt_path, plain_name
from folkmoot.studio.study_text import change_values
from folkmoot.view.pages import Reader
from folkmoot.view.run_list import Shelf, run_standing
from folkmoot.view.site import (
    LivePart,
    answer_poll,
    draw_live_part,
    keep_if_unreadable,
    tag_of,
)
from folkmoot.view.site import template_environment as reader_environment

HERE = Path(__file__).parent
FORM_TOKEN = "form_token"
MAX_FIELDS = 20_000
TRY_BUDGET = "0.50"  # US dollars
RUN_BUDGET = "5"
TRIED = 3  # participants
PROMPTS = "prompts"  # the folder of prompts of a study that names none
Answer = Callable[[Request], Awaitable[Response]]
Receiver = Callable[[Request, FormData], Awaitable[Response]]  # of a form that was sent


class Studio:
    """The pages over a folder of studies. `form_token` is a part of every form."""

    def __init__(self, root: Path) -> None:
        self.projects = Projects(root)
        self.keys = Keys()
        self.processes = Processes(self.projects.root, self.projects.outputs, self.keys)
        self.projects.outputs.mkdir(parents=True, exist_ok=True)
        self.shelf = Shelf(self.projects.outputs)
        self.reader = Reader(self.shelf)
        self.form_token = secrets.token_urlsafe(24)

    def routes(self) -> list[BaseRoute]:
        """Address → page. Those of the reader come last, so that the studio's own go first."""
        of_study: dict[str, tuple[Callable[[Request], object], Receiver | None]] = {
            "": (self.study, self.save),
            "text": (self.text, self.save_text),
            "estimate": (self.estimate, None),
            "file": (self.file, None),
            "prompts": (self.prompts, self.save_prompt),
            "upload": (self.study, self.upload),
            "run": (self.ask_budget, self.run),
            "try": (self.study, self.try_study),
        }
        of_run: dict[str, Receiver] = {"pause": self.pause, "resume": self.resume}
        reading = [
            Route("/", self.home),
            Route("/keys", self.key_page),
            Route("/starting/{name}", self.starting),
            Route("/run/{name:path}/-/", self.run_page),
            Route("/run/{name:path}/-/controls", keep_if_unreadable(self.live_controls)),
            *(Route(f"/study/{{name:path}}/-/{part}", get) for part, (get, _) in of_study.items()),
        ]
        sent: dict[str, Receiver] = {
            "/new": self.add_new,
            "/open": self.open_file,
            "/keys": self.enter_key,
        }
        sent |= {
            f"/study/{{name:path}}/-/{part}": post for part, (_, post) in of_study.items() if post
        }
        sent |= {f"/run/{{name:path}}/-/{part}": post for part, post in of_run.items()}
        writing = [
            Route(part, self._guarded(post), methods=["POST"]) for part, post in sent.items()
        ]
        static = StaticFiles(directory=HERE / "static")
        return [
            *writing,
            *(_reading_only(route) for route in reading),
            Mount("/studio", static),
            *self.reader.page_routes(),
        ]

    # --- all studies ---------------------------------------------------------------------------

    def home(self, _request: Request) -> Response:
        """Studies, a new one, and the runs."""
        return self._home([])

    def _home(self, problems: Sequence[Problem]) -> Response:
        types = load_installed_studies()[0]
        runs = draw_live_part("_runs.html.j2", {"runs": self.shelf.list_standings()})
        names = self.projects.names()
        shown = {"names": names, "types": types, "part": runs, "problems": problems}
        return self._page("studio.html.j2", shown, 422 if problems else 200)

    async def add_new(self, _request: Request, form: FormData) -> Response:
        """Make a new study from the template of its type."""
        kind, name = _text_of(form, "kind"), _text_of(form, "name")
        try:
            made = await run_in_threadpool(self.projects.add_new, kind, name or kind)
        except InputError as error:
            return await run_in_threadpool(self._home, error.problems)
        return RedirectResponse(_study_address(made), 303)

    async def open_file(self, _request: Request, form: FormData) -> Response:
        """Keep an existing study file, and open it."""
        try:
            file, content = await _upload_of(form)
            made = await run_in_threadpool(self.projects.add_file, file, content)
        except InputError as error:
            return await run_in_threadpool(self._home, error.problems)
        return RedirectResponse(_study_address(made), 303)

    # --- one study -----------------------------------------------------------------------------

    def study(self, request: Request) -> Response:
        """The form of a study file, or what a file of another kind offers."""
        name = request.path_params["name"]
        path = self.projects.path(name)
        return self._study(name, path, [])

    def _study(self, name: str, path: Path, more: Sequence[Problem]) -> Response:
        shown = self._describe(name, path)
        if more:
            shown["rest"] = [*more, *shown["rest"]]
        return self._page("study.html.j2", shown)

    def _describe(self, name: str, path: Path) -> dict[str, Any]:
        """What the page of a study shows: its form, its mistakes, the files beside it."""
        text, study, values = _read_study(path)
        sections = make_form(study, values) if study is not None and text is not None else ()
        problems = _check(path)
        placed, rest = place_problems(sections, problems)
        beside = sorted(p.name for p in path.parent.iterdir() if p.is_file() and p != path)
        return {
            "name": name, "base": _study_base(name), "study": study, "sections": sections,
            "is_text": text is not None, "placed": placed, "rest": rest,
            "is_right": not problems, "version": _version(path), "beside": beside,
            "fields": [field for part in sections for field in walk_fields(part.fields)], "tab": "",
            "models": [SYNTHETIC_MODEL, *KNOWN_MODELS], "try_budget": TRY_BUDGET, "tried": TRIED,
        }  # fmt: skip

    async def save(self, request: Request, form: FormData) -> Response:
        """Put the form into the study file, and check it."""
        name = request.path_params["name"]
        path = self.projects.path(name)
        return await run_in_threadpool(self._save, request, name, path, form)

    def _save(self, request: Request, name: str, path: Path, form: FormData) -> Response:
        is_part = bool(request.headers.get("hx-request"))
        action = _text_of(form, "action")
        problems: list[Problem] = []
        if _text_of(form, "version") != _version(path):
            hint = "reload this page, and enter the last change again"
            problems.append(Problem("the file was changed elsewhere meanwhile", hint=hint))
        else:
            text, study, values = _read_study(path)
            if text is not None and study is not None:
                sent = {
                    key: value.replace("\r\n", "\n")
                    for key, value in form.items()
                    if isinstance(value, str)
                }
                sections = make_form(study, values)
                wanted, problems = read_form(sections, values, sent)
                if action:
                    wanted = change_rows(make_form(study, wanted), wanted, action)
                if wanted != values:
                    write_bytes(path, change_values(text, wanted).encode())
        shown = self._describe(name, path)
        placed, rest = place_problems(shown["sections"], problems)
        shown["placed"] = {**shown["placed"], **placed}
        shown["rest"] = [*rest, *shown["rest"]]
        if not is_part:
            return self._page("study.html.j2", shown)
        return self._page("_form_and_status.html.j2" if action else "_saved.html.j2", shown)

    async def estimate(self, request: Request) -> Response:
        """What `folkmoot check` says: calls, cost and time."""
        path = await run_in_threadpool(self.projects.path, request.path_params["name"])
        told = await self.processes.check(path)
        return self._page("_estimate.html.j2", {"told": told})

    def text(self, request: Request) -> Response:
        """The study file as text, to be edited as such."""
        name = request.path_params["name"]
        return self._text(name, self.projects.path(name), None)

    def _text(self, name: str, path: Path, given: str | None) -> Response:
        if given is None and _is_own_kind(path):
            raise HTTPException(404, f"{name} is a workbook: edit it in a spreadsheet program.")
        text = path.read_text("utf-8", "replace") if given is None else given
        shown = {"name": name, "base": _study_base(name), "text": text, "tab": "text",
                 "problems": _check(path), "version": _version(path)}  # fmt: skip
        return self._page("study_text.html.j2", shown)

    async def save_text(self, request: Request, form: FormData) -> Response:
        """Write the study file as it was edited."""
        name = request.path_params["name"]
        path = await run_in_threadpool(self.projects.path, name)
        if _text_of(form, "version") == _version(path) and not _is_own_kind(path):
            text = str(form.get("text", "")).replace("\r\n", "\n")
            await run_in_threadpool(write_bytes, path, text.encode())
            return RedirectResponse(f"{_study_base(name)}/text", 303)
        raise HTTPException(409, f"{name} was changed elsewhere meanwhile. Open it once more.")

    def file(self, request: Request) -> Response:
        """The study file, or one beside it, to be saved."""
        path = self.projects.path(request.path_params["name"])
        beside = request.query_params.get("beside", "")
        if beside:
            path = next((path for path in path.parent.iterdir() if path.name == beside), path)
            if path.name != beside or not path.is_file() or path.is_symlink():
                raise HTTPException(404, f"There is no file {beside} beside the study.")
        return FileResponse(path, filename=path.name, media_type="application/octet-stream")

    async def upload(self, request: Request, form: FormData) -> Response:
        """Keep a file beside the study file: people, groups, a picture, or a new workbook."""
        name = request.path_params["name"]
        path = await run_in_threadpool(self.projects.path, name)
        try:
            file, content = await _upload_of(form)
            target = path.parent / plain_name(file)
            if target.suffix == ".py" or (target != path and target.name == path.name):
                raise InputError(Problem("is not taken here", file, hint="copy it by hand"))
            if _is_own_kind(path) and target.suffix.lower() == path.suffix.lower():
                target = path  # the workbook after it was edited
            await run_in_threadpool(write_bytes, target, content)
        except InputError as error:
            return await run_in_threadpool(self._study, name, path, error.problems)
        return RedirectResponse(_study_address(name), 303)

    # --- prompts -------------------------------------------------------------------------------

    def prompts(self, request: Request) -> Response:
        """All prompts of a study; one of them to be edited, beside the first prompts as sent."""
        name = request.path_params["name"]
        path = self.projects.path(name)
        return self._prompts(name, path, request.query_params.get("prompt", ""), [])

    def _prompts(self, name: str, path: Path, prompt: str, problems: Sequence[Problem]) -> Response:
        found = load_study_file(path)
        library = found.prompt_library()
        prompt = prompt or next(iter(library.prompt_files), "")
        if prompt not in library.prompt_files:
            raise HTTPException(404, f"There is no prompt {prompt}.")
        own = [
            name
            for name, file in library.prompt_files.items()
            if file != library.default_prompts[name]
        ]
        previews, why = [], ""
        try:
            if found.study.preview is not None:
                previews = found.study.preview(found.config, library)[:6]
        except FolkmootError as error:
            why = str(error)
        shown = {
            "name": name, "base": _study_base(name), "prompt": prompt, "tab": "prompts",
            "all": list(library.prompt_files), "own": own, "text": library.source_texts()[prompt],
            "variables": sorted(library.variables_of(prompt)), "previews": previews, "why": why,
            "problems": problems,
        }  # fmt: skip
        return self._page("prompts.html.j2", shown)

    async def save_prompt(self, request: Request, form: FormData) -> Response:
        """Write a prompt of the user's own, or go back to the shipped one."""
        name, prompt = request.path_params["name"], _text_of(form, "prompt")
        path = await run_in_threadpool(self.projects.path, name)
        text = str(form.get("text", "")).replace("\r\n", "\n")
        problems = await run_in_threadpool(
            self._save_prompt, path, prompt, text, _text_of(form, "action")
        )
        if problems:
            return await run_in_threadpool(self._prompts, name, path, prompt, problems)
        return RedirectResponse(f"{_study_base(name)}/prompts?prompt={quote(prompt, safe='')}", 303)

    def _save_prompt(self, path: Path, prompt: str, text: str, action: str) -> list[Problem]:
        found = load_study_file(path)
        target = own_prompt_path(found.study, prompt, path.parent, found.config.prompts or PROMPTS)
        before = target.read_bytes() if target.is_file() else None
        if action == "restore":
            target.unlink(missing_ok=True)
            return []
        write_bytes(target, text.encode())
        if not found.config.prompts and not _is_own_kind(path):
            study_text, _, values = _read_study(path)
            wanted = {**values, "prompts": PROMPTS}
            write_bytes(path, change_values(str(study_text), wanted).encode())
        problems = [problem for problem in _check(path) if Path(problem.file) == target]
        if problems:  # a study with a broken prompt could not be opened here again
            if before is None:
                target.unlink()
            else:
                write_bytes(target, before)
        return problems

    # --- runs ----------------------------------------------------------------------------------

    def ask_budget(self, request: Request) -> Response:
        """What a run may cost is asked before it starts."""
        name = request.path_params["name"]
        return self._ask_budget(name, self.projects.path(name), "")

    def _ask_budget(self, name: str, path: Path, problem: str) -> Response:
        try:
            config, problems = load_study_file(path).config, []
        except InputError as error:
            config, problems = None, error.problems
        budget = f"{config.budget_usd:g}" if config is not None and config.budget_usd else ""
        shown = {
            "name": name, "base": _study_base(name), "tab": "run", "problems": problems,
            "budget": budget or RUN_BUDGET, "problem": problem,
            "models": [SYNTHETIC_MODEL, *KNOWN_MODELS],
            "model": (config.model or "") if config is not None else "",
        }  # fmt: skip
        return self._page("budget.html.j2", shown, 422 if problem else 200)

    async def run(self, request: Request, form: FormData) -> Response:
        """Start a run in a process apart, and lead to it."""
        name, budget = request.path_params["name"], _text_of(form, "budget")
        path = await run_in_threadpool(self.projects.path, name)
        if not _is_amount(budget):
            problem = "Enter the most that the run may cost, in US dollars."
            return await run_in_threadpool(self._ask_budget, name, path, problem)
        return await run_in_threadpool(
            self._start, name, path, {"--budget": budget, "--model": _text_of(form, "model")}, ""
        )

    async def try_study(self, request: Request, form: FormData) -> Response:
        """Run a study with three participants, which leads to their transcripts."""
        name, budget = request.path_params["name"], _text_of(form, "budget")
        path = await run_in_threadpool(self.projects.path, name)
        if not _is_amount(budget):
            budget = TRY_BUDGET
        settings = {"--limit": str(TRIED), "--budget": budget, "--model": _text_of(form, "model")}
        return await run_in_threadpool(self._start, name, path, settings, "try_")

    def _start(self, name: str, path: Path, settings: Mapping[str, str], before: str) -> Response:
        run = self.projects.new_run(before + self.projects.run_stem(name))
        self.processes.start(run, run_words(str(path), settings))
        return RedirectResponse(f"/starting/{quote(run.name)}", 303)

    def starting(self, request: Request) -> Response:
        """Leads to a run as soon as its folder is there; else tells what the process said."""
        name = request.path_params["name"]
        run = self.projects.outputs / plain_name(name)
        if (run / PLAN).is_file():
            address = _run_address(name)
            if request.headers.get("hx-request"):
                return Response(headers={"HX-Redirect": address})
            return RedirectResponse(address, 303)
        told = self.processes.messages_of(run)
        part = "_starting.html.j2" if request.headers.get("hx-request") else "starting.html.j2"
        return self._page(part, {"run_name": name, "told": told})

    def run_page(self, request: Request) -> Response:
        """The first page of a run, with its controls."""
        shown = self.reader.describe_run(request)
        return self._page("studio_run.html.j2", {**shown, "controls": self._controls(request)})

    def live_controls(self, request: Request) -> Response:
        """The controls of a run, where its state has changed."""
        return answer_poll(request, self._controls(request))

    def _controls(self, request: Request) -> LivePart:
        name = request.path_params["name"]
        run = self.shelf.run(name)
        told = self.processes.messages_of(run.path)
        shown = {"r": run_standing(run.path, name), "base": _run_address(name).rstrip("/"),
                 "form_token": self.form_token, "told": told}  # fmt: skip
        return _render_part("_controls.html.j2", shown)

    async def pause(self, request: Request, _form: FormData) -> Response:
        """Stop a run so that it can be resumed."""
        name = request.path_params["name"]
        run = await run_in_threadpool(self.shelf.run, name)
        await run_in_threadpool(self.processes.pause, run.path)
        return RedirectResponse(_run_address(name), 303)

    async def resume(self, request: Request, form: FormData) -> Response:
        """Resume a run, with a larger budget if one is given."""
        name, budget = request.path_params["name"], _text_of(form, "budget")
        run = await run_in_threadpool(self.shelf.run, name)
        if budget and not _is_amount(budget):
            raise HTTPException(422, "The budget is an amount in US dollars.")
        study_file = (run.path / str(run.plan.get("study_file", ""))).resolve()
        await run_in_threadpool(self.processes.resume, run.path, study_file, budget)
        return RedirectResponse(_run_address(name), 303)

    # --- keys ----------------------------------------------------------------------------------

    def key_page(self, _request: Request) -> Response:
        """Which keys are set; the keys themselves are never shown."""
        states = [
            (name, self.keys.state(name, self.projects.root)) for name in self.keys.variables()
        ]
        return self._page("keys.html.j2", {"states": states})

    async def enter_key(self, _request: Request, form: FormData) -> Response:
        """Keep a key in the memory of this process, or forget it."""
        variable, key = _text_of(form, "variable"), _text_of(form, "key")
        if variable not in self.keys.variables():
            raise HTTPException(404, "There is no such key.")
        if key and key.isprintable():
            self.keys.entered[variable] = key
        else:
            self.keys.entered.pop(variable, None)
        return RedirectResponse("/keys", 303)

    # --- what all share ------------------------------------------------------------------------

    def _page(self, template: str, shown: Mapping[str, object], status: int = 200) -> HTMLResponse:
        drawn = _render_part(template, {"form_token": self.form_token, **shown})
        return HTMLResponse(drawn.html, status)

    def _guarded(self, post: Receiver) -> Answer:
        """A page to which forms are sent, with the token of this studio in them."""

        async def answered(request: Request) -> Response:
            async with request.form(max_files=1, max_fields=MAX_FIELDS) as form:
                given = _text_of(form, FORM_TOKEN)
                if not secrets.compare_digest(given.encode(), self.form_token.encode()):
                    words = "This form is of an earlier studio, or of another site. Open it again."
                    raise HTTPException(403, words)
                return await post(request, form)

        return answered


def _reading_only(route: Route) -> Route:
    return Route(route.path, route.endpoint, methods=["GET"])


@cache
def _environment() -> Environment:
    """The templates of the studio, then those of the reader."""
    reader = reader_environment()
    assert reader.loader is not None
    loader = ChoiceLoader([FileSystemLoader(HERE / "templates"), reader.loader])
    made = reader.overlay(loader=loader)
    made.filters = {**reader.filters, "with_code": mark_code}
    return made


def mark_code(text: str) -> Markup:
    """A description with what stands between backticks as code."""
    parts = [escape(part) for part in text.split("`")]
    marked = (
        Markup("<code>{}</code>").format(part) if i % 2 else part for i, part in enumerate(parts)
    )
    return Markup("").join(marked)


def _render_part(template: str, shown: Mapping[str, object]) -> LivePart:
    html = _environment().get_template(template).render(shown)
    return LivePart(Markup(html), tag_of(html))


def _read_study(path: Path) -> tuple[str | None, Study | None, dict[str, Any]]:
    """The text of a study file, its type and its values. A workbook has no text."""
    if _is_own_kind(path):
        suffix = path.suffix.lower()
        return (
            None,
            next(
                (study for study in load_installed_studies()[0] if suffix in study.file_suffixes),
                None,
            ),
            {},
        )
    text = path.read_text("utf-8-sig", "replace")
    try:
        values = parse_yaml(text, path.name).value
    except InputError:
        return text, None, {}
    if not isinstance(values, dict):
        return text, None, {}
    kind = values.get("study")
    try:
        if isinstance(kind, str):
            return text, find_study(kind, path.parent, Consent()), values
    except InputError:
        return text, None, values
    recognised = (study for study in load_installed_studies()[0] if study.matches(values))
    return text, next(recognised, None), values


def _is_own_kind(path: Path) -> bool:
    return path.suffix.lower() not in (".yaml", ".yml")


def _check(path: Path) -> list[Problem]:
    """The mistakes of a study file that show without a dry run."""
    try:
        load_study_file(
            path, models=True, consent=Consent(command_hint=f"folkmoot check {path} --trust")
        )
    except InputError as error:
        return error.problems
    return []


def _version(path: Path) -> str:
    return digest(path.read_bytes().hex()).hex()[:16]


def _text_of(form: FormData, name: str) -> str:
    value = form.get(name, "")
    return value.strip() if isinstance(value, str) else ""


async def _upload_of(form: FormData) -> tuple[str, bytes]:
    file = form.get("file")
    if not isinstance(file, UploadFile) or not file.filename:
        raise InputError(Problem("no file was chosen"))
    return plain_name(file.filename), await file.read()


def _is_amount(text: str) -> bool:
    return re.fullmatch(r"[0-9]{1,7}(\.[0-9]{1,4})?", text) is not None and float(text) > 0


def _study_base(name: str) -> str:
    return f"/study/{quote(name, errors='replace')}/-"


def _study_address(name: str) -> str:
    return f"{_study_base(name)}/"


def _run_address(name: str) -> str:
    return f"/run/{quote(name, errors='replace')}/-/"
