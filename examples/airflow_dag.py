"""Airflow: scrape the shop each day, check its alerts, and copy the changes.

The scraper has its own virtual environment, so its packages and those of Airflow do not conflict.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

# The Airflow variables scraper_folder, gleanery_url and gleanery_token. Airflow masks the last one
# in logs, because its name contains "token".
options = {
    "cwd": "{{ var.value.scraper_folder }}",
    "env": {
        "GLEANERY_URL": "{{ var.value.gleanery_url }}",
        "GLEANERY_TOKEN": "{{ var.value.gleanery_token }}",
    },
    "append_env": True,
    "retries": 2,  # after 5 minutes each: core.default_task_retry_delay
    "execution_timeout": timedelta(hours=3),
}

with DAG(
    "shop",
    schedule="0 4 * * *",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,  # a site shows only today's prices: do not scrape for the days before
    max_active_runs=1,  # a run waits until the one before has ended
    default_args=options,
):
    # Scrapy ends with 0 although it stored nothing, so a run counts only after its check.
    scrape = BashOperator(
        task_id="scrape",
        bash_command="venv/bin/scrapy crawl shop -s GLEANERY_GROUP=daily-prices && "
        "venv/bin/gleanery check daily-prices shop",
    )
    sync = BashOperator(
        task_id="sync", bash_command="venv/bin/gleanery pull daily-prices -o copy --quiet"
    )
    scrape >> sync
