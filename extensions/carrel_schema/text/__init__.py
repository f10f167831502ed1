"""Texts that several parts write alike."""
