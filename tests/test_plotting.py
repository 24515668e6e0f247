from __future__ import annotations

import builtins
import math
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from botorch.exceptions.errors import InputDataError, UnsupportedError
from botorch.models import SingleTaskGP

from botorch_bkb import BBKB, DTCGP, AdaBKB, read_journal, run
from botorch_bkb.plotting import (
    plot_batch_count,
    plot_batches,
    plot_belief,
    plot_calibration,
    plot_dictionary,
    plot_regret,
    plot_rewards,
    plot_tree,
)

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
from matplotlib import pyplot as plt  # noqa: E402

BOX = torch.tensor([[-1.0, 2.0], [1.0, 6.0]], dtype=torch.float64)


@pytest.fixture
def ax():
    figure, ax = plt.subplots()
    yield ax
    plt.close(figure)


def objective(X):
    return torch.sin(3 * X).sum(-1)


def played(optimizer, evaluations=12):
    return run(optimizer, objective, evaluations, progress=False)


def test_regret_is_summed_and_its_band_holds_the_runs(ax):
    regret = torch.rand(5, 40, generator=torch.Generator().manual_seed(0))
    assert plot_regret(regret, ax, label="ours", uniform=2.0, bound=lambda t: 9.0 * t) is ax
    median, uniform, bound = (torch.tensor(line.get_ydata()) for line in ax.lines)
    torch.testing.assert_close(median, regret.double().cumsum(-1).median(0).values)
    assert uniform[-1] == 80 and bound[-1] == 360
    assert len(ax.collections) == 1  # the band
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == ["ours", "uniform policy", "theoretical bound"]


def test_one_run_has_no_band(ax):
    plot_regret(torch.ones(10), ax)
    assert not ax.collections and ax.lines[0].get_ydata()[-1] == 10


def test_regret_of_another_shape_is_refused(ax):
    with pytest.raises(InputDataError, match=r"T or runs x T, got \(2, 2, 2\)"):
        plot_regret(torch.ones(2, 2, 2), ax)


def test_dictionary_batches_and_rewards_come_from_a_run_or_its_history(ax):
    result = played(BBKB(bounds=BOX, seed=0))
    for history in (result, result.history):
        ax.clear()
        plot_dictionary(history, ax)
        assert list(ax.lines[0].get_ydata()) == result.history["dictionary"]
        ax.clear()
        plot_batches(history, ax)
        sizes = ax.collections[0].get_offsets()[:, 1]
        assert sizes.sum() == len(result.Y)
        ax.clear()
        plot_rewards(history, ax)
        assert list(ax.lines[0].get_ydata()) == result.Y.tolist()
        assert list(ax.lines[1].get_ydata()) == result.history["best"]
    with pytest.raises(InputDataError, match="no column 'dictionary', only t"):
        plot_dictionary({"t": [1]}, ax)


def test_bounds_on_sizes_are_drawn_at_every_evaluation(ax):
    result = played(BBKB(bounds=BOX, seed=0))
    history = result.history
    plot_dictionary(result, ax, bound=lambda t, d: t + 100 * d)
    bound = ax.lines[2]
    assert bound.get_label() == "theoretical bound" and ax.get_yscale() == "log"
    want = [t + 1 + 100 * d for t, d in zip(history["t"], history["dimension"], strict=True)]
    assert list(bound.get_ydata()) == want
    ax.clear()
    plot_batch_count(history, ax, bound=lambda t, d: 10.0 * t)
    counts, bound = (list(line.get_ydata()) for line in ax.lines)
    assert counts[0] == 1 and counts[-1] == len(set(history["batch"]))
    assert bound == [10.0 * (t + 1) for t in history["t"]]
    ax.clear()
    assert len(plot_batch_count({"t": [0, 1], "batch": [0, 0]}, ax).lines) == 1
    with pytest.raises(InputDataError, match="no column 'dimension', only t, batch"):
        plot_batch_count({"t": [0], "batch": [0]}, ax, bound=lambda t, d: d)


def test_points_without_a_reward_are_left_out(tmp_path, ax):
    def fails(x):
        if x[0] > 0:
            raise ValueError("no")
        return float(objective(x))

    with ThreadPoolExecutor(1) as pool:
        options = {"executor": pool, "journal": tmp_path / "run.sqlite", "progress": False}
        result = run(BBKB(bounds=BOX, seed=0), fails, 12, **options)
    table = read_journal(tmp_path / "run.sqlite")
    assert 0 < len(result.Y) < 12 == len(table["reward"])
    plot_rewards(table, ax)
    assert list(ax.lines[0].get_ydata()) == result.Y.tolist()


def test_one_evaluation_can_be_seen(ax):
    result = played(BBKB(bounds=BOX, seed=0), 1)
    for draw in (plot_dictionary, plot_rewards, plot_batch_count):
        draw(result, ax)
    plot_regret(torch.ones(1), ax, uniform=1.0)
    assert all(line.get_marker() != "None" for line in ax.lines)


def test_lines_drawn_twice_stand_in_the_legend_once(ax):
    for label in ("one", "other"):
        plot_regret(torch.ones(3), ax, label=label, uniform=1.0, bound=float)
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == ["one", "uniform policy", "theoretical bound", "other"]


def test_a_belief_of_one_observation_has_room(ax):
    x = torch.full((1, 1), 5.0, dtype=torch.float64)
    plot_belief(DTCGP(x, x), ax)
    assert ax.get_xlim()[1] - ax.get_xlim()[0] > 1
    arms = torch.linspace(0, 9, 10, dtype=torch.float64).unsqueeze(-1)
    optimizer = BBKB(arms, seed=0)
    optimizer.tell([4], [1.0])
    ax.clear()
    plot_belief(optimizer, ax)
    assert ax.get_xlim()[0] <= 0 and ax.get_xlim()[1] >= 9


@pytest.mark.parametrize("d", [1, 2])
def test_beliefs_are_drawn_in_the_users_units(d, ax):
    bounds = BOX[:, :d]
    optimizer = BBKB(bounds=bounds, seed=0)
    played(optimizer)
    plot_belief(optimizer, ax, f=objective, resolution=21)
    marks = {line.get_label(): line for line in ax.lines}
    X = torch.tensor(marks["observations"].get_xdata()).flatten()
    assert X.min() >= bounds[0, 0] and X.max() <= bounds[1, 0]
    drawn = marks["dictionary"].get_xdata()
    torch.testing.assert_close(torch.tensor(drawn).flatten(), optimizer.dictionary[:, 0])
    assert ax.get_xlim()[0] <= bounds[0, 0] and ax.get_xlim()[1] >= bounds[1, 0]
    if d == 1:
        x = torch.tensor(marks["function"].get_xdata())
        torch.testing.assert_close(torch.tensor(marks["function"].get_ydata()), torch.sin(3 * x))


@pytest.mark.parametrize("kind", [DTCGP, SingleTaskGP])
def test_any_model_can_be_drawn(kind, ax):
    X = torch.rand(15, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    plot_belief(kind(X, 100 + objective(X).unsqueeze(-1)), ax)
    labels = [line.get_label() for line in ax.lines]
    assert ("dictionary" in labels) == (kind is DTCGP)
    mean = ax.lines[0].get_ydata()
    assert mean.min() > 95 and mean.max() < 105


def test_three_inputs_cannot_be_drawn(ax):
    X = torch.rand(5, 3, dtype=torch.float64)
    with pytest.raises(UnsupportedError, match="1 or 2 inputs can be drawn, got 3"):
        plot_belief(DTCGP(X, X[:, :1]), ax)
    tree = AdaBKB(bounds=torch.tensor([[0.0], [1.0]]), seed=0)
    with pytest.raises(UnsupportedError, match="2 inputs can be drawn, got 1"):
        plot_tree(tree, ax)


def test_what_has_no_picture_says_so(ax):
    X = torch.rand(5, 1, dtype=torch.float64)
    with pytest.raises(UnsupportedError, match=r"1 outcome can be drawn, got 2.*subset_output"):
        plot_belief(SingleTaskGP(X, torch.cat([X, -X], -1)), ax)
    with pytest.raises(UnsupportedError, match="BBKB has no tree: pass an AdaBKB"):
        plot_tree(BBKB(bounds=BOX), ax)
    with pytest.raises(InputDataError, match="n > 0 values at n points, got 0 at 0"):
        plot_calibration(DTCGP(X, X), X[:0], X[:0, 0], ax)


def test_the_cells_of_a_tree_tile_its_box(ax):
    optimizer = AdaBKB(bounds=BOX, seed=0)
    played(optimizer, 25)
    plot_tree(optimizer, ax)
    kept, pruned = (
        [math.prod(path.get_extents().size.tolist()) for path in cells.get_paths()]
        for cells in ax.collections
    )
    assert len(kept) == len(optimizer.tree.leaves) > 3
    assert len(pruned) == len(optimizer.tree.pruned) > 3
    assert sum(kept) + sum(pruned) == pytest.approx(8.0)
    assert ax.get_xlim() == (-1, 1) and ax.get_ylim() == (2, 6)


def test_calibrated_intervals_lie_on_the_diagonal(ax):
    class Known:
        def posterior(self, X):
            self.mean, self.variance = torch.zeros(len(X), 1, 1), torch.ones(len(X), 1, 1)
            return self

    f = torch.randn(20_000, generator=torch.Generator().manual_seed(0))
    plot_calibration(Known(), torch.zeros(20_000, 1), f, ax)
    nominal, inside = (torch.tensor(v) for v in ax.lines[1].get_data())
    # 20,000 draws: shares are within 0.015 of their expectation but once in ten thousand times.
    torch.testing.assert_close(inside, nominal, atol=0.015, rtol=0)
    with pytest.raises(InputDataError, match="got 3 at 2"):
        plot_calibration(Known(), torch.zeros(2, 1), torch.zeros(3), ax)


def test_without_matplotlib_the_pip_line_is_named(monkeypatch):
    plain = builtins.__import__

    def without(name, *args):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return plain(name, *args)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r"pip install 'botorch-bkb\[plotting\]'"):
        plot_regret(torch.ones(3))
