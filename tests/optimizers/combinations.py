r"""Hostile combinations of arguments, drawn by number, and what must hold for each of them."""

from __future__ import annotations

import math
import random
import traceback
from dataclasses import dataclass, field
from pathlib import Path

import torch
from botorch.exceptions.errors import BotorchError
from gpytorch.kernels import (
    ConstantKernel,
    Kernel,
    LinearKernel,
    MaternKernel,
    PeriodicKernel,
    PolynomialKernel,
    RBFKernel,
    ScaleKernel,
)
from torch import Tensor

import botorch_bkb
from botorch_bkb import BatchCompleteError, ConvergedError
from botorch_bkb.encoding import encode
from botorch_bkb.optimizers import ALGORITHMS
from tests.optimizers.support import takes

PACKAGE = str(Path(botorch_bkb.__file__).parent)
SEARCH = {"num_restarts": 1, "raw_samples": 4, "options": {"maxiter": 3}}
COLUMNS = 2


class Broken(RBFKernel):
    r"""Returns NaN."""

    def forward(self, x1, x2, diag=False, **params):
        return super().forward(x1, x2, diag=diag, **params) * torch.nan


class Indefinite(Kernel):
    r"""``|x - x'|``, which is far from positive semi-definite."""

    def forward(self, x1, x2, diag=False, **params):
        if diag:
            return torch.zeros(x1.shape[:-1], dtype=x1.dtype)
        return torch.cdist(x1, x2)


def scaled(kernel, outputscale):
    whole = ScaleKernel(kernel)
    whole.outputscale = outputscale
    return whole


def long(lengthscale):
    kernel = RBFKernel().double()
    kernel.lengthscale = lengthscale
    return kernel


KERNELS = {
    "default": lambda: None,
    "rbf": RBFKernel,
    "matern": lambda: MaternKernel(nu=0.5),
    "ard": lambda: ScaleKernel(MaternKernel(nu=2.5, ard_num_dims=COLUMNS)),
    "linear": LinearKernel,
    "constant": ConstantKernel,
    "sum": lambda: RBFKernel() + ConstantKernel(),
    "product": lambda: RBFKernel() * LinearKernel(),
    "periodic": PeriodicKernel,
    "polynomial": lambda: PolynomialKernel(power=2),
    "polynomial-20": lambda: PolynomialKernel(power=20),
    "short": lambda: long(1e-200),
    "long": lambda: long(1e200),
    "small": lambda: scaled(RBFKernel().double(), 1e-200),
    "large": lambda: scaled(RBFKernel().double(), 1e200),
    "ard-of-three": lambda: RBFKernel(ard_num_dims=COLUMNS + 1),
    "other-columns": lambda: RBFKernel(active_dims=[7]),
    "batch": lambda: RBFKernel(batch_shape=torch.Size([2])),
    "broken": Broken,
    "indefinite": Indefinite,
    "no-kernel": lambda: "rbf",
}
NOISES = [
    None,
    None,
    0.1,
    0.1,
    1e-6,
    1e-12,
    1e-300,
    1e12,
    1e300,
    0.0,
    -1.0,
    math.nan,
    math.inf,
    "x",
]


def changed(X, place, value):
    X = X.clone()
    X[place] = value
    return X


#: Inputs from uniform ones, ``r x 2``.
INPUTS = {
    "plain": lambda X: X,
    "negative": lambda X: -1e3 * X,
    "tiny": lambda X: 1e-30 * X,
    "denormal": lambda X: 1e-310 * X,
    "large": lambda X: 1e15 * X,
    "huge": lambda X: 1e30 * X,
    "1e155": lambda X: 1e155 * X,
    "1e300": lambda X: 1e300 * (X - 0.5),
    "range-overflows": lambda X: 3.4e308 * (X - 0.5),
    "offset": lambda X: 1e6 + 1e-6 * X,
    "unequal": lambda X: X * torch.tensor([1e-12, 1e12], dtype=X.dtype),
    "requires-grad": lambda X: X.clone().requires_grad_(),
    "nan": lambda X: changed(X, (-1, 0), torch.nan),
    "infinite": lambda X: changed(X, (-1, 1), torch.inf),
    "columns-equal": lambda X: changed(X, (slice(None), 1), 0.5),
    "no-rows": lambda X: X[:0],
    "no-columns": lambda X: X[:, :0],
    "vector": lambda X: X[:, 0],
    "three-dimensional": lambda X: X.unsqueeze(0),
    "one-column": lambda X: X[:, :1],
    "integers": lambda X: (9 * X).long(),
    "booleans": lambda X: X > 0.5,
    "complex": lambda X: X.to(torch.complex128),
    "half": lambda X: X.half(),
    "bfloat16": lambda X: X.bfloat16(),
    "list": lambda X: X.tolist(),
    "array": lambda X: X.numpy(),
    "sparse": lambda X: X.to_sparse(),
    "nothing": lambda X: None,
    "text": lambda X: "arms",
}
ARMS = {
    "one": lambda X: X[:1],
    "two": lambda X: X[:2],
    "copies": lambda X: X[:3].repeat(4, 1),
    "all-equal": lambda X: X[:1].repeat(9, 1),
    "nearly-equal": lambda X: X[:1] + 1e-15 * X,
}
BOUNDS = {
    "swapped": lambda X: X.flip(0),
    "flat": lambda X: X[:1].repeat(2, 1),
    "three-rows": lambda X: torch.cat([X, X[:1]]),
    "thin": lambda X: torch.stack([X[0], X[0] + 4e-16]),
}
#: Rewards from those of a smooth function, ``q``.
REWARDS = {
    "plain": lambda y: y,
    "column": lambda y: y.unsqueeze(-1),
    "constant": torch.ones_like,
    "zero": torch.zeros_like,
    "1e-310": lambda y: 1e-310 * y,
    "1e-160": lambda y: 1e-160 * y,
    "1e-20": lambda y: 1e-20 * y,
    "1e20": lambda y: 1e20 * y,
    "1e140": lambda y: 1e140 * y,
    "1e160": lambda y: 1e160 * y,
    "1e308": lambda y: 1e308 * y,
    "offset": lambda y: 1e15 + y,
    "outlier": lambda y: changed(y, 0, 1e100),
    "of-all-scales": lambda y: y * torch.logspace(-200, 140, len(y), dtype=y.dtype),
    "single": lambda y: y.float(),
    "integers": lambda y: (9 * y).long(),
    "booleans": lambda y: (y > 0).tolist(),
    "huge-integers": lambda y: [10**400] * len(y),
    "nan": lambda y: changed(y, 0, torch.nan),
    "infinite": lambda y: changed(y, 0, -torch.inf),
    "complex": lambda y: y + 1j,
    "complex-numbers": lambda y: [complex(v, 1.0) for v in y.tolist()],
    "complex-array": lambda y: (y + 1j).numpy(),
    "too-many": lambda y: torch.cat([y, y]),
    "none": lambda y: y[:0],
    "matrix": lambda y: y.expand(2, -1),
    "ragged": lambda y: [[1.0], [1.0, 2.0]],
    "nothing": lambda y: None,
    "text": lambda y: ["high"] * len(y),
    "requires-grad": lambda y: y.clone().requires_grad_(),
    "sparse": lambda y: y.to_sparse(),
    "meta": lambda y: y.to("meta"),
}
VARIANCES = {
    "nothing": lambda y: None,
    "plain": lambda y: torch.full_like(y, 0.1),
    "1e-300": lambda y: torch.full_like(y, 1e-300),
    "1e-30": lambda y: torch.full_like(y, 1e-30),
    "1e30": lambda y: torch.full_like(y, 1e30),
    "1e300": lambda y: torch.full_like(y, 1e300),
    "of-all-scales": lambda y: torch.logspace(-300, 300, len(y), dtype=y.dtype),
    "zero": torch.zeros_like,
    "negative": lambda y: -torch.ones_like(y),
    "some": lambda y: [0.1, None, *([0.2] * len(y))][: len(y)],
    "unknown": lambda y: [None] * len(y),
    "infinite": lambda y: torch.full_like(y, torch.inf),
    "complex": lambda y: y + 1j,
    "complex-numbers": lambda y: [0.1 + 1j] * len(y),
    "too-many": lambda y: torch.ones(len(y) + 1),
    "text": lambda y: ["small"] * len(y),
    "a-number": lambda y: 0.1,
}
#: Points to tell from inputs of the domain, ``q x 2``.
POINTS = {
    "inputs": lambda X: X,
    "rows": lambda X: list(range(len(X))),
    "other-inputs": lambda X: X.detach() * 0.99,
    "other-dtype": lambda X: X.float() if X.dtype == torch.float64 else X.double(),
    "far": lambda X: 1e12 + X,
    "too-far": lambda X: 1e200 + X.double(),
    "nan": lambda X: X * torch.nan,
    "too-few-columns": lambda X: X[:, :1],
    "vector": lambda X: X[:, 0],
    "complex": lambda X: X + 1j,
    "negative-rows": lambda X: [-1] * len(X),
    "rows-beyond": lambda X: [10**6] * len(X),
    "rows-beyond-integers": lambda X: [10**30] * len(X),
    "text": lambda X: ["a"] * len(X),
    "nothing": lambda X: None,
    "a-dictionary": lambda X: {0: 1.0},
    "arrays": lambda X: X.detach().cpu().numpy(),
    "lists": lambda X: X.tolist(),
}
ASKS = [
    {}, {}, {}, {"at_most": 1}, {"at_most": 3}, {"n": 1}, {"n": 3}, {"n": 3, "distinct": False},
    {"n": 0}, {"n": -1}, {"n": 2.5}, {"n": "x"}, {"n": True}, {"at_most": 0},
    {"n": 1, "at_most": 1}, {"n": 10**5, "distinct": True}, {"exclude": [0]},
    {"exclude": [-1]}, {"exclude": [10**6]},
    {"exclude": list(range(12))}, {"exclude": None}, {"exclude": 3}, {"exclude": "x"},
    {"context": {0: 0.5}}, {"context": {9: 0.5}}, {"context": {0: math.nan}},
    {"context": {0: 1e300}}, {"context": [0.5]}, {"context": {"a": 1}},
]  # fmt: skip
OPTIONS = {
    "width": ["theory", "information", "heuristic", "paper", 0.0, 3.0, 1e200, -1.0, math.nan, "x"],
    "norm_bound": [1.0, 0.0, 1e-200, 1e200, -1.0, math.nan, "double", "x"],
    "noise_bound": [0.1, 1e-200, 1e200, -1.0, math.nan, "x"],
    "oversampling": [1e-9, 2.0, 1e200, "theory", 0.0, -1.0, math.nan, "x"],
    "max_dictionary": [1, 2, 0, 1.5, "x"],
    "horizon": [1, 10**6, 0],
    "delta": [1e-300, 0.5, 0.0, 1.0, math.nan, "x"],
    "batch_threshold": [1.0, 2.0, 1e200, 0.5, math.nan, "x"],
    "half_life": [0.5, 3.0, 1e-3, 1e300, 0.0, math.nan, "x"],
    "acquisition": ["ei", "mpi", "pi", "thompson", "greedy", "explore", "none", 3],
    "num_initial": [1, 3, 0],
    "max_replicates": [1, 2, 0],
    "epsilon": [0.0, 0.1, 10.0, 1e-300, 1e3, -1.0, math.nan],
    "on_uninformative": ["stop", "evaluate", "skip", "x"],
    "discard": [False],
    "probability": [0.0, 1.0, 2.0, math.nan, "x"],
    "discrete_dims": [
        {0: [0.0, 1.0]},
        {0: []},
        {5: [0.0]},
        {0: [math.nan]},
        {0: [0.5]},
        3,
        {0: "x"},
        {"a": [0.0]},
    ],
    "keep_coordinates": [False],
    "refit": [True, False],
    "max_depth": [1, 3, 0, "x"],
    "num_children": [2, 3, 1],
    "seed": [3, "x", 1.5, 2**70, -1],
}


@dataclass
class Combination:
    r"""What an optimizer is made of, and the choices of everything that happens to it."""

    number: int
    algorithm: str
    domain: str
    dtype: torch.dtype
    inputs: str
    kernel: str
    noise: object
    options: dict
    events: list = field(default_factory=list)  #: what was tried, for messages

    @classmethod
    def draw(cls, number: int) -> Combination:
        rng = random.Random(number)
        algorithm = rng.choice(list(ALGORITHMS))
        kind = ALGORITHMS[algorithm]
        domain = rng.choice([name for name in ("arms", "bounds") if takes(kind, name)])
        own = ARMS if domain == "arms" else BOUNDS
        return cls(
            number,
            algorithm,
            domain,
            rng.choice([torch.float64, torch.float64, torch.float32]),
            some(rng, {**INPUTS, **own}, 0.5),
            some(rng, KERNELS, 0.4),
            rng.choice(NOISES) if rng.random() < 0.6 else None,
            {
                name: rng.choice(OPTIONS[name])
                for name in rng.sample(list(OPTIONS), rng.choice([0, 0, 1, 1, 2]))
                if takes(kind, name)
            },
        )

    def make(self) -> botorch_bkb.optimizers.Optimizer:
        generator = torch.Generator().manual_seed(self.number)
        shape = (12, COLUMNS) if self.domain == "arms" else (2, COLUMNS)
        X = torch.rand(*shape, generator=generator, dtype=torch.float64)
        if self.domain == "bounds":
            X = X.sort(0).values
        values = {**INPUTS, **(ARMS if self.domain == "arms" else BOUNDS)}[self.inputs](X)
        if isinstance(values, Tensor) and values.dtype == torch.float64:
            values = values.to(self.dtype)
        kernel = KERNELS[self.kernel]()
        if self.kernel in ("short", "long", "small", "large") and self.dtype == torch.float32:
            kernel = kernel.double()
        options = {"seed": 0, **self.options}
        kind = ALGORITHMS[self.algorithm]
        if takes(kind, "acquisition_options") and self.domain == "bounds":
            options["acquisition_options"] = SEARCH
        if takes(kind, "budget"):
            options["budget"] = 9
        if takes(kind, "max_batch_size"):
            options.setdefault("max_batch_size", 4)
        if takes(kind, "num_initial"):
            options.setdefault("num_initial", 3)
        return kind(**{self.domain: values}, covar_module=kernel, noise_var=self.noise, **options)


def some(rng, values, share):
    r"""Draw a name, the first one with a given probability."""
    return next(iter(values)) if rng.random() < share else rng.choice(list(values))


class Broke(AssertionError):
    r"""A combination gave neither a clear error nor a finite answer."""


class Trial:
    r"""Everything that happens to the optimizer of one combination."""

    def __init__(self, combination: Combination) -> None:
        self.combination, self.rng = combination, random.Random(-1 - combination.number)
        self.optimizer = None
        self.refusals: list[str] = []
        self.answers = 0

    def run(self) -> None:
        r"""Run the whole trial; raises where something is neither refused nor finite."""
        self.optimizer = self.attempt("make", self.combination.make)
        if self.optimizer is None:
            return
        for _ in range(3):
            self.attempt("ask", self.ask)
            self.tell_something()
            if not self.optimizer.num_observations:
                self.attempt("tell", self.tell_plainly)
            self.attempt("best", lambda: numbers(self.optimizer.best()))
            self.attempt("read", self.read)
            if self.rng.random() < 0.3:
                self.attempt("gap", self.optimizer.gap)
            if self.rng.random() < 0.3:
                self.attempt("model", self.posterior)
        if self.rng.random() < 0.3:
            self.attempt("state", self.round_trip)

    def ask(self):
        options = self.rng.choice(ASKS)
        if self.combination.domain == "bounds" and options.get("n") == 10**5:
            options = {}  # a box has so many points: not hostile, only long
        self.combination.events.append(options)
        suggestion = self.optimizer.ask(**options)
        return suggestion.X

    def tell_something(self) -> None:
        r"""Tell results of some points, mostly of those that were asked."""
        rng, optimizer = self.rng, self.optimizer
        pending = optimizer.pending
        points = pending
        if not len(pending) or rng.random() < 0.3:
            X = optimizer.domain.extent[:2].detach()
            name = some(rng, POINTS, 0.4)
            self.combination.events.append(name)
            points = POINTS[name](X)
            size = len(X)
        else:
            size = len(points)
        y = torch.sin(torch.arange(size, dtype=torch.float64) + rng.random())
        rewards, variances = some(rng, REWARDS, 0.5), some(rng, VARIANCES, 0.7)
        self.combination.events.append((rewards, variances))
        told = optimizer.num_observations
        self.attempt(
            "tell",
            lambda: optimizer.tell(points, REWARDS[rewards](y), VARIANCES[variances](y)),
        )
        imaginary = "complex" in rewards or "complex" in variances
        if imaginary and optimizer.num_observations != told:
            raise Broke(f"complex results were told: {self.combination}")

    def tell_plainly(self):
        X = self.optimizer.domain.extent[:1].detach()
        self.optimizer.tell(X, [0.5])

    def read(self):
        optimizer = self.optimizer
        repr(optimizer)
        return [
            optimizer.effective_dimension, optimizer.information_gain, optimizer.width_now,
            optimizer.dictionary, optimizer.pending.X, *optimizer.table.moments(),
        ]  # fmt: skip

    def posterior(self):
        model = self.optimizer.model
        with torch.no_grad():
            posterior = model.posterior(self.optimizer.domain.extent[:2].detach())
        return [posterior.mean, posterior.variance]

    def round_trip(self):
        saved = self.optimizer.state_dict()
        other = self.combination.make()
        other.load_state_dict(saved)
        if encode(other.state_dict()) != encode(saved):
            raise Broke(f"the state has changed on its way: {self.combination}")

    def has_changed(self, before):
        return encode(self.optimizer.state_dict()) != encode(before)

    def attempt(self, name, call):
        r"""Return the finite answer of a call, or None if it is refused and changes nothing."""
        self.combination.events.append(name)
        before = None if self.optimizer is None else self.optimizer.state_dict()
        try:
            value = call()
        except Exception as error:
            if not is_clear(error):
                shown = "".join(traceback.format_exception(error)[-3:])
                raise Broke(f"raw {type(error).__name__}: {self.combination}\n{shown}") from error
            self.refusals.append(f"{name}: {type(error).__name__}: {error}")
            is_answer = isinstance(error, (BatchCompleteError, ConvergedError))
            if before is not None and not is_answer and self.has_changed(before):
                raise Broke(f"{name} was refused, but changed: {self.combination}") from error
            return None
        if not is_finite(value):
            raise Broke(f"{name} is not finite, {value}: {self.combination}")
        self.answers += 1
        return value


def numbers(best):
    r"""The numbers of a recommendation, which must be in order."""
    if not best.lower <= best.mean <= best.upper:
        raise Broke(f"an interval is empty: {best}")
    return [best.X, best.mean, best.lower, best.upper]


def is_finite(value) -> bool:
    if isinstance(value, Tensor):
        return bool(value.isfinite().all())
    if isinstance(value, (list, tuple)):
        return all(map(is_finite, value))
    return not isinstance(value, float) or math.isfinite(value)


def is_clear(error: Exception) -> bool:
    r"""Whether an error is one of BoTorch's kind, or one that the package raises itself."""
    if isinstance(error, BotorchError):
        return True
    last = traceback.extract_tb(error.__traceback__)[-1]
    is_raised = last.filename.startswith(PACKAGE) and (last.line or "").startswith("raise ")
    return is_raised and isinstance(error, (TypeError, ValueError))
