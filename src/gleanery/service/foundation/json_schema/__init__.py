"""Validation of data against JSON Schema, in a separate process with limited resources."""
