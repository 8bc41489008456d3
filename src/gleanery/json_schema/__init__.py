"""Validation of data against JSON Schemas, in a separate process with limits."""
