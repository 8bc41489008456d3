"""The tests of compressed responses, through the ASGI adapter."""

from tests.api.test_compressed_responses import *  # noqa: F403
