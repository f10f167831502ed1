"""The shapes of requests (pydantic, strict, unknown fields refused) and answers (msgspec).

Requests need precise refusals, answers need speed; both give JSON Schema for the OpenAPI document.
"""
