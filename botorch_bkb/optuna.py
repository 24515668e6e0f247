r"""Optuna integration (extra ``optuna``). An alias of :mod:`botorch_bkb.integrations.optuna`."""

from botorch_bkb.integrations.optuna import BKBSampler

__all__ = ["BKBSampler"]
