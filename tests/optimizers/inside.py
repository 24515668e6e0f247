r"""What tests need to know of a run beyond its interface, read from what the run saves."""

from __future__ import annotations

from dataclasses import replace

from botorch_bkb.batches import BatchContext, BeliefModels, begin_batch
from botorch_bkb.optimizers.saving import load
from botorch_bkb.optimizers.tables import build_table


def state_of(optimizer):
    r"""The state, as it would be after loading."""
    return load(type(optimizer).__name__, optimizer.parts, optimizer.state_dict())


def hyper_of(optimizer):
    r"""The present hyperparameters."""
    return state_of(optimizer).hyper


def inputs_of(optimizer, rows):
    r"""The inputs of some rows of the table, as the user knows them."""
    return state_of(optimizer).observations.inputs(optimizer.domain.index.X, rows)


def batch_of(optimizer, **parts):
    r"""A copy of the batch being asked, or of the next one, which knows nothing of the optimizer.

    Other parts of the optimizer may be tried in it.
    """
    state, parts = state_of(optimizer), replace(optimizer.parts, **parts)
    if state.in_flight.batch is None:
        in_flight = state.in_flight.begun(optimizer.width_now, 0, state.num_cells)
        state = replace(state, in_flight=in_flight)
    table, models = build_table(parts.domain, state), BeliefModels(parts.domain.index.X)
    rules = parts.acquisition, parts.dictionary, parts.batch
    context = BatchContext(state, table, models, *rules)
    batch = begin_batch(parts.domain, context)
    batch.follow(context.record.picks)
    return batch
