"""Outputs: storing batches, reading, approving and deleting outputs, and the console's grid."""
