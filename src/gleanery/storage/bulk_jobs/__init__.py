"""Bulk jobs: operations on many outputs of a group, in short transactions; a crash loses none."""
