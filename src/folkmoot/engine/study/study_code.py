"""Execute the Python code of a study in exactly the version that the researcher allowed."""

# Each file is read once. The same bytes are hashed, passed to consent, compiled and executed.
# Python's own loader is not used, because it could execute a compiled file from `__pycache__`
# without consent. The same rules hold for modules beside the study file that its code imports.

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
    """A module loader that compiles given source code instead of the file on disk."""

    # The researcher agreed to this source. The file on disk may have changed since then.

    def __init__(self, fullname: str, path: str, source: bytes) -> None:
        super().__init__(fullname, path)
        self._source = source

    def get_code(self, fullname: str) -> CodeType:
        # Without `dont_inherit`, the code would get the `__future__` imports of this module.
        return compile(self._source, self.path, "exec", dont_inherit=True)

    def get_source(self, fullname: str) -> str:
        return importlib.util.decode_source(self._source)


@dataclass
class StudyCode:
    """The Python code of studies that this process has executed."""

    # The object is a finder in `sys.meta_path`.

    # Folder of a study file → the consent for its code. None if a caller in Python named the code.
    consents: dict[Path, Consent | None] = field(default_factory=dict)
    # Executed file → the SHA-256 of its content.
    digests: dict[Path, str] = field(default_factory=dict)
    modules: dict[Path, ModuleType] = field(default_factory=dict)

    def load_module(self, path: Path, consent: Consent | None) -> ModuleType:
        """Return the module of a study file.

        Raises InputError without consent, and for a file that cannot be executed.
        """
        # The file is executed, unless the same bytes were executed before.

        # If the file is a symbolic link, both its folder and that of its target count.
        folders = {path.parent.resolve(), path.resolve().parent}
        path = path.resolve()
        source = _read_with_consent(path, consent)
        for folder in folders:
            # If a caller names the code, an earlier consent stays. Otherwise a study file that
            # needs consent would become trusted by another one in its folder.
            self.consents[folder] = consent or self.consents.get(folder)
        digest = hashlib.sha256(source).hexdigest()
        if self.digests.get(path) == digest and path in self.modules:
            return self.modules[path]
        # The module must be in `sys.modules`, because dataclasses and pydantic resolve annotations
        # through it. The hash of the path keeps files of the same name apart.
        path_digest = hashlib.sha256(str(path).encode()).hexdigest()[:12]
        name = f"{STUDY_MODULE_PREFIX}{path.stem}_{path_digest}"
        spec = importlib.util.spec_from_file_location(
            name, path, loader=AgreedSource(name, str(path), source)
        )
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        earlier_module = sys.modules.get(name)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        # SystemExit as well: a file that calls `sys.exit` is a broken study file.
        except (Exception, SystemExit) as error:
            # A failed module is removed, as Python does. An earlier version of it is put back.
            if earlier_module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = earlier_module
            # Consent to a module that this file imports was refused.
            if isinstance(error, InputError):
                raise
            raise _load_error(error, path) from error
        self.digests[path] = digest
        self.modules[path] = module
        return module

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a module beside a study file, or None for all other modules.

        Raises InputError if study code imports a file without consent.
        """
        original_spec = PathFinder.find_spec(fullname, path, target)
        if original_spec is None or original_spec.origin is None or not original_spec.has_location:
            return None
        origin = Path(original_spec.origin).absolute()
        folder = self._folder_of(origin)
        if folder is None:
            return None
        # Consent is needed if study code is among the callers. It is also needed if the module was
        # found only because study code extended `sys.path`: this program may have meant another
        # module of that name. Any other import is the researcher's own, for example in a notebook.
        location = _location_of(origin)
        is_own = any(entry in location.parents for entry in _paths_at_start())
        needs_consent = _is_imported_by_study_code() or not is_own
        consent = self.consents[folder] if needs_consent else None
        # A compiled module cannot be read before it is agreed to.
        if type(original_spec.loader) is not SourceFileLoader:
            raise InputError(
                Problem(
                    f"the module {fullname} is compiled and cannot be read",
                    str(origin),
                    hint="put its .py file there, or install it as a package",
                )
            )
        source = _read_with_consent(location, consent)
        self.digests[location] = hashlib.sha256(source).hexdigest()
        loader = AgreedSource(fullname, original_spec.origin, source)
        return importlib.util.spec_from_file_location(
            fullname,
            original_spec.origin,
            loader=loader,
            submodule_search_locations=original_spec.submodule_search_locations,
        )

    def _folder_of(self, origin: Path) -> Path | None:
        # A module at any depth counts, but not the packages of a virtual environment in such a
        # folder.
        location = _location_of(origin)
        parents = _folders_above(origin.parent)
        if origin.is_symlink():
            parents |= {*origin.resolve().parents}
        for folder in self.consents:
            # Folders of `sys.path` below the study folder belong to the researcher's environment.
            import_paths = (path for path in _paths_at_start() if folder in path.parents)
            if folder in parents and not any(path in location.parents for path in import_paths):
                return folder
        return None


def load_study_code(path: Path, consent: Consent | None) -> ModuleType:
    """Return the module of a Python file, which is executed at most once per process.

    Raises InputError without consent, and for a file that cannot be executed.
    """
    # `consent` is None if a caller in Python names the file.
    return _installed_finder().load_module(path, consent)


def agreement_for_workers(path: Path) -> Consent:
    """Return the consent that lets cluster workers execute a study file."""
    # The consent holds only for the content that this process has executed.
    code = _installed_finder()
    versions = {str(file): digest for file, digest in code.digests.items()}
    consent = code.consents.get(path.resolve().parent)
    return Consent(granted=consent is None or consent.granted, versions=versions)


@cache
def _installed_finder() -> StudyCode:
    # Remember `sys.path` before any study code can change it.
    _paths_at_start()
    code = StudyCode()
    # Before Python's own finders, which would load the modules without consent.
    sys.meta_path.insert(0, code)
    return code


@cache
def _paths_at_start() -> tuple[Path, ...]:
    return tuple(Path(entry or os.curdir).resolve() for entry in sys.path)


def _location_of(origin: Path) -> Path:
    # Symbolic links are resolved in the folder of the module, not in its name.
    return _resolve_folder(origin.parent) / origin.name


# Both are asked for each module that is imported after the study, several hundred for one run.
@cache
def _folders_above(folder: Path) -> frozenset[Path]:
    # Symbolic links may lead into a study folder and out of it. So both the written folders and
    # their targets count.
    return frozenset(
        {*(_resolve_folder(folder) / "module").parents}
        | {_resolve_folder(parent) for parent in (folder, *folder.parents)}
    )


@cache
def _resolve_folder(folder: Path) -> Path:
    return folder.resolve()


def _is_imported_by_study_code() -> bool:
    # A walk over the stack, because an import may be several calls away from the study code.
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if isinstance(frame.f_globals.get("__loader__"), AgreedSource):
            return True
        frame = frame.f_back
    return False


def _read_with_consent(path: Path, consent: Consent | None) -> bytes:
    try:
        source = path.read_bytes()
    except OSError as error:
        reason = f"cannot be read: {error.strerror or error}"
        raise InputError(Problem(reason, str(path), key="study")) from error
    if consent is not None:
        consent.require_code_execution(path, source)
    return source


def _load_error(error: BaseException, path: Path) -> InputError:
    reason = error.msg if isinstance(error, SyntaxError) else repr(error)
    line = locate_load_error(error, path)
    return InputError(Problem(f"the file cannot be run: {reason}", str(path), line, "study"))
