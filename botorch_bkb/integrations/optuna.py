r"""Optuna integration (extra ``optuna``): a sampler that runs this package's algorithms."""

from __future__ import annotations

import threading
from typing import Any

from botorch.exceptions.errors import UnsupportedError

try:
    from optuna.distributions import (
        BaseDistribution,
        CategoricalDistribution,
        FloatDistribution,
        IntDistribution,
    )
    from optuna.samplers import BaseSampler, RandomSampler
    from optuna.search_space import IntersectionSearchSpace
    from optuna.study import Study, StudyDirection
    from optuna.trial import FrozenTrial, TrialState
except ImportError as error:
    raise ImportError(
        "botorch_bkb.optuna needs Optuna: pip install 'botorch-bkb[optuna]'"
    ) from error

from botorch_bkb.domains.reading import LARGEST
from botorch_bkb.integrations.spaces import Dimension, Space, check_algorithm, on_uninformative
from botorch_bkb.optimizers import BatchCompleteError, Optimizer
from botorch_bkb.runs.points import UNKNOWN, Point, Reward, tell


def as_dimension(name: str, distribution: BaseDistribution) -> Dimension:
    r"""Convert a distribution of Optuna to one coordinate of a box."""
    if isinstance(distribution, CategoricalDistribution):
        return Dimension.choices(name, distribution.choices)
    if not isinstance(distribution, (FloatDistribution, IntDistribution)):
        raise UnsupportedError(
            "BKBSampler takes float, int and categorical distributions, got "
            f"{type(distribution).__name__} for {name}: use one of these three."
        )
    low, high, step, log = distribution.low, distribution.high, distribution.step, distribution.log
    if step is None:
        return Dimension(name, low, high, log=log)
    return Dimension.grid(name, low, high, step, log=log)


class BKBSampler(BaseSampler):
    r"""An Optuna sampler that runs an algorithm of this package.

    The sampler samples jointly the parameters that all finished trials have in common. It samples
    other parameters at random, for example conditional ones. While a batch is closed, trials in
    parallel get points beyond the batch rule. It learns from all finished trials of the study,
    including those that it did not suggest. Pruned and failed trials are given up. A new sampler on
    a stored study learns from all its trials, but its random state starts anew.

    The guarantees in the docstring of each algorithm hold for the box of the common parameters.
    Random samples and all defaults are heuristic. The kernel sees categories as numbers, in the
    order of the list.

    Args:
        algorithm: Name of an optimizer class: ``"BBKB"``, ``"BKB"``, ``...``.
        search_space: Distributions by name. By default those common to all finished trials, so
            that the first trial is random.
        seed: Seed of all randomness.
        options: Further arguments of the algorithm's class, in units of the box (logarithms for
            logarithmic parameters). Algorithms with an information threshold evaluate uninformative
            points.

    Example:
        >>> import optuna
        >>> from botorch_bkb.optuna import BKBSampler
        >>> optuna.logging.set_verbosity(optuna.logging.WARNING)
        >>> study = optuna.create_study(sampler=BKBSampler("BBKB", seed=0))
        >>> study.optimize(lambda trial: (trial.suggest_float("x", 0, 1) - 0.3) ** 2, n_trials=12)
        >>> abs(study.best_params["x"] - 0.3) < 0.1
        True
    """

    def __init__(
        self,
        algorithm: str = "BBKB",
        *,
        search_space: dict[str, BaseDistribution] | None = None,
        seed: int | None = None,
        **options: Any,
    ) -> None:
        treatment = on_uninformative(check_algorithm(algorithm, options), options)
        if treatment != "evaluate":
            raise UnsupportedError(
                'Optuna evaluates every trial: on_uninformative must be "evaluate", got '
                f"{treatment!r}."
            )
        self._algorithm, self._seed, self._options = algorithm, seed, options
        self._given, self._study = search_space, ""
        self._common = IntersectionSearchSpace(include_pruned=True)
        self._independent = RandomSampler(seed=seed)
        self._lock = threading.RLock()
        self._distributions: dict[str, BaseDistribution] = {}
        self._space = Space(())
        self._optimizer: Optimizer | None = None
        self._asked: dict[int, tuple[int, dict[str, Any]]] = {}
        self._closed: set[int] = set()

    @property
    def optimizer(self) -> Optimizer | None:
        r"""The optimizer that selects the points, or None before the first one."""
        return self._optimizer

    def reseed_rng(self) -> None:
        r"""Reseed the generator of the random samples."""
        self._independent.reseed_rng()

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        r"""Return the distributions of the parameters that are sampled jointly."""
        with self._lock:
            self._look_at(study)
        space = self._given or self._common.calculate(study)
        return {name: d for name, d in space.items() if not d.single()}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: Any
    ) -> Any:
        r"""Sample one parameter at random."""
        return self._independent.sample_independent(study, trial, param_name, param_distribution)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        r"""Return the next point, beyond the batch rule while the batch is closed."""
        self._raise_error_if_multi_objective(study)
        if not search_space:
            return {}
        with self._lock:
            if self._optimizer is None or search_space != self._distributions:
                self._begin(search_space)
            self._catch_up(study)
            assert self._optimizer is not None
            try:
                suggestion = self._optimizer.ask(at_most=1)
            except BatchCompleteError:  # parallel trials: better than a random point
                suggestion = self._optimizer.ask(1, distinct=False)
            point = self._space.decode(suggestion.X[0])
            self._asked[trial.number] = suggestion.ids[0], point
            return point

    def _look_at(self, study: Study) -> None:
        r"""Discard the optimizer if this study is not the one that it has learnt from."""
        now = f"{study.study_name} {study.directions}"
        if now != self._study:
            self._study, self._optimizer = now, None
            self._common = IntersectionSearchSpace(include_pruned=True)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=threading.RLock())

    def _begin(self, search_space: dict[str, BaseDistribution]) -> None:
        self._distributions = dict(search_space)
        self._space = Space(tuple(as_dimension(*item) for item in search_space.items()))
        self._optimizer = self._space.make_optimizer(self._algorithm, self._seed, self._options)
        self._asked, self._closed = {}, set()

    def _catch_up(self, study: Study) -> None:
        r"""Tell the optimizer the trials finished since the last call, in their order."""
        optimizer = self._optimizer
        assert optimizer is not None
        sign = 1.0 if study.direction is StudyDirection.MAXIMIZE else -1.0
        pending = optimizer.pending
        X = dict(zip(pending.ids, pending.X, strict=True))
        told: list[tuple[Point, Reward | None]] = []
        finished = [
            trial
            for trial in study.get_trials(deepcopy=False)
            if trial.number not in self._closed and trial.state.is_finished()
        ]
        for trial in finished:
            id_, point = self._asked.get(trial.number, (UNKNOWN, {}))
            reward = None
            if trial.state is TrialState.COMPLETE and trial.value is not None:
                reward = Reward(sign * trial.value) if abs(trial.value) < LARGEST else None
            if id_ in X:
                answer = reward if point.items() <= trial.params.items() else None
                told.append((Point(trial.number, X[id_], None, id_, 0), answer))
                if answer is not None:
                    continue
            try:
                x = self._space.encode(trial.params)
            except (KeyError, ValueError):
                continue
            if reward is not None:
                told.append((Point(trial.number, x, None, UNKNOWN, 0), reward))
        tell(optimizer, told)
        self._closed |= {trial.number for trial in finished}
        for trial in finished:
            self._asked.pop(trial.number, None)
