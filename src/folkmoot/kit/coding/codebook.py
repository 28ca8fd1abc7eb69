"""Codebooks: YAML files that tell models and humans what to look for in free text."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from folkmoot.engine.settings.config_problems import problems_from_validation
from folkmoot.engine.settings.yaml_tree import parse_yaml
from folkmoot.errors import InputError, Problem
from folkmoot.files import reason_of
from folkmoot.hints import did_you_mean

# Marks a text that was coded and to which no code applies. It differs from a missing answer.
NO_CODE_LABEL = "(none)"
SUFFIX = ".yaml"
# A coder writes this word instead of listing all values of a slot.
ALL_SLOT_VALUES = "all"


class _FrozenModel(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Code(_FrozenModel):
    """One code. `quoted: false` marks a code for something absent, which no quote can show."""

    name: str = Field(min_length=1)
    definition: str = Field(min_length=1)
    examples: tuple[str, ...] = ()
    counter_examples: tuple[str, ...] = ()
    quoted: bool = True


class Codebook(_FrozenModel):
    """A question about a text, and the codes that answer it.

    `choose`: exactly one code (`one`), or all that apply (`any`). `level: ordinal` means that the
    codes are ordered, which matters for the agreement of coders. `slots` maps each kind of object
    that a code can refer to, such as `option` or `member`, to its meaning. Each text lists the
    permitted values of the slots. `fixed` means that findings refer to the names of the codes. A
    researcher's version may then reword the codes and add others, but must keep every name.
    """

    name: str = Field(pattern=r"^\w+$")
    question: str
    choose: Literal["one", "any"] = "any"
    level: Literal["nominal", "ordinal"] = "nominal"
    slots: dict[str, str] = {}
    # The coder has no use for `fixed`, so it is in neither the prompt nor the sealed codebook.
    fixed: bool = Field(False, exclude=True)
    codes: tuple[Code, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _check_distinct_names(self) -> Codebook:
        # `find_code` ignores the spelling, so names that differ only in spelling would be one code.
        names = [_normalise_name(code.name) for code in self.codes]
        if repeated_names := [
            code.name for i, code in enumerate(self.codes) if names[i] in names[:i]
        ]:
            raise ValueError(f"duplicate code {repeated_names[0]!r}")
        if reserved_names := {NO_CODE_LABEL, ALL_SLOT_VALUES} & set(names):
            raise ValueError(f"no code can have the name {reserved_names.pop()!r}")
        # A slot becomes a field of the reply next to these two.
        if reserved_names := {"code", "quote"} & set(self.slots):
            raise ValueError(f"no slot can have the name {reserved_names.pop()!r}")
        if self.level == "ordinal" and self.choose == "any":
            raise ValueError("`level: ordinal` is possible only with `choose: one`")
        return self

    @property
    def code_names(self) -> tuple[str, ...]:
        """The names of the codes in order."""
        return tuple(code.name for code in self.codes)

    def find_code(self, name: str) -> Code | None:
        """Return the code with this name, or None."""
        # Case, spaces, hyphens and underscores are ignored.
        return next(
            (code for code in self.codes if _normalise_name(code.name) == _normalise_name(name)),
            None,
        )

    def to_json(self) -> dict[str, object]:
        """Return the content of the codebook file, without keys that have their default value."""
        return self.model_dump(mode="json", exclude_defaults=True)

    @cached_property
    def yaml_text(self) -> str:
        """The codebook as YAML text for the coder's prompt."""
        return yaml.safe_dump(
            self.to_json(), sort_keys=False, allow_unicode=True, width=100
        ).strip()


def read_codebook(path: Path) -> Codebook:
    """Return the codebook in a file.

    Raises InputError with the line of every mistake.
    """
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        message = f"the codebook cannot be read: {reason_of(error)}"
        raise InputError(Problem(message, str(path))) from error
    tree = parse_yaml(text, str(path))
    if not isinstance(tree.value, Mapping):
        hint = "a codebook has the keys name, question and codes"
        raise InputError(Problem("this is not a codebook", str(path), hint=hint))
    try:
        return Codebook.model_validate(tree.value)
    except ValidationError as error:
        raise InputError(problems_from_validation(error, tree, Codebook)) from error


def check_user_codebooks(user_folder: Path, shipped: Path) -> list[Problem]:
    """Return every mistake in a researcher's codebooks."""
    # Each file in `user_folder` replaces the codebook with the same name in the folder `shipped`.
    # It must keep the names of codes that findings use.
    if not user_folder.is_dir():
        return [Problem(f"no such folder: {user_folder}")]
    # Only files with names of shipped codebooks are used, so another file name is a mistake.
    shipped_paths = {path.stem: path for path in shipped.glob(f"*{SUFFIX}")}
    problems: list[Problem] = []
    for path in sorted(user_folder.glob("*")):
        if path.suffix != SUFFIX or path.stem not in shipped_paths:
            hint = did_you_mean(
                path.stem, shipped_paths, "the codebooks are: " + ", ".join(sorted(shipped_paths))
            )
            problems.append(
                Problem("the study has no codebook with this name", str(path), hint=hint)
            )
            continue
        try:
            problems += _check_replacement(
                read_codebook(path), read_codebook(shipped_paths[path.stem]), path
            )
        except InputError as error:
            problems += error.problems
    return problems


def _check_replacement(replacement: Codebook, shipped: Codebook, path: Path) -> list[Problem]:
    problems = [
        Problem(
            f"must be the same as in the shipped codebook: {getattr(shipped, key)!r}",
            str(path),
            key=key,
        )
        for key in ("name", "choose", "level")
        if getattr(replacement, key) != getattr(shipped, key)
    ]
    if set(replacement.slots) != set(shipped.slots):
        slot_names = ", ".join(shipped.slots) or "none"
        problems.append(
            Problem(
                f"must be the same as in the shipped codebook: {slot_names}", str(path), key="slots"
            )
        )
    if missing := [
        code_name
        for code_name in shipped.code_names
        if shipped.fixed and code_name not in replacement.code_names
    ]:
        hint = "the definition of a code may be reworded, but findings need every name"
        message = f"missing codes of the shipped codebook: {', '.join(missing)}"
        problems.append(Problem(message, str(path), key="codes", hint=hint))
    return problems


def _normalise_name(name: str) -> str:
    return "".join(name.casefold().replace("_", " ").replace("-", " ").split())
