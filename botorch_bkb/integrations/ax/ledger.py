r"""A record of which Ax trial evaluates which suggested point, and of the trial's outcome."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ax.core.base_trial import BaseTrial
from ax.core.experiment import Experiment
from ax.core.trial_status import TrialStatus

from botorch_bkb.domains.reading import LARGEST

#: Statuses of trials whose results count.
DONE = (TrialStatus.COMPLETED, TrialStatus.EARLY_STOPPED)
#: Statuses of trials that will have no result.
LOST = (TrialStatus.FAILED, TrialStatus.ABANDONED, TrialStatus.STALE)

#: Number of decimals of a result that Ax stores.
DECIMALS = 10
#: Rounding could change smaller results by more than a hundredth of a percent.
SMALLEST = 1e-6


class Result(NamedTuple):
    r"""The result of one arm of a trial."""

    id: int | None  #: id of the suggested point; None if the optimizer did not suggest it
    parameters: dict[str, Any]
    mean: float
    sem: float


class TrialUpdates(NamedTuple):
    r"""Results and losses since the last reading of an experiment, in the order of the trials."""

    results: list[Result]
    lost: list[int]  #: ids of points that will have no result


@dataclass
class Ledger:
    r"""A record of the suggested points and of the trials that evaluate them.

    The cost of a reading depends only on the number of new and open trials.

    Attributes:
        seen: Number of trials read so far.
        loose: Suggested points that belong to no trial yet, by id.
        open: Point ids of unfinished trials, by trial and arm; None for arms that the optimizer did
            not suggest.
    """

    seen: int = 0
    loose: dict[int, dict[str, Any]] = field(default_factory=dict)
    open: dict[int, dict[str, int | None]] = field(default_factory=dict)

    def read(self, experiment: Experiment, node: str, metric: str) -> TrialUpdates:
        r"""Match new trials with suggested points, and close the trials that have ended.

        Args:
            experiment: Experiment whose trials are read.
            node: Name of the node that suggested the points.
            metric: Name of the objective metric.
        """
        trials = experiment.trials
        while self.seen in trials:
            self.open[self.seen] = {}
            self.seen += 1
        updates = TrialUpdates([], [])
        for index in sorted(self.open):
            self._match(trials[index], node)
        done = [index for index in sorted(self.open) if trials[index].status in DONE]
        values = _values(experiment, done, metric) if done else {}
        for index in done:
            updates.results.extend(self._close(trials[index], values))
        for index in list(self.open):
            if index in done or trials[index].status in LOST:
                updates.lost.extend(id_ for id_ in self.open[index].values() if id_ is not None)
                self.open[index] = dict.fromkeys(self.open[index])
            if trials[index].status in LOST or (index in done and not self.open[index]):
                del self.open[index]
        return updates

    def _match(self, trial: BaseTrial, node: str) -> None:
        known = self.open[trial.index]
        if known and trial.status is not TrialStatus.CANDIDATE:
            return
        is_ours = any(run._generation_node_name == node for run in trial.generator_runs)
        for arm in trial.arms:
            if arm.name not in known:
                candidates = (i for i, point in self.loose.items() if point == arm.parameters)
                id_ = next(candidates, None) if is_ours else None
                known[arm.name] = id_
                if id_ is not None:
                    del self.loose[id_]

    def _close(self, trial: BaseTrial, values: dict) -> Iterator[Result]:
        r"""Yield the results of a trial that has ended. Arms without a result stay open."""
        known = self.open[trial.index]
        for arm in trial.arms:
            mean, sem = values.get((trial.index, arm.name), (math.nan, math.nan))
            if arm.name in known and abs(mean) < LARGEST:
                yield Result(known.pop(arm.name), arm.parameters, mean, sem)

    def to_dict(self) -> dict[str, Any]:
        r"""Return the record as lists, numbers and strings."""
        return {
            "seen": self.seen,
            "loose": [[id_, point] for id_, point in self.loose.items()],
            "open": [[index, list(arms.items())] for index, arms in self.open.items()],
        }

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> Ledger:
        r"""Restore a record from the output of :meth:`to_dict`."""
        arms = {index: dict(map(tuple, items)) for index, items in saved["open"]}
        return cls(saved["seen"], dict(map(tuple, saved["loose"])), arms)


def _values(
    experiment: Experiment, indices: list[int], metric: str
) -> dict[tuple[int, str], tuple[float, float]]:
    r"""Return the last mean and standard error of each arm of the given trials."""
    df = experiment.lookup_data(trial_indices=indices).df
    df = df[df["metric_name"] == metric]
    keys = zip(df["trial_index"].tolist(), df["arm_name"].tolist(), strict=True)
    values = ([_as_stored(value) for value in df[name].tolist()] for name in ("mean", "sem"))
    return dict(zip(keys, zip(*values, strict=True), strict=True))


def _as_stored(value: float) -> float:
    r"""Round a value to the ten decimals that Ax stores, so that a reload changes nothing.

    Values too small for that are not rounded.
    """
    return round(value, DECIMALS) if abs(value) >= SMALLEST else value
