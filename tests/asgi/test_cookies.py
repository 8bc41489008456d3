"""The tests of cookies, through the ASGI adapter."""

from tests.api.test_cookies import *  # noqa: F403
