"""What is known of nodes and their devices, and what follows from it."""
