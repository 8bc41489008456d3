# Generated from _async by checks/sync_client.py: edit that package, and run make client.
"""Files: uploads, look-ups and downloads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gleanery.client._sync.concurrency import run_in_thread
from gleanery.client._sync.requester import Requester
from gleanery.client._sync.transport import Body
from gleanery.client.errors import ApiError, InvalidResponse, NotFound
from gleanery.client.requests import Request, path

if TYPE_CHECKING:
    from gleanery.client.files import FileDestination, FileSource, Source, Target
    from gleanery.client.models import File, StoredFile

_RANGE_NOT_SATISFIABLE = 416


class Files:
    """Methods of the client for files."""

    _requester: Requester

    def upload(
        self,
        source: FileSource,
        *,
        source_url: str | None = None,
        etag: str | None = None,
        filename: str | None = None,
        content_type: str | None = None,
    ) -> StoredFile:
        """Store a file, and return its id, which an output can reference.

        If the service has the same bytes for ``source_url`` and ``etag``, nothing is sent. The file
        must not change meanwhile: otherwise FileChanged is raised.
        """
        from gleanery.client.files import guess_type, open_source
        from gleanery.client.models import StoredFile

        with open_source(source) as content:
            filename = filename if filename is not None else content.name
            if source_url is not None:
                known = self.find_file(source_url, etag)
                if known is not None and run_in_thread(content.is_same, known):
                    return known
            request = Request(
                "POST",
                path("files"),
                {"source_url": source_url, "etag": etag, "filename": filename},
                {
                    "content-type": content_type or guess_type(filename),
                    "content-length": str(content.size),
                },
                _AsyncPieces(content),
            )
            stored = self._requester.fetch(request, StoredFile)
            content.check_unchanged(stored.file_checksum)
            return stored

    def find_file(self, source_url: str, etag: str | None = None) -> StoredFile | None:
        """Return the file that was uploaded last with this source, or None."""
        from gleanery.client.models import StoredFile

        request = Request("GET", path("files"), {"source_url": source_url, "etag": etag})
        try:
            return self._requester.fetch(request, StoredFile)
        except NotFound as error:
            if not error.is_explained:  # the address is wrong, or a proxy has rejected the request
                raise
            return None

    def download(self, file: File | StoredFile | str, destination: FileDestination) -> None:
        """Write a file, or the one with this id, to a path or to an open file.

        A path gets the file at the end, as a whole, and only if its checksum is right. Until then
        its part has a hidden name. After an error, the next download continues with that part.
        """
        from gleanery.client.files import open_target

        file_id = file if isinstance(file, str) else file.id
        checksum = None if isinstance(file, str) else file.file_checksum
        target = run_in_thread(open_target, destination, file_id)
        try:
            _AsyncDownload(self._requester, file_id, checksum, target).run()
        finally:
            target.close()


class _AsyncPieces:
    """The bytes of an upload. Each iteration begins at the start of the file."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def __iter__(self) -> Iterator[bytes]:
        run_in_thread(self._source.rewind)
        while piece := run_in_thread(self._source.read):
            yield piece


class _AsyncDownload:
    """One download, which continues after a broken connection."""

    def __init__(
        self, requester: Requester, file_id: str, checksum: str | None, target: Target
    ) -> None:
        self._requester = requester
        self._path = path("files", file_id)
        self._checksum = checksum
        self._target = target

    def run(self) -> None:
        from gleanery.client.files import DamagedDownload

        is_continued = self._target.position > 0
        try:
            self._receive()
        except (DamagedDownload, ApiError) as error:
            is_useless = getattr(error, "status", _RANGE_NOT_SATISFIABLE) == _RANGE_NOT_SATISFIABLE
            if not is_continued or not is_useless:
                raise
            self._target.restart()  # the part of the earlier download is not one of this file
            self._receive()

    def _receive(self) -> None:
        self._requester.receive(self._next_request, self._read)
        assert self._checksum is not None
        run_in_thread(self._target.finish, self._checksum)

    def _next_request(self) -> Request:
        headers = {"accept-encoding": "identity"}
        if self._target.position:
            headers["range"] = f"bytes={self._target.position}-"
            if self._checksum is not None:
                headers["if-range"] = f'"{self._checksum}"'
        return Request("GET", self._path, headers=headers)

    def _read(self, body: Body) -> None:
        self._check_head(body)
        for piece in body.pieces():
            run_in_thread(self._target.write, piece)

    def _check_head(self, body: Body) -> None:
        """Compare the response with what has arrived before."""
        checksum = body.headers.get("etag", "").removeprefix("W/").strip('"')
        if self._checksum not in (None, checksum) or len(checksum) != 64:
            raise InvalidResponse("The response has another file, or no ETag of a Gleanery service")
        self._checksum = checksum
        if body.status != 206:
            if self._target.position:
                self._target.restart()
        elif not body.headers.get("content-range", "").startswith(
            f"bytes {self._target.position}-"
        ):
            raise InvalidResponse("The response has another part of the file than was requested")
