"""The service with a commit for each write: what sharing commits is measured by."""

from __future__ import annotations

from gleanery.cli import main
from gleanery.store import sqlite_writer

sqlite_writer._TOGETHER = 1
main()
