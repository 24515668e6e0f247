r"""What one would take instead."""
