r"""The demo, ``python -m botorch_bkb``: a sparse GP on more data than an exact one likes."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.test_functions import Hartmann
from gpytorch.mlls import ExactMarginalLogLikelihood

from botorch_bkb import DTCGP, RidgeLeverageSampling


def add_to(parser: argparse.ArgumentParser) -> None:
    r"""Add the options of the demo to a parser."""
    parser.add_argument("--points", type=int, default=5000, help="evaluations (5000)")
    parser.add_argument("--dictionary", type=int, default=400, help="largest dictionary (400)")
    parser.add_argument("--noise", type=float, default=0.1, help="noise standard deviation (0.1)")
    parser.add_argument("--seed", type=int, default=0)
    parser.set_defaults(run=demo)


def demo(options: argparse.Namespace) -> None:
    r"""Fit ``DTCGP`` to all points and ``SingleTaskGP`` to some, and print a table."""
    torch.manual_seed(options.seed)
    function = Hartmann(dim=3, noise_std=options.noise, negate=True)
    train_X, test_X = (torch.rand(n, 3, dtype=torch.float64) for n in (options.points, 2000))
    train_Y, truth = function(train_X).unsqueeze(-1), function(test_X, noise=False)

    def dtc() -> SingleTaskGP:
        rule = RidgeLeverageSampling(2.0, max_size=options.dictionary)
        return DTCGP(train_X, train_Y, dictionary=rule)

    def exact() -> SingleTaskGP:
        return SingleTaskGP(train_X[:1000], train_Y[:1000])

    print(f"Hartmann3, {options.points:,} evaluations with noise of sd {options.noise}.")
    print(f"{'':16}{'n':>8}{'m':>6}{'fit s':>8}{'predict ms':>12}{'RMSE':>9}")
    for name, build in (("DTCGP", dtc), ("SingleTaskGP", exact)):
        print(f"{name:16}" + row(build, test_X, truth), flush=True)
    spread = truth.std().item()
    print(f"RMSE is against the noise-free function, whose standard deviation is {spread:.3f}.")


def row(build: Callable[[], SingleTaskGP], test_X: torch.Tensor, truth: torch.Tensor) -> str:
    r"""Fit a model, predict, and format what it took."""
    start = time.perf_counter()
    model = build()
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    fitted = time.perf_counter() - start
    with torch.no_grad():
        model.posterior(test_X[:1])
        start = time.perf_counter()
        posterior = model.posterior(test_X.unsqueeze(-2))
        mean, _ = posterior.mean.flatten(), posterior.variance
        predicted = 1000 * (time.perf_counter() - start)
    rmse = (mean - truth).square().mean().sqrt().item()
    n = len(model.train_targets)
    m = len(model.dictionary_indices) if isinstance(model, DTCGP) else n
    return f"{n:>8,}{m:>6,}{fitted:>8.1f}{predicted:>12.0f}{rmse:>9.4f}"
