"""`folkmoot plan`: the fields of a preregistration, and the digest that the run then seals."""

from __future__ import annotations

import hashlib
import inspect
import json
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

import folkmoot
from folkmoot.cli.app import app
from folkmoot.engine.session.plan import digest_registration
from folkmoot.engine.study.study import registered_studies
from folkmoot.errors import RunPausedError
from folkmoot.report.document.trust import build_trust_section
from folkmoot.report.preregistration import registration_of_run
from folkmoot.storage.run_folder import RunFolder
from folkmoot.studies.cross_pollination.config import CrossPollinationConfig
from tests.contract.small import small_study

TEMPLATE_FIELDS = {
    "Study information": ["Title", "Authors", "Description", "Hypotheses"],
    "Design plan": [
        *("Study type", "Blinding", "Is there any additional blinding in this study?"),
        *("Study design", "Randomization"),
    ],
    "Sampling plan": [
        *("Existing data", "Explanation of existing data", "Data collection procedures"),
        *("Sample size", "Sample size rationale", "Stopping rule"),
    ],
    "Variables": ["Manipulated variables", "Measured variables", "Indices"],
    "Analysis plan": [
        *("Statistical models", "Transformations", "Inference criteria", "Data exclusion"),
        *("Missing data", "Exploratory analysis"),
    ],
    "Other": [
        *("Digest of the sealed plan", "Digests of the prompts", "Digests of the files"),
        "Sealed settings",
    ],
}
STUDIES = sorted(registered_studies())
HYPOTHESES = """
hypotheses:
  - measure: position_changed
    contrast: [acp, simple_voting]
    direction: greater
    smallest: 0.05
    expected: 0.2
"""


def write_small_study(folder: Path) -> Path:
    """Write a study with two conditions of three participants who only vote. Return its path."""
    path = small_study("cross_pollination", folder)
    settings = yaml.safe_load(path.read_text("utf-8"))
    settings |= {"conditions": ["simple_voting", "clarified_passive"], "extra_conditions": []}
    settings |= {"participants_per_condition": 3, "disagreement_threshold": 1.0}
    path.write_text(yaml.safe_dump(settings), "utf-8")
    return path


def run_command(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    return result.output


def read_fields(text: str) -> dict[str, str]:
    """Map each field of the template to its text."""
    parts = re.split(r"^### (.*)$", re.sub(r"^## .*$", "", text, flags=re.M), flags=re.M)[1:]
    return dict(zip(parts[::2], (part.strip() for part in parts[1::2]), strict=True))


@pytest.mark.parametrize(
    ("study", "finished_run"), [(study, study) for study in STUDIES], indirect=["finished_run"]
)
def test_the_run_of_a_preregistered_study_has_the_same_plan_digest(
    study: str, finished_run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = small_study(study, tmp_path / "study")
    pdf = ["--pdf"] if study == "town_hall" else []
    printed = run_command("plan", str(path), "--model", "synthetic", *pdf)
    written = tmp_path / f"{path.stem}_preregistration.md"
    text = written.read_text("utf-8")
    assert not pdf or written.with_suffix(".pdf").read_bytes().startswith(b"%PDF")
    for section, names in TEMPLATE_FIELDS.items():
        part = text.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
        assert re.findall(r"^### (.*)$", part, re.M) == names
    fields = read_fields(text)
    assert all(fields.values())
    assert re.search(r"^1\. .*(primary)", fields["Hypotheses"], re.M)
    run = finished_run
    (digest,) = re.findall(r"Digest of the sealed plan: (\w+)", printed)
    assert digest == digest_registration(run.plan)
    assert f"`{digest}`" in fields["Digest of the sealed plan"]
    for name, value in run.plan["sealed"]["design"]["data"]["prompts"].items():
        assert f"| {name} | {value} |" in fields["Digests of the prompts"]
    page = (run.path / "report.html").read_text("utf-8")
    assert f"Digest of the sealed plan: {digest}" in page
    sentences, claims = registration_of_run(run)
    claim_index = claims.columns.index("claim")
    assert claims.rows and all(
        f"| {row[claim_index]} |" in text.replace("\\|", "|") for row in claims.rows
    )
    assert sentences[-1] == "All results that are not in this table are exploratory."


def test_another_setting_seed_or_model_changes_the_digest(tmp_path: Path) -> None:
    path = small_study("cross_pollination", tmp_path)

    def compute_digest(*options: str) -> str:
        target = tmp_path / f"{len([*tmp_path.iterdir()])}.md"
        printed = run_command("plan", str(path), "--out", str(target), *options)
        return re.findall(r"Digest of the sealed plan: (\w+)", printed)[0]

    first_digest = compute_digest("--model", "synthetic")
    assert first_digest == compute_digest("--model", "synthetic")
    other_digests = [
        compute_digest("--model", "synthetic", "--seed", "7"),
        compute_digest("--model", "openai/gpt-4o", "--trust"),
        compute_digest("--model", "synthetic", "--set", "participants_per_condition=7"),
    ]
    assert len({first_digest, *other_digests}) == 4
    # A budget is not a part of the design.
    assert compute_digest("--model", "synthetic", "--budget", "5") == first_digest


def test_the_fields_have_the_content_of_the_study_file(tmp_path: Path) -> None:
    path = small_study("cross_pollination", tmp_path)
    path.write_text(path.read_text("utf-8") + HYPOTHESES, "utf-8")
    target = tmp_path / "plan.md"
    run_command("plan", str(path), "--out", str(target), "--model", "synthetic", "--budget", "12")
    fields = read_fields(target.read_text("utf-8"))
    assert (
        "1. Changed their choice: Adversarial (ACP) exceeds Simple voting by more than 5 points "
        "(primary)." in (fields["Hypotheses"])
    )
    assert "Expected: +20 points." in fields["Hypotheses"]
    assert "2." not in fields["Hypotheses"]
    assert fields["Sample size"] == "6 arms with 6 participants each."
    assert "pauses after spending $12.00" in fields["Stopping rule"]
    assert "Primary: 1 claim, a 95 % interval." in fields["Inference criteria"]
    assert (
        "Changed their choice: Adversarial (ACP) and Simple passive differ"
        in (fields["Exploratory analysis"])
    )
    # The contrast of the hypothesis is not listed again.
    assert "(ACP) and Simple voting" not in fields["Exploratory analysis"]
    assert "| all other roles | synthetic |" in fields["Data collection procedures"]


def test_a_preregistration_is_not_overwritten_and_is_marked_if_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = write_small_study(tmp_path)
    run_command("plan", str(path), "--model", "synthetic")
    run_command("plan", str(path), "--model", "synthetic")  # the same text
    other_seed = CliRunner().invoke(app, ["plan", str(path), "--model", "synthetic", "--seed", "3"])
    assert other_seed.exit_code == 2 and "holds another text" in other_seed.output
    folder_target = CliRunner().invoke(
        app, ["plan", str(path), "--model", "synthetic", "--out", "."]
    )
    assert folder_target.exit_code == 2 and "is a folder" in folder_target.output
    assert "has already started" not in (
        tmp_path / "cross_pollination_preregistration.md"
    ).read_text("utf-8")
    run_command("run", str(path), "--model", "synthetic")
    run_command("plan", str(path), "--model", "synthetic", "--out", "late.md")
    assert "this text was written after data collection began" in (tmp_path / "late.md").read_text(
        "utf-8"
    )


def test_files_that_the_digest_does_not_cover_are_listed_with_their_hashes(tmp_path: Path) -> None:
    path = small_study("cross_pollination", tmp_path)
    codebooks = tmp_path / "books"
    codebooks.mkdir()
    shipped = Path(inspect.getfile(CrossPollinationConfig)).parent / "codebooks"
    book = Path(shutil.copy(shipped / "restated.yaml", codebooks))
    settings = yaml.safe_load(path.read_text("utf-8"))
    # Texts that are no names of files must not stop the plan.
    settings |= {"pilot_name": "~nobody at all", "coding": {"codebooks": "books"}}
    settings["topic"]["description"] = "What shall we do? " * 100
    path.write_text(yaml.safe_dump(settings), "utf-8")
    texts = []
    for number in range(2):
        plan = tmp_path / f"plan{number}.md"
        run_command("plan", str(path), "--model", "synthetic", "--out", str(plan))
        texts.append(read_fields(plan.read_text("utf-8")))
        digest = hashlib.sha256(book.read_bytes()).hexdigest()
        assert f"| books/restated.yaml | {digest} |" in texts[-1]["Digests of the files"]
        assert "does not cover the content of these files" in texts[-1]["Digests of the files"]
        book.write_text(book.read_text("utf-8") + "\n", "utf-8")
    name = "Digest of the sealed plan"
    assert texts[0][name] == texts[1][name]


def test_a_stop_by_the_stated_rule_is_no_deviation(tmp_path: Path) -> None:
    path = small_study("cross_pollination", tmp_path)
    settings = yaml.safe_load(path.read_text("utf-8"))
    settings |= {"disagreement_threshold": 0.325, "min_responses_for_threshold": 10}
    path.write_text(yaml.safe_dump(settings), "utf-8")
    plan = tmp_path / "plan.md"
    run_command("plan", str(path), "--model", "synthetic", "--out", str(plan))
    rule = read_fields(plan.read_text("utf-8"))["Stopping rule"]
    assert "if one option has 32.5 % or more of at least 10 valid votes" in rule
    assert "No interim result" not in rule
    run = folkmoot.run(path, model="synthetic", out=tmp_path / "run")
    status = run.tables["participants"]["status"].value_counts(sort=True)
    assert dict(status.iter_rows())["skipped"] > 0
    assert build_trust_section(RunFolder(run.path), run.study).deviations == ()


def test_only_declared_rules_are_stated(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "import folkmoot as fm\n\n\nclass Config(fm.StudyConfig):\n    'Keys.'\n\n\n"
        "async def protocol(session):\n    pass\n\n\n"
        "STUDY = fm.Study('own', 'Own', Config, protocol)\n",
        "utf-8",
    )
    (tmp_path / "own.yaml").write_text("study: ./own.py\n", "utf-8")
    plan = tmp_path / "plan.md"
    options = ("--model", "synthetic", "--trust", "--out", str(plan))
    run_command("plan", str(tmp_path / "own.yaml"), *options)
    fields = read_fields(plan.read_text("utf-8"))
    assert "| ./own.py |" in fields["Digests of the files"]
    rule = fields["Stopping rule"]
    assert "does not state whether answers can end it early" in rule
    assert "No interim result" not in rule


def test_deviations_show_both_versions_in_full(tmp_path: Path) -> None:
    path = write_small_study(tmp_path)
    words = " ".join(f"word{n}" for n in range(60))
    path.write_text(
        path.read_text("utf-8").replace("One purpose can be funded.", f"Before {words}."), "utf-8"
    )
    run = folkmoot.run(path, model="synthetic", out=tmp_path / "run")
    study = run.path / "study.yaml"
    study.write_text(study.read_text("utf-8").replace("Before word0", "After word0"), "utf-8")
    plan = json.loads((run.path / "plan.json").read_text("utf-8"))
    earlier_design = json.loads(json.dumps(plan["sealed"]["design"]))
    earlier_design["data"]["settings"]["random_seed"] = 41
    plan["changes"].append({"name": "design", "was": earlier_design})
    (run.path / "plan.json").write_text(json.dumps(plan), "utf-8")
    versions = build_trust_section(RunFolder(run.path), run.study).versions
    rows = {row[0]: row[1:] for row in versions.rows}
    assert rows["design.settings.random_seed"] == ("41", "42")
    assert rows["study.yaml.topic.description"] == (f"Before {words}.", f"After {words}.")


def test_a_claim_that_differs_from_the_plan_is_a_deviation(
    run_of_small_study: Callable[[str], Path], tmp_path: Path
) -> None:
    run = folkmoot.load(shutil.copytree(run_of_small_study("negotiation"), tmp_path / "run"))
    plan = json.loads((run.path / "plan.json").read_text("utf-8"))
    earlier_digest = digest_registration(plan)
    plan["sealed"]["claims"]["data"][0]["margin"] = 0.5
    assert digest_registration(plan) != earlier_digest  # the stored hash is not used
    (run.path / "plan.json").write_text(json.dumps(plan), "utf-8")
    trust_section = build_trust_section(RunFolder(run.path), run.study)
    assert any(
        "1 claim of this report differs" in deviation for deviation in trust_section.deviations
    )
    assert ("claims[1].margin", "0.5", "0.0") in trust_section.versions.rows


def test_a_resume_keeps_the_sealed_claims(tmp_path: Path) -> None:
    """A resume neither adds claims after the calls nor replaces those of the sealed plan."""
    path = write_small_study(tmp_path)
    for name, change in (("none", None), ("other", 0.5)):
        run_folder = tmp_path / name
        with pytest.raises(RunPausedError):
            folkmoot.run(path, model="synthetic", out=run_folder, overrides=("budget_calls=5",))
        plan = json.loads((run_folder / "plan.json").read_text("utf-8"))
        if change is None:
            del plan["sealed"]["claims"]
        else:
            plan["sealed"]["claims"]["data"][0]["margin"] = change
        (run_folder / "plan.json").write_text(json.dumps(plan), "utf-8")
        folkmoot.run(path, model="synthetic", out=run_folder)  # continues the run
        sealed = json.loads((run_folder / "plan.json").read_text("utf-8"))["sealed"]
        assert sealed.get("claims") == plan["sealed"].get("claims")


def test_hypotheses_that_change_during_a_run_are_tested_as_registered(tmp_path: Path) -> None:
    path = write_small_study(tmp_path)
    settings = yaml.safe_load(path.read_text("utf-8"))
    stated = {"measure": "position_changed", "contrast": ["clarified_passive", "simple_voting"]}

    def state(*hypotheses: dict[str, object]) -> None:
        path.write_text(yaml.safe_dump(settings | {"hypotheses": hypotheses}), "utf-8")

    state(stated | {"direction": "greater"})
    text = run_command(
        "plan", str(path), "--model", "synthetic", "--out", str(tmp_path / "plan.md")
    )
    (registered,) = re.findall(r"Digest of the sealed plan: (\w+)", text)
    run_folder = tmp_path / "run"
    with pytest.raises(RunPausedError):
        folkmoot.run(path, model="synthetic", out=run_folder, overrides=("budget_calls=5",))
    state(
        stated | {"direction": "less"},
        stated | {"measure": "confidence_after", "direction": "less"},
    )
    run = folkmoot.run(path, model="synthetic", out=run_folder, accept_changes=True)
    trust_section = build_trust_section(RunFolder(run.path), run.study)
    assert registered in trust_section.registered[0]
    assert "The report tests them as registered." in " ".join(trust_section.deviations)
    (hypotheses,) = (finding for finding in run.findings if finding.key == "hypotheses")
    assert [row[0] for row in hypotheses.grid.rows] == [
        "Changed their choice: Clarified passive exceeds Simple voting"
    ]
    assert run.verify().is_consistent


def test_a_run_without_sealed_claims_is_reported(
    run_of_small_study: Callable[[str], Path], tmp_path: Path
) -> None:
    run = folkmoot.load(shutil.copytree(run_of_small_study("negotiation"), tmp_path / "run"))
    plan = json.loads((run.path / "plan.json").read_text("utf-8"))
    del plan["sealed"]["claims"]
    (run.path / "plan.json").write_text(json.dumps(plan), "utf-8")
    (says,), grid = registration_of_run(RunFolder(run.path))
    assert says.startswith("No claims were sealed") and not grid.rows


def test_the_commands_of_the_page_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "docs" / "plan.md").read_text("utf-8")
    monkeypatch.chdir(tmp_path)
    write_small_study(tmp_path).rename("study.yaml")
    printed = [run_command(*shlex.split(line, comments=True)[1:]) for line in commands(page)]
    (digest,) = re.findall(r"Digest of the sealed plan: (\w+)", printed[0])
    assert digest in (tmp_path / "outputs" / "study" / "report.html").read_text("utf-8")


def commands(page: str) -> list[str]:
    return re.findall(r"^folkmoot .*$", page, re.M)
