"""cron's command, Airflow and Dagster run the scraper and the copy of the how-to pages.

Airflow and Dagster are in an environment of their own, which ``make examples`` makes.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from examples.shop import Shop, running_shop
from tests.support.examples import examples
from tests.support.process import free_port
from tests.support.scrapy_project import create_project, project_environment
from tests.support.service import Service
from tests.support.waiting import wait_until

# The schedulers do not depend on the engine.
pytestmark = [
    pytest.mark.thorough,
    pytest.mark.parametrize("engine", ["sqlite"], indirect=True, scope="session"),
]

ROOT = Path(__file__).parent.parent.parent
HOW_TO = ROOT / "docs" / "how-to"
SCHEDULERS = Path(os.environ.get("GLEANERY_SCHEDULERS", ROOT / ".venv-schedulers")) / "bin"
needs_schedulers = pytest.mark.skipif(
    not (SCHEDULERS / "airflow").exists(), reason="needs the tools of make examples"
)
needs_flock = pytest.mark.skipif(shutil.which("flock") is None, reason="flock is not installed")


class Project(NamedTuple):
    """The scraper's folder, its shop, and its environment with the service that it stores in."""

    folder: Path
    shop: Shop
    environment: dict[str, str]

    def run(
        self, *command: str, expected: int | None = 0, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment | variables,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert expected is None or done.returncode == expected, done.stdout + done.stderr
        return done

    def copied(self) -> list[str]:
        """Lines of the copy, one for each change."""
        files = sorted((self.folder / "copy").glob("*.jsonl"))
        return [line for file in files for line in file.read_text().splitlines()]


@pytest.fixture
def project(service: Service, tmp_path: Path) -> Iterator[Project]:
    """The project, with a group that has the rules of the page about cron."""
    token = service.token()
    with service.client(token) as client:
        assert client.put("/v1/groups/daily-prices", json={}).status_code == 200
    folder = create_project(tmp_path / "scraper")
    _, section = (HOW_TO / "schedule-with-cron.md").read_text().split("## Check a run\n")
    with running_shop() as shop:
        made = Project(folder, shop, project_environment(shop.url, service.url, token))
        for example in examples(section.partition("\n## ")[0]):
            made.run("sh", "-c", f"PATH=venv/bin:$PATH; {example.command}")
        yield made


def broken(project: Project) -> dict[str, str]:
    """Variables with which the scraper finds no shop, so it ends with 0 and stores nothing."""
    return {"SHOP_URL": f"http://127.0.0.1:{free_port()}"}


# --- cron -----------------------------------------------------------------------------------------


def cron_command(project: Project) -> str:
    """The command of the crontab line, for the project's folder."""
    [line] = re.findall(
        r"^0 4 \* \* \* (.+)$", (HOW_TO / "schedule-with-cron.md").read_text(), re.M
    )
    assert "%" not in line  # cron would end the command there
    return str(line).replace("/srv/scraper", str(project.folder))


@needs_flock
def test_the_cron_job_scrapes_and_copies_without_a_message(project: Project) -> None:
    done = project.run("sh", "-c", cron_command(project))
    assert (done.stdout, done.stderr) == ("", "")
    assert len(project.copied()) == 300
    project.shop.day = 2
    project.run("sh", "-c", cron_command(project))
    assert len(project.copied()) == 312


@needs_flock
def test_a_failed_cron_job_is_tried_again_and_reported(project: Project) -> None:
    done = project.run("sh", "-c", cron_command(project), **broken(project))
    assert "failed three times: scrape" in done.stdout
    assert "3 runs of shop failed in a row." in done.stdout
    log = (project.folder / "daily.log").read_text()
    assert log.count("attempt") == 3
    assert log.count("The last run of shop failed.") == 1
    assert not (project.folder / "copy").exists()


@needs_flock
def test_a_cron_job_that_stores_nothing_fails_also_after_a_good_one(project: Project) -> None:
    project.run("sh", "-c", cron_command(project))
    done = project.run("sh", "-c", cron_command(project), **broken(project))
    assert "3 runs of shop failed in a row." in done.stdout
    project.run("sh", "-c", cron_command(project))


@needs_flock
def test_two_cron_jobs_do_not_overlap(project: Project) -> None:
    lock = str(project.folder / "daily.lock")
    done = project.run("flock", lock, "sh", "-c", cron_command(project))
    assert "with status 75" in done.stdout
    assert not (project.folder / "copy").exists()


def test_a_script_that_is_stopped_stops_the_scraper(project: Project) -> None:
    """As with Ctrl-C, the signal goes to the process group of the script."""
    scraper, started = project.folder / "venv/bin/scrapy", project.folder / "started"
    scraper.write_text(
        f"#!/bin/sh\necho $$ > {started}.new\nmv {started}.new {started}\nexec sleep 60"
    )
    script = subprocess.Popen(
        ["sh", "daily.sh"], cwd=project.folder, env=project.environment, start_new_session=True
    )
    wait_until(started.exists, 60)
    os.killpg(script.pid, signal.SIGTERM)
    assert script.wait(60) != 0
    wait_until(lambda: not is_running(int(started.read_text())), 30)


def is_running(pid: int) -> bool:
    """A process whose parent has not read its status yet has ended, too."""
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


@pytest.mark.extended
def test_the_page_says_how_to_try_it_with_the_example_shop(project: Project) -> None:
    for name in ("scrapy.cfg", "shop_settings.py", "shop_spider.py"):
        (project.folder / name).unlink()
    clone = project.folder.parent / "clone" / "examples"
    clone.mkdir(parents=True)
    spider = (ROOT / "examples" / "scrapy_shop.py").read_text()
    (clone / "scrapy_shop.py").write_text(spider.replace("http://127.0.0.1:8080", project.shop.url))
    page = (HOW_TO / "schedule-with-cron.md").read_text()
    _, text = page.split("## Try it with the example shop")
    commands = [example.command for example in examples(text.partition("\n## ")[0])]
    script = "\n".join(commands).replace("/srv/scraper", str(project.folder))
    project.run("sh", "-ec", script, CLONE=str(clone.parent))
    assert len(project.copied()) == 300


# --- Airflow --------------------------------------------------------------------------------------


@pytest.fixture
def airflow(project: Project, tmp_path: Path) -> Project:
    """The project with an Airflow that has the example as its only DAG."""
    home = tmp_path / "airflow"
    (home / "dags").mkdir(parents=True)
    shutil.copy(ROOT / "examples" / "airflow_dag.py", home / "dags")
    given = project.environment
    project.environment.update(
        AIRFLOW_HOME=str(home),
        AIRFLOW__CORE__LOAD_EXAMPLES="false",
        AIRFLOW__CORE__DEFAULT_TASK_RETRY_DELAY="1",
        AIRFLOW_VAR_SCRAPER_FOLDER=str(project.folder),
        AIRFLOW_VAR_GLEANERY_URL=given.pop("GLEANERY_URL"),
        AIRFLOW_VAR_GLEANERY_TOKEN=given.pop("GLEANERY_TOKEN"),
    )
    project.run(str(SCHEDULERS / "airflow"), "db", "migrate")
    return project


def run_dag(airflow: Project, expected: int | None = 0, **variables: str) -> str:
    command = (str(SCHEDULERS / "airflow"), "dags", "test", "shop")
    done = airflow.run(*command, expected=expected, **variables)
    return done.stdout + done.stderr


@needs_schedulers
def test_airflow_scrapes_and_copies(airflow: Project) -> None:
    log = run_dag(airflow)
    assert "state=success" in log
    assert airflow.environment["AIRFLOW_VAR_GLEANERY_TOKEN"] not in log
    assert len(airflow.copied()) == 300


@needs_schedulers
def test_airflow_tries_again_and_fails(airflow: Project) -> None:
    log = run_dag(airflow, expected=None, **broken(airflow))
    assert log.count("Command exited with return code 1") == 3
    assert "state=failed" in log
    assert not (airflow.folder / "copy").exists()


# --- Dagster --------------------------------------------------------------------------------------

_RUN = """
from datetime import timedelta
import dagster as dg
import dagster_definitions
from dagster_definitions import daily, definitions, job

with dg.instance_for_test() as instance:
    resolved = definitions.resolve_job_def("shop")
    done = resolved.execute_in_process(instance=instance, raise_on_error=False)
    steps = [event.event_type_value for event in done.all_events]
    print("success" if done.success else "failure", steps.count("STEP_RESTARTED"))
    repository = definitions.get_repository_def()
    with dg.build_schedule_context(instance, repository_def=repository) as context:
        print(type(daily.evaluate_tick(context).run_requests[0]).__name__)
        instance.create_run_for_job(resolved, status=dg.DagsterRunStatus.STARTED)
        print(daily.evaluate_tick(context).skip_message)
        dagster_definitions.LONGEST_RUN = timedelta(0)
        print(type(daily.evaluate_tick(context).run_requests[0]).__name__)
"""


def run_dagster(project: Project, **variables: str) -> list[str]:
    path = f"{ROOT / 'examples'}:{os.environ.get('PYTHONPATH', '')}"
    variables |= {"SCRAPER_FOLDER": str(project.folder), "PYTHONPATH": path}
    done = project.run(str(SCHEDULERS / "python"), "-c", _RUN, **variables)
    return [line for line in done.stdout.splitlines() if not line.startswith("20")]


@needs_schedulers
def test_dagster_scrapes_and_copies_one_run_at_a_time(project: Project) -> None:
    *_, result, requested, skipped, requested_later = run_dagster(project)
    assert (result, requested) == ("success 0", "RunRequest")
    assert skipped == "The run before has not ended"
    assert requested_later == "RunRequest"  # a run that was lost does not stop the schedule
    assert len(project.copied()) == 300


@needs_schedulers
def test_dagster_tries_again_and_fails(project: Project) -> None:
    *_, result, _, _, _ = run_dagster(project, **broken(project))
    assert result == "failure 2"
    assert not (project.folder / "copy").exists()
