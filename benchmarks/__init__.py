r"""Studies of the package: ``python -m benchmarks`` lists them."""
