"""The scheduler's process: settings, wiring, listening, one machine or a cluster."""
