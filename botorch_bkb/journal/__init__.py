r"""The durable record of a run."""

from botorch_bkb.journal.errors import JournalError
from botorch_bkb.journal.journal import Asked, Event, Journal, Measurement, Outcome
from botorch_bkb.journal.salvage import recover

__all__ = ["Asked", "Event", "Journal", "JournalError", "Measurement", "Outcome", "recover"]
