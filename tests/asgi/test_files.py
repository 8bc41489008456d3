"""The tests of files, through the ASGI adapter."""

from tests.api.test_files import *  # noqa: F403
