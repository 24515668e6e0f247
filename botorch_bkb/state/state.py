r"""``State``: everything a run depends on, in frozen parts, replaced as a whole.

The table of arms is not part of the state. The state has its log instead, from which the same table
can be rebuilt to the last bit.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_bkb.arms import TableLog
from botorch_bkb.domains.partition import PartitionTree
from botorch_bkb.models.history import History
from botorch_bkb.models.hyperparameters import Hyperparameters
from botorch_bkb.state.components import (
    ConfidenceState,
    DictionaryState,
    ModelState,
    TreeState,
)
from botorch_bkb.state.in_flight import BatchRecord, InFlight, Pending
from botorch_bkb.state.observations import Observations
from botorch_bkb.state.regions import Region
from botorch_bkb.state.stage import Stage
from botorch_bkb.units import RewardUnits, UnitCube

Part = TypeVar("Part")


@dataclass(frozen=True, eq=False)
class State:
    r"""Everything a run depends on that is not a part of the optimizer.

    Attributes:
        observations: What was observed.
        in_flight: What was asked and has no result.
        model: The hyperparameters.
        dictionary: What draws of the dictionary depend on.
        confidence: What the width of the bounds depends on.
        table: The log of the table.
        random: The state of the random generator.
        tree: The cells, once a box was searched through them.
        regions: The trust regions of a box; none without.
    """

    observations: Observations
    in_flight: InFlight
    model: ModelState
    dictionary: DictionaryState
    confidence: ConfidenceState
    table: TableLog
    random: Tensor
    tree: TreeState | None = None
    regions: tuple[Region, ...] = ()

    @property
    def hyper(self) -> Hyperparameters:
        r"""The hyperparameters of the model."""
        return self.model.hyper

    @property
    def history(self) -> History:
        r"""The results in the belief."""
        return self.observations.history

    @property
    def num_cells(self) -> int:
        r"""The number of cells of the tree; 0 where there is none."""
        return 0 if self.tree is None else len(self.tree.tree)

    def with_bounds_from_scratch(self) -> State:
        r"""Return the state after a change that bounds of earlier beliefs do not survive."""
        return self if self.tree is None else replace(self, tree=self.tree.restored())

    def to_dict(self) -> dict[str, Any]:
        r"""Return numbers, strings, lists and tensors: safe to load with ``weights_only=True``."""
        in_flight, model, batch = self.in_flight, self.model, self.in_flight.batch
        tree, stage = self.tree, self.in_flight.stage
        return {
            "observations": {
                name: saved(value) if isinstance(value, History) else value
                for name, value in saved(self.observations).items()
            },
            "in_flight": {
                **by_name(in_flight),
                "pending": [[id_, *point] for id_, point in in_flight.pending.items()],
                "given_up": list(in_flight.given_up),
                "batch": None if batch is None else [as_list(value) for value in batch],
                "stage": None if stage is None else {**by_name(stage), "asked": list(stage.asked)},
            },
            "model": {
                "kernel": dict(model.hyper.kernel.state_dict()),
                "noise_var": model.hyper.noise_var,
                "units": [model.hyper.units.offset, model.hyper.units.scale],
                "scale": None if model.scale is None else model.scale.bounds,
                "next_fit": model.next_fit,
                "noise_known": model.noise_known,
                "fitted_at": model.fitted_at,
            },
            "dictionary": saved(self.dictionary),
            "confidence": by_name(self.confidence),
            "table": self.table.to_dict(),
            "random": self.random,
            "tree": None if tree is None else {**by_name(tree), "tree": by_name(tree.tree)},
            "regions": [saved(region) for region in self.regions],
        }

    @classmethod
    def from_dict(cls, saved: dict[str, Any], kernel: Kernel, device: torch.device) -> State:
        r"""Restore a state from :meth:`to_dict`.

        Args:
            saved: What :meth:`to_dict` returned.
            kernel: A kernel of the same structure.
            device: The device of the run.
        """
        random = saved["random"].cpu()
        saved = on_device(saved, device)
        observations, in_flight = saved["observations"], saved["in_flight"]
        tree, batch = saved["tree"], in_flight["batch"]
        if batch is not None:
            batch = BatchRecord._make(tuple(v) if isinstance(v, list) else v for v in batch)
        return cls(
            observations=restored(
                Observations,
                {
                    name: restored(History, value)
                    if isinstance(value, dict) or name == "history"
                    else value
                    for name, value in observations.items()
                },
            ),
            in_flight=restored(
                InFlight,
                {
                    **in_flight,
                    "pending": {id_: Pending(*point) for id_, *point in in_flight["pending"]},
                    "given_up": tuple(in_flight["given_up"]),
                    "batch": batch,
                    "stage": restored_stage(in_flight["stage"]),
                },
            ),
            model=restored_model(saved["model"], kernel),
            dictionary=restored(DictionaryState, saved["dictionary"]),
            confidence=restored(ConfidenceState, saved["confidence"]),
            table=TableLog.from_dict(saved["table"]),
            random=random,
            tree=None if tree is None else restored_tree(tree),
            regions=tuple(restored(Region, region) for region in saved["regions"]),
        )


def restored(kind: type[Part], saved: dict[str, Any]) -> Part:
    r"""Restore a frozen part; a field that was not saved has no default."""
    missing = {f.name for f in fields(kind)} - set(saved)  # type: ignore[arg-type]
    if missing:
        raise KeyError(", ".join(sorted(missing)))
    return kind(**saved)


def restored_tree(saved: dict[str, Any]) -> TreeState:
    r"""Restore the cells of a tree."""
    return restored(TreeState, {**saved, "tree": restored(PartitionTree, saved["tree"])})


def restored_stage(saved: dict[str, Any] | None) -> Stage | None:
    r"""Restore the stage of an elimination; None where there is none."""
    return None if saved is None else restored(Stage, {**saved, "asked": tuple(saved["asked"])})


def restored_model(saved: dict[str, Any], kernel: Kernel) -> ModelState:
    r"""Restore the hyperparameters; ``kernel`` has the same structure."""
    kernel = deepcopy(kernel)
    kernel.load_state_dict(saved["kernel"])
    hyper = Hyperparameters(kernel, saved["noise_var"], RewardUnits(*saved["units"]))
    scale = None if saved["scale"] is None else UnitCube(saved["scale"])
    return ModelState(hyper, scale, saved["next_fit"], saved["noise_known"], saved["fitted_at"])


def by_name(part: Any) -> dict[str, Any]:
    r"""Return the fields of a frozen part by name."""
    return {f.name: getattr(part, f.name) for f in fields(part)}


def saved(part: Any) -> dict[str, Any]:
    r"""Return the fields of a frozen part by name, and tensors without what is behind them.

    A tensor that was appended to has rows to spare, which would be saved with it.
    """
    return {
        name: value.clone() if isinstance(value, Tensor) else value
        for name, value in by_name(part).items()
    }


def as_list(value: Any) -> Any:
    r"""Return tuples as lists, and anything else as it is."""
    return list(value) if isinstance(value, tuple) else value


def on_device(value: Any, device: torch.device) -> Any:
    r"""Move all tensors in nested dicts and lists to a device."""
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, dict):
        return {key: on_device(item, device) for key, item in value.items()}
    return [on_device(item, device) for item in value] if isinstance(value, list) else value
