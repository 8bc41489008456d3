"""The OpenAPI document, the reference pages, and a fuzzer that tests the API against them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gleanery.common.settings import Settings
from gleanery.service.api import openapi, reference
from gleanery.service.application import OPERATIONS, RESOURCES
from tests.support.service import Service

ROOT = Path(__file__).parent.parent.parent
SEED = "20261115"  # of the examples in `make test`
DOCUMENTED = [operation for operation in OPERATIONS if operation.path != "/"]  # it only redirects
FIXED = {
    ("POST", "/v1/cookies"),
    ("GET", "/v1/cookies"),
    ("POST", "/v1/local-storage"),
    ("GET", "/v1/local-storage"),
    ("GET", "/v1/reviews/{group_id}"),
    ("GET", "/v1/outputs/{group_id}"),
}


@pytest.fixture(scope="module")
def document(service: Service) -> openapi.Document:
    with service.stranger() as nobody:
        answer = nobody.get("/openapi.json")
        assert answer.headers["content-type"] == "application/json"
        found: openapi.Document = answer.json()
        return found


def members(document: openapi.Document, name: str) -> dict[str, openapi.Document]:
    found: dict[str, openapi.Document] = document["components"]["schemas"][name]["properties"]
    return found


def test_the_openapi_document_lists_exactly_the_operations(document: openapi.Document) -> None:
    rows = {(m.upper(), path) for path, methods in document["paths"].items() for m in methods}
    assert rows == {(operation.method, operation.path) for operation in DOCUMENTED}
    assert rows >= FIXED
    assert document["openapi"] == "3.1.0"


def test_every_status_is_declared(document: openapi.Document) -> None:
    rows = {
        operation.name: set(
            document["paths"][operation.path][operation.method.lower()]["responses"]
        )
        for operation in DOCUMENTED
    }
    always = {"200", "431", "500"}
    assert rows["set_cookies"] == always | {"401", "403", "412", "413", "415", "422", "429", "503"}
    assert rows["get_outputs"] == always | {"401", "403", "404", "422", "429", "503"}
    assert rows["healthz"] == always


def test_the_shapes_are_those_of_the_contract(document: openapi.Document) -> None:
    assert list(members(document, "CookieOut")) == (
        ["name", "value", "url", "domain", "path", "expires", "http_only", "secure"]
    )
    assert members(document, "CookieOut")["expires"]["type"] == "integer"
    assert members(document, "LocalStorageOut")["group_id"]["type"] == "integer"
    assert set(members(document, "OutputPage")) == {"metadata", "items"}
    assert document["components"]["schemas"]["OutputPage"]["required"] == ["metadata", "items"]
    assert len(members(document, "OutputOut")) == 13
    assert len(members(document, "FileOut")) == 11
    query = {
        parameter["name"]: parameter["schema"]
        for parameter in document["paths"]["/v1/outputs/{group_id}"]["get"]["parameters"]
    }
    fixed = {"group_id", "job_id", "created_after", "url", "limit", "cursor", "country", "region"}
    assert query.keys() == fixed | {"approved", "view", "missing"}
    limit, cursor = query["limit"], query["cursor"]
    assert (limit["default"], limit["minimum"], limit["maximum"]) == (10, 1, 1000)
    assert (cursor["default"], cursor["minimum"]) == (0, 0)


def test_the_reference_in_the_docs_is_current() -> None:
    written = (ROOT / "docs" / "reference.md").read_text()
    assert written == reference.markdown(openapi.document(RESOURCES, Settings()))


# OpenAPI cannot say that parameters belong together, and that they change the meaning of the body.
# Nor can it say which outputs a job has, which positions a group has, which URLs are targets, and
# which members belong to which kind of rule.
BELONG_TOGETHER = """
[[operations]]
include-name = "POST /v1/outputs/{group_id}"
checks.positive_data_acceptance.expected-statuses = ["2xx", "401", "403", "404", "409", "422"]

[[operations]]
include-name = "POST /v1/reviews/{group_id}"
checks.positive_data_acceptance.expected-statuses = ["2xx", "4xx"]

[[operations]]
include-name = "POST /v1/webhooks"
checks.positive_data_acceptance.expected-statuses = ["2xx", "4xx"]

[[operations]]
include-name = "PUT /v1/webhooks/{webhook_id}"
checks.positive_data_acceptance.expected-statuses = ["2xx", "4xx"]

[[operations]]
include-name = "PUT /v1/monitors/{group_id}"
checks.positive_data_acceptance.expected-statuses = ["2xx", "4xx"]

[[operations]]
include-name = "GET /v1/alerts"
checks.positive_data_acceptance.expected-statuses = ["2xx", "4xx"]

[[operations]]
include-name = "POST /v1/alerts/{alert_id}"
checks.positive_data_acceptance.expected-statuses = ["2xx", "4xx"]
"""


@pytest.mark.thorough
def test_the_contract_holds_under_schemathesis(service: Service, tmp_path: Path) -> None:
    """All checks, valid and invalid data, every operation."""
    assert _run_schemathesis(service, tmp_path, "examples,fuzzing") == _TESTED


@pytest.mark.extended
def test_the_contract_holds_under_schemathesis_in_all_phases(
    service: Service, tmp_path: Path
) -> None:
    """``make fuzz`` sets the number of examples, which are then different ones each time."""
    phases = "examples,coverage,fuzzing,stateful"
    examples = os.environ.get("GLEANERY_FUZZ_EXAMPLES")
    assert _run_schemathesis(service, tmp_path, phases, examples or "20", not examples) == _TESTED


_TESTED = len(DOCUMENTED) - 1  # except the document itself


def _run_schemathesis(
    service: Service, folder: Path, phases: str, examples: str = "4", has_seed: bool = True
) -> int:
    """Runs schemathesis without a finding, and returns the number of tested operations."""
    chosen = ("--max-examples", examples, *(("--seed", SEED) if has_seed else ()))
    path = os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))
    (folder / "schemathesis.toml").write_text(BELONG_TOGETHER)
    run = subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli", "run", f"{service.url}/openapi.json"),
            *("--header", f"Authorization: Bearer {service.token()}"),
            *("--checks", "all", "--mode", "all", *chosen),
            *("--phases", phases),
            # A busy machine is not a finding.
            *("--request-timeout", "120", "--suppress-health-check", "too_slow"),
        ],
        capture_output=True,
        text=True,
        cwd=folder,
        env=os.environ
        | {"SCHEMATHESIS_HOOKS": "tests.support.schemathesis_hooks", "PYTHONPATH": path},
        check=False,
    )
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]
    print(run.stdout[-2000:])
    tested = re.search(r"Tested: (\d+)", run.stdout)
    assert tested is not None
    return int(tested[1])
