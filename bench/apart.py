"""The service with a commit for each write: what sharing commits is measured by."""

from __future__ import annotations

from gleanery.cli import main
from gleanery.storage.sqlite import writer

writer._TOGETHER = 1
main()
