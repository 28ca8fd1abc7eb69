"""The notebooks of examples/notebooks run from the first cell to the last without a key.

One of them runs daily with a smaller study. All of them run at night as they are.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

EXAMPLES = Path(__file__).parents[1] / "examples"
NOTEBOOKS = sorted((EXAMPLES / "notebooks").glob("*.ipynb"))


# The text of a notebook that is replaced, and the replacement, which makes the study smaller.
SMALLER_PILOT = ("participants_per_condition=40", "participants_per_condition=5")
# At night, this one runs twice, and the second run reads all replies from the journal.
TIMES = {"first_run": 2}
NIGHTLY = pytest.mark.nightly(part="pages")
CASES = [
    pytest.param(EXAMPLES / "notebooks" / "first_run.ipynb", 1, SMALLER_PILOT, id="first_run"),
    *(
        pytest.param(
            path, TIMES.get(path.stem, 1), ("", ""), id=f"{path.stem} whole", marks=NIGHTLY
        )
        for path in NOTEBOOKS
    ),
]


@pytest.mark.parametrize(("path", "times", "smaller"), CASES)
def test_a_notebook_runs(path: Path, times: int, smaller: tuple[str, str], tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES, tmp_path / "examples")
    folder = tmp_path / "examples" / "notebooks"
    outputs: list[object] = []
    for _ in range(times):
        notebook = nbformat.read(path, as_version=4)
        cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
        assert any(smaller[0] in cell.source for cell in cells)
        for cell in cells:
            cell.source = cell.source.replace(*smaller)
        client = NotebookClient(notebook, timeout=300, resources={"metadata": {"path": folder}})
        client.execute()
        assert all(cell.execution_count for cell in cells)
        charts = [
            output
            for cell in cells
            for output in cell.outputs
            if "image/svg+xml" in output.get("data", {})
        ]
        assert charts
        outputs.append([chart.data["image/svg+xml"] for chart in charts])
    assert outputs[0] == outputs[-1]


def test_notebooks_are_stored_without_outputs() -> None:
    assert len(NOTEBOOKS) >= 2
    for path in NOTEBOOKS:
        cells = nbformat.read(path, as_version=4).cells
        assert not [cell for cell in cells if cell.get("outputs") or cell.get("execution_count")]
