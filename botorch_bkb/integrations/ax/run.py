r"""The state of an optimizer that runs on one Ax experiment."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any

import torch
from ax.core.experiment import Experiment
from ax.exceptions.core import UnsupportedError

from botorch_bkb.domains import Suggestion
from botorch_bkb.domains.reading import LARGEST
from botorch_bkb.integrations.ax.ledger import Ledger, Result
from botorch_bkb.integrations.ax.space import AxSpace, Goal, read_goal
from botorch_bkb.optimizers import BatchCompleteError, ConvergedError, Optimizer
from botorch_bkb.runs.points import UNKNOWN, Point, Reward, tell

logger = logging.getLogger(__name__)

CHANGED = (
    "BKBNode needs the same search space and objective in all trials, but one of them has changed "
    "since the first trial: start a new generation strategy, which learns from all earlier trials."
)


def created(experiment: Experiment) -> float:
    r"""Return the time at which an experiment was created, in seconds."""
    return experiment.time_created.timestamp()


def described(space: AxSpace, goal: Goal) -> str:
    r"""Describe the search space and objective, which must not change during a run."""
    return repr((space.box, space.fixed, goal))


@dataclass
class Run:
    r"""An optimizer that runs on an Ax experiment.

    Attributes:
        experiment: Name of the experiment.
        created: Time at which the experiment was created, in seconds.
        space: Search space of the experiment.
        goal: Objective of the experiment.
        optimizer: Optimizer over the box.
        ledger: Record of which trial evaluates which point.
        noise: Noise variance of results without a standard error; 0 if the noise is fitted, None
            before the first result.
        ahead: Points selected but not yet returned to Ax, each with the optimizer's state before
            it.
        offered: Number of loose points returned to Ax since the last reading.
        beyond: Whether points beyond the batch rule are selected.
    """

    experiment: str | None
    created: float
    space: AxSpace
    goal: Goal
    optimizer: Optimizer
    ledger: Ledger = field(default_factory=Ledger)
    noise: float | None = None
    ahead: list[tuple[dict[str, Any], Suggestion]] = field(default_factory=list)
    offered: int = 0
    beyond: bool = False

    @property
    def state(self) -> dict[str, Any]:
        r"""The optimizer's state without the points in ``ahead``."""
        return self.ahead[0][0] if self.ahead else self.optimizer.state_dict()

    def is_of(self, experiment: Experiment) -> bool:
        r"""Return whether the run belongs to this experiment."""
        same = self.experiment == experiment._name and self.created == created(experiment)
        return same and self.ledger.seen <= len(experiment.trials)

    def catch_up(self, experiment: Experiment, node: str) -> None:
        r"""Tell the optimizer the new results and losses of an experiment."""
        space, goal = AxSpace(experiment.search_space), read_goal(experiment)
        if described(space, goal) != described(self.space, self.goal):
            raise UnsupportedError(CHANGED)
        updates = self.ledger.read(experiment, node, goal.metric)
        self.offered = 0
        if not (updates.results or updates.lost):
            return
        if self.ahead:
            self.optimizer.load_state_dict(self.state)
            self.ahead.clear()
        self._tell(updates.results)
        if lost := set(updates.lost):
            pending = self.optimizer.pending
            gone = torch.tensor([id_ in lost for id_ in pending.ids], dtype=torch.bool)
            self.optimizer.give_up(pending[gone])

    def _tell(self, results: list[Result]) -> None:
        variances = self._variances([result.sem for result in results])
        pending = self.optimizer.pending
        places = {id_: i for i, id_ in enumerate(pending.ids)}
        told: list[tuple[Point, Reward | None]] = []
        for i, result in enumerate(results):
            id_ = result.id if result.id in places else UNKNOWN
            if id_ != UNKNOWN:
                x = pending.X[places[id_]]
            else:
                try:
                    x = self.space.encode(result.parameters)
                except (KeyError, ValueError) as error:
                    logger.warning("A trial outside of the search space is left out: %s", error)
                    continue
            variance = None if variances is None else variances[i]
            told.append((Point(i, x, None, id_, 0), Reward(self.goal.sign * result.mean, variance)))
        tell(self.optimizer, told)

    def _variances(self, sems: list[float]) -> list[float] | None:
        known = [0 < sem * sem < LARGEST for sem in sems]
        if self.noise is None and sems:
            squares = [sem * sem for sem in sems]
            given = self.optimizer.parts.model.noise_var
            self.noise = given or (sum(squares) / len(sems) if all(known) else 0.0)
        if not any(known) and (not self.noise or self.optimizer.parts.model.noise_var is not None):
            return None
        if not self.noise:
            logger.info("Standard errors are ignored: the first results came without any.")
            return None
        return [
            sem * sem if is_known else self.noise for sem, is_known in zip(sems, known, strict=True)
        ]

    def _ask(self) -> Suggestion:
        try:
            return self.optimizer.ask(at_most=1)
        except BatchCompleteError:
            if not self.beyond:
                raise
            return self.optimizer.ask(1, distinct=False)

    def look_ahead(self, most: int) -> int:
        r"""Select points ahead, and return how many are available, at most ``most``."""
        waiting = len(self.ledger.loose) - self.offered
        while waiting + len(self.ahead) < most:
            before = self.optimizer.state_dict()
            try:
                self.ahead.append((before, self._ask()))
            except (BatchCompleteError, ConvergedError):
                break
        return waiting + len(self.ahead)

    def next_point(self) -> dict[str, Any]:
        r"""Return a loose point if there is one, else one from ``ahead``, else a new one."""
        loose = self.ledger.loose
        if self.offered == len(loose):
            suggestion = self.ahead.pop(0)[1] if self.ahead else self._ask()
            loose[suggestion.ids[0]] = self.space.decode(suggestion.X[0])
        self.offered += 1
        return dict(list(loose.values())[self.offered - 1])
