"""Experiments: studies in Optuna, trials as workloads."""
