"""Logs, metrics and progress reports for operators."""
