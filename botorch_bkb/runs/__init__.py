r"""Runs: evaluate what an optimizer suggests, on any executor, and record it in a journal."""

from botorch_bkb.runs.callbacks import Callback, StopAfter, StopAtGap, StopAtTarget
from botorch_bkb.runs.export import read_journal
from botorch_bkb.runs.result import Result
from botorch_bkb.runs.runs import resume, run

__all__ = [
    "Callback",
    "Result",
    "StopAfter",
    "StopAtGap",
    "StopAtTarget",
    "read_journal",
    "resume",
    "run",
]
