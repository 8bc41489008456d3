"""Outputs in the database: storing a batch, pages, the change feed, approval and removal."""
