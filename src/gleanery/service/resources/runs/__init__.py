"""Runs: one execution of a job, with what it has stored, and what it did not send any more."""
