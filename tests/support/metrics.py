"""The metrics of a running service."""

from __future__ import annotations

from tests.support.service import Client
from tests.support.waiting import wait_until


def fresh_metrics(client: Client) -> str:
    """Metrics that include every request that has ended before this call.

    The service renders the text at most once per second. Each scrape is a request too, so the text
    after the next rendering differs.
    """
    texts = [_scrape(client)]
    wait_until(lambda: texts.append(_scrape(client)) or texts[-1] != texts[0])
    return texts[-1]


def _scrape(client: Client) -> str:
    answer = client.get("/metrics")
    assert answer.status_code == 200, answer.text
    return answer.text
