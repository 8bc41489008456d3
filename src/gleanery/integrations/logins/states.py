"""States of sessions, as Playwright writes them: whether they have a login, and what changed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

State = dict[str, Any]
_LONG_AGO = 1
"""Second of 1970. The service takes a cookie with such an expiry for deleted."""


def check_names(login_cookies: Sequence[str]) -> tuple[str, ...]:
    """Return the names of cookies. Raise TypeError for one name that is not in a list."""
    if isinstance(login_cookies, str):
        raise TypeError("login_cookies must be a list of names")
    return tuple(login_cookies)


def has_login(state: State, login_cookies: Sequence[str]) -> bool:
    """Return True if the state has all these cookies; without names, if it is not empty."""
    now = time.time()
    valid = {one["name"] for one in state["cookies"] if not 0 <= one.get("expires", -1) <= now}
    if login_cookies:
        return valid.issuperset(login_cookies)
    return bool(valid or state["origins"])


def take_indexed_db(state: State) -> tuple[State, list[str]]:
    """Return the state without IndexedDB, which is not stored, and the origins that have one."""
    origins = [origin["origin"] for origin in state["origins"] if origin.get("indexedDB")]
    kept = [
        {"origin": origin["origin"], "localStorage": origin["localStorage"]}
        for origin in state["origins"]
        if origin["localStorage"]
    ]
    return {**state, "origins": kept}, origins


def is_changed(loaded: State, state: State) -> bool:
    """Return True if a cookie or an entry of the local storage is new, changed or gone."""
    return _content(loaded) != _content(state)


def with_removed(loaded: State, state: State) -> State:
    """Return the state, in which the cookies that were loaded and are gone have expired."""
    kept = {_identity(cookie) for cookie in state["cookies"]}
    removed = [
        {**cookie, "value": "", "expires": _LONG_AGO}
        for cookie in loaded["cookies"]
        if _identity(cookie) not in kept
    ]
    return {**state, "cookies": [*state["cookies"], *removed]}


def _content(state: State) -> tuple[dict[Any, Any], dict[Any, Any]]:
    cookies = {_identity(one): (one["value"], one.get("expires")) for one in state["cookies"]}
    entries = {
        (one["origin"], entry["name"]): entry["value"]
        for one in state["origins"]
        for entry in one["localStorage"]
    }
    return cookies, entries


def _identity(cookie: dict[str, Any]) -> tuple[Any, ...]:
    return cookie["domain"], cookie["path"], cookie["name"], cookie.get("partitionKey")
