"""Operators' view of the service: logs, metrics and progress of long work."""
