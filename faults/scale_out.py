"""Scale-out faults: parts of a deployment are killed under the same load of several organizations.

The load is the same for every deployment. The organizations have groups, jobs and URLs of the same
names, so that a row of another organization would be noticed.
"""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from faults.deployments import Deployment
from faults.environment import Environment
from faults.organizations import Organization
from faults.results import Result
from faults.review_load import Findings, Size, Workload, run_workload
from faults.workload import vary_timing

Kill = tuple[str, Callable[[], None]]
EXACT = (
    "with several servers, every reader of the feed, of the approved view and of pages ends with "
    "the exact state of its organization"
)
_ORGANIZATIONS = 4
_SIZE = Size(writers=2, reviewers=1, view_readers=1, feed_readers=1, page_readers=1)
_KILLS_PER_GROUP = 5
_REVIEWS_AFTER_KILL = 3  # of each organization
_TIMEOUT = 600.0  # seconds; Citus ends interrupted transactions once in a minute


def kill_parts(
    environment: Environment,
    deploy: Callable[[Environment], Deployment],
    rounds: int,
    damaged: bool = False,
) -> Result:
    """Kill the parts of a deployment in turn. If ``damaged``, readers lose what they have."""
    deployment = deploy(environment)
    organizations = _create_organizations(deployment)
    findings, killed = Findings(), Counter[str]()
    turns = itertools.cycle(deployment.kills.items())
    for first in range(0, max(rounds, 1), _KILLS_PER_GROUP):
        count = min(_KILLS_PER_GROUP, rounds - first)
        with _run_workloads(organizations, f"group-{first}") as workloads:
            killed.update(_kill(workloads, itertools.islice(turns, count)))
            _wait_for_reviews(workloads)
            deployment.check()
        for workload in workloads:
            if damaged:
                workload.damage()
            workload.check(findings)
        print(f"{sum(killed.values())} kills: {findings}", file=sys.stderr, flush=True)
    findings.internal_errors = set().union(*(node.internal_errors() for node in deployment.nodes))
    findings.integrity_errors = deployment.integrity_errors()
    return Result(EXACT, _describe(deployment, rounds, killed), str(findings), findings.is_ok)


def _kill(workloads: Sequence[Workload], kills: Iterable[Kill]) -> Iterator[str]:
    """Kill the parts during the load. Return their names."""
    for name, kill in kills:
        _wait_for_reviews(workloads)
        vary_timing()
        kill()
        yield name


def _describe(deployment: Deployment, rounds: int, killed: Counter[str]) -> str:
    parts = ", ".join(f"{count} × {name}" for name, count in killed.items())
    clients = sum(_SIZE)
    return (
        f"{deployment.title}: {rounds} × kill -9 ({parts}), while {_ORGANIZATIONS} organizations "
        f"with {clients} clients each write, delete, review and read"
    )


def _create_organizations(deployment: Deployment) -> list[Organization]:
    names = [f"organization-{number}" for number in range(_ORGANIZATIONS)]
    return [Organization(name, deployment.create_token(name), deployment.nodes) for name in names]


@contextmanager
def _run_workloads(organizations: Sequence[Organization], group: str) -> Iterator[list[Workload]]:
    """Run the load of each organization. The end of the context stops all."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(run_workload(organization, group, _SIZE))
            for organization in organizations
        ]


def _wait_for_reviews(workloads: Sequence[Workload]) -> None:
    """Wait until each organization has had some more reviews acknowledged."""
    for workload in workloads:
        workload.wait_for_reviews(_REVIEWS_AFTER_KILL, _TIMEOUT)
