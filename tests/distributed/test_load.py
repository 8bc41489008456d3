"""Nodes, poolers, replicas and Citus under the same load, while parts of them are killed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from faults import deployments, programs, scale_out, webhooks
from faults.environment import Environment, open_environment

pytestmark = pytest.mark.extended

NEEDS = {
    "pooler": pytest.mark.skipif(not programs.pgbouncer(), reason=programs.NEEDS_PGBOUNCER),
    "citus": pytest.mark.skipif(not programs.citus(), reason=programs.NEEDS_CITUS),
}
DEPLOYMENTS = [pytest.param(name, marks=NEEDS.get(name, ())) for name in deployments.ALL]
WITH_POOLER = pytest.param("webhooks-pooler", marks=NEEDS["pooler"])


@pytest.fixture
def made() -> Iterator[Environment]:
    with open_environment() as clean:
        yield clean


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_every_reader_is_exact_while_parts_are_killed(made: Environment, name: str) -> None:
    result = scale_out.kill_parts(made, deployments.ALL[name], rounds=4)
    print(result.outcome)
    assert result.holds, result.outcome


@pytest.mark.parametrize("name", ["webhooks-nodes", WITH_POOLER])
def test_events_reach_every_endpoint_that_responds(made: Environment, name: str) -> None:
    result = webhooks.deliver(made, deployments.OF_WEBHOOKS[name], rounds=4, causes=20)
    print(result.outcome)
    assert result.holds, result.outcome


def test_a_reader_that_misses_a_change_is_noticed(made: Environment) -> None:
    """Tests the check of the test above."""
    result = scale_out.kill_parts(made, deployments.nodes, rounds=0, damaged=True)
    assert not result.holds
    assert " 0 missing, extra or wrong; 0 readers" not in result.outcome
