"""The service: everything that needs ``gleanery[server]``. Only its commands and ASGI import it."""
