"""The tests of local storage, through the ASGI adapter."""

from tests.api.test_local_storage import *  # noqa: F403
