"""The pages of the studio: every address and its handler.

`/study/NAME/-/…` belongs to one study. NAME is the path of its file.
"""
# Every form contains a token. Without it, a page of another server on this machine could submit
# forms.

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

from folkmoot.engine.session.folder_access import is_held
from folkmoot.engine.study.consent import Consent
from folkmoot.engine.study.imported_study import import_notes_name
from folkmoot.engine.study.study import load_installed_studies
from folkmoot.engine.study.study_file import StudyFile, load_study_file, read_study_text
from folkmoot.errors import FolkmootError, InputError, Problem, StorageError
from folkmoot.files import write_bytes
from folkmoot.hints import command_line, number_text
from folkmoot.models.catalog import KNOWN_MODELS, SYNTHETIC_MODEL
from folkmoot.randomness import digest
from folkmoot.storage.run_folder import PLAN, RunFolder
from folkmoot.studio.fields import input_names, label_trails, walk_fields
from folkmoot.studio.import_notes import group_notes
from folkmoot.studio.labels import value_words
from folkmoot.studio.processes import CheckOutput, Keys, Processes, run_words
from folkmoot.studio.projects import Projects, checked_name, own_prompt_path, plain_name
from folkmoot.studio.sheet_files import require_version
from folkmoot.studio.study_forms import (
    AnyForm,
    StudyForm,
    is_workbook,
    read_study_form,
    word_problems,
)
from folkmoot.studio.study_text import change_values
from folkmoot.view.pages import Reader
from folkmoot.view.run_list import RunCollection, read_run_status
from folkmoot.view.site import (
    LivePart,
    answer_poll,
    keep_if_unreadable,
)
from folkmoot.view.site import template_environment as reader_environment

HERE = Path(__file__).parent
FORM_TOKEN = "form_token"
# A study file with many rows has thousands of fields. Starlette's default limit is 1,000.
MAX_FIELDS = 20_000
# Default budgets in US dollars, of a trial and of a run.
TRY_BUDGET = "0.50"
RUN_BUDGET = "5"
AMOUNT_WANTED = "Enter the most that the run may cost, in US dollars, such as 2.50."
# The lines of a check that the page shows, in this order, with words for a page.
FACTS = {
    "Cost": "Cost",
    "Assumes": "Assumed for the cost",
    "Time": "Time",
    "Calls": "Calls to the model",
    "Model": "Model",
    "Embedding": "Texts are compared by",
    "Tokens": "Tokens",
    "Cache": "Caching",
    "Batches": "Batches",
    "So far": "Spent so far",
}
# Size of a trial: this number of participants, or of sessions with one participant.
TRIED = 3
PARTICIPANT = "participant"
# Folder of the researcher's prompts if the study file names none.
PROMPTS = "prompts"
# The lines on changes by an import that the page of a study shows. The file has all of them.
MAX_IMPORT_NOTES = 300
CHANGED_PROBLEM = Problem(
    "the file was changed by another program in the meantime, so it was not saved",
    hint="saving again replaces that change; opening this page again shows it",
)
Answer = Callable[[Request], Awaitable[Response]]
# Handler of a form that was sent.
Receiver = Callable[[Request, FormData], Awaitable[Response]]


class Studio:
    """The pages for a folder of studies."""

    def __init__(self, root: Path) -> None:
        self.projects = Projects(root)
        self.keys = Keys()
        self.processes = Processes(self.projects.root, self.projects.outputs, self.keys)
        self.projects.outputs.mkdir(parents=True, exist_ok=True)
        self.runs = RunCollection(self.projects.outputs)
        self.reader = Reader(self.runs)
        self.form_token = secrets.token_urlsafe(24)

    def routes(self) -> list[BaseRoute]:
        """Return the addresses of all pages with their handlers."""
        # Those of the run viewer come last, so that the studio's own ones take precedence.
        study_pages: dict[str, tuple[Callable[[Request], object], Receiver | None]] = {
            "": (self.study, self.save),
            "text": (self.text, self.save_text),
            "estimate": (self.estimate, None),
            "file": (self.file, None),
            "prompts": (self.prompts, self.save_prompt),
            "upload": (self.study, self.upload),
            "run": (self.ask_budget, self.run),
            "try": (self.study, self.try_study),
        }
        run_actions: dict[str, Receiver] = {"pause": self.pause, "resume": self.resume}
        reading = [
            # The address of a form that had a problem stays in the browser, and can be reloaded.
            *(Route(address, self.home) for address in ("/", "/new", "/open")),
            Route("/keys", self.key_page),
            Route("/starting/{name:path}", self.starting),
            *(Route(f"/run/{{name:path}}/-/{part}", self.run_page) for part in ("", *run_actions)),
            Route("/run/{name:path}/-/controls", keep_if_unreadable(self.live_controls)),
            *(
                Route(f"/study/{{name:path}}/-/{part}", get)
                for part, (get, _) in study_pages.items()
            ),
        ]
        post_handlers: dict[str, Receiver] = {
            "/new": self.add_new,
            "/open": self.open_file,
            "/keys": self.enter_key,
        }
        post_handlers |= {
            f"/study/{{name:path}}/-/{part}": post
            for part, (_, post) in study_pages.items()
            if post
        }
        post_handlers |= {
            f"/run/{{name:path}}/-/{part}": post for part, post in run_actions.items()
        }
        writing = [
            Route(part, self._guarded(post), methods=["POST"])
            for part, post in post_handlers.items()
        ]
        static = StaticFiles(directory=HERE / "static")
        return [
            *writing,
            *(_reading_only(route) for route in reading),
            Mount("/studio", static),
            *self.reader.page_routes(),
        ]

    # --- all studies ---------------------------------------------------------------------------

    def home(self, request: Request) -> Response:
        """Show all studies, the form for a new study, and the runs."""
        return self._home(request, [])

    def _home(
        self, request: Request, problems: Sequence[Problem], kind: str = "", name: str = ""
    ) -> Response:
        # `kind` and `name` are what the researcher entered before a problem.
        types = load_installed_studies()[0]
        names = self.projects.names()
        variables = {"names": names, "types": types, "problems": problems,
                     "kind": kind or types[0].name, "entered_name": name,
                     **self.reader.describe_runs(request)}  # fmt: skip
        return self._page("studio.html.j2", variables, 422 if problems else 200)

    async def add_new(self, request: Request, form: FormData) -> Response:
        """Create a study from the template of its type."""
        kind, name = _text_of(form, "kind"), _text_of(form, "name")
        try:
            study_name = await run_in_threadpool(self.projects.add_new, kind, name or kind)
        except InputError as error:
            return await run_in_threadpool(self._home, request, error.problems, kind, name)
        return RedirectResponse(_study_address(study_name), 303)

    async def open_file(self, request: Request, form: FormData) -> Response:
        """Store an uploaded study file and open its page."""
        try:
            file, content = await _upload_of(form)
            study_name = await run_in_threadpool(self.projects.add_file, file, content)
        except InputError as error:
            return await run_in_threadpool(self._home, request, error.problems)
        return RedirectResponse(_study_address(study_name), 303)

    # --- one study -----------------------------------------------------------------------------

    def study(self, request: Request) -> Response:
        """Show the form of a study."""
        name = request.path_params["name"]
        path = self.projects.path(name)
        return self._study(name, path, [])

    def _study(self, name: str, path: Path, problems: Sequence[Problem]) -> Response:
        variables = self._describe(name, path, read_study_form(path))
        if problems:
            variables["rest"] = [*problems, *variables["rest"]]
        return self._page("study.html.j2", variables)

    def _describe(self, name: str, path: Path, form: AnyForm) -> dict[str, Any]:
        study_file, problems = _load(path)
        placed, rest = form.place(word_problems(form, problems))
        notes = path.parent / import_notes_name(path.name)
        imported = notes.read_text("utf-8", "replace").splitlines() if notes.is_file() else []
        neighbours = sorted(
            neighbour.name
            for neighbour in path.parent.iterdir()
            if neighbour.is_file() and neighbour != path
        )
        return {
            **_tab_variables(name, path, ""), "study": form.study, "sections": form.sections,
            "reason": form.reason, "placed": placed, "rest": rest,
            "is_right": not problems, "version": _version(path), "beside": neighbours,
            "workbooks": {
                file: _study_address(f"{name.rpartition('/')[0]}/{file}".lstrip("/"))
                for file in neighbours if is_workbook(Path(file))
            },
            "imported": group_notes(imported[:MAX_IMPORT_NOTES], form.words),
            "fields": [field for part in form.sections for field in walk_fields(part.fields)],
            "trails": label_trails([field for part in form.sections for field in part.fields]),
            "models": [SYNTHETIC_MODEL, *KNOWN_MODELS], "try_budget": TRY_BUDGET,
            "trial": describe_trial(*trial_size(study_file)),
        }  # fmt: skip

    async def save(self, request: Request, form: FormData) -> Response:
        """Write the values of the form into the study file, and check the file."""
        name = request.path_params["name"]
        path = self.projects.path(name)
        return await run_in_threadpool(self._save, request, name, path, form)

    def _save(self, request: Request, name: str, path: Path, form: FormData) -> Response:
        is_part = bool(request.headers.get("hx-request"))
        action = _text_of(form, "action")
        problems: list[Problem] = []
        study_form = read_study_form(path)
        # The form contains a hash of the file that it shows. Another hash means that an editor or
        # another page has changed the file, and saving would undo that change.
        is_outdated = _text_of(form, "version") != _version(path)
        if is_outdated:
            hint = "reload this page, and enter the last change again"
            problems.append(
                Problem("the file was changed by another program in the meantime", hint=hint)
            )
        else:
            sent = {
                key: value.replace("\r\n", "\n")
                for key, value in form.items()
                if isinstance(value, str)
            }
            # The fields stay as they are, so that nothing typed is lost if the disk is full.
            try:
                study_form, problems = study_form.save(path, sent, action)
            except StorageError as error:
                problems.append(Problem(f"not saved: {error}"))
        variables = self._describe(name, path, study_form)
        placed, rest = study_form.place(word_problems(study_form, problems))
        variables["placed"] = {**variables["placed"], **placed}
        variables["rest"] = [*rest, *variables["rest"]]
        if not is_part:
            return self._page("study.html.j2", variables)
        if is_outdated and not action:
            # The fields stay as they are, so they are still those of the version that was sent.
            variables["version"] = _text_of(form, "version")
        # A text may become rows, for example `[age, income]`. The form does not have the text any
        # more, so what is typed into it next would be lost.
        has_other_inputs = not is_outdated and not input_names(study_form.sections) <= form.keys()
        is_drawn = action or has_other_inputs
        return self._page("_form_and_status.html.j2" if is_drawn else "_saved.html.j2", variables)

    async def estimate(self, request: Request) -> Response:
        """Show how many calls, what cost and how much time `folkmoot check` expects."""
        path = await run_in_threadpool(self.projects.path, request.path_params["name"])
        output = await self.processes.check(path)
        version = request.query_params.get("version", "")
        return await run_in_threadpool(self._estimate, path, output, version)

    def _estimate(self, path: Path, output: CheckOutput, version: str) -> Response:
        # The form shows the problems and warnings at its fields as well. `version` is that of the
        # file shown. It is empty on a page without a form.
        result = output.result
        form = read_study_form(path)
        problems, warnings = (
            word_problems(form, [Problem(**{**each, "file": ""}) for each in result.get(kind, ())])
            for kind in ("problems", "warnings")
        )
        # A check takes seconds. If the file has changed since, its problems may be gone.
        is_present = version == _version(path)
        placed, _ = form.place([*problems, *warnings] if is_present else [])
        fields = [field for part in form.sections for field in walk_fields(part.fields)]
        trails = label_trails([field for part in form.sections for field in part.fields])
        facts = result.get("facts", {})
        variables = {"check": result, "messages": output.messages, "placed": placed,
                     "fields": [field for field in fields if field.id in placed],
                     "problems": problems, "warnings": warnings, "words": form.words,
                     "trails": {each.key: trails[field_id] for field_id in placed
                                for each in placed[field_id]},
                     "is_simulated": facts.get("Model") == SYNTHETIC_MODEL,
                     "facts": [(words, facts[name]) for name, words in FACTS.items()
                               if name in facts]}  # fmt: skip
        return self._page("_estimate.html.j2", variables)

    def text(self, request: Request) -> Response:
        """Show the study file as text that can be edited."""
        name = request.path_params["name"]
        return self._text(name, self.projects.path(name), None)

    def _text(
        self, name: str, path: Path, sent_text: str | None, problems: Sequence[Problem] = ()
    ) -> Response:
        if sent_text is None and is_workbook(path):
            raise HTTPException(404, f"{name} is a workbook: edit it in a spreadsheet program.")
        # Saved from here, a file of another encoding would lose the characters that cannot be read.
        text = read_study_text(path) if sent_text is None else sent_text
        variables = {**_tab_variables(name, path, "text"), "text": text,
                     "problems": problems or _check(path), "version": _version(path),
                     "is_unsaved": sent_text is not None}  # fmt: skip
        return self._page("study_text.html.j2", variables, 409 if problems else 200)

    async def save_text(self, request: Request, form: FormData) -> Response:
        """Replace the text of the study file by the edited text."""
        name = request.path_params["name"]
        path = await run_in_threadpool(self.projects.path, name)
        text = str(form.get("text", "")).replace("\r\n", "\n")
        if is_workbook(path):
            raise HTTPException(404, f"{name} is a workbook: edit it in a spreadsheet program.")
        # The page keeps the sent text. Saving it once more replaces what the other program wrote.
        problem = CHANGED_PROBLEM
        if _text_of(form, "version") == _version(path):
            try:
                await run_in_threadpool(write_bytes, path, text.encode())
                return RedirectResponse(f"{_study_base(name)}/text", 303)
            except StorageError as error:
                problem = Problem(f"not saved: {error}")
        return await run_in_threadpool(self._text, name, path, text, [problem])

    def file(self, request: Request) -> Response:
        """Download the study file or a file in its folder."""
        path = self.projects.path(request.path_params["name"])
        neighbour = request.query_params.get("beside", "")
        if neighbour:
            # The name is compared with the files of the folder and not joined to a path, so that it
            # cannot lead to another folder.
            path = next((path for path in path.parent.iterdir() if path.name == neighbour), path)
            if path.name != neighbour or not path.is_file() or path.is_symlink():
                raise HTTPException(404, f"There is no file {neighbour} beside the study.")
        return FileResponse(path, filename=path.name, media_type="application/octet-stream")

    async def upload(self, request: Request, form: FormData) -> Response:
        """Store a file in the study's folder."""
        # Personas, groups, a picture or a workbook.
        name = request.path_params["name"]
        path = await run_in_threadpool(self.projects.path, name)
        try:
            file, content = await _upload_of(form)
            target = path.parent / plain_name(file)
            # Python files of a study are executed, so a page must not write them.
            if target.suffix.lower() == ".py":
                raise InputError(Problem(f"{file} is not taken here", hint="copy it by hand"))
            if is_workbook(path) and target.suffix.lower() == path.suffix.lower():
                # An edited workbook replaces the old one under any name.
                await run_in_threadpool(require_version, path, file, content)
                target = path
            await run_in_threadpool(write_bytes, target, content)
        except InputError as error:
            return await run_in_threadpool(self._study, name, path, error.problems)
        return RedirectResponse(_study_address(name), 303)

    # --- prompts -------------------------------------------------------------------------------

    def prompts(self, request: Request) -> Response:
        """Show all prompts of a study, and a form to edit one prompt."""
        # The page also shows the first prompts as a run would send them.
        name = request.path_params["name"]
        path = self.projects.path(name)
        return self._prompts(name, path, request.query_params.get("prompt", ""), [])

    def _prompts(
        self,
        name: str,
        path: Path,
        prompt: str,
        problems: Sequence[Problem],
        sent_text: str | None = None,
    ) -> Response:
        # `sent_text` is a text that had problems and was not saved.
        study_file, study_problems = _load(path)
        if study_file is None:
            return self._incorrect(name, path, "prompts", study_problems)
        library = study_file.prompt_library()
        prompt = prompt or next(iter(library.prompt_files), "")
        if prompt not in library.prompt_files:
            raise HTTPException(404, f"There is no prompt {prompt}.")
        own_prompts = [
            prompt_name
            for prompt_name, file in library.prompt_files.items()
            if file != library.default_prompts[prompt_name]
        ]
        previews, error_text = [], ""
        try:
            if study_file.study.preview is not None:
                previews = study_file.study.preview(study_file.config, library)[:6]
        except FolkmootError as error:
            error_text = str(error)
        present_text = library.source_texts()[prompt]
        variables = {
            **_tab_variables(name, path, "prompts"), "prompt": prompt,
            "version": _content_version(present_text.encode()),
            "all": list(library.prompt_files), "own": own_prompts,
            "text": present_text if sent_text is None else sent_text,
            "is_unsaved": sent_text is not None,
            "variables": sorted(library.variables_of(prompt)), "previews": previews,
            "why": error_text,
            "problems": problems,
        }  # fmt: skip
        return self._page("prompts.html.j2", variables)

    async def save_prompt(self, request: Request, form: FormData) -> Response:
        """Write the researcher's version of a prompt, or restore the packaged version."""
        name, prompt = request.path_params["name"], _text_of(form, "prompt")
        path = await run_in_threadpool(self.projects.path, name)
        # The prompt would be written where no run reads it.
        if is_workbook(path):
            raise HTTPException(404, f"{name} is a workbook, which names no folder of prompts.")
        text = str(form.get("text", "")).replace("\r\n", "\n")
        action, version = _text_of(form, "action"), _text_of(form, "version")
        try:
            problems = await run_in_threadpool(
                self._save_prompt, path, prompt, text, action, version
            )
        except StorageError as error:
            problems = [Problem(f"not saved: {error}")]
        if problems:
            return await run_in_threadpool(self._prompts, name, path, prompt, problems, text)
        return RedirectResponse(f"{_study_base(name)}/prompts?prompt={quote(prompt, safe='')}", 303)

    def _incorrect(
        self, name: str, path: Path, tab: str, problems: Sequence[Problem]
    ) -> HTMLResponse:
        # The content of a page that needs a study file without problems.
        problems = word_problems(read_study_form(path), problems)
        variables = {**_tab_variables(name, path, tab), "problems": problems}
        return self._page("incorrect.html.j2", variables)

    def _save_prompt(
        self, path: Path, prompt: str, text: str, action: str, version: str
    ) -> list[Problem]:
        study_file = load_study_file(path)
        target = own_prompt_path(
            study_file.study, prompt, path.parent, study_file.config.prompts or PROMPTS
        )
        # Another page may have saved the prompt since this one was opened.
        present_text = study_file.prompt_library().source_texts().get(prompt, "")
        if version != _content_version(present_text.encode()):
            return [CHANGED_PROBLEM]
        # Kept for the case that the new prompt has problems.
        before = target.read_bytes() if target.is_file() else None
        if action == "restore":
            target.unlink(missing_ok=True)
            return []
        write_bytes(target, text.encode())
        form = read_study_form(path)
        if not study_file.config.prompts and isinstance(form, StudyForm):
            changed_values = {**form.values, "prompts": PROMPTS}
            write_bytes(path, change_values(form.text, changed_values).encode())
        problems = [problem for problem in _check(path) if Path(problem.file) == target]
        # A study with a broken prompt could not be opened on this page again, so the old one is
        # restored.
        if problems:
            if before is None:
                target.unlink()
            else:
                write_bytes(target, before)
        return problems

    # --- runs ----------------------------------------------------------------------------------

    def ask_budget(self, request: Request) -> Response:
        """Ask for the maximum cost before a run starts."""
        name = request.path_params["name"]
        return self._ask_budget(name, self.projects.path(name), "")

    def _ask_budget(self, name: str, path: Path, problem: str) -> Response:
        study_file, problems = _load(path)
        if study_file is None:
            return self._incorrect(name, path, "run", problems)
        config = study_file.config
        # No run can be paid with 0 dollars, so the field is empty and asks for an amount.
        limit = config.budget_usd
        budget = RUN_BUDGET if limit is None else number_text(limit) if limit else ""
        variables = {
            **_tab_variables(name, path, "run"), "budget": budget, "problem": problem,
            "models": [SYNTHETIC_MODEL, *KNOWN_MODELS], "model": config.model or "",
        }  # fmt: skip
        return self._page("budget.html.j2", variables, 422 if problem else 200)

    async def run(self, request: Request, form: FormData) -> Response:
        """Start a run and redirect to its page."""
        # The run is a separate process.
        name, budget = request.path_params["name"], _text_of(form, "budget")
        path = await run_in_threadpool(self.projects.path, name)
        if not _is_amount(budget):
            return await run_in_threadpool(self._ask_budget, name, path, AMOUNT_WANTED)
        return await run_in_threadpool(
            self._start, name, path, {"--budget": budget, "--model": _text_of(form, "model")}, ""
        )

    async def try_study(self, request: Request, form: FormData) -> Response:
        """Start a run of a small part of the study and redirect to its page."""
        name, budget = request.path_params["name"], _text_of(form, "budget")
        path = await run_in_threadpool(self.projects.path, name)
        if not _is_amount(budget):
            return await run_in_threadpool(self._study, name, path, [Problem(AMOUNT_WANTED)])
        study_file, _ = await run_in_threadpool(_load, path)
        limit, _ = trial_size(study_file)
        settings = {"--limit": str(limit), "--budget": budget, "--model": _text_of(form, "model")}
        return await run_in_threadpool(self._start, name, path, settings, "try_")

    def _start(self, name: str, path: Path, settings: Mapping[str, str], prefix: str) -> Response:
        stem = prefix + self.projects.run_stem(name)
        run = self.processes.start_new(stem, run_words(str(path), settings))
        return RedirectResponse(_starting_address(run.name), 303)

    def starting(self, request: Request) -> Response:
        """Redirect to the page of a run that has started, or show the output of the process."""
        name = request.path_params["name"]
        try:
            run = self.runs.run(name).path
        except HTTPException:
            run = self.projects.outputs / checked_name(name)
        messages = self.processes.messages_of(run)
        # A page of a run that is not in progress yet would not update itself. A resumed run has a
        # plan from its start.
        has_begun = is_held(run) or messages.exit_code is not None
        if has_begun and (run / PLAN).is_file():
            address = _run_address(name)
            # htmx would follow a redirect and insert the page into the polling element. This header
            # makes the browser load the page.
            if request.headers.get("hx-request"):
                return Response(headers={"HX-Redirect": address})
            return RedirectResponse(address, 303)
        part = "_starting.html.j2" if request.headers.get("hx-request") else "starting.html.j2"
        return self._page(part, {"run_name": name, "told": messages})

    def run_page(self, request: Request) -> Response:
        """Show the first page of a run, with buttons such as Pause or Resume."""
        variables = self.reader.describe_run(request)
        return self._page("studio_run.html.j2", {**variables, "controls": self._controls(request)})

    def live_controls(self, request: Request) -> Response:
        """Return the buttons of a run, such as Pause, to a page that updates itself.

        The response is empty if the page already shows these buttons.
        """
        return answer_poll(request, self._controls(request))

    def _controls(self, request: Request) -> LivePart:
        name = request.path_params["name"]
        run = self.runs.run(name)
        messages = self.processes.messages_of(run.path)
        study_name = self.projects.name_of(_study_path(run))
        try:
            budget = self.processes.budget_of(run.path)
        # To resume such a run is not possible, and the page of the run says why.
        except StorageError:
            budget = ""
        variables = {"r": read_run_status(run.path, name), "base": _run_address(name).rstrip("/"),
                 "form_token": self.form_token, "told": messages, "budget": budget,
                 "study": _study_address(study_name) if study_name else ""}  # fmt: skip
        return _render_part("_controls.html.j2", variables)

    async def pause(self, request: Request, _form: FormData) -> Response:
        """Stop a run so that it can be resumed later."""
        name = request.path_params["name"]
        run = await run_in_threadpool(self.runs.run, name)
        await run_in_threadpool(self.processes.pause, run.path)
        return RedirectResponse(_run_address(name), 303)

    async def resume(self, request: Request, form: FormData) -> Response:
        """Resume a run."""
        # If the form holds a budget, it is used.
        name, budget = request.path_params["name"], _text_of(form, "budget")
        run = await run_in_threadpool(self.runs.run, name)
        if budget and not _is_amount(budget):
            raise HTTPException(422, AMOUNT_WANTED)
        await run_in_threadpool(self.processes.resume, run.path, _study_path(run), budget)
        return RedirectResponse(_starting_address(name), 303)

    # --- keys ----------------------------------------------------------------------------------

    def key_page(self, _request: Request) -> Response:
        """Show which API keys are set."""
        # The keys themselves are not shown.
        states = [
            (name, self.keys.state(name, self.projects.root)) for name in self.keys.variables()
        ]
        return self._page("keys.html.j2", {"states": states})

    async def enter_key(self, _request: Request, form: FormData) -> Response:
        """Store an API key, or delete it."""
        # Only the memory of this process holds it.
        variable, key = _text_of(form, "variable"), _text_of(form, "key")
        if variable not in self.keys.variables():
            raise HTTPException(404, "There is no such key.")
        if key and key.isprintable():
            self.keys.entered[variable] = key
        else:
            self.keys.entered.pop(variable, None)
        return RedirectResponse("/keys", 303)

    # --- helpers of all pages ------------------------------------------------------------------

    def _page(
        self, template: str, variables: Mapping[str, object], status: int = 200
    ) -> HTMLResponse:
        part = _render_part(template, {"form_token": self.form_token, **variables})
        return HTMLResponse(part.html, status)

    def _guarded(self, post: Receiver) -> Answer:
        async def answer_guarded(request: Request) -> Response:
            async with request.form(max_files=1, max_fields=MAX_FIELDS) as form:
                token = _text_of(form, FORM_TOKEN)
                # `compare_digest` takes the same time for any input, so that the time does not
                # reveal the token.
                if not secrets.compare_digest(token.encode(), self.form_token.encode()):
                    message = (
                        "This form is of an earlier studio, or of another site. Open it again."
                    )
                    raise HTTPException(403, message)
                return await post(request, form)

        return answer_guarded


def _reading_only(route: Route) -> Route:
    return Route(route.path, route.endpoint, methods=["GET"])


@cache
def _environment() -> Environment:
    reader = reader_environment()
    assert reader.loader is not None
    loader = ChoiceLoader([FileSystemLoader(HERE / "templates"), reader.loader])
    environment = reader.overlay(loader=loader)
    environment.filters = {**reader.filters, "with_code": mark_code,
                           "value_words": value_words}  # fmt: skip
    return environment


def mark_code(text: str) -> Markup:
    """Return a description as HTML in which text between backticks is marked as code."""
    parts = [escape(part) for part in text.split("`")]
    marked = (
        Markup("<code>{}</code>").format(part) if i % 2 else part for i, part in enumerate(parts)
    )
    return Markup("").join(marked)


def _render_part(template: str, variables: Mapping[str, object]) -> LivePart:
    return LivePart.from_html(_environment().get_template(template).render(variables))


def trial_size(study_file: StudyFile | None) -> tuple[int, str]:
    """Return how many units a trial has, and the word for a unit.

    A unit is a participant, or a group of participants who talk with each other.
    """
    if study_file is None:
        return 1, ""
    size = study_file.study.size(study_file.config, study_file.study_folder)
    if size is None or size.unit_name == PARTICIPANT:
        return TRIED, PARTICIPANT
    # One group shows a whole conversation, and three would cost three times as much.
    return 1, size.unit_name


def describe_trial(limit: int, unit_name: str) -> str:
    """Return the size of a trial in words."""
    if not unit_name:
        return "A run with the smallest part of the study."
    if unit_name == PARTICIPANT:
        return f"A run with {limit} participants, or with one in each condition."
    return f"A run with one {unit_name}."


def _load(path: Path) -> tuple[StudyFile | None, list[Problem]]:
    # The problems are those that can be found without a dry run.
    consent = Consent(command_hint=command_line("check", path, "--trust"))
    try:
        return load_study_file(path, models=True, consent=consent), []
    except InputError as error:
        return None, error.problems


def _check(path: Path) -> list[Problem]:
    return _load(path)[1]


def _version(path: Path) -> str:
    return _content_version(path.read_bytes())


def _content_version(content: bytes) -> str:
    return digest(content.hex()).hex()[:16]


def _text_of(form: FormData, name: str) -> str:
    value = form.get(name, "")
    return value.strip() if isinstance(value, str) else ""


async def _upload_of(form: FormData) -> tuple[str, bytes]:
    file = form.get("file")
    if not isinstance(file, UploadFile) or not file.filename:
        raise InputError(Problem("no file was chosen"))
    return plain_name(file.filename), await file.read()


def _is_amount(text: str) -> bool:
    # A longer number is a typing error. Decimals of any length may be those of the study file.
    return re.fullmatch(r"[0-9]{1,12}(\.[0-9]+)?", text) is not None and float(text) > 0


def _tab_variables(name: str, path: Path, tab: str) -> dict[str, Any]:
    return {"name": name, "base": _study_base(name), "tab": tab, "is_text": not is_workbook(path)}


def _study_path(run: RunFolder) -> Path:
    return (run.path / str(run.plan.get("study_file", ""))).resolve()


def _study_base(name: str) -> str:
    return f"/study/{quote(name, errors='replace')}/-"


def _study_address(name: str) -> str:
    return f"{_study_base(name)}/"


def _starting_address(name: str) -> str:
    return f"/starting/{quote(name, errors='replace')}"


def _run_address(name: str) -> str:
    return f"/run/{quote(name, errors='replace')}/-/"
