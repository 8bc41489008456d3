"""The tests of changes, through the ASGI adapter."""

from tests.api.test_changes import *  # noqa: F403
