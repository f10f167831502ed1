"""What a cycle does; ``decide`` gives the order."""
