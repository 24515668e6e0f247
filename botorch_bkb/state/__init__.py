r"""The state of a run, one frozen part per component. Import its modules directly."""
