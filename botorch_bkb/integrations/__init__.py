r"""The optimizers inside other tools: Ax and Optuna. Import the one you need."""
