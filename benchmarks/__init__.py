"""Performance claims, one command each: ``python -m benchmarks.<name> [--json]``."""
