"""Operator tasks outside the service: backup and restore, keys, demo data."""
