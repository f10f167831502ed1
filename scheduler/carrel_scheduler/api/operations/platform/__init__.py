"""The platform as a whole, for its administrators: health, retention."""
