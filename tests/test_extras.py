"""What a plain installation lacks is named with the command that installs it."""

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


def plainly(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run Python code in a process that has no extras."""
    hidden = sorted({*MODULES["pdf"], *MODULES["pandas"], "statsmodels"})
    words = [sys.executable, "-c", PLAIN + code, json.dumps(hidden)]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True)


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
    here = tmp_path_factory.mktemp("plain")
    study = ROOT / "examples" / "cross_pollination.yaml"
    done = plainly(f"folkmoot.run({str(study)!r}, out='run', limit=8)", here)
    assert done.returncode == 0, done.stderr
    return here


@pytest.mark.nightly(part="sweeps")
def test_a_plain_installation_reports_in_html_and_names_what_a_pdf_needs(folder: Path) -> None:
    done = plainly(BOTH_REPORTS, folder)
    assert done.returncode == 2 and "report.html" in done.stdout, done.stderr
    assert 'pip install "folkmoot[pdf]"' in " ".join(done.stderr.split())
    assert not (folder / "run" / "report.html").exists()  # nothing half done


def test_pandas_is_asked_for_by_name(folder: Path) -> None:
    code = "folkmoot.load('run').tables['participants']; folkmoot.load('run').to_pandas('answers')"
    refused = plainly(code, folder)
    assert refused.returncode == 1
    last = refused.stderr.strip().splitlines()[-1]
    assert "InputError" in last and 'pip install "folkmoot[pandas]"' in last
    import folkmoot

    run = folkmoot.load(folder / "run")
    frame = run.to_pandas("answers")
    assert list(frame.columns) == run.table("answers").columns
    assert int(frame["missing"].isna().sum()) == run.table("answers")["missing"].null_count() > 0


def test_extras_are_extras() -> None:
    """They are optional for users, and installed where the tests run."""
    extras = PROJECT["optional-dependencies"]
    for extra, modules in MODULES.items():
        assert modules <= {line.partition(">")[0] for line in extras[extra]}
        assert not [line for line in PROJECT["dependencies"] if line.startswith(tuple(modules))]
    assert "folkmoot[pandas,pdf]" in extras["dev"]
    # No dependency has a marker: every Python and machine gets the same.
    assert not [line for line in PROJECT["dependencies"] if ";" in line]
