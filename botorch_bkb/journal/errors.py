r"""What can be wrong with a journal."""

from __future__ import annotations

from botorch.exceptions.errors import BotorchError


class JournalError(BotorchError):
    r"""A journal cannot be written, opened or read; the message names the file."""
