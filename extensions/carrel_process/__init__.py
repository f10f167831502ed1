"""Shared by all service processes of Carrel; it imports no other package of ours."""
