"""Background tasks of a service."""
