r"""Benchmark studies of the package. ``python -m benchmarks`` lists them."""
