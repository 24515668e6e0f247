r"""Journals: durable records of runs, each in one SQLite file."""

from botorch_bkb.journal.files import JournalError
from botorch_bkb.journal.journal import Journal
from botorch_bkb.journal.records import Asked, Event, Measurement, Outcome
from botorch_bkb.journal.salvage import recover

__all__ = ["Asked", "Event", "Journal", "JournalError", "Measurement", "Outcome", "recover"]
