"""Outputs as the service sends them, for tests of exports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

_DATE = "2026-11-01T10:00:00Z"


def output(id_: int, data: Mapping[str, Any] | bytes) -> bytes:
    """JSON text of an output. ``data`` as bytes is used as it is."""
    text = data if isinstance(data, bytes) else msgspec.json.encode(data)
    members = {
        "source_url": f"https://shop.example/{id_}",
        "data": msgspec.Raw(text),
        "id": id_,
        "output_id": f"output-{id_}",
        "root_job_id": "job",
        "create_date": _DATE,
        "update_date": _DATE,
        "last_scraped_date": _DATE,
        "key_hash": "k",
        "value_hash": "v",
        "is_approved": False,
        "tags": {"country": "Germany"},
        "files": [],
    }
    return msgspec.json.encode(members)


def raw_object(members: Mapping[str, bytes]) -> bytes:
    """JSON text of an object whose values are JSON text."""
    return msgspec.json.encode({key: msgspec.Raw(text) for key, text in members.items()})
