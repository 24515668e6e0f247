r"""Noisy functions on boxes to maximise."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor


class BoxProblem(NamedTuple):
    r"""A noisy function on a box.

    Attributes:
        name: Name of the problem.
        bounds: Bounds of the box, ``2 x d``.
        observe: Function from ``n x d`` inputs and a numpy generator to ``n`` noisy values.
        value: Function from ``n x d`` inputs to ``n`` values without noise; None if unknown.
        best: Highest value without noise; NaN if unknown.
    """

    name: str
    bounds: Tensor
    observe: Callable[[Tensor, np.random.Generator], Tensor]
    value: Callable[[Tensor], Tensor] | None
    best: float


def _seen(f: Callable[[Tensor], Tensor], noise_var: float) -> Callable:
    def observe(X: Tensor, rng: np.random.Generator) -> Tensor:
        return f(X) + torch.from_numpy(math.sqrt(noise_var) * rng.standard_normal(len(X)))

    return observe


def waves(noise_var: float) -> BoxProblem:
    r"""Return the function ``sin x + cos x + 0.1 x`` on [0, 10]."""

    def f(X: Tensor) -> Tensor:
        return (X.sin() + X.cos() + 0.1 * X).squeeze(-1)

    grid = torch.linspace(0, 10, 100_001, dtype=torch.float64).unsqueeze(-1)
    bounds = torch.tensor([[0.0], [10.0]], dtype=torch.float64)
    return BoxProblem("example", bounds, _seen(f, noise_var), f, float(f(grid).max()))


def rosenbrock(noise_var: float, a: float = 1.0, b: float = 10.0) -> BoxProblem:
    r"""Return the negated Rosenbrock function, in units of its standard deviation over the box."""
    bounds = torch.tensor([[-2.0, -1.0], [2.0, 3.0]], dtype=torch.float64)

    def valley(X: Tensor) -> Tensor:
        x, y = X.unbind(-1)
        return (a - x).square() + b * (y - x.square()).square()

    sides = [torch.linspace(*side, 401, dtype=torch.float64) for side in bounds.T.tolist()]
    unit = float(valley(torch.cartesian_prod(*sides)).std())

    def f(X: Tensor) -> Tensor:
        return -valley(X) / unit

    return BoxProblem("Rosenbrock", bounds, _seen(f, noise_var), f, 0.0)


class DigitsTuning:
    r"""Hold-out accuracy of multi-class logistic regression on scikit-learn's digits.

    The four parameters on [0, 2]^4 are learning rate (1e-3 to 1, logarithmic), batch size (8 to
    256, logarithmic), dropout of the inputs (0 to 0.9) and l2 regularisation (1e-6 to 1e-1,
    logarithmic). Training takes two epochs of stochastic gradient descent from random weights.
    """

    def __init__(self) -> None:
        from sklearn.datasets import load_digits

        X, y = load_digits(return_X_y=True)
        order = np.random.default_rng(0).permutation(len(X))
        X, y = X[order] / 16.0, y[order]
        self.train, self.held_out = (X[:1300], y[:1300]), (X[1300:], y[1300:])

    def accuracy(self, x: np.ndarray, rng: np.random.Generator) -> float:
        r"""Train once, and return the accuracy on the held-out digits."""
        u = x / 2
        rate, batch = 10 ** (-3 + 3 * u[0]), round(8 * 32 ** u[1])
        keep, decay = 1 - 0.9 * u[2], 10 ** (-6 + 5 * u[3])
        X, y = self.train
        W, b = 0.01 * rng.standard_normal((64, 10)), np.zeros(10)
        for _ in range(2):
            order = rng.permutation(len(X))
            for rows in np.array_split(order, max(1, len(X) // batch)):
                inputs = X[rows] * (rng.random((len(rows), 64)) < keep) / keep
                scores = inputs @ W + b
                p = np.exp(scores - scores.max(-1, keepdims=True))
                p /= p.sum(-1, keepdims=True)
                p[np.arange(len(rows)), y[rows]] -= 1
                W -= rate * (inputs.T @ p / len(rows) + decay * W)
                b -= rate * p.mean(0)
        X, y = self.held_out
        return float(((X @ W + b).argmax(-1) == y).mean())


def digits() -> BoxProblem:
    r"""Return the tuning problem, with accuracies in units of their standard deviation."""
    tuning = DigitsTuning()

    def accuracies(X: Tensor, rng: np.random.Generator) -> Tensor:
        return torch.tensor([tuning.accuracy(x, rng) for x in X.numpy()], dtype=torch.float64)

    rng = np.random.default_rng(1)
    sample = accuracies(2 * torch.from_numpy(rng.random((200, 4))), rng)
    mean, unit = float(sample.mean()), float(sample.std())

    def observe(X: Tensor, rng: np.random.Generator) -> Tensor:
        return (accuracies(X, rng) - mean) / unit

    bounds = torch.tensor([[0.0] * 4, [2.0] * 4], dtype=torch.float64)
    return BoxProblem("tuning", bounds, observe, None, math.nan)
