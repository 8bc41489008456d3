"""Bulk jobs: work on many outputs of a group, done in short transactions that survive a crash."""
