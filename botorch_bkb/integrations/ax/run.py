r"""An optimizer at work on one of Ax's experiments."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any

import torch
from ax.core.experiment import Experiment
from ax.exceptions.core import UnsupportedError

from botorch_bkb.integrations.ax.ledger import Ledger, Result
from botorch_bkb.integrations.ax.space import AxSpace, Goal, read_goal
from botorch_bkb.optimizers import BatchCompleteError, ConvergedError, Optimizer, Suggestion
from botorch_bkb.optimizers.reading import LARGEST
from botorch_bkb.runs.points import UNKNOWN, Point, Reward, tell

logger = logging.getLogger(__name__)

CHANGED = (
    "The search space or the objective has changed since the first trial, which BKBNode does not "
    "support: start a new generation strategy; it learns from all earlier trials."
)


def created(experiment: Experiment) -> float:
    r"""When an experiment was created, in seconds."""
    return experiment.time_created.timestamp()


def described(space: AxSpace, goal: Goal) -> str:
    r"""What must not change while a node is at work."""
    return repr((space.box, space.fixed, goal))


@dataclass
class Run:
    r"""An optimizer at work on an experiment.

    Attributes:
        experiment: Its name.
        created: When it was created, in seconds.
        space: Its search space.
        goal: Its objective.
        optimizer: Over the box.
        ledger: Which trial carries which point.
        noise: Noise variance of results that come without; 0 if it is fitted, None before the
            first result.
        ahead: Points picked and not handed out, each with the state before it.
        offered: How many loose points were handed out since the last reading.
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

    @property
    def state(self) -> dict[str, Any]:
        r"""Of the optimizer, as if nothing had been picked ahead."""
        return self.ahead[0][0] if self.ahead else self.optimizer.state_dict()

    def is_of(self, experiment: Experiment) -> bool:
        r"""Whether it has worked on this experiment."""
        same = self.experiment == experiment._name and self.created == created(experiment)
        return same and self.ledger.seen <= len(experiment.trials)

    def catch_up(self, experiment: Experiment, node: str) -> None:
        r"""Tell what is new."""
        space, goal = AxSpace(experiment.search_space), read_goal(experiment)
        if described(space, goal) != described(self.space, self.goal):
            raise UnsupportedError(CHANGED)
        news = self.ledger.read(experiment, node, goal.metric)
        self.offered = 0
        if not (news.results or news.lost):
            return
        if self.ahead:
            self.optimizer.load_state_dict(self.state)
            self.ahead.clear()
        self._tell(news.results)
        if lost := set(news.lost):
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
            given = self.optimizer.arguments.get("noise_var")
            self.noise = given or (sum(squares) / len(sems) if all(known) else 0.0)
        if not any(known) and (not self.noise or "noise_var" in self.optimizer.arguments):
            return None
        if not self.noise:
            logger.info("Standard errors are ignored: the first results came without any.")
            return None
        return [
            sem * sem if is_known else self.noise for sem, is_known in zip(sems, known, strict=True)
        ]

    def look_ahead(self, most: int) -> int:
        r"""How many points can be handed out now, up to ``most``."""
        waiting = len(self.ledger.loose) - self.offered
        while waiting + len(self.ahead) < most:
            before = self.optimizer.state_dict()
            try:
                self.ahead.append((before, self.optimizer.ask(1)))
            except (BatchCompleteError, ConvergedError):
                break
        return waiting + len(self.ahead)

    def next_point(self) -> dict[str, Any]:
        r"""A loose point, one picked ahead, or a new one."""
        loose = self.ledger.loose
        if self.offered == len(loose):
            suggestion = self.ahead.pop(0)[1] if self.ahead else self.optimizer.ask(1)
            loose[suggestion.ids[0]] = self.space.decode(suggestion.X[0])
        self.offered += 1
        return dict(list(loose.values())[self.offered - 1])
