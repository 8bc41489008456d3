"""The tests of reviews, through the ASGI adapter."""

from tests.api.test_reviews import *  # noqa: F403
