"""The tests of compressed request bodies, through the ASGI adapter."""

from tests.api.test_compressed_bodies import *  # noqa: F403
