"""Admission control: concurrency limits, the fair queue and the order in which requests start."""
