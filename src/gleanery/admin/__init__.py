"""Operator tasks outside the running service: backups, key rotation and demo data."""
