"""The shipped codebooks can be read, and are stored in the folder of the study that uses them."""

from __future__ import annotations

from pathlib import Path
from shutil import copy

import pytest
from typer.testing import CliRunner

import folkmoot.studies
from folkmoot.cli.app import app
from folkmoot.kit import coding
from tests.contract.small import small_study
from tests.sweeps import sample_daily

CODEBOOKS = sorted(Path(folkmoot.studies.__path__[0]).glob("*/codebooks/*.yaml"))


@pytest.mark.parametrize("path", CODEBOOKS, ids=lambda p: p.stem)
def test_a_codebook_is_sound(path: Path) -> None:
    book = coding.read_codebook(path)
    assert book.name == path.stem
    for code in book.codes:
        assert code.definition.strip().endswith("."), code.name
        # A counter-example of one code may be an example of another, never of the same.
        assert not set(code.examples) & set(code.counter_examples)


OPINION = next(path for path in CODEBOOKS if path.stem == "opinion")


@pytest.mark.parametrize(
    ("name", "was", "becomes", "told"),
    sample_daily(
        [
            ("opinions.yaml", "", "", "did you mean opinion?"),
            (
                "opinion.yaml",
                "name: keen",
                "name: fervent",
                "codes of the shipped codebook: keen",
            ),
            ("opinion.yaml", "choose: one", "choose: any", "choose"),
            ("opinion.yaml", "choose: one", "choose: one\nslots: {brand: which}", "slots"),
            (
                "opinion.yaml",
                "name: opinion",
                "name: stance",
                "the same as in the shipped codebook",
            ),
            ("opinion.yaml", "definition:", "definitoin:", "opinion.yaml:"),
        ],
        daily=2,
        part="sweeps",
    ),
)
def test_check_tells_what_is_wrong_with_codebooks_of_ones_own(
    tmp_path: Path, name: str, was: str, becomes: str, told: str
) -> None:
    study = small_study("focus_group", tmp_path)
    study.write_text(f"{study.read_text()}\ncoding: {{codebooks: mine}}\n")
    assert "no such folder" in checked(study)
    (tmp_path / "mine").mkdir()
    copy(OPINION, tmp_path / "mine" / "opinion.yaml")
    assert "No problems" in checked(study)
    text = OPINION.read_text("utf-8").replace(was, becomes, 1)
    (tmp_path / "mine" / name).write_text(text, "utf-8")
    said = checked(study)
    assert told in said and "No problems" not in said


def checked(study: Path) -> str:
    return " ".join(CliRunner().invoke(app, ["check", str(study)]).output.split())


def test_what_a_codebook_says_to_the_program_is_not_told_to_the_coder() -> None:
    book = coding.read_codebook(OPINION)
    assert book.fixed and "fixed" not in book.yaml_text
