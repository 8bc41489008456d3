"""Cookies and local-storage entries to store."""

from __future__ import annotations


def numbered_cookies(numbers: range, value: str = "v") -> list[dict[str, str]]:
    return [{"domain": "a.com", "name": f"c{n}", "value": f"{value}{n}"} for n in numbers]


def numbered_entries(numbers: range, value: str = "v") -> list[dict[str, str]]:
    return [{"domain": "a.com", "key": f"c{n}", "value": f"{value}{n}"} for n in numbers]
