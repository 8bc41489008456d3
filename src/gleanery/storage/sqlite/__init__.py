"""The embedded engine: SQLite."""
