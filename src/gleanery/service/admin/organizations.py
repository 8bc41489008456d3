"""Deletion of an organization, with the checks that come before it."""

from __future__ import annotations

import asyncio

from gleanery.common.errors import SettingsError
from gleanery.common.settings import Settings
from gleanery.service.foundation.blobs import Blobs, open_blobs
from gleanery.service.foundation.observability.progress import StartProgress
from gleanery.service.foundation.values import timestamps
from gleanery.service.maintenance import organization_removal
from gleanery.service.resources.access import organizations
from gleanery.service.resources.access.organizations import Counts
from gleanery.service.storage.database import Database, Engine


async def delete(
    settings: Settings,
    name: str,
    ignore_missing_files: bool,
    progress: StartProgress,
    engine: Engine,
) -> Counts:
    """Delete an organization, or continue its deletion; return what was there."""
    database = engine.for_tenant(await organizations.find(engine, name))
    store = _open_store(settings)
    is_its_store = await _check_store(settings, store, database, ignore_missing_files)
    counts = await organizations.count_records(database)
    await organization_removal.begin(database, timestamps.now())
    total = counts.outputs + counts.files + counts.cookies + counts.local_storage
    advance = progress("Deleting", total)
    await organization_removal.remove(database, store, is_its_store, timestamps.now, advance)
    return counts


def _open_store(settings: Settings) -> Blobs | None:
    """Open the store of files; None if its folder does not exist, which must not be created."""
    folder = settings.blobs_folder
    if folder is not None and not folder.is_dir():
        return None
    return open_blobs(settings.blobs_location)


async def _check_store(
    settings: Settings, store: Blobs | None, database: Database, ignore_missing_files: bool
) -> bool:
    """Return True if the store has files of the organization.

    Reject a location without them: they would stay where they are.
    """
    keys = await organization_removal.blob_keys(database)
    if store is not None and any(await asyncio.gather(*map(store.exists, keys))):
        return True
    if keys and not ignore_missing_files:
        raise SettingsError(
            f"The organization's files are not in {settings.blobs_location}: give the location "
            "that the service uses with --blobs or GLEANERY_BLOBS. If the files are lost, give "
            "--ignore-missing-files"
        )
    return False
