"""Fuzzing: arbitrary bytes as input for every parser of untrusted data."""
