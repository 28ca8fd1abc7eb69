"""A study that is not in English gives a warning if the embedded respondent answers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

import folkmoot
from folkmoot.cli.app import app
from folkmoot.engine.run.study_language import is_english
from folkmoot.models.scripted import ScriptedProvider
from tests.contract.small import SMALL, small_study
from tests.sweeps import sample_daily

TOPICS = {
    "de": ("Wofür soll die Stadt das Geld ausgeben?", ["Parks und Gärten", "Mehr Lehrstellen"]),
    "fr": ("À quoi la ville doit-elle consacrer cet argent ?", ["Des parcs", "Des emplois"]),
    "es": ("¿En qué debe gastar el dinero la ciudad?", ["Más parques", "Más trabajo"]),
    "zh": ("城市应该把这笔钱花在什么地方？", ["修建公园", "职业培训"]),
    "ar": ("على ماذا يجب أن تنفق المدينة المال؟", ["الحدائق العامة", "التدريب المهني"]),
}
WARNING = "speaks English only"


def build_pilot(folder: Path, question: str, options: list[str]) -> Path:
    path = folder / "pilot.yaml"
    settings = {
        "study": "cross_pollination",
        "pilot_id": "small",
        "topic": {"description": question, "options": options},
        "participants_per_condition": 2,
        "min_responses_for_threshold": 50,
        "personas": {"source": "quota"},
        "model": "synthetic",
    }
    path.write_text(yaml.safe_dump(settings, allow_unicode=True), "utf-8")
    return path


@pytest.mark.parametrize("language", sample_daily(TOPICS, daily=1, part="sweeps"))
def test_run_in_another_language_warns_that_the_respondent_speaks_english(
    language: str, tmp_path: Path
) -> None:
    path = build_pilot(tmp_path, *TOPICS[language])
    checked = CliRunner().invoke(app, ["check", str(path)])
    assert checked.exit_code == 0 and WARNING in " ".join(checked.output.split())
    folkmoot.run(path, out=tmp_path / "run")
    assert (tmp_path / "run" / "run.log").read_text().count(WARNING) == 1


@pytest.mark.parametrize("study", sample_daily(SMALL, daily=("cross_pollination",), part="sweeps"))
def test_english_studies_give_no_warning(study: str, tmp_path: Path) -> None:
    path = small_study(study, tmp_path)
    checked = CliRunner().invoke(app, ["check", str(path), "--model", "synthetic"])
    assert checked.exit_code == 0 and WARNING not in " ".join(checked.output.split())


def test_only_the_embedded_respondent_gives_the_warning(tmp_path: Path) -> None:
    path = build_pilot(tmp_path, *TOPICS["de"])
    checked = CliRunner().invoke(app, ["check", str(path), "--model", "openai/gpt-4o"])
    assert WARNING not in " ".join(checked.output.split())
    scripted = ScriptedProvider(lambda _request, _address: "Parks und Gärten")
    folkmoot.run(path, out=tmp_path / "run", provider=scripted)
    assert WARNING not in (tmp_path / "run" / "run.log").read_text()


@pytest.mark.parametrize(
    "text",
    [
        "Where shall the money go? Parks Jobs",
        "An oven that scans ready meals",
        "Of 100 households in a town like yours, how many will heat without gas?",
        "Should São Paulo rename its avenues? Keep them, Rename them",
    ],
)
def test_english_with_foreign_names_is_recognised(text: str) -> None:
    assert is_english(text)


def test_english_study_does_not_load_the_language_identifier() -> None:
    code = (
        "import sys; from folkmoot.engine.run.study_language import is_english; "
        "assert is_english('What should the city do with the money, and which parks?'); "
        "assert 'py3langid' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
