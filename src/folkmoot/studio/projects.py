"""The studies of a folder: which there are, new ones, files beside them, and where their runs lie.

A study is named by the path of its study file below the folder. New studies get a folder each,
because a template may bring further files. Runs lie in `outputs/` below the folder.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from starlette.exceptions import HTTPException

from folkmoot.authoring.template import new_files
from folkmoot.conversation.prompts import PromptLibrary
from folkmoot.engine.settings.yaml_tree import parse_yaml
from folkmoot.engine.study.study import Study, find_study, load_installed_studies
from folkmoot.errors import InputError, Problem
from folkmoot.files import write_bytes
from folkmoot.hints import did_you_mean
from folkmoot.storage.run_folder import OUTPUTS

YAML_SUFFIXES = (".yaml", ".yml")
MAX_STUDY_BYTES = 1_000_000  # of a YAML file, to be looked at for the list
_WORD = re.compile(r"[\w][\w. -]{0,79}")


class Projects:
    """The studies below `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.outputs = self.root / OUTPUTS

    def names(self) -> list[str]:
        """The studies in order of name."""
        return sorted(self._find())

    def path(self, name: str) -> Path:
        """The study file of that name. Raises HTTPException (404) if there is none: a name from an
        address never leads to another file."""
        for known in self._find():
            if known == name:
                return self.root / known
        raise HTTPException(404, f"There is no study {name} here. It may have been moved.")

    def _find(self) -> Iterator[str]:
        suffixes = {
            file_suffix
            for study in load_installed_studies()[0]
            for file_suffix in study.file_suffixes
            if study.load_config
        }
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
        """Write the template of a study type into a new folder; the name of its study file."""
        study = find_study(kind)
        folder = self._new_folder(name)
        files = new_files(study)
        for file, content in files.items():
            write_bytes(folder / file, content.encode() if isinstance(content, str) else content)
        suffixes = (*YAML_SUFFIXES, *study.file_suffixes)
        first = next(file for file in files if file.endswith(suffixes))
        return f"{folder.name}/{first}"

    def add_file(self, file_name: str, content: bytes) -> str:
        """Keep a study file that was uploaded, in a new folder; the name of the study."""
        file = plain_name(file_name)
        folder = self._new_folder(Path(file).stem)
        write_bytes(folder / file, content)
        try:
            return self.path(f"{folder.name}/{file}").relative_to(self.root).as_posix()
        except HTTPException:
            (folder / file).unlink()
            folder.rmdir()
            hint = "a YAML file with the key `study`, or a workbook"
            raise InputError(Problem("is no study file", file, hint=hint)) from None

    def _new_folder(self, name: str) -> Path:
        wanted = plain_name(name.strip().replace(" ", "_"))
        for n in count(1):
            folder = self.root / (wanted if n == 1 else f"{wanted}_{n}")
            try:
                folder.mkdir(parents=True)
            except FileExistsError:
                continue
            return folder
        raise AssertionError

    def new_run(self, stem: str) -> Path:
        """A folder for a run that there is not yet: `outputs/STEM`, or with a number behind it."""
        for n in count(1):
            folder = self.outputs / (stem if n == 1 else f"{stem}_{n}")
            if not folder.exists():
                return folder
        raise AssertionError

    def run_stem(self, name: str) -> str:
        """What runs of a study are called: its folder, or its file where it has none."""
        path = Path(name)
        return path.stem if path.parent == Path() else path.parent.name


def is_study(path: Path) -> bool:
    """Whether a YAML file is a study file, by its keys."""
    if path.suffix.lower() not in YAML_SUFFIXES or path.stat().st_size > MAX_STUDY_BYTES:
        return False
    try:
        raw = parse_yaml(path.read_text("utf-8"), str(path)).value
    except (InputError, OSError, UnicodeDecodeError):
        return False
    if not isinstance(raw, dict):
        return False
    return "study" in raw or any(study.matches(raw) for study in load_installed_studies()[0])


def plain_name(name: str) -> str:
    """A name of a file or folder that cannot lead elsewhere. Raises InputError for others."""
    last = name.replace("\\", "/").rpartition("/")[2]
    if not _WORD.fullmatch(last):
        hint = "letters, digits, `_`, `-`, spaces and points; at most 80"
        raise InputError(Problem(f"{name!r} cannot be the name of a file", hint=hint))
    return last


def own_prompt_path(study: Study, name: str, folder: Path, prompts: str) -> Path:
    """Where a prompt of the user's own lies. Raises HTTPException (404) for an unknown prompt."""
    library = PromptLibrary(study.prompts)
    if name not in library.default_prompts:
        hint = did_you_mean(name, library.default_prompts)
        raise HTTPException(404, f"There is no prompt {name}. {hint}")
    return folder / Path(prompts).expanduser() / f"{name}.md"
