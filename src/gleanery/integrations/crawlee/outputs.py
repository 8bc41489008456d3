"""Items of a dataset as outputs, and outputs as items."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from gleanery.client.items import InvalidItem

Item = Mapping[str, Any]


class OutputFields(NamedTuple):
    """Members of an item that are the URL, the key and the files of its output."""

    url: str
    key: str | None
    files: tuple[str, ...]

    def to_output(self, job: str, item: Item) -> dict[str, Any] | InvalidItem:
        """Return an item as an output with references to its files, or what is wrong with it."""
        try:
            output: dict[str, Any] = {"job_id": job, "source_url": self._url_of(item), "data": item}
            if self.key is not None:
                output["key"] = self._key_of(item)
            output["files"] = [
                reference for field in self.files for reference in _references(item, field)
            ]
        except InvalidItem as error:
            return error
        return output

    def _url_of(self, item: Item) -> str:
        url = item.get(self.url)
        if not isinstance(url, str) or not url:
            raise InvalidItem(f"{self.url}: must be a text that is not empty")
        return url

    def _key_of(self, item: Item) -> str:
        """Return the key as the service does for the parameter ``key_field``."""
        key = item.get(self.key or "")
        if not isinstance(key, str | int) or isinstance(key, bool) or key == "":
            raise InvalidItem(f"{self.key}: must be a text that is not empty, or an integer")
        return str(key)

    def describe(self, item: Item) -> str:
        """Return what identifies an item in a message: its URL, and its key."""
        names = [self.url] if self.key is None else [self.url, self.key]
        known = [f"{name} {item[name]!r}" for name in names if item.get(name) not in (None, "")]
        return ", ".join(known) or f"with the members {', '.join(map(str, item))}"


def _references(item: Item, field: str) -> Iterator[dict[str, str]]:
    """Yield references to the files whose ids a member has: one id, a list of them, or none."""
    value = item.get(field)
    if value is None:
        return
    if isinstance(value, str):
        yield {"field": field, "id": value}
        return
    if not isinstance(value, list) or not all(isinstance(file_id, str) for file_id in value):
        raise InvalidItem(f"{field}: must be the id of a stored file, or a list of ids")
    for index, file_id in enumerate(value):
        yield {"field": f"{field}[{index}]", "id": file_id}


class ItemView(NamedTuple):
    """Part of each item that a reader of a dataset wants."""

    fields: list[str] | None
    omit: list[str] | None
    skip_empty: bool
    skip_hidden: bool

    def apply(self, item: dict[str, Any]) -> dict[str, Any]:
        """Return the wanted members, in the wanted order."""
        names = [name for name in self.fields if name in item] if self.fields else list(item)
        hidden = self.omit or ()
        return {
            name: item[name]
            for name in names
            if name not in hidden and not (self.skip_hidden and name.startswith("#"))
        }

    def keeps(self, item: dict[str, Any]) -> bool:
        return bool(item) or not self.skip_empty
