"""Outputs to store, and a client that follows the change feed of a group."""

from __future__ import annotations

from typing import Any

from tests.support.service import Client


def output(number: int, **members: Any) -> dict[str, Any]:
    """An output to store; the number decides its source URL and its data."""
    return {
        "job_id": "job",
        "source_url": f"https://shop.example/{number}",
        "data": {"number": number},
        **members,
    }


def read_changes(client: Client, cursor: int = 0, **query: Any) -> dict[str, Any]:
    """One page of the change feed."""
    answer = client.get("/v1/changes/group", params={"cursor": cursor, **query})
    assert answer.status_code == 200, answer.text
    page: dict[str, Any] = answer.json()
    assert page.keys() == {"metadata", "cursor", "changes"}
    assert page["metadata"]["next_cursor"] in (None, page["cursor"])
    cursors = [change["cursor"] for change in page["changes"]]
    assert cursors == sorted(cursors)
    assert cursors[-1:] in ([], [page["cursor"]])
    return page


def no_changes(cursor: int) -> dict[str, Any]:
    """The page of a client that has all changes."""
    metadata = {"next_url": None, "next_cursor": None}
    return {"metadata": metadata, "cursor": cursor, "changes": []}


def follow_changes(
    client: Client,
    copy: dict[str, Any],
    cursor: int = 0,
    limit: int = 2,
    pages: int = 10_000,
    **query: Any,
) -> int:
    """Applies all new changes to the copy and returns the next cursor."""
    for _ in range(pages):
        page = read_changes(client, cursor, limit=limit, **query)
        apply_changes(copy, page["changes"])
        cursor = page["cursor"]
        if page["metadata"]["next_cursor"] is None:
            return cursor
    return cursor


def apply_changes(copy: dict[str, Any], changes: list[dict[str, Any]]) -> None:
    """Applies changes to a copy of the group's outputs, by their output_id."""
    for change in changes:
        if change["change"] == "delete":
            copy.pop(change["output_id"], None)
        else:
            copy[change["output_id"]] = change["output"]


def stored_outputs(client: Client) -> dict[str, Any]:
    """All outputs of the group, by their output_id."""
    return {item["output_id"]: item for item in client.items("group", limit=1000)}
