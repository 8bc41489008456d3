"""The address of the service and the token: arguments, environment, or the file of a login."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from gleanery.client.errors import NotConfigured

if TYPE_CHECKING:
    from pathlib import Path

URL_VARIABLE = "GLEANERY_URL"
TOKEN_VARIABLE = "GLEANERY_TOKEN"


class Credentials:
    """Address of a service, and a token for it. The token is not shown."""

    __slots__ = ("token", "url")

    def __init__(self, url: str, token: str) -> None:
        self.url = url
        self.token = token

    def __repr__(self) -> str:
        return f"Credentials({self.url!r})"


def resolve(url: str | None, token: str | None) -> Credentials:
    """Return the given values; else those of the environment; else those of the login.

    The token of a login is used only for the address of that login. An empty variable counts as
    missing, because a shell script often sets one that way.
    """
    url = url if url is not None else os.environ.get(URL_VARIABLE) or None
    token = token if token is not None else os.environ.get(TOKEN_VARIABLE) or None
    stored = read_credentials() if url is None or token is None else None
    if url is None and stored is not None:
        url = stored.url
    url = _require_url(url)
    if token is None and stored is not None:
        token = _token_of_login(stored, url)
    return Credentials(url, _require_token(token))


def _require_url(url: str | None) -> str:
    if url is None:
        raise NotConfigured(
            f"The address of the service is unknown: run gleanery login, or set {URL_VARIABLE}, "
            "or give base_url"
        )
    return normalize(url)


def _token_of_login(stored: Credentials, url: str) -> str:
    if stored.url != url:
        raise NotConfigured(
            f"There is no token for {url}, only for {stored.url}: run gleanery login {url}, or "
            f"set {TOKEN_VARIABLE}"
        )
    return stored.token


def _require_token(token: str | None) -> str:
    if token is None:
        raise NotConfigured(
            f"There is no token: run gleanery login, or set {TOKEN_VARIABLE}, or give token"
        )
    token = token.strip()
    if not token.isascii() or not token.isprintable() or " " in token or not token:
        raise NotConfigured("The token is empty or contains characters that no token has")
    return token


def normalize(url: str) -> str:
    """Return the address without a slash at its end and without ``/v1``."""
    try:
        parts = urlsplit(url.strip())
        has_port = parts.port is None or parts.port > 0
        (parts.hostname or "").encode("idna")  # fails for an empty or too long label
    except ValueError:  # UnicodeError is one
        has_port = False
    if not has_port or parts.scheme not in ("http", "https") or not parts.hostname:
        raise NotConfigured(
            "The address of the service must be like https://gleanery.example or "
            "http://127.0.0.1:8000"
        )
    if parts.query or parts.fragment or "@" in parts.netloc:
        raise NotConfigured("The address of the service must have no user, query or fragment")
    path = parts.path.rstrip("/").removesuffix("/v1")
    return f"{parts.scheme}://{parts.netloc.lower()}{path}"


def is_loopback(url: str) -> bool:
    """Return True if the address is on this machine."""
    host = urlsplit(url).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")


def credentials_file(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the path of the file that ``gleanery login`` writes."""
    from pathlib import Path

    if sys.platform == "win32":
        folder = Path(environment.get("APPDATA") or Path.home())
    else:
        folder = Path(environment.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return folder / "gleanery" / "credentials.json"


def read_credentials() -> Credentials | None:
    """Read the file of the login. Return None if there is none."""
    from json import loads

    path = credentials_file()
    try:
        content = loads(path.read_bytes())
        return Credentials(normalize(content["url"]), str(content["token"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        raise NotConfigured(f"{path} cannot be read: run gleanery login again") from None


def write_credentials(credentials: Credentials) -> Path:
    """Write the file of the login, and return its path. Only its owner can read it."""
    from json import dumps

    path = credentials_file()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.parent.chmod(0o700)
    content = dumps({"url": credentials.url, "token": credentials.token}, indent=2)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)  # of a process with this id that was killed
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(f"{content}\n")
            file.flush()
            os.fsync(descriptor)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


def remove_credentials() -> Path | None:
    """Remove the file of the login. Return its path, or None if there is none."""
    path = credentials_file()
    try:
        path.unlink()
    except FileNotFoundError:
        return None
    return path
