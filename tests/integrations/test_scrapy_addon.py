"""The Scrapy add-on installs its components, and yields to the settings of the project."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from scrapy.core.downloader.middleware import DownloaderMiddlewareManager
from scrapy.downloadermiddlewares.cookies import CookiesMiddleware
from scrapy.exceptions import NotConfigured
from scrapy.pipelines import ItemPipelineManager
from scrapy.settings import Settings
from scrapy.utils.misc import build_from_crawler
from scrapy.utils.test import get_crawler

from gleanery.integrations.scrapy import Addon, GleaneryPipeline, GleanerySettings
from tests.support.process import environment

_SERVICE = {"GLEANERY_URL": "http://127.0.0.1:1", "GLEANERY_TOKEN": "secret"}
_PIPELINE = "gleanery.integrations.scrapy.pipeline.GleaneryPipeline"
_MIDDLEWARE = "gleanery.integrations.scrapy.cookies.GleaneryCookiesMiddleware"
_SCRAPY_COOKIES = "scrapy.downloadermiddlewares.cookies.CookiesMiddleware"
_SHORT_PATH = "gleanery.integrations.scrapy.GleaneryPipeline"


@pytest.fixture(autouse=True)
def _no_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("GLEANERY_URL", "GLEANERY_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


def updated(**values: Any) -> Settings:
    settings = Settings({**_SERVICE, **values})
    Addon().update_settings(settings)
    return settings


def test_the_pipeline_is_installed_after_those_of_the_project() -> None:
    settings = updated(ITEM_PIPELINES={"project.Pipeline": 300})
    assert settings.getdict("ITEM_PIPELINES") == {"project.Pipeline": 300, _PIPELINE: 900}
    assert settings["ITEM_PIPELINES"].getpriority(_PIPELINE) == 15  # the priority of add-ons


@pytest.mark.parametrize("key", [_PIPELINE, _SHORT_PATH, GleaneryPipeline])
@pytest.mark.parametrize("place", [123, None])
def test_the_place_that_the_project_chooses_wins(key: Any, place: int | None) -> None:
    settings = updated(ITEM_PIPELINES={key: place})
    assert settings.getdict("ITEM_PIPELINES") == {key: place}


def test_a_feed_storage_of_the_project_wins() -> None:
    settings = updated(FEED_STORAGES={"gleanery": "project.Storage"})
    assert settings.getdict("FEED_STORAGES") == {"gleanery": "project.Storage"}


def test_an_addon_without_a_token_is_not_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotConfigured, match="GLEANERY_TOKEN"):
        updated(GLEANERY_TOKEN="")
    with pytest.raises(NotConfigured, match="GLEANERY_URL"):
        updated(GLEANERY_URL=None)
    monkeypatch.setenv("GLEANERY_TOKEN", "of the environment".replace(" ", "-"))
    assert _PIPELINE in updated(GLEANERY_TOKEN=None).getdict("ITEM_PIPELINES")


def started(**values: Any) -> None:
    """Start a crawl, which reads the settings and creates the components."""
    crawler = get_crawler(settings_dict={**_SERVICE, "ADDONS": {Addon: 500}, **values})
    build_from_crawler(DownloaderMiddlewareManager, crawler)
    build_from_crawler(ItemPipelineManager, crawler)


@pytest.mark.thorough
def test_items_without_a_group_are_an_error() -> None:
    with pytest.raises(ValueError, match="set GLEANERY_GROUP"):
        started()
    started(GLEANERY_GROUP="prices")
    started(ITEM_PIPELINES={_PIPELINE: None})


def test_a_feed_names_its_own_group() -> None:
    feeds = {"gleanery://prices/daily": {"format": "jsonlines"}}
    assert _PIPELINE not in updated(FEEDS=feeds).getdict("ITEM_PIPELINES")
    assert _PIPELINE in updated(FEEDS=feeds, GLEANERY_GROUP="prices").getdict("ITEM_PIPELINES")
    assert _PIPELINE in updated(FEEDS={"items.jsonl": {}}).getdict("ITEM_PIPELINES")


def test_the_middlewares_of_runs_are_next_to_the_engine() -> None:
    module = "gleanery.integrations.scrapy.problems"
    settings = updated(SPIDER_MIDDLEWARES={"project.Middleware": 5})
    assert settings.getdict("DOWNLOADER_MIDDLEWARES") == {f"{module}.RunDownloaderMiddleware": 10}
    assert settings.getdict("SPIDER_MIDDLEWARES")[f"{module}.RunSpiderMiddleware"] == 10
    assert updated(GLEANERY_RUN=False).getdict("SPIDER_MIDDLEWARES") == {}


def middlewares(**values: Any) -> dict[Any, Any]:
    return updated(GLEANERY_RUN=False, **values).getdict("DOWNLOADER_MIDDLEWARES")


@pytest.mark.parametrize("has_setting", [True, False])
def test_the_middleware_replaces_that_of_scrapy_wherever_it_is(has_setting: bool) -> None:
    chosen = middlewares(DOWNLOADER_MIDDLEWARES={_MIDDLEWARE: 650}, GLEANERY_SESSIONS=has_setting)
    assert chosen == {_MIDDLEWARE: 650, _SCRAPY_COOKIES: None}
    assert middlewares(GLEANERY_SESSIONS=True) == {_MIDDLEWARE: 700, _SCRAPY_COOKIES: None}


def test_a_project_without_the_middleware_keeps_that_of_scrapy() -> None:
    left_out = {_MIDDLEWARE: None}
    assert middlewares(DOWNLOADER_MIDDLEWARES=left_out, GLEANERY_SESSIONS=True) == left_out


def test_another_middleware_for_cookies_is_an_error() -> None:
    settings = {"GLEANERY_SESSIONS": True, "GLEANERY_GROUP": "prices"}
    with pytest.raises(ValueError, match=r"CookiesMiddleware.* None"):
        started(**settings, DOWNLOADER_MIDDLEWARES={_SCRAPY_COOKIES: 710})
    with pytest.raises(ValueError, match=r"CookiesMiddleware.* None"):
        started(ADDONS={}, DOWNLOADER_MIDDLEWARES={_MIDDLEWARE: 700})
    started(**settings, DOWNLOADER_MIDDLEWARES={CookiesMiddleware: None})


def test_sessions_without_cookies_are_an_error() -> None:
    settings = {"GLEANERY_SESSIONS": True, "GLEANERY_GROUP": "prices"}
    with pytest.raises(ValueError, match="COOKIES_ENABLED"):
        started(**settings, COOKIES_ENABLED=False)
    started(**settings)


def test_a_session_of_something_else_than_a_domain_is_an_error() -> None:
    settings = {"GLEANERY_SESSIONS": True, "GLEANERY_GROUP": "prices"}
    with pytest.raises(ValueError, match="GLEANERY_SESSION_DOMAINS"):
        started(**settings, GLEANERY_SESSION_DOMAINS=["https://shop.example/"])
    started(**settings, GLEANERY_SESSION_DOMAINS=".shop.example, www.bücher.example")


def test_settings_are_read_and_the_token_is_not_shown() -> None:
    settings = updated(
        GLEANERY_GROUP="prices", GLEANERY_KEY_FIELDS="sku, country", GLEANERY_BATCH_SIZE="10"
    )
    read = GleanerySettings.from_scrapy(settings, "spider")
    assert (read.group, read.job, read.url_field) == ("prices", "spider", "url")
    assert (read.key_fields, read.batch_size) == (("sku", "country"), 10)
    assert "secret" not in repr(read)
    assert GleanerySettings.from_scrapy(Settings({**settings, "GLEANERY_JOB": "j"}), "s").job == "j"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("GLEANERY_BATCH_SIZE", 0),
        ("GLEANERY_BATCH_SIZE", 1001),
        ("GLEANERY_BATCH_SECONDS", 0),
        ("GLEANERY_MAX_RETRIES", -1),
        ("GLEANERY_CLOSE_SECONDS", -1),
    ],
)
def test_an_impossible_setting_is_an_error(name: str, value: int) -> None:
    with pytest.raises(ValueError, match=name):
        updated(**{name: value})


def test_a_missing_scrapy_is_an_error_that_says_what_to_install() -> None:
    program = "import sys; sys.modules['scrapy'] = None; import gleanery.integrations.scrapy"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env=environment(),
        check=False,
    )
    assert "ImportError: " in done.stderr
    assert "pip install 'gleanery[scrapy]'" in done.stderr
