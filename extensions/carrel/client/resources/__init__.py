"""The asynchronous client's methods, by resource of the API."""
