r"""Alternative methods that the package is compared with."""
