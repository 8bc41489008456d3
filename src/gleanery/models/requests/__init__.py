"""Bodies and queries of requests, as strict pydantic models.

The models give each validation error its location and type, and the OpenAPI document its schemas.
"""
