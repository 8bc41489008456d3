"""The Python client library. It imports nothing from the rest of Gleanery."""
