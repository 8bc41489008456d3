"""The tests of outputs, through the ASGI adapter."""

from tests.api.test_outputs import *  # noqa: F403
