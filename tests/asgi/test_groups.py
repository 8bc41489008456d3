"""The tests of groups, through the ASGI adapter."""

from tests.api.test_groups import *  # noqa: F403
