"""Wire types: bodies and queries of requests, and responses."""
