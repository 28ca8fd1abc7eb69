"""The Python code that a study file names: it runs exactly as it was read and agreed to.

Each file is read once. The same bytes are hashed, shown to consent, compiled and executed. Python's
own loader would take a compiled file from `__pycache__` instead, which is not what was agreed to.
The same holds for modules beside the study file that its code imports.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, FrameType, ModuleType

from folkmoot.engine.settings.author_errors import STUDY_MODULE_PREFIX, locate_load_error
from folkmoot.engine.study.consent import Consent
from folkmoot.errors import InputError, Problem


class AgreedSource(SourceFileLoader):
    """A loader that compiles the bytes that were agreed to, whatever is on disk by now."""

    def __init__(self, fullname: str, path: str, source: bytes) -> None:
        super().__init__(fullname, path)
        self._source = source

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._source, self.path, "exec", dont_inherit=True)

    def get_source(self, fullname: str) -> str:
        return importlib.util.decode_source(self._source)


@dataclass
class StudyCode:
    """The study files of this process and what they import from beside them.

    It is a finder of `sys.meta_path`. `consents`: by folder of a study file, who agrees to code in
    it; None where the caller named the code in Python. `digests`: of each file that was executed.
    """

    consents: dict[Path, Consent | None] = field(default_factory=dict)
    digests: dict[Path, str] = field(default_factory=dict)
    modules: dict[Path, ModuleType] = field(default_factory=dict)

    def load_module(self, path: Path, consent: Consent | None) -> ModuleType:
        """Return the module of a study file. Execute it unless these bytes were executed already.

        Raises InputError without consent, and for a file that cannot be run.
        """
        # The folder of a link and that of what it leads to.
        folders = {path.parent.resolve(), path.resolve().parent}
        path = path.resolve()
        source = _read_with_consent(path, consent)
        for folder in folders:
            # Another study file of this folder does not become the caller's own by this.
            self.consents[folder] = consent or self.consents.get(folder)
        digest = hashlib.sha256(source).hexdigest()
        if self.digests.get(path) == digest and path in self.modules:
            return self.modules[path]
        # In sys.modules, because dataclasses and pydantic resolve annotations through it.
        of_path = hashlib.sha256(str(path).encode()).hexdigest()[:12]
        name = f"{STUDY_MODULE_PREFIX}{path.stem}_{of_path}"
        spec = importlib.util.spec_from_file_location(
            name, path, loader=AgreedSource(name, str(path), source)
        )
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        earlier = sys.modules.get(name)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except (Exception, SystemExit) as error:
            if earlier is None:
                del sys.modules[name]
            else:
                sys.modules[name] = earlier
            if isinstance(error, InputError):  # a module beside it without consent
                raise
            raise _load_error(error, path) from error
        self.digests[path] = digest
        self.modules[path] = module
        return module

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a module that lies beside a study file; None for all others.

        Raises InputError where study code imports a file without consent.
        """
        found = PathFinder.find_spec(fullname, path, target)
        if found is None or found.origin is None or not found.has_location:
            return None
        origin = Path(found.origin).absolute()
        folder = self._folder_of(origin)
        if folder is None:
            return None
        # A notebook may import what it likes. Where only a folder that study code added holds a
        # module, this program may have meant another one of that name.
        place = _place_of(origin)
        is_own = any(entry in place.parents for entry in _paths_at_start())
        asked = _is_imported_by_study_code() or not is_own
        consent = self.consents[folder] if asked else None
        if type(found.loader) is not SourceFileLoader:
            raise InputError(
                Problem(
                    f"the module {fullname} is compiled and cannot be read",
                    str(origin),
                    hint="put its .py file there, or install it as a package",
                )
            )
        source = _read_with_consent(place, consent)
        self.digests[place] = hashlib.sha256(source).hexdigest()
        loader = AgreedSource(fullname, found.origin, source)
        return importlib.util.spec_from_file_location(
            fullname,
            found.origin,
            loader=loader,
            submodule_search_locations=found.submodule_search_locations,
        )

    def _folder_of(self, origin: Path) -> Path | None:
        """Return the folder of a study file in which, or below which, a module lies; else None.

        Links lead into such a folder and out of it, so the folders on the way count as they are
        written and as they are. What the user's own environment finds further down (a virtual
        environment, an editable package) is installed, and not a part of the study.
        """
        place = _place_of(origin)
        above = {*place.parents, *origin.resolve().parents}
        above |= {folder.resolve() for folder in origin.parents}
        for folder in self.consents:
            installed = (path for path in _paths_at_start() if folder in path.parents)
            if folder in above and not any(path in place.parents for path in installed):
                return folder
        return None


def load_study_code(path: Path, consent: Consent | None) -> ModuleType:
    """Return the module of a Python file that a study file, or the caller (None), names.

    Raises InputError without consent, and for a file that cannot be run.
    """
    return _installed_finder().load_module(path, consent)


def agreement_for_workers(path: Path) -> Consent:
    """Return the consent with which other processes of this run may execute the same code.

    `path` is a study file that this process executed. The files that it executed must be the same
    there.
    """
    code = _installed_finder()
    versions = {str(file): digest for file, digest in code.digests.items()}
    consent = code.consents.get(path.resolve().parent)
    return Consent(granted=consent is None or consent.granted, versions=versions)


@cache
def _installed_finder() -> StudyCode:
    """Return the finder of this process. It comes first, before Python's own."""
    _paths_at_start()
    code = StudyCode()
    sys.meta_path.insert(0, code)
    return code


@cache
def _paths_at_start() -> tuple[Path, ...]:
    """Return where modules were found before any study code ran: it may add further folders."""
    return tuple(Path(entry or os.curdir).resolve() for entry in sys.path)


def _place_of(origin: Path) -> Path:
    """Return a module's path with the real folder, beside which Python has its compiled form."""
    return origin.parent.resolve() / origin.name


def _is_imported_by_study_code() -> bool:
    """Return whether study code is among the callers."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if isinstance(frame.f_globals.get("__loader__"), AgreedSource):
            return True
        frame = frame.f_back
    return False


def _read_with_consent(path: Path, consent: Consent | None) -> bytes:
    """Read a file of code once. Raises InputError without consent."""
    try:
        source = path.read_bytes()
    except OSError as error:
        why = f"cannot be read: {error.strerror or error}"
        raise InputError(Problem(why, str(path), key="study")) from error
    if consent is not None:
        consent.require_code_execution(path, source)
    return source


def _load_error(error: BaseException, path: Path) -> InputError:
    why = error.msg if isinstance(error, SyntaxError) else repr(error)
    place = locate_load_error(error, path)
    return InputError(Problem(f"the file cannot be run: {why}", str(path), place, "study"))
