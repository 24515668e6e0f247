r"""Batches: when a batch is complete, and how its points are picked."""

from botorch_bkb.batches.batch import Batch
from botorch_bkb.batches.begin import begin_batch, highest_bound
from botorch_bkb.batches.box import BatchOverBox, BoxBatch, DesignBatch
from botorch_bkb.batches.candidates import Candidates, OutOfCandidatesError
from botorch_bkb.batches.conditioned import ArmsDesign, ConditionedBatch
from botorch_bkb.batches.conditioning import Conditioning
from botorch_bkb.batches.context import BatchContext
from botorch_bkb.batches.elimination import (
    Elimination,
    EliminationBatch,
    equal_sizes,
    growing_sizes,
)
from botorch_bkb.batches.exact import Criterion, ExactBatch, UpperBound
from botorch_bkb.batches.lazy import LazyBatch
from botorch_bkb.batches.local import LocalRule
from botorch_bkb.batches.models import BeliefModels
from botorch_bkb.batches.picks import Picks
from botorch_bkb.batches.request import Request
from botorch_bkb.batches.rule import BatchRule
from botorch_bkb.batches.rules import HoldingRule, OneAtATime, ProductRule, SumRule
from botorch_bkb.batches.sampled import GreedyBatch, ThompsonBatch
from botorch_bkb.batches.tree import TreeBatch

__all__ = [
    "ArmsDesign",
    "Batch",
    "BatchContext",
    "BatchOverBox",
    "BatchRule",
    "BeliefModels",
    "BoxBatch",
    "Candidates",
    "ConditionedBatch",
    "Conditioning",
    "Criterion",
    "DesignBatch",
    "Elimination",
    "EliminationBatch",
    "ExactBatch",
    "GreedyBatch",
    "HoldingRule",
    "LazyBatch",
    "LocalRule",
    "OneAtATime",
    "OutOfCandidatesError",
    "Picks",
    "ProductRule",
    "Request",
    "SumRule",
    "ThompsonBatch",
    "TreeBatch",
    "UpperBound",
    "begin_batch",
    "equal_sizes",
    "growing_sizes",
    "highest_bound",
]
