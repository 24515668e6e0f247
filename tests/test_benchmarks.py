r"""Every study runs, writes its figures with where they come from, and its pictures."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks.__main__ import STUDIES, main
from benchmarks.problems.bandits import load
from benchmarks.problems.functions import FUNCTIONS, Problem

pytest.importorskip("sklearn")
pytest.importorskip("matplotlib")
ROOT = Path(__file__).parent.parent
#: Those with more than one picture.
PICTURES = {"variance": 3, "bbkb": 4, "compressed": 3, "scaling": 2, "continuous": 2, "search": 2}


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    r"""Tables of the form of Abalone and California housing."""
    folder, generator = tmp_path_factory.mktemp("tables"), torch.Generator().manual_seed(0)
    for name, sexes in (("abalone.csv", "MFI"), ("cal_housing.data", None)):
        X = torch.rand(150, 8, generator=generator)
        y = (10 * torch.sin(3 * X).sum(-1)).round().abs() * (1 if sexes else 1e4)
        rows = torch.cat([X, y.unsqueeze(-1)], -1).tolist()
        with (folder / name).open("w", newline="") as file:
            for i, (first, *rest) in enumerate(rows):
                csv.writer(file).writerow([sexes[i % 3] if sexes else first, *rest])
    return folder


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_runs(name, tables, tmp_path):
    if name in ("scaling", "service"):
        pytest.importorskip("ax")
    if name in ("scaling", "realistic"):
        pytest.importorskip("optuna")
    command = [sys.executable, "-m", "benchmarks", name, "--quick", "--seeds", "1"]
    folders = ["--data", str(tables), "--out", str(tmp_path), "--cache", str(tmp_path / "cache")]
    done = subprocess.run(
        [*command, *folders],
        cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=600,
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    lines = (tmp_path / f"{name}.csv").read_text().splitlines()
    comments = [line for line in lines if line.startswith("#")]
    for word in ("machine: ", "versions: ", "seeds: ", "quick: "):
        assert sum(line.startswith(f"# {word}") for line in comments) == 1
    claims = [line for line in comments if line.endswith(("holds", "does not hold"))]
    assert claims and all(line.count(" | ") == 3 for line in claims)
    columns, *rows = csv.reader(line for line in lines if not line.startswith("#"))
    assert rows and all(len(row) == len(columns) for row in rows)
    assert len(list(tmp_path.glob("*.png"))) == PICTURES.get(name, 1)


def test_without_a_name_the_studies_are_listed(capsys):
    main([])
    listed = capsys.readouterr().out
    for name in STUDIES:
        assert f"  {name} " in listed


def test_a_missing_table_says_what_to_do(tmp_path):
    with pytest.raises(SystemExit, match=r"abalone.csv is missing. The tables are public.*--data"):
        load("abalone", tmp_path, 1.0)


def test_tables_are_read(tables):
    bandit = load("abalone", tables, 0.5)
    assert bandit.arms.shape == (150, 8) and bandit.f.shape == (150,)
    torch.testing.assert_close(bandit.arms.mean(0), torch.zeros(8, dtype=torch.float64))
    assert load("cadata", tables, 0.5).f.max() < 10
    cube = load("cadata", tables, 0.5, in_unit_cube=True).arms
    assert torch.equal(cube.amin(0), torch.zeros(8).double())
    assert torch.equal(cube.amax(0), torch.ones(8).double())


@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_maximum_is_at_the_centre_of_its_box(name):
    problem = Problem(name)
    best = problem.f.optimizers.to(torch.float64)
    torch.testing.assert_close(
        problem.value(best), torch.full((len(best),), problem.best).double(), atol=1e-4, rtol=1e-4
    )
    low, high = problem.bounds
    assert (best > low).all() and (best < high).all()
    place = (best - low) / (high - low)
    assert ((place - 0.5).abs().amax(-1) > 0.04).all()
