r"""Every study runs, writes its figures with where they come from, and its pictures."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.__main__ import STUDIES, main
from benchmarks.paired import ratio
from benchmarks.peers.turbo import FIRST, SUCCESSES, Region
from benchmarks.problems import search
from benchmarks.problems.bandits import load
from benchmarks.problems.functions import FUNCTIONS, Problem
from benchmarks.search_methods import METHODS
from benchmarks.search_runs import with_optimizer
from botorch_bkb import BBKB

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


@pytest.mark.parametrize("name", search.FUNCTIONS)
def test_the_maximum_of_a_moved_function_is_known_and_off_the_centre(name):
    problem, used = search.SearchProblem(name), search.FUNCTIONS[name].dim
    low, high = problem.bounds
    unit = torch.quasirandom.SobolEngine(len(low), seed=1).draw(2**13).double()
    values = problem.value(low + unit * (high - low))
    assert values.max() <= problem.best + 1e-9
    torch.testing.assert_close(float(values.std()), 1.0, atol=0.1, rtol=0)
    x = problem.maximiser
    place = ((x - low) / (high - low))[problem.used]
    assert len(place) == used and (place > 0.02).all() and (place < 0.98).all()
    assert (place - 0.5).abs().max() > 0.1
    assert float(problem.value(x.unsqueeze(0))) == problem.best
    nearby = x + 1e-3 * (high - low) * torch.randn(100, len(low), dtype=torch.float64)
    assert problem.value(nearby).max() <= problem.best + 1e-9


def test_coordinates_that_do_not_matter_do_not_matter():
    problem = search.SearchProblem("Hartmann3in10")
    X = torch.rand(5, 10, dtype=torch.float64)
    changed = torch.rand(5, 10, dtype=torch.float64)
    changed[:, problem.used] = X[:, problem.used]
    assert torch.equal(problem.value(X), problem.value(changed))


def test_both_halves_of_the_functions_are_alike():
    halves = [
        [f for f in search.FUNCTIONS.values() if f.half == half]
        for half in (search.CHOOSE, search.REPORT)
    ]
    assert sum(map(len, halves)) == len(search.FUNCTIONS) >= 16
    for some in halves:
        dims = [f.of or f.dim for f in some]
        assert min(dims) == 2 and max(dims) >= 10
        assert {f.noise for f in some} == {0.01, 0.1, 1.0}
        assert sum(f.of is not None for f in some) == 1
        assert sum(f.make in search.DRAWS for f in some) == 1


def test_all_methods_begin_with_the_same_design_and_noise():
    problem = search.SearchProblem("Branin2")
    runs = [METHODS[name].play(problem, 3, 8) for name in ("Sobol", "BKB", "Optuna TPE")]
    for run in runs:
        np.testing.assert_allclose(run.regret[:6], runs[0].regret[:6], atol=1e-9)
        assert run.regret.shape == run.recommended.shape == run.seconds.shape == (8,)
        assert (run.regret >= -1e-9).all() and (np.diff(run.seconds) >= 0).all()
    assert torch.equal(problem.noises(5, 3), problem.noises(9, 3)[:5])


def test_a_batch_beyond_the_budget_leaves_no_trace():
    problem = search.SearchProblem("Branin2")
    batches = with_optimizer(lambda bounds, seed: BBKB(bounds=bounds, seed=seed), at_once=None)
    long, short = (batches(problem, 0, budget) for budget in (14, 9))
    assert short.regret.shape == short.recommended.shape == short.seconds.shape == (9,)
    np.testing.assert_array_equal(short.regret, long.regret[:9])
    np.testing.assert_array_equal(short.recommended, long.recommended[:9])


def test_ratios_of_paired_runs_count_every_problem_the_same():
    found = ratio([np.log([4.0, 1.0, 4.0, 1.0]), np.log([0.5])])
    assert found.value == pytest.approx(1.0) and found.runs == 5
    assert found.low < 1 < found.high
    assert ratio([np.log([2.0, 2.0])])[:3] == pytest.approx((2, 2, 2))


def test_a_trust_region_grows_with_successes_and_shrinks_with_failures():
    region = Region(5)
    for _ in range(SUCCESSES):
        region.update(success=True)
    assert region.length == 2 * FIRST
    for _ in range(5):
        region.update(success=False)
    assert region.length == FIRST and not region.failed
    for _ in range(5 * 7):
        region.update(success=False)
    assert region.failed


def test_options_of_the_study_search_are_checked(tmp_path, capsys):
    with pytest.raises(SystemExit, match=r"--only takes .*BKB.*; got nothing"):
        main(["search", "--quick", "--only", "nothing"])
    with pytest.raises(SystemExit):
        main(["arms", "--half", "choose"])
    assert "--half and --only are for the study search, got arms" in capsys.readouterr().err
