"""Capacity and eligibility: on which nodes a class of tasks may run, and how many of them fit."""
