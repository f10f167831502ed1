"""Devices of dynamic resource allocation: what nodes offer, what claims ask for, who gets which."""
