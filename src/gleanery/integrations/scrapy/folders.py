"""The folders of the integration, below the data folder of Scrapy."""

from __future__ import annotations

from pathlib import Path

from scrapy.utils.project import data_path

from gleanery.integrations.scrapy.rejected import RejectedItems
from gleanery.integrations.scrapy.settings import GleanerySettings
from gleanery.integrations.scrapy.spool import Spool, spool_folder

_REJECTED = "invalid"


def open_spool(settings: GleanerySettings) -> Spool:
    """Return the spool for the service, the group and the job of the settings."""
    with settings.client() as client:
        target = (client.base_url, settings.require_group(), str(settings.job))
    return Spool(spool_folder(Path(data_path(settings.spool)), *target))


def open_rejected(settings: GleanerySettings, suffix: str = "") -> RejectedItems:
    """Return a new file for rejected items."""
    folder = Path(data_path(settings.spool)) / _REJECTED
    return RejectedItems(folder, settings.require_group(), f"{settings.job}{suffix}")
