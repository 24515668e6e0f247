r"""The test problems of the studies."""
