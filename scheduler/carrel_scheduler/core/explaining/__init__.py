"""Reasons why workloads wait or are evicted: one each, with the facts behind it."""
