"""The add-on: it installs the components, unless the project has configured them itself."""

from __future__ import annotations

from typing import Any

from scrapy.settings import BaseSettings
from scrapy.utils.misc import load_object

from gleanery.integrations import limit_request_log
from gleanery.integrations.scrapy.settings import GleanerySettings

_PACKAGE = "gleanery.integrations.scrapy"
_PIPELINES = "ITEM_PIPELINES"
_MIDDLEWARES = "DOWNLOADER_MIDDLEWARES"
_SPIDER_MIDDLEWARES = "SPIDER_MIDDLEWARES"
_FILES_PRIORITY = 1
"""Scrapy's manual gives its files pipeline this priority: later pipelines see the files."""
_ITEMS_PRIORITY = 900  # after the pipelines of the project, which change and drop items
_COOKIES_PRIORITY = 700  # of Scrapy's CookiesMiddleware, which it replaces
_RUN_PRIORITY = 10  # next to the engine, where all other middlewares have given up
_COOKIES = f"{_PACKAGE}.cookies.GleaneryCookiesMiddleware"
_SCRAPY_COOKIES = "scrapy.downloadermiddlewares.cookies.CookiesMiddleware"


class Addon:
    """Scrapy add-on: ``ADDONS = {"gleanery.integrations.scrapy.Addon": 500}``."""

    def update_settings(self, settings: BaseSettings) -> None:
        """Install the components. Raise NotConfigured if the service or the token is unknown."""
        limit_request_log()  # as Scrapy does for httpx
        chosen = GleanerySettings.from_scrapy(settings)
        if chosen.group or not _has_feed(settings):  # else the feed stores the items
            component = f"{_PACKAGE}.pipeline.GleaneryPipeline"
            _install(settings, _PIPELINES, component, _ITEMS_PRIORITY)
        if settings.getbool("GLEANERY_FILES"):
            component = f"{_PACKAGE}.files.GleaneryFilesPipeline"
            _install(settings, _PIPELINES, component, _FILES_PRIORITY)
        if settings.getbool("GLEANERY_SESSIONS"):
            _install(settings, _MIDDLEWARES, _COOKIES, _COOKIES_PRIORITY)
        if _is_enabled(settings, _MIDDLEWARES, _COOKIES):
            _install(settings, _MIDDLEWARES, _SCRAPY_COOKIES, None)
        if chosen.has_run:
            component = f"{_PACKAGE}.problems.RunDownloaderMiddleware"
            _install(settings, _MIDDLEWARES, component, _RUN_PRIORITY)
            component = f"{_PACKAGE}.problems.RunSpiderMiddleware"
            _install(settings, _SPIDER_MIDDLEWARES, component, _RUN_PRIORITY)
        _set_member(settings, "FEED_STORAGES", "gleanery", f"{_PACKAGE}.feed.GleaneryFeedStorage")


def _has_feed(settings: BaseSettings) -> bool:
    """Return True if a feed goes to a group, which its address names."""
    return any(str(address).startswith("gleanery:") for address in settings.getdict("FEEDS"))


def _install(settings: BaseSettings, name: str, path: str, priority: int | None) -> None:
    """Add a component, unless the project names it: also with None, to leave it out."""
    component = load_object(path)
    if not any(_is_named(key, component) for key in settings.getdict(name)):
        _set_member(settings, name, path, priority)


def _is_enabled(settings: BaseSettings, name: str, path: str) -> bool:
    component, members = load_object(path), settings.getdict(name).items()
    return any(place is not None and _is_named(key, component) for key, place in members)


def _is_named(key: Any, component: type) -> bool:
    """Compare with a key of the project, which can be a path, a class or an unknown name."""
    if not isinstance(key, str):
        return bool(key is component)
    try:
        return bool(load_object(key) is component)
    except (ImportError, NameError, ValueError):  # Scrapy reports it when it loads the component
        return False


def _set_member(settings: BaseSettings, name: str, key: str, value: object) -> None:
    """Add a member with the priority of an add-on; a member of the project stays."""
    stored = settings.get(name)
    if isinstance(stored, BaseSettings):  # its members have priorities of their own
        stored.set(key, value, priority="addon")
    else:
        members = {key: value, **settings.getdict(name)}
        settings.set(name, members, priority=settings.getpriority(name) or "addon")
