r"""Optuna integration (extra ``optuna``): short for :mod:`botorch_bkb.integrations.optuna`."""

from botorch_bkb.integrations.optuna import BKBSampler

__all__ = ["BKBSampler"]
