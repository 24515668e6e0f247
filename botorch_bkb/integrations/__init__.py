r"""Integrations with Ax and Optuna. Import the one you need."""
