"""Exports: a whole group as a stream of JSON lines, as CSV or as Parquet."""
