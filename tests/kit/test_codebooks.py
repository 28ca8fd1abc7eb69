"""The shipped codebooks are valid, and custom codebooks are checked against them."""

from __future__ import annotations

from pathlib import Path
from shutil import copy

import pytest
from pydantic import ValidationError
from typer.testing import CliRunner

import folkmoot.studies
from folkmoot.cli.app import app
from folkmoot.kit import coding
from tests.contract.small import small_study
from tests.sweeps import sample_daily

CODEBOOKS = sorted(Path(folkmoot.studies.__path__[0]).glob("*/codebooks/*.yaml"))


@pytest.mark.parametrize("path", CODEBOOKS, ids=lambda p: p.stem)
def test_a_codebook_is_valid(path: Path) -> None:
    book = coding.read_codebook(path)
    assert book.name == path.stem
    for code in book.codes:
        assert code.definition.strip().endswith("."), code.name
        # A counter-example of one code may be an example of another code, but not of the same one.
        assert not set(code.examples) & set(code.counter_examples)


OPINION_CODEBOOK = next(path for path in CODEBOOKS if path.stem == "opinion")


@pytest.mark.parametrize(
    ("name", "old_text", "new_text", "message"),
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
def test_check_reports_problems_of_custom_codebooks(
    tmp_path: Path, name: str, old_text: str, new_text: str, message: str
) -> None:
    study = small_study("focus_group", tmp_path)
    study.write_text(f"{study.read_text()}\ncoding: {{codebooks: mine}}\n")
    assert "no such folder" in check_study(study)
    (tmp_path / "mine").mkdir()
    copy(OPINION_CODEBOOK, tmp_path / "mine" / "opinion.yaml")
    assert "No problems" in check_study(study)
    text = OPINION_CODEBOOK.read_text("utf-8").replace(old_text, new_text, 1)
    (tmp_path / "mine" / name).write_text(text, "utf-8")
    output = check_study(study)
    assert message in output and "No problems" not in output


@pytest.mark.parametrize("name", ["TOO_DEAR", "too dear", "too-dear"])
def test_names_that_differ_only_in_spelling_are_one_code(name: str) -> None:
    """Replies are matched with codes without regard to spelling, so one of two would be lost."""
    codes = [{"name": code, "definition": "-"} for code in ("too_dear", name)]
    with pytest.raises(ValidationError, match="duplicate code"):
        coding.Codebook.model_validate({"name": "price", "question": "Why?", "codes": codes})


def check_study(study: Path) -> str:
    return " ".join(CliRunner().invoke(app, ["check", str(study)]).output.split())


def test_keys_for_the_program_are_not_sent_to_the_coder() -> None:
    book = coding.read_codebook(OPINION_CODEBOOK)
    assert book.fixed and "fixed" not in book.yaml_text
