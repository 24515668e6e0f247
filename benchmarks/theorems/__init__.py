r"""Checks of the theorems: each compares a measured quantity with its bound on a small problem."""
