"""Steps from one schema to the next, run by ``ledger.migrate``.

A new step: change ``ledger.schema``, add a file to ``versions`` with ``upgrade`` and ``downgrade``
written by hand; tests compare the result with the schema and go down and up again.
"""
