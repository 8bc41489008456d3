"""Checks of the alert rules and of the Grafana dashboard in docs/operations."""

from __future__ import annotations

import json
import re
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.support.guides import GUIDES, Machine, require_programs
from tests.support.postgres_server import PostgresServer
from tests.support.process import Running
from tests.support.service import SECRET_KEY

ALERTS = GUIDES / "alerts.yml"


@pytest.mark.thorough
def test_the_metrics_of_dashboard_and_alerts_exist(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    """The metrics exist in a service with all parts: PostgreSQL, a replica, TLS, Redis."""
    require_programs("openssl")
    machine = Machine(tmp_path / "machine")
    url = f"https://127.0.0.1:{machine.ports[443]}"
    trusted = ssl.create_default_context(cafile=machine.certificate)
    trusted.check_hostname = False
    tls = ("--tls-cert", str(machine.certificate), "--tls-key", str(machine.key))
    limits = ("--rate-limit", "600/minute", "--rate-limit-storage", "redis://127.0.0.1:1")
    where = ("--data", str(tmp_path / "data"), "--database", postgres.new_database())
    replica = ("--replica", "postgresql://127.0.0.1:1/away")
    jobs = ("--metrics-groups", "1")
    options = (*where, *replica, *tls, *limits, *jobs, "--port", str(machine.ports[443]))
    with Running("serve", *options, GLEANERY_SECRET_KEY=SECRET_KEY) as running:
        running.wait_ready(url, trusted)
        text = httpx2.get(f"{url}/metrics", verify=trusted).text
        running.stop()
    served = set(re.findall(r"^# TYPE (\S+)", text, re.M))
    used = metric_names("\n".join((*dashboard_queries(), ALERTS.read_text())))
    assert used - served == {"up"}


def dashboard_queries() -> Iterator[str]:
    """PromQL of the dashboard."""
    dashboard = json.loads((GUIDES / "grafana-dashboard.json").read_text())
    yield from (target["expr"] for panel in dashboard["panels"] for target in panel["targets"])
    yield from (variable["query"]["query"] for variable in dashboard["templating"]["list"])


def metric_names(text: str) -> set[str]:
    """Names before a selector, and all names of ours; a histogram without its suffix."""
    pairs = set(re.findall(r"(\w+)\{|\b((?:gleanery|process)_\w+)", text))
    histogram = re.compile(r"^(gleanery_(?:request|feed_lag)_seconds)_\w+$")
    return {histogram.sub(r"\1", max(pair)) for pair in pairs}


def test_prometheus_accepts_the_queries_of_the_dashboard(tmp_path: Path) -> None:
    require_programs("promtool")
    rules = [
        {"record": f"panel:{number}", "expr": query.replace("$__rate_interval", "5m")}
        for number, query in enumerate(dashboard_queries())
        if "label_values" not in query
    ]
    file = tmp_path / "rules.json"  # JSON is YAML
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    promtool("check", "rules", file)


# Metrics of a healthy service, and of one for which every alert fires: start, growth per minute.
HEALTHY = {
    "up{}": "1+0x40",
    "gleanery_ready{}": "1+0x40",
    "gleanery_blob_store_failing{}": "0+0x40",
    'gleanery_request_seconds_count{operation="get_outputs",status="200"}': "0+60x40",
    'gleanery_request_seconds_bucket{operation="get_outputs",le="0.1"}': "0+60x40",
    'gleanery_request_seconds_bucket{operation="get_outputs",le="2.5"}': "0+60x40",
    'gleanery_request_seconds_bucket{operation="get_outputs",le="+Inf"}': "0+60x40",
    'gleanery_feed_lag_seconds_bucket{more="false",le="10.0"}': "0+60x40",
    'gleanery_feed_lag_seconds_bucket{more="false",le="900.0"}': "0+60x40",
    'gleanery_feed_lag_seconds_bucket{more="false",le="3600.0"}': "0+60x40",
    'gleanery_feed_lag_seconds_bucket{more="false",le="+Inf"}': "0+60x40",
    'gleanery_disk_free_bytes{folder="data"}': "1000000000000+0x40",
    "gleanery_connections_refused_total{}": "5+0x40",
    "gleanery_postgres_pool_requests_waiting{}": "0+0x40",
    "gleanery_replicas_configured{}": "2+0x40",
    "gleanery_replicas_usable{}": "2+0x40",
    "gleanery_webhook_oldest_due_seconds{}": "0+0x40",
    "gleanery_alerts_open{}": "0+0x40",
    "gleanery_worker_restarts_total{}": "1+0x40",
    "process_open_fds{}": "50+0x40",
    "process_max_fds{}": "100+0x40",
    "gleanery_tls_certificate_expiry_timestamp_seconds{}": "5000000+0x40",
    "gleanery_redis_fallback_active{}": "0+0x40",
    "gleanery_log_lines_dropped_total{}": "5+0x40",
}
BROKEN = HEALTHY | {
    "up{}": "0+0x40",
    "gleanery_ready{}": "0+0x40",
    "gleanery_blob_store_failing{}": "1+0x40",
    'gleanery_request_seconds_count{operation="get_outputs",status="500"}': "0+1x40",
    'gleanery_request_seconds_count{operation="get_outputs",status="503"}': "0+60x40",
    'gleanery_request_seconds_bucket{operation="get_outputs",le="0.1"}': "0+0x40",
    'gleanery_feed_lag_seconds_bucket{more="false",le="10.0"}': "0+0x40",
    'gleanery_feed_lag_seconds_bucket{more="false",le="900.0"}': "0+20x40",
    'gleanery_disk_free_bytes{folder="data"}': "1000000000+0x40",
    "gleanery_connections_refused_total{}": "0+1x40",
    "gleanery_postgres_pool_requests_waiting{}": "2+0x40",
    "gleanery_replicas_usable{}": "1+0x40",
    "gleanery_webhook_oldest_due_seconds{}": "300+60x40",
    "gleanery_alerts_open{}": "2+0x40",
    "gleanery_worker_restarts_total{}": "0+1x40",
    "process_open_fds{}": "95+0x40",
    "gleanery_tls_certificate_expiry_timestamp_seconds{}": "1000000+0x40",
    "gleanery_redis_fallback_active{}": "1+0x40",
    "gleanery_log_lines_dropped_total{}": "0+1x40",
}


@pytest.mark.parametrize("is_broken", [False, True])
def test_alerts_fire_if_something_is_wrong(is_broken: bool, tmp_path: Path) -> None:
    require_programs("promtool")
    series = BROKEN if is_broken else HEALTHY
    names = re.findall(r"- alert: (\w+)", ALERTS.read_text()) if is_broken else []
    test = {
        "interval": "1m",
        "input_series": [
            {"series": name.replace("{", '{job="gleanery",instance="a",'), "values": values}
            for name, values in series.items()
        ],
        "promql_expr_test": [
            {
                "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                "eval_time": "30m",
                "exp_samples": [{"labels": f'{{alertname="{one}"}}', "value": 1} for one in names],
            }
        ],
    }
    file = tmp_path / "test.json"  # JSON is YAML
    file.write_text(json.dumps({"rule_files": [str(ALERTS)], "tests": [test]}))
    promtool("test", "rules", file)


def promtool(*words: str | Path) -> None:
    done = subprocess.run(["promtool", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_alerts_lead_to_the_checklist() -> None:
    documented = re.findall(r"^\| `(Gleanery\w+)`", (GUIDES / "monitor.md").read_text(), re.M)
    assert documented == re.findall(r"- alert: (\w+)", ALERTS.read_text())
    sections = re.findall(r'checklist: "(.+)"', ALERTS.read_text())
    assert len(sections) == len(documented)
    headings = re.findall(r"^## (.+)", (GUIDES / "incident-checklist.md").read_text(), re.M)
    assert set(sections) <= set(headings)
