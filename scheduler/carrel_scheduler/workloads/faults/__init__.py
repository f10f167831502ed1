"""Handling of inputs, objects and devices that are not as they should be."""
