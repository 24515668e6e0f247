r"""Other methods for the study ``search``: each plays a run over a box, one point at a time.

Packages are imported when a method is played, since not all of them install everywhere.
"""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import torch
from botorch.acquisition.analytic import LogExpectedImprovement
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf
from botorch.utils.sampling import draw_sobol_samples
from torch import Tensor

from benchmarks.peers.stock import fitted, next_point
from benchmarks.peers.turbo import TuRBO
from benchmarks.search_runs import Run

#: Step size of CMA-ES at first, in sides of the box.
SIGMA = 0.2


def sobol(run: Run) -> None:
    r"""Go on with the Sobol design that all methods begin with."""
    run.observe(draw_sobol_samples(run.bounds, n=run.budget, q=1, seed=run.seed).squeeze(1))


def best_mean(model: SingleTaskGP, X: Tensor) -> Tensor:
    r"""Return the point of ``X`` with the highest posterior mean."""
    with torch.no_grad():
        return X[model.posterior(X).mean.argmax()]


def qlognei(run: Run) -> None:
    r"""Play ``SingleTaskGP`` and ``qLogNoisyExpectedImprovement``, fitted at every step."""
    run.observe(run.design())
    while run.left:
        with run.clock:
            model, new = next_point(run.X, run.Y, run.bounds)
        run.recommend(best_mean(model, run.X))
        run.observe(new)
    run.recommend(best_mean(fitted(run.X, run.Y, run.bounds), run.X))


def logei(run: Run) -> None:
    r"""Play ``SingleTaskGP`` and ``LogExpectedImprovement``, fitted at every step.

    The value to improve on is the highest posterior mean at an evaluated point.
    """
    run.observe(run.design())
    while run.left:
        with run.clock:
            model = fitted(run.X, run.Y, run.bounds)
            with torch.no_grad():
                best = model.posterior(run.X).mean.max()
            acquisition = LogExpectedImprovement(model, best_f=best)
            new, _ = optimize_acqf(acquisition, run.bounds, q=1, num_restarts=4, raw_samples=128)
        run.recommend(best_mean(model, run.X))
        run.observe(new)
    run.recommend(best_mean(fitted(run.X, run.Y, run.bounds), run.X))


def turbo(run: Run) -> None:
    r"""Play TuRBO-1."""
    low, high = run.bounds

    def design(seed: int) -> Tensor:
        n = 2 * len(low) + 2
        return (draw_sobol_samples(run.bounds, n=n, q=1, seed=seed).squeeze(1) - low) / (high - low)

    with run.clock:
        optimizer = TuRBO(design, run.seed)
    while run.left:
        with run.clock:
            unit = optimizer.ask()[: run.left]
        Y = run.observe(low + unit * (high - low))
        with run.clock:
            optimizer.tell(unit, Y)


def tpe(run: Run) -> None:
    r"""Play Optuna's ``TPESampler``."""
    import optuna

    with run.clock:
        sampler = optuna.samplers.TPESampler(seed=run.seed)
    optuna_sampler(run, sampler)


def optuna_gp(run: Run) -> None:
    r"""Play Optuna's ``GPSampler``."""
    import optuna

    with run.clock:
        sampler = optuna.samplers.GPSampler(seed=run.seed)
    optuna_sampler(run, sampler)


def optuna_sampler(run: Run, sampler: Any) -> None:
    r"""Play a sampler of Optuna, which is told the design before its first trial."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    box = {
        f"x{i}": optuna.distributions.FloatDistribution(low, high)
        for i, (low, high) in enumerate(run.bounds.T.tolist())
    }
    X = run.design()
    Y = run.observe(X)
    with run.clock:
        study = optuna.create_study(direction="maximize", sampler=sampler)
        for x, y in zip(X.tolist(), Y.tolist(), strict=True):
            params = dict(zip(box, x, strict=True))
            study.add_trial(optuna.trial.create_trial(params=params, distributions=box, value=y))
    while run.left:
        with run.clock:
            trial = study.ask(box)
        x = torch.tensor([[trial.params[name] for name in box]], dtype=torch.float64)
        Y = run.observe(x)
        with run.clock:
            study.tell(trial, float(Y))


def ennbo(run: Run) -> None:
    r"""Play TuRBO-ENN of the package ``ennbo``, with UCB and the settings of its authors."""
    from enn import create_optimizer, turbo_enn_config
    from enn.turbo.config import AcqType, ENNFitConfig, ENNSurrogateConfig

    X = run.design()
    with run.clock:
        config = turbo_enn_config(
            enn=ENNSurrogateConfig(k=10, fit=ENNFitConfig(num_fit_samples=100)),
            acq_type=AcqType.UCB,
            num_init=len(X),
        )
        rng = np.random.default_rng(run.seed)
        optimizer = create_optimizer(bounds=run.bounds.T.numpy(), config=config, rng=rng)
        for _ in range(len(X)):
            optimizer.ask(num_arms=1)  # its own design, in place of which it is told ours
    Y = run.observe(X)
    with run.clock:
        optimizer.tell(X.numpy(), Y.numpy())
    while run.left:
        with run.clock:
            x = optimizer.ask(num_arms=1)
        Y = run.observe(torch.from_numpy(x))
        with run.clock:
            optimizer.tell(x, Y.numpy())


def cma_es(run: Run) -> None:
    r"""Play CMA-ES of the package ``cma`` from the best point of the design.

    It restarts from a random point when it stops.
    """
    import cma

    low, high = run.bounds.numpy()
    rng = np.random.default_rng(run.seed)
    Y = run.observe(run.design())
    start = (run.X[Y.argmax()].numpy() - low) / (high - low)
    while run.left:
        options = {"bounds": [0, 1], "seed": int(rng.integers(1, 2**31)), "verbose": -9}
        with run.clock:
            strategy = cma.CMAEvolutionStrategy(start, SIGMA, options)
        while run.left and not strategy.stop():
            with run.clock:
                unit = np.array(strategy.ask())
            Y = run.observe(torch.from_numpy(low + unit * (high - low))[: run.left])
            if len(Y) == len(unit):
                with run.clock:
                    strategy.tell(unit, (-Y).tolist())
        start = rng.random(len(low))


def ax_default(run: Run) -> None:
    r"""Play Ax's default generation strategy, with the design attached."""
    from benchmarks.peers.ax_client import client_after

    logging.disable(logging.WARNING)
    X = run.design()
    Y = run.observe(X)
    with run.clock:
        client = client_after(run.bounds, X, Y)
    while run.left:
        with run.clock:
            ((index, parameters),) = client.get_next_trials(max_trials=1).items()
        x = [[parameters[f"x{i}"] for i in range(X.shape[-1])]]
        Y = run.observe(torch.tensor(x, dtype=torch.float64))
        with run.clock:
            client.complete_trial(trial_index=index, raw_data={"y": float(Y)})
