"""Requests and answers that only the REST API has, and the validation of all requests.

What a workload or a project is stands in ``carrel_schema``. Every request is a msgspec structure;
``validators`` makes the strict validator of each, ``forms`` and ``checks`` are what types cannot
say. Both requests and answers give JSON Schema for the OpenAPI document.
"""
