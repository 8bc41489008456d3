"""Operator tasks outside the service: backups, keys, deletion of organizations, demo data."""
