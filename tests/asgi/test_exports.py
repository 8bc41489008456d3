"""Tests of exports, through the ASGI adapter."""

from tests.api.test_export_links import *  # noqa: F403
from tests.api.test_exports import (  # noqa: F401
    test_a_client_of_http_1_0_is_told_to_use_http_1_1,
    test_a_group_without_outputs_is_an_empty_export,
    test_an_export_has_the_outputs_of_all_pages,
    test_an_output_that_changes_during_an_export_is_in_it_once,
    test_errors_come_before_the_export,
    test_head_describes_an_export,
    test_outputs_of_any_size_are_exported,
)
