"""Logins: stored sessions that a tool uses and saves back."""
