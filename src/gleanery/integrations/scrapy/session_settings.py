"""The settings of sessions, read from Scrapy's settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gleanery.integrations.scrapy.sites import session_domain

if TYPE_CHECKING:
    from scrapy.settings import BaseSettings

_DOMAINS = "GLEANERY_SESSION_DOMAINS"


class SessionSettings(NamedTuple):
    """Settings of sessions."""

    profile: str
    domains: frozenset[str]
    """Sites that have a session; empty for those whose session the service has."""
    has_lease: bool
    lease_seconds: int
    lease_wait: float
    store_seconds: float

    @classmethod
    def from_scrapy(cls, settings: BaseSettings) -> SessionSettings:
        read = cls(
            profile=settings.get("GLEANERY_PROFILE") or "default",
            domains=frozenset(_site(name) for name in settings.getlist(_DOMAINS)),
            has_lease=settings.getbool("GLEANERY_LEASE"),
            lease_seconds=settings.getint("GLEANERY_LEASE_SECONDS", 300),
            lease_wait=settings.getfloat("GLEANERY_LEASE_WAIT", 600.0),
            store_seconds=settings.getfloat("GLEANERY_SESSION_SECONDS", 60.0),
        )
        if not 1 <= read.lease_seconds <= 3600:
            raise ValueError("GLEANERY_LEASE_SECONDS must be between 1 and 3600")
        if read.lease_wait < 0 or read.store_seconds <= 0:
            raise ValueError(
                "GLEANERY_LEASE_WAIT must not be negative, and GLEANERY_SESSION_SECONDS "
                "must be more than 0"
            )
        return read


def _site(name: str) -> str:
    site = session_domain(name.strip().removeprefix("."))
    if site is None:
        raise ValueError(f"{_DOMAINS} has {name!r}: expected a domain such as shop.example")
    return site
