"""The REST API: requests are authenticated, authorised and validated here.

One table of operations (``api.table``) says for each method and path who may call it, what it
takes and what it answers; routing, access control, the OpenAPI document and the tests are all made
from it. The way of a call: ``handler`` (HTTP) -> ``dispatch`` (may they) -> ``models`` (is it well
formed) -> an operation -> a service -> ledger, live scheduler or engine -> ``convert`` and
``redact`` (what this caller may see) -> JSON.
"""
