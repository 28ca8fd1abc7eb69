"""Errors about missing extras name the command that installs them."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytestmark = pytest.mark.xdist_group("plain installation")  # one run is enough
ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
MODULES = {"pdf": {"typst"}, "pandas": {"pandas", "pyarrow"}}
# Blocks imports of extras and of what only tests need, as if they were not installed.
PLAIN = """
import json, sys
HIDDEN = set(json.loads(sys.argv[1]))
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in HIDDEN:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
from folkmoot.cli import main
import folkmoot
"""


def run_without_extras(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run Python code in a process that has no extras."""
    hidden_modules = sorted({*MODULES["pdf"], *MODULES["pandas"], "statsmodels"})
    command = [sys.executable, "-c", PLAIN + code, json.dumps(hidden_modules)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


BOTH_REPORTS = """
from pathlib import Path
sys.argv[1:] = ["report", "run"]
try:
    main()
except SystemExit as ended:
    assert not ended.code, ended
Path("run/report.html").unlink()
sys.argv[1:] = ["report", "run", "--pdf"]
main()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that a plain installation made."""
    run_folder = tmp_path_factory.mktemp("plain")
    study = ROOT / "examples" / "cross_pollination.yaml"
    process = run_without_extras(f"folkmoot.run({str(study)!r}, out='run', limit=8)", run_folder)
    assert process.returncode == 0, process.stderr
    return run_folder


@pytest.mark.nightly(part="sweeps")
def test_a_plain_installation_reports_in_html_and_names_what_a_pdf_needs(folder: Path) -> None:
    process = run_without_extras(BOTH_REPORTS, folder)
    assert process.returncode == 2 and "report.html" in process.stdout, process.stderr
    assert 'pip install "folkmoot[pdf]"' in " ".join(process.stderr.split())
    assert not (folder / "run" / "report.html").exists()  # nothing half done


def test_a_missing_pandas_is_reported_with_its_extra(folder: Path) -> None:
    code = "folkmoot.load('run').tables['participants']; folkmoot.load('run').to_pandas('answers')"
    process = run_without_extras(code, folder)
    assert process.returncode == 1
    last_line = process.stderr.strip().splitlines()[-1]
    assert "InputError" in last_line and 'pip install "folkmoot[pandas]"' in last_line
    import folkmoot

    run = folkmoot.load(folder / "run")
    frame = run.to_pandas("answers")
    assert list(frame.columns) == run.table("answers").columns
    assert int(frame["missing"].isna().sum()) == run.table("answers")["missing"].null_count() > 0


def test_extras_are_optional_for_users_and_installed_for_tests() -> None:
    """No required dependency is an extra, and the extra `dev` has all of them."""
    extras = PROJECT["optional-dependencies"]
    for extra, modules in MODULES.items():
        assert modules <= {line.partition(">")[0] for line in extras[extra]}
        assert not [line for line in PROJECT["dependencies"] if line.startswith(tuple(modules))]
    assert "folkmoot[pandas,pdf]" in extras["dev"]
    # No dependency has a marker: every Python version and system gets the same ones.
    assert not [line for line in PROJECT["dependencies"] if ";" in line]
