r"""The command line."""
