"""The actions of a scheduling cycle; ``decide`` runs them in their order."""
