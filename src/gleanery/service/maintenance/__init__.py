"""Maintenance of the whole database: retention, clock guard, key rotation, snapshots, restore."""
