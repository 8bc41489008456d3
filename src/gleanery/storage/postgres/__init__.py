"""The server engine: PostgreSQL."""
