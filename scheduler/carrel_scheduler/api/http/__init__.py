"""The operations over HTTP: routing, reading requests, admitting callers, sending answers."""
