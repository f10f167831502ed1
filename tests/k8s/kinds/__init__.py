"""Programs of every kind of work, as a user brings them."""
