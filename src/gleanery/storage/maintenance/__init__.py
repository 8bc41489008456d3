"""Maintenance of the whole database: retention, key rotation, snapshots and restore."""
