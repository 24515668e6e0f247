r"""Which of Ax's trials carries which point of an optimizer, and what has become of it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ax.core.base_trial import BaseTrial
from ax.core.experiment import Experiment
from ax.core.trial_status import TrialStatus

from botorch_bkb.optimizers.reading import LARGEST

#: Whose results count.
DONE = (TrialStatus.COMPLETED, TrialStatus.EARLY_STOPPED)
#: Whose results will not come.
LOST = (TrialStatus.FAILED, TrialStatus.ABANDONED, TrialStatus.STALE)

#: Decimals that Ax stores of a result.
DECIMALS = 10
#: Smaller results would lose more than a hundredth of a percent.
SMALLEST = 1e-6


class Result(NamedTuple):
    r"""The result of one arm of a trial."""

    id: int | None  #: of the point it answers; None if nobody asked
    parameters: dict[str, Any]
    mean: float
    sem: float


class News(NamedTuple):
    r"""What has happened since the last reading, in the order of the trials."""

    results: list[Result]
    lost: list[int]  #: ids of points no result will come of


@dataclass
class Ledger:
    r"""Points handed out and trials awaited; a reading costs what is new or still open.

    Attributes:
        seen: Trials below this index are known.
        loose: Points handed out that no trial carries yet, by id.
        open: Ids of the points of trials that are not over, by trial and arm; None where nobody
            asked.
    """

    seen: int = 0
    loose: dict[int, dict[str, Any]] = field(default_factory=dict)
    open: dict[int, dict[str, int | None]] = field(default_factory=dict)

    def read(self, experiment: Experiment, node: str, metric: str) -> News:
        r"""Match new trials with points handed out, and close those that are over.

        Args:
            experiment: Whose trials are read.
            node: Name of the node that handed the points out.
            metric: The objective.
        """
        trials = experiment.trials
        while self.seen in trials:
            self.open[self.seen] = {}
            self.seen += 1
        news = News([], [])
        for index in sorted(self.open):
            self._match(trials[index], node)
        done = [index for index in sorted(self.open) if trials[index].status in DONE]
        values = _values(experiment, done, metric) if done else {}
        for index in done:
            news.results.extend(self._close(trials[index], values))
        for index in list(self.open):
            if index in done or trials[index].status in LOST:
                news.lost.extend(id_ for id_ in self.open[index].values() if id_ is not None)
                self.open[index] = dict.fromkeys(self.open[index])
            if trials[index].status in LOST or (index in done and not self.open[index]):
                del self.open[index]
        return news

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
        r"""Results of a trial that is over; arms without one stay open."""
        known = self.open[trial.index]
        for arm in trial.arms:
            mean, sem = values.get((trial.index, arm.name), (math.nan, math.nan))
            if arm.name in known and abs(mean) < LARGEST:
                yield Result(known.pop(arm.name), arm.parameters, mean, sem)

    def to_dict(self) -> dict[str, Any]:
        r"""Of lists, numbers and strings."""
        return {
            "seen": self.seen,
            "loose": [[id_, point] for id_, point in self.loose.items()],
            "open": [[index, list(arms.items())] for index, arms in self.open.items()],
        }

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> Ledger:
        r"""The inverse."""
        arms = {index: dict(map(tuple, items)) for index, items in saved["open"]}
        return cls(saved["seen"], dict(map(tuple, saved["loose"])), arms)


def _values(
    experiment: Experiment, indices: list[int], metric: str
) -> dict[tuple[int, str], tuple[float, float]]:
    r"""The last mean and standard error of each arm of some trials."""
    df = experiment.lookup_data(trial_indices=indices).df
    df = df[df["metric_name"] == metric]
    keys = zip(df["trial_index"].tolist(), df["arm_name"].tolist(), strict=True)
    values = ([_as_stored(value) for value in df[name].tolist()] for name in ("mean", "sem"))
    return dict(zip(keys, zip(*values, strict=True), strict=True))


def _as_stored(value: float) -> float:
    r"""To ten decimals, which is what Ax stores: a reload changes nothing then.

    Values too small for that are read in full.
    """
    return round(value, DECIMALS) if abs(value) >= SMALLEST else value
