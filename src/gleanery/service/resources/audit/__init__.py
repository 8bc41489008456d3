"""Audit: the log of who read, changed or deleted what in an organization."""
