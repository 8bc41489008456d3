"""The server engine: PostgreSQL, for many nodes."""
