r"""Benchmarks of the package; run one as ``python -m benchmarks.NAME``."""
