"""How each event changes the state: one file per kind of thing, functions over the state."""
