"""Secrets: encryption of stored values, secret-key files and access tokens."""
