"""The settings of the integration, read from Scrapy's settings, and the files that they name."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scrapy.exceptions import NotConfigured
from scrapy.utils.project import data_path

from gleanery.client import AsyncClient, Client
from gleanery.client import NotConfigured as ClientNotConfigured
from gleanery.client.queue.batches import MAX_ITEMS
from gleanery.client.queue.sender import RejectedItems
from gleanery.client.queue.spool import Spool, spool_folder
from gleanery.client.runs import run_of_environment

if TYPE_CHECKING:
    from scrapy.crawler import Crawler
    from scrapy.settings import BaseSettings

_PATIENT_RETRIES = 12
_REJECTED = "invalid"
"""Name of the folder for items that the service rejects."""


@dataclass(frozen=True, slots=True)
class GleanerySettings:
    """Settings of the integration. A component that needs a group checks that it has one."""

    url: str | None = None
    """Address of the service; None for that of the environment or of ``gleanery login``."""
    token: str | None = field(default=None, repr=False)
    group: str | None = None
    job: str | None = None
    """Job of the items; None until the name of the spider is known."""
    url_field: str = "url"
    key_fields: tuple[str, ...] = ()
    file_fields: tuple[str, ...] = ()
    """Fields of an item that name stored files: an id, a list of ids, or a list of results of the
    files pipeline, each with the member ``id``. The output gets references to these files."""
    batch_size: int = MAX_ITEMS
    batch_seconds: float = 5.0
    max_retries: int = 4
    close_seconds: float = 30.0
    """Seconds for which the end of a crawl waits for a service that does not respond."""
    spool: str = "gleanery"
    """Folder for items that could not be sent; a relative one is below Scrapy's data folder."""
    has_run: bool = True
    """True if the crawl is a run of the job."""
    run_id: str | None = None
    """Run that somebody else has started and will finish."""
    run_labels: dict[str, str] | None = None

    @classmethod
    def from_scrapy(cls, settings: BaseSettings, spider: str | None = None) -> GleanerySettings:
        """Read the settings. Raise NotConfigured if the service or the token is unknown.

        ``spider`` is the name of the spider, which is the job without ``GLEANERY_JOB``.
        """
        read = cls(
            url=settings.get("GLEANERY_URL") or None,
            token=settings.get("GLEANERY_TOKEN") or None,
            group=settings.get("GLEANERY_GROUP") or None,
            job=settings.get("GLEANERY_JOB") or spider,
            url_field=settings.get("GLEANERY_URL_FIELD") or "url",
            key_fields=_names(settings, "GLEANERY_KEY_FIELDS"),
            file_fields=_file_fields(settings),
            batch_size=settings.getint("GLEANERY_BATCH_SIZE", MAX_ITEMS),
            batch_seconds=settings.getfloat("GLEANERY_BATCH_SECONDS", 5.0),
            max_retries=settings.getint("GLEANERY_MAX_RETRIES", 4),
            close_seconds=settings.getfloat("GLEANERY_CLOSE_SECONDS", 30.0),
            spool=settings.get("GLEANERY_SPOOL") or "gleanery",
            has_run=settings.getbool("GLEANERY_RUN", True),
            run_id=settings.get("GLEANERY_RUN_ID") or None,
            run_labels=_labels(settings),
        )
        read._check()
        return read

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> GleanerySettings:
        """Read the settings of a crawl, whose job is the name of its spider by default."""
        name = crawler.spider.name if crawler.spider else crawler.spidercls.name
        return cls.from_scrapy(crawler.settings, name)

    def client(self, **options: Any) -> Client:
        """Return a new synchronous client of the service."""
        try:
            return Client(self.url, self.token, **options)
        except ClientNotConfigured as error:
            raise NotConfigured(_explain(error)) from None

    def async_client(self, **options: Any) -> AsyncClient:
        """Return a new asynchronous client of the service, for the asyncio reactor."""
        try:
            return AsyncClient(self.url, self.token, **options)
        except ClientNotConfigured as error:
            raise NotConfigured(_explain(error)) from None

    def require_group(self) -> str:
        """Return the group. Raise ValueError if there is none: all items would be lost."""
        if self.group is None:
            raise ValueError(
                "There is no group for the items: set GLEANERY_GROUP. To store no items, set "
                'ITEM_PIPELINES = {"gleanery.integrations.scrapy.GleaneryPipeline": None}'
            )
        return self.group

    def given_run(self) -> str | None:
        """Return the run that the settings name, or in which this process was started."""
        return self.run_id or run_of_environment(self.require_group(), self.job)

    def open_spool(self) -> Spool:
        """Return the spool for the service, the group and the job."""
        with self.client() as client:
            target = (client.base_url, self.require_group(), str(self.job))
        return Spool(spool_folder(Path(data_path(self.spool)), *target))

    def open_rejected(self, suffix: str = "") -> RejectedItems:
        """Return a new file for rejected items."""
        folder = Path(data_path(self.spool)) / _REJECTED
        return RejectedItems(folder, self.require_group(), f"{self.job}{suffix}")

    def _check(self) -> None:
        self.client()  # checks the address and the token, and does not connect
        if not 1 <= self.batch_size <= MAX_ITEMS:
            raise ValueError(f"GLEANERY_BATCH_SIZE must be between 1 and {MAX_ITEMS}")
        if self.batch_seconds <= 0:
            raise ValueError("GLEANERY_BATCH_SECONDS must be more than 0")
        if self.max_retries < 0:
            raise ValueError("GLEANERY_MAX_RETRIES must not be negative")
        if self.close_seconds < 0:
            raise ValueError("GLEANERY_CLOSE_SECONDS must not be negative")


def patient_retries(settings: BaseSettings) -> int:
    """Return the retries of components that cannot continue without the service.

    By default, they wait about 50 seconds for a service that is down.
    """
    return settings.getint("GLEANERY_MAX_RETRIES", _PATIENT_RETRIES)


def _file_fields(settings: BaseSettings) -> tuple[str, ...]:
    """Return the fields with ids of files: those of the files pipeline, if it is on."""
    names = _names(settings, "GLEANERY_FILE_FIELDS")
    if not names and settings.getbool("GLEANERY_FILES"):
        return (settings.get("FILES_RESULT_FIELD") or "files",)
    return names


def _labels(settings: BaseSettings) -> dict[str, str] | None:
    labels = settings.getdict("GLEANERY_RUN_LABELS")
    return {str(name): str(value) for name, value in labels.items()} or None


def _names(settings: BaseSettings, setting: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in settings.getlist(setting))


def _explain(error: ClientNotConfigured) -> str:
    return f"{error}. In Scrapy, the settings GLEANERY_URL and GLEANERY_TOKEN hold them"
