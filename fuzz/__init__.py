"""Bytes that nobody would send, into everything that reads what others have written."""
