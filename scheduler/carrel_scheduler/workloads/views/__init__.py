"""What the API asks of the running scheduler, and the stream of its events."""
