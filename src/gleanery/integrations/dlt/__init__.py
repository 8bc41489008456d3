"""dlt source that loads the outputs of groups, and then only their changes and deletions."""

from __future__ import annotations

try:
    import dlt  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "dlt":
        raise
    raise ModuleNotFoundError(
        "gleanery.integrations.dlt needs dlt: pip install 'gleanery[dlt]' (in a clone '.[dlt]')",
        name="dlt",
    ) from error

from gleanery.integrations.dlt.source import gleanery_source

__all__ = ["gleanery_source"]
