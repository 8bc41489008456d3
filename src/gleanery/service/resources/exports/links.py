"""Signed links to exports: created on request, valid for a limited time without a token.

The signature covers the group and every parameter of the link. Its key is derived from the secret
key. A link also names the token that created it, and it is valid only while that token is.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable

from gleanery.service.api.context import api_url
from gleanery.service.foundation.security.vault import Vault
from gleanery.service.foundation.values import json_text

_PURPOSE = "export links"
_SIGNATURE = "signature"

Parameters = Iterable[tuple[str, str]]


def file_name(format: str) -> str:  # noqa: A002
    """Return the last segment of the path: tools take the format from its ending."""
    return f"outputs.{format}"


def create(
    address: str,
    vault: Vault,
    group: str,
    format: str,  # noqa: A002
    parameters: Parameters,
) -> str:
    """Return the signed URL of an export with these parameters."""
    key = vault.key(vault.current).derive(_PURPOSE)
    query = dict(parameters)
    query[_SIGNATURE] = _sign(key, group, query.items())
    return api_url(address, "exports", group, file_name(format), query=query)


def is_valid(vault: Vault, group: str, parameters: Parameters) -> bool:
    """Check that a known key signed this group and these parameters."""
    query = dict(parameters)
    given = query.pop(_SIGNATURE).encode()
    return any(
        hmac.compare_digest(_sign(key, group, query.items()).encode(), given)
        for key in vault.derive_all(_PURPOSE)
    )


def _sign(key: bytes, group: str, parameters: Parameters) -> str:
    text = json_text.encode([group, sorted(parameters)])
    return hmac.digest(key, text, "sha256").hex()
