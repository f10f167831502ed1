"""Clearing: which victims make room for a claim.

`board.lay_out` puts a set of victims on its nodes, once; `clear.clear` answers one claim for equal
tasks, `bounds.upper` bounds hundreds of claims at once. Room for unlike tasks is made one victim at
a time, by `clearing_room`.
"""
