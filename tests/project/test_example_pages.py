"""Every page with an example is run by a test of ``make examples``, or has a reason why not."""

from __future__ import annotations

import re
from pathlib import Path

from tests.project import test_examples

ROOT = Path(__file__).parent.parent.parent
_HAS_EXAMPLE = re.compile(r"^```(console|python|sh|sql)$", re.M)
_HOW_TO = "docs/how-to"

RUN_BY = {
    "docs/tutorial-shop.md": "tests/project/test_shop_tutorial.py",
    f"{_HOW_TO}/analyse-in-a-notebook.md": "tests/integrations/test_notebooks.py",
    f"{_HOW_TO}/call-the-api-from-a-web-page.md": "tests/api/test_cross_origin.py",
    f"{_HOW_TO}/keep-a-copy-of-a-group.md": "tests/cli/data/test_pull.py",
    f"{_HOW_TO}/know-when-a-scraper-breaks.md": "tests/project/test_monitors_guide.py",
    f"{_HOW_TO}/scale-out.md": "tests/project/test_guides.py",
    f"{_HOW_TO}/schedule-with-airflow.md": "tests/integrations/test_schedulers.py",
    f"{_HOW_TO}/schedule-with-cron.md": "tests/integrations/test_schedulers.py",
    f"{_HOW_TO}/schedule-with-dagster.md": "tests/integrations/test_schedulers.py",
    f"{_HOW_TO}/use-a-session-in-a-tool.md": "tests/slow/test_sessions_in_tools.py",
}
"""Tests that run the examples of a page, beside ``test_examples.py``.

Of the pages about schedulers, they run the crontab line, the files in examples/ and the commands
with the example shop, but not those under "Install it". Of the page about copies, they run the
query of DuckDB only.
"""

NOT_RUN = {
    "docs/README.md": "it installs Gleanery; tests/project/test_base_install.py does that",
    "docs/command-line.md": "its commands name a service and tokens that do not exist",
    "docs/fuzzing.md": "make fuzz takes an hour",
    f"{_HOW_TO}/export-to-parquet-and-csv.md": "not yet: it needs a bucket",
    f"{_HOW_TO}/follow-the-audit-log.md": "it shows entries of one day",
    f"{_HOW_TO}/see-how-an-output-changed.md": "its ids and dates are those of one output",
    f"{_HOW_TO}/see-how-well-fields-are-filled.md": "its table needs runs of several days",
    f"{_HOW_TO}/use-the-console.md": "its command prints a link that is used once",
}


def pages() -> set[str]:
    """Pages with commands or code. tests/project/test_guides.py runs those of operators."""
    found = [ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("docs/how-to/*.md")]
    return {str(page.relative_to(ROOT)) for page in found if _HAS_EXAMPLE.search(page.read_text())}


def test_every_page_with_an_example_is_run_or_has_a_reason() -> None:
    listed = set(test_examples.PAGES)
    assert pages() == listed | RUN_BY.keys() | NOT_RUN.keys()
    assert not listed & NOT_RUN.keys()
    assert not RUN_BY.keys() & (listed | NOT_RUN.keys())


def test_make_examples_runs_these_tests() -> None:
    recipe = (ROOT / "Makefile").read_text().split("EXAMPLE_TESTS :=")[1].split("examples:")[0]
    for test in RUN_BY.values():
        assert (ROOT / test).exists()
        assert test in recipe or "/slow/" in test, test


def test_the_code_on_a_page_is_that_of_the_example() -> None:
    """The pages about schedulers and webhooks show parts of files in examples/."""
    for page, file in (
        ("schedule-with-airflow.md", "airflow_dag.py"),
        ("schedule-with-dagster.md", "dagster_definitions.py"),
        ("schedule-with-cron.md", "daily.sh"),
        ("react-to-changes.md", "webhook_receiver.py"),
    ):
        text = (ROOT / _HOW_TO / page).read_text()
        [shown] = re.findall(r"^```(?:python|sh)\n(.*?)^```", text, re.M | re.S)
        assert shown in (ROOT / "examples" / file).read_text(), page
