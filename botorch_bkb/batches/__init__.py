r"""Picking a batch from a table of arms: what to pick, and when to stop."""

from botorch_bkb.batches.batch import Batch
from botorch_bkb.batches.exact import Criterion, ExactBatch, UpperBound
from botorch_bkb.batches.lazy import LazyBatch
from botorch_bkb.batches.rules import (
    BatchRule,
    HoldingRule,
    OneAtATime,
    ProductRule,
    SumRule,
)
from botorch_bkb.batches.sampled import GreedyBatch, ThompsonBatch

__all__ = [
    "Batch",
    "BatchRule",
    "Criterion",
    "ExactBatch",
    "GreedyBatch",
    "HoldingRule",
    "LazyBatch",
    "OneAtATime",
    "ProductRule",
    "SumRule",
    "ThompsonBatch",
    "UpperBound",
]
