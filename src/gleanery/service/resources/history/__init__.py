"""Earlier versions of outputs: each is stored as a delta against the next newer version."""
