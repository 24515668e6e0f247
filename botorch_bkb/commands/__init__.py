r"""The commands of ``python -m botorch_bkb``."""
