"""Gleanery: a self-hosted data service for web scraping."""

__version__ = "0.1.0"
