"""Imports: stores a document completely or not at all, audits it, and describes the changes."""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import chain
from typing import Literal, NamedTuple

from gleanery.service.foundation.security.tokens import Actor
from gleanery.service.foundation.security.vault import Vault
from gleanery.service.foundation.values import timestamps
from gleanery.service.resources.audit import log
from gleanery.service.resources.audit.models import AuditAbout
from gleanery.service.resources.sessions import documents, records, versions
from gleanery.service.resources.sessions.cookies import COOKIES
from gleanery.service.resources.sessions.documents import (
    NO_REPLACEMENT,
    Destination,
    PreparedState,
    Replacement,
    StateChanges,
)
from gleanery.service.resources.sessions.kinds import In, Out, RecordKind
from gleanery.service.resources.sessions.local_storage import LOCAL_STORAGE
from gleanery.service.resources.sessions.models import ImportedRecord, ImportResult
from gleanery.service.resources.sessions.records import ALL_GROUPS, RecordChange
from gleanery.service.resources.sessions.states import StateFilter
from gleanery.service.resources.sessions.versions import IfMatch
from gleanery.service.storage import group_lock
from gleanery.service.storage.database import Database, Transaction
from gleanery.sessions import FORMATS, ReadResult

_RECORDS_IN_EVENT_LOOP = records.RECORDS_PER_PAUSE


class ImportOptions(NamedTuple):
    """What an import does besides storing the records of a document."""

    is_replacing: bool
    """True if other records of the document's hosts are deleted."""
    is_dry_run: bool
    """True if nothing is stored."""


class Imported(NamedTuple):
    """What an import did, and the new version of the profile."""

    result: ImportResult
    etag: str


async def import_state(
    database: Database,
    vault: Vault,
    document: ReadResult,
    destination: Destination,
    options: ImportOptions,
    now: int,
    actor: Actor,
    if_match: IfMatch = None,
) -> Imported:
    """Store a document completely or not at all. Audit it, and a dry run as well."""
    prepared = await documents.prepare_state(database.organization_id, document, destination)
    replacement = _replacement(document) if options.is_replacing else NO_REPLACEMENT

    async def work(transaction: Transaction) -> tuple[StateChanges, str]:
        profile = destination.profile
        locked = await records.lock_session_state(transaction, vault, now, if_match, profile)
        await _check_group(transaction, destination.group_id)
        changes = await documents.store_state(locked, prepared, replacement, options.is_dry_run)
        about = _about_import(prepared, document, changes, options)
        await log.append(transaction, actor, now, "import_session", about)
        scope = StateFilter(profile).scope
        return changes, await versions.read_etag(
            transaction.fetch, transaction.organization_id, scope
        )

    changes, etag = await database.write(work, queue_key=records.QUEUE_KEY)
    result = partial(_to_result, document, destination, options, changes)
    is_long = len(changes.cookies) + len(changes.local_storage) > _RECORDS_IN_EVENT_LOOP
    return Imported(await asyncio.to_thread(result) if is_long else result(), etag)


def _replacement(document: ReadResult) -> Replacement:
    has_local_storage = "local_storage" in FORMATS[document.format].carries
    hosts = (versions.visible_hosts(page.host) for page in document.pages)
    return Replacement(
        set(chain.from_iterable(hosts)) or documents.hosts_of(document.state), has_local_storage
    )


async def _check_group(transaction: Transaction, group_id: int) -> None:
    """Raise NotFound if the group was deleted after the request began."""
    if group_id != ALL_GROUPS and not await group_lock.accepts_records(transaction, group_id):
        raise group_lock.no_group_in_query()


def _about_import(
    prepared: PreparedState, document: ReadResult, changes: StateChanges, options: ImportOptions
) -> AuditAbout:
    about = AuditAbout(
        records=len(changes.cookies) + len(changes.local_storage),
        domains=_audited_domains(changes),
        profile=prepared.destination.profile,
        format=document.format,
        dry_run=options.is_dry_run,
    )
    if prepared.destination.group_id != ALL_GROUPS:
        about["for_group"] = prepared.destination.group_id
    return about


def _audited_domains(changes: StateChanges) -> list[str]:
    of_cookie, of_entry = COOKIES.columns.index("domain"), LOCAL_STORAGE.columns.index("domain")
    return records.audited_domains(
        chain(
            (one.columns[of_cookie] for one in changes.cookies),
            (one.columns[of_entry] for one in changes.local_storage),
        )
    )


def _to_result(
    document: ReadResult,
    destination: Destination,
    options: ImportOptions,
    changes: StateChanges,
) -> ImportResult:
    result = ImportResult(
        format=document.format,
        profile=destination.profile,
        dry_run=options.is_dry_run,
        cookies=documents.count_changes(changes.cookies),
        local_storage=documents.count_changes(changes.local_storage),
        losses=documents.described_losses(document),
    )
    if options.is_dry_run:
        cookies_ = (_describe("cookie", COOKIES, one) for one in changes.cookies)
        entries = (_describe("local_storage", LOCAL_STORAGE, one) for one in changes.local_storage)
        result["records"] = [*cookies_, *entries]
    return result


def _describe(
    name: Literal["cookie", "local_storage"], kind: RecordKind[In, Out], made: RecordChange
) -> ImportedRecord:
    """Describe a record without its value."""
    columns = dict(zip(kind.columns, made.columns, strict=True))
    expires = columns["expires"]
    return ImportedRecord(
        kind=name,
        change=made.change,
        domain=columns["domain"],
        origin=columns.get("origin"),
        path=columns["path"],
        name=columns[kind.name_column],
        expires=None if expires is None else timestamps.render(expires),
    )
