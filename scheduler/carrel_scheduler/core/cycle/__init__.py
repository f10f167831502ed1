"""One cycle: the room and the standings as its moves leave them, and the offers that try moves."""
