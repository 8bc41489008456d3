"""Maintenance of the whole database: retention, the clock guard, key rotation, snapshots and restore."""
