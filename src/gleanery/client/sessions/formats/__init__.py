"""The formats: one module each, with a ``FORMAT``."""
