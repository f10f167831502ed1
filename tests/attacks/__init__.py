"""Attacks against a running product: each is what somebody untrusted would try."""
