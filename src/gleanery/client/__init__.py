"""The Python client library: so far it converts sessions, and does not call the service.

It imports nothing from the rest of Gleanery.
"""
