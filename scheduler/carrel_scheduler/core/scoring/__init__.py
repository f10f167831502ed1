"""Which node: their order, and how useful what is left on one is for what typically comes."""
