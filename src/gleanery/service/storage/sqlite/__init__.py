"""The embedded engine: SQLite, for one machine."""
