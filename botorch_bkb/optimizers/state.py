r"""The state of a run: one frozen value, replaced whole, saved as plain tensors.

The table of arms is not part of it. What is kept instead is how to arrive at the very same
table, to the last bit: the history and the dictionary at its last rebuild, and the changes
since then: a few dozen dictionaries, and what was told between them.
"""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_bkb.optimizers.history import History
from botorch_bkb.optimizers.hyperparameters import Hyperparameters
from botorch_bkb.partition import PartitionTree


class Pending(NamedTuple):
    r"""A point asked and not told."""

    row: int
    score: float  #: ``tau`` under the model that chose it


class BatchRecord(NamedTuple):
    r"""The batch that is being asked; its picks follow from this."""

    width: float
    seed: int
    stragglers: tuple[int, ...]  #: rows pending when it began
    lost: tuple[int, ...] = ()  #: rows given up before it
    designed: int = 0  #: points of the initial design handed out before it
    cells: int = 0  #: cells there were before it
    picks: tuple[int, ...] = ()  #: rows handed out


class Change(NamedTuple):
    r"""One change of the table: rows added and pulls observed, or the dictionary exchanged."""

    added: Tensor  #: ``h x d`` inputs that are no arms
    rows: Tensor
    rewards: Tensor  #: in units of the rewards
    weights: Tensor
    dictionary: Tensor  #: empty where it stays

    @classmethod
    def of_dictionary(cls, dictionary: Tensor, added: Tensor) -> Change:
        r"""The dictionary is exchanged and nothing else."""
        none = dictionary[:0]
        return cls(added[:0], none, none.double(), none.double(), dictionary)

    @classmethod
    def of_rows(cls, added: Tensor) -> Change:
        r"""Rows are added and nothing else."""
        none = torch.empty(0, dtype=torch.long, device=added.device)
        return cls(added, none, none.double(), none.double(), none)


@dataclass(frozen=True)
class Recipe:
    r"""How to arrive at the table."""

    base: History  #: what was observed at the last rebuild
    num_added: int  #: how many rows were added by then
    dictionary: Tensor  #: rows; the first arm, which counts for nothing, before any pull
    changes: tuple[Change, ...] = ()

    @property
    def final_dictionary(self) -> Tensor:
        r"""The dictionary after all changes."""
        drawn = (c.dictionary for c in reversed(self.changes) if len(c.dictionary))
        return next(drawn, self.dictionary)

    def followed_by(self, change: Change) -> Recipe:
        r"""One change more."""
        return Recipe(self.base, self.num_added, self.dictionary, (*self.changes, change))


@dataclass(frozen=True)
class State:
    r"""Everything a run depends on that is not an argument of the optimizer.

    Attributes:
        history: What was observed.
        added: ``h x d`` observed inputs that are no arms; rows ``A ..`` of the table.
        coins: The smallest coin of each row of the history (coupled draws).
        hyper: Hyperparameters.
        recipe: How to arrive at the table.
        newest: The row observed last.
        settled: Whether the dictionary was drawn after the last observation.
        unasked: Pulls nobody asked for since the dictionary was drawn.
        pending: Points asked and not told, by id.
        lost: Rows of the last points that were given up.
        next_id: The id of the next point asked.
        batch: The batch being asked, if any.
        log_sum: ``sum_s log(1 + tau)``, scores logged at selection.
        log_sum_3: ``sum_s log(1 + 3 tau)``.
        norm_bound: ``F`` as doubled so far.
        oversampling: The oversampling as raised so far.
        horizon: The horizon as doubled so far.
        next_fit: Number of observations at which hyperparameters are fitted next.
        noise_known: Noise variance in units of the rewards, where it is not fitted.
        random: State of the generator.
        kept: Rows whose results were informative, where others are in the belief too.
        num_kept: How many informative results there were.
        discarded: Results left out of the belief.
        skipped: Steps without a result, for a point that would have taught too little.
        incumbent: The best informative reward.
        design_seed: Of the initial design over a box.
        designed: Points of the design handed out.
        tree: The cells of a box, where it is searched through them.
        cells: The row of each cell's centre.
    """

    history: History
    added: Tensor
    coins: Tensor
    hyper: Hyperparameters
    recipe: Recipe
    oversampling: float
    norm_bound: float
    horizon: int | None
    next_fit: int
    noise_known: float | None
    random: Tensor
    kept: Tensor
    num_kept: int = 0
    discarded: int = 0
    skipped: int = 0
    incumbent: float = -math.inf
    design_seed: int = 0
    designed: int = 0
    newest: int = -1
    settled: bool = True
    unasked: int = 0
    pending: dict[int, Pending] = field(default_factory=dict)
    lost: tuple[int, ...] = ()
    next_id: int = 0
    batch: BatchRecord | None = None
    log_sum: float = 0.0
    log_sum_3: float = 0.0
    tree: PartitionTree | None = None
    cells: Tensor | None = None

    @property
    def num_observations(self) -> int:
        r"""Results told, those left out of the belief included."""
        return self.history.num_observations + self.discarded

    @property
    def num_steps(self) -> int:
        r"""Results told and steps skipped."""
        return self.num_observations + self.skipped

    @property
    def num_cells(self) -> int:
        r"""Cells of the tree; 0 where there is none."""
        return 0 if self.tree is None else len(self.tree)

    def to_dict(self) -> dict[str, Any]:
        r"""Numbers, strings, lists and tensors: safe to load with ``weights_only=True``."""
        nested = {"history", "hyper", "recipe", "pending", "lost", "batch", "tree"}
        saved = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in nested}
        hyper, recipe, batch = self.hyper, self.recipe, None
        if self.batch is not None:
            batch = self.batch._asdict()
            batch |= {key: list(batch[key]) for key in ("stragglers", "lost", "picks")}
        return {
            **saved,
            "history": vars_of(self.history),
            "hyper": {
                "kernel": dict(hyper.kernel.state_dict()),
                "noise_var": hyper.noise_var,
                "offset": hyper.offset,
                "scale": hyper.scale,
            },
            "recipe": {
                "base": vars_of(recipe.base),
                "num_added": recipe.num_added,
                "dictionary": recipe.dictionary,
                "changes": [change._asdict() for change in recipe.changes],
            },
            "pending": [[id_, *point] for id_, point in self.pending.items()],
            "lost": list(self.lost),
            "batch": batch,
            "tree": None if self.tree is None else self.tree.to_dict(),
        }

    @classmethod
    def from_dict(cls, saved: dict[str, Any], kernel: Kernel, device: torch.device) -> State:
        r"""The inverse; ``kernel`` is one of the same kind."""

        def on_device(value: Any) -> Any:
            if isinstance(value, Tensor):
                return value.to(device)
            if isinstance(value, dict):
                return {key: on_device(item) for key, item in value.items()}
            return [on_device(item) for item in value] if isinstance(value, list) else value

        missing = {f.name for f in fields(cls)} - set(saved)
        if missing:
            raise KeyError(", ".join(sorted(missing)))
        random = saved["random"].cpu()
        saved = on_device(saved)
        kernel = deepcopy(kernel)
        hyper = dict(saved["hyper"])
        kernel.load_state_dict(hyper.pop("kernel"))
        recipe = dict(saved["recipe"])
        recipe["base"] = History(**recipe["base"])
        recipe["changes"] = tuple(Change(**change) for change in recipe["changes"])
        batch = saved["batch"]
        if batch is not None:
            lists = {key: tuple(batch[key]) for key in ("stragglers", "lost", "picks")}
            batch = BatchRecord(**{**batch, **lists})
        return cls(
            **{
                **saved,
                "random": random,
                "history": History(**saved["history"]),
                "hyper": Hyperparameters(kernel, **hyper),
                "recipe": Recipe(**recipe),
                "pending": {id_: Pending(*point) for id_, *point in saved["pending"]},
                "lost": tuple(saved["lost"]),
                "batch": batch,
                "tree": None if saved["tree"] is None else PartitionTree(**saved["tree"]),
            }
        )


def vars_of(history: History) -> dict[str, Tensor]:
    r"""The tensors of a history by name."""
    return {f.name: getattr(history, f.name) for f in fields(history)}
