"""Plain value types without I/O: timestamps, host names, countries, JSON text and hashes."""
