r"""Every tutorial runs, has its outputs committed, and follows the same plan."""

from __future__ import annotations

import os
import runpy
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat")
pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")
pytest.importorskip("matplotlib")

FOLDER = Path(__file__).parent.parent / "tutorials"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def test_there_are_eight():
    assert [path.name[:2] for path in NOTEBOOKS] == [f"{i}_" for i in range(1, 9)]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_tutorial_runs(path, monkeypatch):
    if "ax" in path.stem:
        pytest.importorskip("ax")
    monkeypatch.setitem(os.environ, "OMP_NUM_THREADS", "1")
    before = path.read_bytes()
    runpy.run_path(str(FOLDER / "run.py"))["execute"](path, smoke=True)
    assert path.read_bytes() == before


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_tutorial_follows_the_plan(path):
    notebook = nbformat.read(path, as_version=4)
    title, first, *_, last = notebook.cells
    assert title.cell_type == "markdown" and title.source.startswith("# ")
    assert first.cell_type == "code" and "SMOKE_TEST" in first.source
    assert "device" in first.source
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.execution_count == i + 1 for i, cell in enumerate(code)), "outputs are missing"
    outputs = [output for cell in code for output in cell.outputs]
    assert not [o for o in outputs if o.output_type == "error" or o.get("name") == "stderr"]
    assert any("image/png" in o.get("data", {}) for o in last.outputs), "it ends in a plot"
