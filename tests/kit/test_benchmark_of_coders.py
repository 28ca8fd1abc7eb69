"""The command that measures how well a model codes texts."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.coders import main
from tests.kit.test_hand_coded import DOCS, EMBEDDED_ALPHAS


def test_the_command_of_the_docs_asks_a_coder_as_a_study_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "`python -m benchmarks.coders MODEL`" in DOCS.read_text("utf-8")
    names = ["concern", "opinion"]
    main(["synthetic", *names, "--out", str(tmp_path / "run")])
    _, *lines = capsys.readouterr().out.splitlines()
    alphas = {name: float(alpha) for name, _, _, alpha in map(str.split, lines)}
    assert alphas == {name: EMBEDDED_ALPHAS[name] for name in names}
