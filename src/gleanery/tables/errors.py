"""Errors of an export."""

from __future__ import annotations

import importlib
from types import ModuleType

from gleanery.common.errors import ClientError


class ExportError(ClientError):
    """An export cannot be written; the message says why and what to do."""


class InvalidExport(ExportError):
    """What the caller gave is wrong: the destination, a field or a missing library."""


class ExportFailed(ExportError):
    """The outputs cannot be read, or the destination cannot be written."""


def already_exists(name: str) -> InvalidExport:
    return InvalidExport(
        f"{name} exists already: choose another name, or give overwrite=True to replace it"
    )


def require(module: str, extra: str) -> ModuleType:
    """Import an optional library, or say how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        library = module.partition(".")[0]
        raise InvalidExport(
            f"This needs the library {library}. Install it: pip install 'gleanery[{extra}]', "
            f"or '.[{extra}]' in a clone"
        ) from None
