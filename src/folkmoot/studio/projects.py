"""The studies of a folder: find them, create them, and add files.

The name of a study is the path of its study file below the folder.
"""
# Each new study gets a separate folder, because its template may have further files.

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

from starlette.exceptions import HTTPException

from folkmoot.authoring.template import new_files
from folkmoot.conversation.prompts import PromptLibrary
from folkmoot.engine.settings.yaml_tree import parse_yaml
from folkmoot.engine.study.imported_study import ImportedStudy
from folkmoot.engine.study.study import Study, find_study, load_installed_studies
from folkmoot.engine.study.study_file import read_study_text
from folkmoot.errors import InputError, Problem
from folkmoot.files import write_bytes
from folkmoot.hints import did_you_mean
from folkmoot.storage.run_folder import OUTPUTS

YAML_SUFFIXES = (".yaml", ".yml")
# Larger YAML files are not parsed for the list of studies, which every page load computes.
MAX_STUDY_BYTES = 1_000_000
MAX_NAME_CHARACTERS = 80
# No system takes more than 255 bytes. Names of runs add a few characters to it.
MAX_NAME_BYTES = 240
# Characters that some system does not take in the name of a file.
_FORBIDDEN = frozenset('/\\:*?"<>|')


class Projects:
    """The studies below the folder `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.outputs = self.root / OUTPUTS

    def names(self) -> list[str]:
        """Return the names of all studies in alphabetical order."""
        return sorted(self._find())

    def path(self, name: str) -> Path:
        """Return the study file with this name.

        Raises HTTPException (404) if there is no such study.
        """
        # The name is looked up in the list of studies, so that an address never leads to another
        # file.
        for study_name in self._find():
            if study_name == name:
                return self.root / study_name
        raise HTTPException(404, f"There is no study {name} here. It may have been moved.")

    def name_of(self, path: Path) -> str:
        """Return the name of the study with this study file.

        Returns "" if the file is not a study file in the studio's folder.
        """
        return next((name for name in self._find() if self.root / name == path), "")

    def _find(self) -> Iterator[str]:
        suffixes = {
            file_suffix
            for study in load_installed_studies()[0]
            for file_suffix in study.file_suffixes
            if study.load_config
        }
        # Study files are looked for in the folder and one level below it, where `add_new` puts
        # them. A symbolic link could lead out of the folder, so links are skipped.
        for pattern in ("*", "*/*"):
            for path in self.root.glob(pattern):
                parts = path.relative_to(self.root).parts
                if any(part.startswith((".", "~")) for part in parts) or parts[0] == OUTPUTS.name:
                    continue
                if path.is_symlink() or not path.is_file():
                    continue
                if path.suffix.lower() in suffixes or is_study(path):
                    yield "/".join(parts)

    def add_new(self, kind: str, name: str) -> str:
        """Write the template of a study type to a new folder, and return the study's name."""
        study = find_study(kind)
        folder = self._new_folder(name)
        files = new_files(study)
        for file, content in files.items():
            write_bytes(folder / file, content.encode() if isinstance(content, str) else content)
        suffixes = (*YAML_SUFFIXES, *study.file_suffixes)
        first = next(file for file in files if file.endswith(suffixes))
        return f"{folder.name}/{first}"

    def add_file(self, file_name: str, content: bytes) -> str:
        """Store an uploaded study file in a new folder, and return the study's name.

        Raises InputError if the file is not a study file.
        """
        file = plain_name(file_name)
        folder = self._new_folder(Path(file).stem)
        write_bytes(folder / file, content)
        if importer := _find_importer(file):
            return self._import_file(folder / file, importer)
        try:
            # The file must be on disk before it can be recognised as a study. If it is not one, it
            # is removed.
            return self.path(f"{folder.name}/{file}").relative_to(self.root).as_posix()
        except HTTPException:
            problem = _why_no_study(folder / file)
            (folder / file).unlink()
            folder.rmdir()
            if problem is not None:
                raise InputError(problem) from None
            hint = "a YAML file with the key `study`, a workbook, or a Qualtrics survey (.qsf)"
            raise InputError(Problem(f"{file} is no study file", hint=hint)) from None

    def _import_file(self, path: Path, importer: Callable[[Path], ImportedStudy]) -> str:
        # Returns the name of the study made from a file of another program.
        try:
            made = importer(path)
        except InputError as error:
            path.unlink()
            path.parent.rmdir()
            # The researcher knows the name of the file, and not where the studio put it.
            raise InputError([replace(each, file=path.name) for each in error.problems]) from error
        for name, text in made.files.items():
            write_bytes(path.parent / name, text.encode() if isinstance(text, str) else text)
        return f"{path.parent.name}/{next(iter(made.files))}"

    def _new_folder(self, name: str) -> Path:
        folder_name = checked_name(name.strip()).replace(" ", "_")
        for n in count(1):
            folder = self.root / (folder_name if n == 1 else f"{folder_name}_{n}")
            try:
                folder.mkdir(parents=True)
            # `mkdir` and not a test for existence, so that two requests never get the same folder.
            except FileExistsError:
                continue
            return folder
        raise AssertionError

    def run_stem(self, name: str) -> str:
        """Return the base name for runs of a study."""
        # The name of the study's folder. For a study file outside all folders, the name of the
        # file.
        path = Path(name)
        return path.stem if path.parent == Path() else path.parent.name


def _find_importer(file: str) -> Callable[[Path], ImportedStudy] | None:
    suffix = Path(file).suffix.lower()
    studies = load_installed_studies()[0]
    return next((s.importers[suffix] for s in studies if suffix in s.importers), None)


def is_study(path: Path) -> bool:
    """Return True if a YAML file has the keys of a study file."""
    if path.suffix.lower() not in YAML_SUFFIXES or path.stat().st_size > MAX_STUDY_BYTES:
        return False
    try:
        raw = parse_yaml(read_study_text(path), str(path)).value
    except (InputError, OSError):
        return False
    if not isinstance(raw, dict):
        return False
    return "study" in raw or any(study.matches(raw) for study in load_installed_studies()[0])


def _why_no_study(path: Path) -> Problem | None:
    # A YAML file that cannot be read at all. The page that shows the problem has no file names.
    if path.suffix.lower() not in YAML_SUFFIXES:
        return None
    try:
        parse_yaml(read_study_text(path), path.name)
    except InputError as error:
        first = error.problems[0]
        return replace(first, file="", message=f"{path.name}: {first.message}")
    return None


def plain_name(name: str) -> str:
    """Return the last part of a file name.

    Raises InputError if that part is not safe as a name in a folder.
    """
    # A browser may send a whole path, with the separators of its system.
    return checked_name(name.replace("\\", "/").rpartition("/")[2])


def checked_name(name: str) -> str:
    """Return a name that is safe for a file or folder on all systems.

    Raises InputError if it is not.
    """
    # Names that begin with a point or `~` are hidden or temporary files, which are no studies.
    is_short = len(name) <= MAX_NAME_CHARACTERS and len(name.encode()) <= MAX_NAME_BYTES
    is_plain = name.isprintable() and not _FORBIDDEN.intersection(name) and name[:1] not in ".~"
    if not name or not is_short or not is_plain:
        hint = (
            f"at most {MAX_NAME_CHARACTERS} characters, none of them {' '.join(sorted(_FORBIDDEN))}"
            ", and no point or ~ at the beginning"
        )
        raise InputError(Problem(f"{name!r} cannot be the name of a file or folder", hint=hint))
    return name


def own_prompt_path(study: Study, name: str, folder: Path, prompts: str) -> Path:
    """Return the path of the researcher's version of a prompt.

    Raises HTTPException (404) if the study type has no such prompt.
    """
    library = PromptLibrary(study.prompts)
    if name not in library.default_prompts:
        hint = did_you_mean(name, library.default_prompts)
        raise HTTPException(404, f"There is no prompt {name}. {hint}")
    return folder / Path(prompts).expanduser() / f"{name}.md"
