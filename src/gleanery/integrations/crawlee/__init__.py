"""Crawlee: datasets that are stored as outputs, and sessions with stored logins."""

try:
    import crawlee as _crawlee  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "gleanery.integrations.crawlee needs Crawlee: pip install 'gleanery[crawlee]' "
        "(in a clone '.[crawlee]')",
        name=error.name,
    ) from error

from gleanery.integrations.crawlee.session_pool import session_pool
from gleanery.integrations.crawlee.storage_client import GleaneryStorageClient
from gleanery.integrations.logins.states import LoginExpired

__all__ = ["GleaneryStorageClient", "LoginExpired", "session_pool"]
