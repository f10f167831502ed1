"""How watches hear of changes: from this process's own commits, from others, from the database."""
