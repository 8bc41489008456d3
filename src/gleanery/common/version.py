"""The version of Gleanery."""

__version__ = "0.1.0"
