r"""Which batch is picked from which domain, by which acquisition rule."""

from __future__ import annotations

from functools import singledispatch

import torch
from botorch.exceptions.errors import InputDataError

from botorch_bkb.acquisition import UCB, Greedy, Thompson
from botorch_bkb.batches.batch import Batch
from botorch_bkb.batches.box import BoxBatch, DesignBatch
from botorch_bkb.batches.candidates import Candidates
from botorch_bkb.batches.conditioned import ArmsDesign, ConditionedBatch
from botorch_bkb.batches.context import BatchContext
from botorch_bkb.batches.criterion import AcquisitionCriterion
from botorch_bkb.batches.elimination import Elimination, EliminationBatch
from botorch_bkb.batches.exact import ExactBatch, UpperBound
from botorch_bkb.batches.lazy import LazyBatch
from botorch_bkb.batches.pool import PoolBatch
from botorch_bkb.batches.sampled import GreedyBatch, ThompsonBatch
from botorch_bkb.batches.tree import TreeBatch
from botorch_bkb.domains import Arms, Box, Domain, Tree


@singledispatch
def begin_batch(domain: Domain, context: BatchContext) -> Batch:
    r"""Begin a batch over a domain, or over one that derives from it.

    Args:
        domain: Where to look.
        context: What the batch is picked from.
    """
    raise InputDataError(
        f"domain must be an Arms, a Box or a Tree, got {type(domain).__name__}: wrap candidates in "
        "Arms(X) and bounds in Box(bounds), or derive your domain from one of them."
    )


@begin_batch.register
def _(domain: Arms, context: BatchContext) -> Batch:
    table, rule, width = context.table, context.rule, context.record.width
    if isinstance(rule, Elimination):
        return EliminationBatch(domain, context)
    candidates = context.candidates(domain)
    options = {
        "num_arms": len(domain.arms),
        "first": first_arm(context, candidates),
        "candidates": candidates,
        **context.options,
    }
    acquisition = context.acquisition_of(0)
    if left := context.left_of_design(domain):
        return ArmsDesign(table, rule, left, **options)
    if isinstance(acquisition, Thompson):
        return ThompsonBatch(table, rule, context.generator(), **options)
    if isinstance(acquisition, Greedy):
        return GreedyBatch(table, rule, acquisition.probability, context.generator(), **options)
    if not isinstance(acquisition, UCB):
        return ExactBatch(table, rule, AcquisitionCriterion(acquisition, context), **options)
    width *= acquisition.share
    if context.request.n is not None:
        return ConditionedBatch(table, rule, width, **options)
    if context.dictionary.joins_at_once:
        return ExactBatch(table, rule, UpperBound(width), **options)
    return LazyBatch(table, rule, width, **options)


def first_arm(context: BatchContext, candidates: Candidates | None) -> int | None:
    r"""Return the first pick of a run over arms; None later.

    Args:
        context: What the batch is picked from.
        candidates: How often arms may be picked.
    """
    row = context.first_row
    if row is None or candidates is None or candidates.allows(row):
        return row
    rows, generator = torch.nonzero(candidates.is_open).squeeze(-1), context.generator()
    if not len(rows):
        return None
    drawn = torch.randint(len(rows), (), generator=generator, device=generator.device)
    return int(rows[int(drawn)])


@begin_batch.register
def _(domain: Box, context: BatchContext) -> Batch:
    if context.request.fixed:
        domain = domain.with_fixed(context.request.fixed)
    observations, left = context.state.observations, context.left_of_design(domain)
    if left > 0 or observations.history.num_observations == 0:
        is_initial = left > 0 or observations.num_observations == 0
        return DesignBatch(domain, context, max(1, left), is_initial)
    if PoolBatch.suits(domain, context):
        return PoolBatch(domain, context)
    return BoxBatch(domain, context)


@begin_batch.register
def _(domain: Tree, context: BatchContext) -> Batch:
    batch = TreeBatch(domain, context)
    if domain.radius == "kernel" and context.state.tree is None:
        batch.variation.check_corners()
    return batch


@singledispatch
def highest_bound(domain: Domain, context: BatchContext) -> float:
    r"""Return the highest upper confidence bound over a domain, in the model's units.

    Args:
        domain: Where to look.
        context: What a batch would be picked from.
    """
    raise InputDataError(f"domain must be an Arms, a Box or a Tree, got {type(domain).__name__}.")


@highest_bound.register
def _(domain: Arms, context: BatchContext) -> float:
    mean, var = (t[: len(domain.arms)] for t in context.table.moments())
    return float(UpperBound(context.record.width)(mean, var).max())


@highest_bound.register
def _(domain: Box, context: BatchContext) -> float:
    if context.state.history.num_observations == 0:
        return context.record.width * context.table.kernel_bound**0.5
    return BoxBatch(domain, context).highest_bound()


@highest_bound.register
def _(domain: Tree, context: BatchContext) -> float:
    return float(TreeBatch(domain, context).index.max())
