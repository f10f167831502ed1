"""Clearing: which victims make room for a claim.

`board.lay_out` puts a set of victims on its nodes, once; `clear.clear` answers one claim for equal
tasks, `mixed.clear_mixed` one for unlike tasks, `bounds.upper` bounds hundreds of claims at once.
"""
