"""Dagster: scrape the shop each day, check its alerts, and copy the changes.

The scraper has its own virtual environment, so its packages and those of Dagster do not conflict.
GLEANERY_URL, GLEANERY_TOKEN and SCRAPER_FOLDER are environment variables of the code location.
"""

import os
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import dagster as dg

RETRIES = dg.RetryPolicy(max_retries=2, delay=float(os.environ.get("RETRY_SECONDS", "300")))
ENDED = {
    dg.DagsterRunStatus.SUCCESS,
    dg.DagsterRunStatus.FAILURE,
    dg.DagsterRunStatus.CANCELED,
}
LONGEST_RUN = timedelta(hours=20)  # a run that has not ended then was lost, as in a restart


def run(command: str) -> None:
    """Run a command of the scraper's environment. Dagster shows its output with the run."""
    program, *arguments = command.split()
    folder = os.environ["SCRAPER_FOLDER"]
    full = [f"{folder}/venv/bin/{program}", *arguments]
    subprocess.run(full, cwd=folder, check=True, timeout=3 * 3600)


@dg.asset(retry_policy=RETRIES)
def daily_prices() -> None:
    """The outputs of the group daily-prices."""
    run("scrapy crawl shop -s GLEANERY_GROUP=daily-prices")
    # Scrapy ends with 0 although it stored nothing, so a run counts only after its check.
    run("gleanery check daily-prices shop")


@dg.asset(deps=[daily_prices], retry_policy=RETRIES)
def daily_prices_copy() -> None:
    """Files with the changes of the group."""
    run("gleanery pull daily-prices -o copy --quiet")


job = dg.define_asset_job("shop", [daily_prices, daily_prices_copy])


@dg.schedule(job=job, cron_schedule="0 4 * * *", execution_timezone="UTC")
def daily(context: dg.ScheduleEvaluationContext) -> Iterator[dg.RunRequest | dg.SkipReason]:
    """Start a run each day at 4, unless the one before has not ended."""
    unfinished = [status for status in dg.DagsterRunStatus if status not in ENDED]
    earliest = datetime.now(UTC) - LONGEST_RUN
    filters = dg.RunsFilter(job_name=job.name, statuses=unfinished, created_after=earliest)
    if context.instance.get_runs_count(filters):
        yield dg.SkipReason("The run before has not ended")
    else:
        yield dg.RunRequest()


definitions = dg.Definitions(
    assets=[daily_prices, daily_prices_copy], jobs=[job], schedules=[daily]
)
