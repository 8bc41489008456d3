"""Value types without I/O: timestamps, host names, countries, media types, JSON text and hashes."""
