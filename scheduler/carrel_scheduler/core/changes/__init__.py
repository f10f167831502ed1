"""Changes of the state by events: one file per kind of thing, functions over the state."""
