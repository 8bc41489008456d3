"""Values without I/O: JSON text with its hashes and paths, timestamps, countries, compression."""
