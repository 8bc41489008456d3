"""A Singer tap for Gleanery."""
