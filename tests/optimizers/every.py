r"""Every algorithm over every domain, with fitted and with given hyperparameters."""

from __future__ import annotations

import torch
from gpytorch.kernels import RBFKernel

from botorch_bkb.optimizers import ALGORITHMS
from tests.optimizers.support import takes

ARMS = torch.rand(25, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
BOX = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
FAST = {"num_restarts": 2, "raw_samples": 16, "options": {"maxiter": 20}}

#: Names of all combinations: algorithm, domain, hyperparameters.
CASES = [
    f"{name}-{domain}-{hyper}"
    for name, algorithm in ALGORITHMS.items()
    for domain in ("arms", "bounds")
    for hyper in ("fitted", "given")
    if takes(algorithm, domain) and not (name == "EpsilonGreedy" and domain == "bounds")
]


def make(case, seed=0, **options):
    r"""A small optimizer of one of the cases."""
    name, domain, hyper = case.split("-")
    algorithm = ALGORITHMS[name]
    if hyper == "given":
        kernel = RBFKernel().double()
        kernel.lengthscale = torch.tensor(0.4, dtype=torch.float64)
        options = {"covar_module": kernel, "noise_var": 0.05, **options}
    small = {"num_initial": 3, "max_batch_size": 4, "budget": 24}
    options |= {k: v for k, v in small.items() if takes(algorithm, k) and k not in options}
    if takes(algorithm, "acquisition_options") and domain == "bounds":
        options = {"acquisition_options": FAST, **options}
    return algorithm(**{domain: ARMS if domain == "arms" else BOX}, seed=seed, **options)


def rewards(X):
    r"""A smooth function with a little noise that depends on the inputs alone."""
    return torch.sin(5 * X).sum(-1) + 0.1 * torch.cos(1e4 * X).sum(-1)
