"""Who asks, by the Hub's word, and what they may do."""
