"""Integrations: extensions of scraping and data tools that store in Gleanery or read from it.

Each module or package is for one tool, needs the extra of the same name, and uses the client only.
"""
