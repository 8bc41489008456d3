"""Operator tasks outside the running service: backups, key rotation, deletion of organizations, demo data."""
