"""The edge: HTTP in, one call into the store, HTTP out."""
