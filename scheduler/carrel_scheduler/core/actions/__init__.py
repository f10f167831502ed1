"""What a cycle does, one file per action; ``decide`` gives their order."""
