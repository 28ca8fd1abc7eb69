"""Names and words beyond ASCII, in a terminal of another encoding."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from folkmoot.storage.run_folder import RunFolder

# Without these three, Python itself changes to UTF-8 in such a locale.
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def run_folkmoot(*words: str | bytes) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "folkmoot", *words]
    return subprocess.run(command, capture_output=True, env={**os.environ, **ASCII})


def test_a_run_has_its_names_and_words_in_a_locale_that_is_not_utf8(study_folder: Path) -> None:
    folder = study_folder / "Bücher Köln"
    folder.mkdir()
    for name in ("my_study.py", "vote.yaml"):
        (study_folder / name).rename(folder / name)
    out = "Läufe ß/eins"
    study = "Bücher Köln/vote.yaml"
    for words in (
        ("run", study, "--model", "synthetic", "--out", out, "--set", "options=[Grünflächen,Öl]"),
        ("report", out),
        ("show", out),
        ("verify", out),
        ("export", out),
        ("plan", study, "--out", "plän.md"),
    ):
        result = run_folkmoot(*words)
        assert result.returncode == 0, result.stderr
    run = RunFolder(study_folder / out)
    assert run.config["options"] == ["Grünflächen", "Öl"]
    assert set(run.read_table("votes")["vote"]) <= {"Grünflächen", "Öl", None}
    assert "Läufe ß" in run.text("run.log") and (study_folder / "plän.md").is_file()
    assert "eins" in run.text("report.html")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names themselves")
def test_a_folder_with_a_name_that_is_not_utf8_is_refused_before_the_run(
    study_folder: Path,
) -> None:
    """The name comes from a system with another encoding, such as an old archive."""
    result = run_folkmoot("run", "vote.yaml", "--out", b"L\xe4ufe")
    assert result.returncode == 2
    assert "L?ufe: this name is not UTF-8; rename the folder" in result.stderr.decode()
    assert not os.path.lexists(b"L\xe4ufe")
