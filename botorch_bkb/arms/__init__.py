r"""Tables of arms: the posterior at every row, and the log from which a table can be rebuilt."""

from botorch_bkb.arms.log import TableLog
from botorch_bkb.arms.table import ArmTable
from botorch_bkb.arms.watched import WatchedTable

__all__ = ["ArmTable", "TableLog", "WatchedTable"]
