"""Validation of data against JSON SchemaValidator, in a separate process with limits."""
