# Generated from _async by checks/sync_client.py: edit that package, and run make client.
"""Lists of session records: their pages, which the Link header connects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from gleanery.client._sync.requester import Requester
from gleanery.client.record_lists import RecordList
from gleanery.client.requests import Parameter, Request
from gleanery.client.responses import decode, next_cursor

T = TypeVar("T")


def read_list(
    requester: Requester, path: str, parameters: Mapping[str, Parameter], kind: type[T]
) -> RecordList[T]:
    """Read all pages of a list.

    If the list changes meanwhile, its version is that before the change: a write with it fails.
    """
    response = requester.send(Request("GET", path, parameters))
    found = RecordList(decode(response, list[kind]), response.headers.get("etag", ""))  # type: ignore[valid-type]
    while (cursor := next_cursor(response)) is not None:
        response = requester.send(Request("GET", path, {**parameters, "cursor": cursor}))
        found.extend(decode(response, list[kind]))  # type: ignore[valid-type]
    return found
