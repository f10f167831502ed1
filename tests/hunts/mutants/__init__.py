"""Mutation testing of the core: small faults are put into copies of it; the tests must notice.

``making`` says where a fault can be put (the operators are Cosmic Ray's), ``sampling`` takes some
of them, ``sandbox`` copies the tree, ``covering`` learns which test runs which line, ``trying``
runs the tests of one mutant, ``judging`` knows which mutants change nothing, ``telling`` prints.
The command is ``tests/hunts/mutation.py``.
"""
