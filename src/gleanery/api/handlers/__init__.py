"""One module per resource: each handler decodes, calls one storage function and encodes."""
