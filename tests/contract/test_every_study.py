"""Run every study type serially, with random latencies, and crashed and resumed.

The digest of the journal and the bytes of the tables must not depend on the scheduling. A study
type of another package is included through its entry point.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import folkmoot
from folkmoot.engine.journal.journal_reader import JournalReader
from folkmoot.engine.run.dry_run import estimate_run
from folkmoot.engine.study.study import FAILED_FINDING_KEY, registered_studies
from folkmoot.engine.study.study_file import load_study_file
from folkmoot.errors import BudgetReachedError, InputError
from folkmoot.storage import table_buffer
from tests.contract.runs import Crash, SerialRun, digest, make_respondent, play
from tests.contract.small import small_study
from tests.sweeps import sample_daily

STUDIES = sorted(registered_studies())


# Two of the types that run most calls side by side. Both tests below compare with the same runs.
# Daily, two other types are paused and resumed in test_partial_runs.
DAILY = ("cross_pollination", "focus_group")


@pytest.mark.parametrize("study", sample_daily(STUDIES, daily=DAILY, part="kills"))
def test_scheduling_and_rows_on_disk_change_no_result(
    study: str, serial_run: SerialRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limits that bound memory apply from the third row on."""
    for small in ("MAX_ROWS_IN_MEMORY", "FRAME_ROWS"):
        monkeypatch.setattr(table_buffer, small, 3)
    for large in ("kit.exposure", "studies.cross_pollination.exposure_design"):
        monkeypatch.setattr(f"folkmoot.{large}.DECISIONS_AT_ONCE", 3)
    jittered = play(
        study, tmp_path / "run", concurrency=64, provider=make_respondent(study, jitter=7)
    )
    assert digest(serial_run(study)) == digest(jittered)
    assert not list(jittered.path.glob(".*.rows"))


@pytest.mark.parametrize("study", sample_daily(STUDIES, daily=DAILY, part="kills"))
def test_crashed_and_resumed_is_the_same_run(
    study: str, serial_run: SerialRun, tmp_path: Path
) -> None:
    whole = serial_run(study)
    calls = whole.manifest["calls"]
    folder = tmp_path / "run"
    for attempt, share in enumerate((0.1, 0.6)):
        with pytest.raises(Crash):
            play(
                study,
                folder,
                provider=make_respondent(
                    study, jitter=attempt, die_after=max(1, int(calls * share * 0.5))
                ),
            )
    assert digest(play(study, folder, provider=make_respondent(study))) == digest(whole)


IN_PROCESS = """
import json, sys
from pathlib import Path
from tests.contract.runs import digest, play
folder, *studies = sys.argv[1:]
runs = {study: play(study, Path(folder, study, "run"), model="synthetic") for study in studies}
print(json.dumps({study: digest(run) for study, run in runs.items()}))
"""


# Daily the type with the most sets and mappings of names. That clusters are the same in a process
# with another hash seed is tested daily in test_scale.
@pytest.mark.parametrize(
    "studies",
    [
        pytest.param(("town_hall",), id="daily"),
        pytest.param(STUDIES, id="all", marks=pytest.mark.nightly(part="kills")),
    ],
)
def test_another_process_with_another_hash_seed_gives_the_same(
    studies: Sequence[str], run_of_small_study: Callable[[str], Path], tmp_path: Path
) -> None:
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    # The processes of tests have one thread.
    threads = {"POLARS_MAX_THREADS": "4", "OMP_NUM_THREADS": "4", "OPENBLAS_NUM_THREADS": "4"}
    done = subprocess.run(
        [sys.executable, "-c", IN_PROCESS, str(tmp_path), *studies],
        capture_output=True,
        text=True,
        env={**os.environ, **threads, "PYTHONHASHSEED": seed, "PYTHONPATH": os.getcwd()},
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr
    here = {study: [*digest(folkmoot.load(run_of_small_study(study)))] for study in studies}
    assert json.loads(done.stdout.splitlines()[-1]) == here


@pytest.mark.parametrize("study", STUDIES)
def test_every_study_has_its_codebook_and_findings(
    study: str, run_of_small_study: Callable[[str], Path]
) -> None:
    run = folkmoot.load(run_of_small_study(study))
    keys = [f.key for f in run.findings]
    assert keys, "a study that finds nothing has nothing to report"
    assert FAILED_FINDING_KEY not in keys, run.findings
    book = json.loads((run.path / "codebook.json").read_text())
    unexplained = [
        f"{table}.{column}"
        for table, entry in book.items()
        for column, facts in entry["columns"].items()
        if not facts["meaning"]
    ]
    assert unexplained == []


@pytest.mark.parametrize(
    "study", sample_daily(STUDIES, daily=("focus_group", "workbook"), part="sweeps")
)
def test_a_model_can_be_named_for_the_roles_of_a_study_only(
    serial_run: SerialRun, study: str, tmp_path: Path
) -> None:
    asked = set(serial_run(study).table("answers")["role"])
    path = small_study(study, tmp_path)
    overrides = [f"models.{role}=synthetic" for role in sorted(asked)]
    assert set(load_study_file(path, overrides).config.models) >= asked
    wrong = [("participnt", "did you mean participant?"), ("zzz", "the roles are")]
    # Only one study type asks a model to describe people.
    wrong += [("recruiter", "")] if study != "cross_pollination" else []
    for role, hint in wrong:
        with pytest.raises(InputError) as error:
            load_study_file(path, [*overrides, f"models.{role}=synthetic"])
        (problem,) = error.value.problems
        assert (problem.key, problem.message) == (f"models.{role}", "unknown role")
        assert problem.hint.startswith(hint)


@pytest.mark.parametrize("study", STUDIES)
def test_no_study_reaches_past_its_session(study: str) -> None:
    """Studies import no journal, gateway or provider, no clock and no global randomness."""
    package = Path(folkmoot.__file__).parent / "studies" / study
    forbidden = (
        *(
            "engine.journal.journal",
            "engine.calls.gateway",
            "engine.session.run_context",
            "models.openai_chat",
        ),
        *("models.anthropic_messages", "models.gemini", "import random"),
        *("import time", "import uuid", "datetime.now", "asyncio.gather", "create_task"),
    )
    for path in package.rglob("*.py"):
        text = path.read_text("utf-8")
        found = [word for word in forbidden if word in text]
        assert not found, f"{path.name} uses {found}"


NIGHTLY = pytest.mark.nightly(part="kills")


# Daily, test_partial_runs pauses a run with more parts in each study type.
@NIGHTLY
@pytest.mark.parametrize("share", [0.02, 0.3, 0.9])
@pytest.mark.parametrize("study", STUDIES)
def test_a_paused_run_can_be_reported_and_goes_on_to_the_same_end(
    study: str, share: float, serial_run: SerialRun, tmp_path: Path
) -> None:
    whole, folder = serial_run(study), tmp_path / "run"
    limit = max(1, int(whole.manifest["calls"] * share))
    with pytest.raises(BudgetReachedError):
        play(study, folder, provider=make_respondent(study), overrides=(f"budget_calls={limit}",))
    paused = folkmoot.load(folder)
    assert paused.manifest["outcome"] == "paused" and paused.manifest["calls"] == limit
    assert paused.table("answers").height > 0 and "PARTIAL" in repr(paused)
    page = paused.report().read_text("utf-8")
    assert "<strong>PARTIAL</strong>" in page and "the run is paused" in page.lower()
    done = play(study, folder, provider=make_respondent(study))
    assert digest(done) == digest(whole)
    assert "PARTIAL" not in folkmoot.load(folder).report().read_text("utf-8")


# Study → an override for four sets, and a pattern for the set of an address.
SETS = {
    "town_hall": ("sets=4", r"^[^/]*?(\d+)"),
    "focus_group": ("replications=4", r"^discussion/([^/]+)/"),
    "negotiation": ("groups_per_type=2", r"^(?:preferences|negotiation)/(.+?)(?:-C\d)?/"),
}


@NIGHTLY
@pytest.mark.parametrize("share", [0.4, 0.7])
@pytest.mark.parametrize("study", SETS)
def test_a_budget_buys_whole_comparisons(study: str, share: float, tmp_path: Path) -> None:
    batch, pattern = SETS[study]

    def count_calls_by_set(folder: Path) -> Counter[str]:
        with JournalReader(folder / "journal.sqlite") as journal:
            found = (re.search(pattern, entry.address) for entry in journal.read_entries())
            return Counter(match[1] for match in found if match)

    whole = play(study, tmp_path / "a" / "run", provider=make_respondent(study), overrides=(batch,))
    all_sets = count_calls_by_set(whole.path)
    assert len(all_sets) == 4
    limit = int(whole.manifest["calls"] * share)
    folder = tmp_path / "b" / "run"
    with pytest.raises(BudgetReachedError):
        play(
            study,
            folder,
            provider=make_respondent(study, 3),
            overrides=(batch, f"budget_calls={limit}"),
        )
    bought = count_calls_by_set(folder)
    begun = [name for name in bought if bought[name] < all_sets[name]]
    assert len(begun) <= 1, "more than one set was begun and not paid to its end"
    assert len(bought) - len(begun) >= 1
    done = play(study, folder, provider=make_respondent(study, 4), overrides=(batch,))
    assert digest(done) == digest(whole)


@pytest.mark.parametrize("study", sample_daily(STUDIES, daily=DAILY, part="sweeps"))
def test_the_estimate_of_check_fits_the_calls_of_the_run(
    study: str, run_of_small_study: Callable[[str], Path], tmp_path: Path
) -> None:
    """The embedded respondent writes shorter replies than a model, but gets the same questions."""
    found = load_study_file(small_study(study, tmp_path))
    expected = estimate_run(found, "openai/gpt-4o", "openai/text-embedding-3-small")
    run = folkmoot.load(run_of_small_study(study))
    assert expected.calls == pytest.approx(run.manifest["calls"], rel=0.15)
    assert 1 <= expected.longest_chain <= expected.calls
    tokens = run.manifest["input_tokens"], run.manifest["output_tokens"]
    assert 0.8 * tokens[0] < expected.input_tokens < 2.5 * tokens[0]
    assert expected.output_tokens > 0.8 * tokens[1]
    assert set(expected.models) <= {"openai/gpt-4o", "openai/text-embedding-3-small"}
