"""``gleanery pull``: a copy of a group's changes in files, kept up to date."""

from __future__ import annotations

import re
import shlex
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from msgspec import Raw, Struct
from msgspec.json import Decoder

from gleanery.cli.data.command import (
    USER_ERROR,
    AsJson,
    CommandFailed,
    UserError,
    data_command,
    join_sentences,
    print_json,
    to_failure,
)
from gleanery.cli.data.connection import (
    GroupName,
    TokenFile,
    Url,
    ViewName,
    known_group,
    open_client,
)
from gleanery.cli.data.progress import Progress, Quiet
from gleanery.cli.data.segments import Segment, SegmentFolder, SegmentWriter
from gleanery.cli.data.stop_signals import Stopped, StopSignals
from gleanery.cli.declaration import CommandGroup, Option
from gleanery.client.errors import ClientError, CursorExpired, InvalidState, NotFound
from gleanery.client.requests import View
from gleanery.client.retries import backoff, is_temporary
from gleanery.client.sync import StateFile

if TYPE_CHECKING:
    from gleanery.client import Client

app = CommandGroup()

_STATE_NAME = ".gleanery-state.json"
_MEGABYTE = 1_000_000
_GATHER_SECONDS = 2.0
"""Time after the first new change until it is read, so that small changes share a file."""


@data_command(
    app,
    "pull",
    examples=(
        "gleanery pull shop-prices -o prices",
        "gleanery pull shop-prices -o prices -f",
        "gleanery pull shop-prices -o new --state prices.json --json",
        "gleanery pull shop-prices -o approved-prices --view approved",
    ),
)
def pull(
    group: GroupName,
    folder: Annotated[Path, Option("--output", "-o", metavar="DIR", help="Folder for the files.")],
    state: Annotated[
        Path | None,
        Option(
            "--state",
            metavar="FILE",
            help=f"File with the position. Default: {_STATE_NAME} in the folder.",
        ),
    ] = None,
    view: ViewName = "full",
    follow: Annotated[
        bool,
        Option(
            "--follow",
            "-f",
            help="Do not end: wait for new changes, and for a service that is unavailable.",
        ),
    ] = False,
    segment_size: Annotated[
        int, Option("--segment-size", metavar="MB", min=1, help="Largest size of a file.")
    ] = 64,
    as_json: AsJson = False,
    quiet: Quiet = False,
    url: Url = None,
    token_file: TokenFile = None,
) -> None:
    """Write all changes of a group into files. Run it again to get only the new ones.

    Each line of a file is one change: a created, updated or deleted output. The command stores its
    position, so it can be stopped at any time. You can delete files after you have used them.
    With --json it prints a line for each file. All files of a folder have the same view.
    """
    if state is not None and not state.parent.is_dir():
        raise UserError(f"The folder {state.parent} does not exist: create it first")
    segments = SegmentFolder(folder, group)
    with (
        segments.locked(),
        Progress("Pulled", "change", is_quiet=quiet) as progress,
        open_client(url, token_file, progress, retries=0 if follow else None) as client,
        known_group(client, group),
        StopSignals() as signals,
    ):
        file = StateFile(state or folder / _STATE_NAME, client.base_url, group, view)
        work = Pull(client, group, view, segments, file, progress, signals)
        try:
            for segment in work.run(segment_size * _MEGABYTE, follow):
                if as_json:
                    _print_segment(segment)
        except (BrokenPipeError, NotFound):
            raise
        except Stopped as stop:
            raise _with_advice(CommandFailed("interrupted", stop.status)) from None
        except (ClientError, OSError) as error:
            raise _with_advice(to_failure(error)) from None
        progress.summarize(f"to {folder}")


def _print_segment(segment: Segment) -> None:
    """Print the segment at once: a program can wait for it."""
    print_json(
        {"file": str(segment.path), "first_cursor": segment.first, "last_cursor": segment.last}
    )
    sys.stdout.flush()


def _with_advice(failure: CommandFailed) -> CommandFailed:
    """Return the failure with the command that continues."""
    if failure.status == USER_ERROR:
        return failure
    command = shlex.join(["gleanery", *sys.argv[1:]])
    return CommandFailed(
        join_sentences(str(failure), f"To continue, run: {command}"), failure.status
    )


class _Position(Struct):
    cursor: int


class Pull:
    """Writes the changes after the stored position into segments."""

    def __init__(
        self,
        client: Client,
        group: str,
        view: View,
        segments: SegmentFolder,
        state: StateFile,
        progress: Progress,
        signals: StopSignals,
    ) -> None:
        self._client = client
        self._group = group
        self._view = view
        self._segments = segments
        self._state = state
        self._progress = progress
        self._signals = signals
        self._has_state = False
        self._cursor = 0
        self._positions = Decoder(_Position)
        self._failures = 0  # of the service since the last success
        self._has_said_waiting = False

    def run(self, segment_bytes: int, follow: bool) -> Iterator[Segment]:
        """Iterate over the segments as they are complete. It ends when it has all changes."""
        self._cursor = self._read_state()
        if self._cursor == 0 and self._view == "full" and not follow:
            with self._signals.allowed():
                self._progress.total = self._client.group(self._group).outputs
        while True:
            try:
                yield from self._write_segments(segment_bytes)
                if not follow:
                    return
                self._wait_for_change()
            except CursorExpired:
                if self._cursor == 0:
                    raise
                self._start_again()
            except ClientError as error:
                if not (follow and is_temporary(error)):
                    raise
                self._wait_for_service(error)

    def _read_state(self) -> int:
        try:
            cursor = self._state.read()
        except InvalidState as error:
            advice = "choose another folder, or another file with --state"
            message = str(error).replace("use another file", advice)
            raise UserError(re.sub(r"\bof view=(?=\w+)", "of --view ", message)) from None
        self._has_state = cursor is not None
        if cursor is None and self._segments.segments():
            raise UserError(
                f"{self._segments.folder} has files of this group but no position: give its file "
                "with --state, or choose another folder"
            )
        return self._segments.end_of(cursor or 0)

    def _write_segments(self, segment_bytes: int) -> Iterator[Segment]:
        """Write the changes so far. After a failure, the changes before it are kept."""
        pages = self._client.changes(self._group, cursor=self._cursor, view=self._view).raw_pages()
        failure: BaseException | None = None
        is_complete = False
        while not is_complete and failure is None:
            with self._segments.write(self._cursor) as writer:
                try:
                    is_complete = self._fill(writer, pages, segment_bytes)
                except (Stopped, ClientError) as error:
                    failure = error
                segment = self._finish(writer)
            if segment is not None:
                yield segment
        if failure is not None:
            raise failure

    def _fill(self, writer: SegmentWriter, pages: Iterator[list[Raw]], segment_bytes: int) -> bool:
        """Write pages until the segment is large enough. Return True after the last one."""
        while writer.bytes < segment_bytes:
            with self._signals.allowed():
                page = next(pages, None)
            if page is None:
                return True
            with self._segments.named_errors():
                size = writer.write(page, self._positions.decode(page[-1]).cursor)
            self._progress.advance(len(page), size)
        return False

    def _finish(self, writer: SegmentWriter) -> Segment | None:
        """Complete the segment, then store the position after it."""
        with self._segments.named_errors():
            if not self._has_state:  # a segment without a state is not of this pull
                self._state.write(self._cursor)
                self._has_state = True
            segment = writer.finish()
            if segment is not None:
                self._cursor = segment.last
                self._state.write(segment.last)
        return segment

    def _wait_for_change(self) -> None:
        self._failures = 0
        self._progress.pause()
        if not self._has_said_waiting:
            self._has_said_waiting = True
            self._progress.note(
                f"All changes are in {self._segments.folder}. Waiting for new ones; Ctrl-C ends."
            )
        with self._signals.allowed():
            next(
                self._client.changes(
                    self._group, cursor=self._cursor, page_size=1, follow=True, view=self._view
                ).pages()
            )
            time.sleep(_GATHER_SECONDS)

    def _wait_for_service(self, error: ClientError) -> None:
        """Wait before the next attempt, and say so once."""
        if self._failures == 0:
            self._has_said_waiting = False
            self._progress.note(
                join_sentences(str(error), "The service is unavailable: waiting for it.")
            )
        with self._signals.allowed():
            time.sleep(backoff(self._failures))
        self._failures += 1

    def _start_again(self) -> None:
        """Put the old segments aside: they may hold outputs that have been deleted since."""
        moved = self._segments.move_away()
        self._cursor = 0
        self._state.write(0)
        old = "" if moved is None else f" The old files are in {moved}."
        self._progress.note(
            f"The position is too old, so the pull starts again.{old} Delete what you have loaded "
            "from old files, then load the new ones."
        )
