"""Benchmark of Gleanery beside its theoretical limits and comparable services, in one run."""
