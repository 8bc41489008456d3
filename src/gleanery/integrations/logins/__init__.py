"""Logins: stored sessions that a tool uses and saves back.

See ``docs/explanation/logins-in-tools.md``.
"""
