"""The service with one commit per write: the baseline for the measurement of group commit."""

from __future__ import annotations

from gleanery.cli import main
from gleanery.service.storage.sqlite import writer

assert (
    writer._MAX_GROUP_COMMIT > 1
)  # fails if the constant has a new name: the next line would do nothing
writer._MAX_GROUP_COMMIT = 1
main()
