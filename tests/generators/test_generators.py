"""Generators and linters of other projects accept the OpenAPI document."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gleanery.common.settings import Settings
from gleanery.service.api import openapi
from gleanery.service.application import RESOURCES
from tests.support.generators import GENERATORS, NODE_MODULES, PYTHON_PROGRAMS
from tests.support.service import Client, Service

HERE = Path(__file__).parent
NDJSON = "application/x-ndjson"
TEXT = "text/plain"
QUIET = {"CI": "1", "REDOCLY_TELEMETRY": "off", "REDOCLY_SUPPRESS_UPDATE_NOTICE": "true"}
CALLS = """
import datetime
import json
import os
from io import BytesIO

from gleanery_client import AuthenticatedClient
from gleanery_client.api.cookies import get_cookies, set_cookies
from gleanery_client.api.exports import export_outputs
from gleanery_client.api.files import get_file, store_file
from gleanery_client.api.local_storage import get_local_storage, set_local_storage
from gleanery_client.api.outputs import get_outputs, store_outputs
from gleanery_client.api.reviews import add_review, get_latest_reviews
from gleanery_client.api.sessions import import_session, list_sessions
from gleanery_client.models import (
    CookieIn, FileIn, LocalStorageIn, OutputIn, OutputInData, ReviewIn, ReviewInStatus,
    StoreFileFilesBody,
)
from gleanery_client.types import File

client = AuthenticatedClient(
    base_url=os.environ["URL"], token=os.environ["TOKEN"], raise_on_unexpected_status=True
)
end = datetime.datetime(2030, 1, 1, tzinfo=datetime.timezone.utc)
host, group, text = "shop.example.com", "shop-prices", b"Coffee, 1 kg"
cookies = [CookieIn(host, "a", "b"), CookieIn(host, "c", "d", secure=True, expires=end)]
entry = LocalStorageIn(domain=host, key="currency", value="EUR", expires=end)
found = {}

found["set_cookies"] = set_cookies.sync(client=client, body=cookies).to_dict()
found["get_cookies"] = [cookie.expires for cookie in get_cookies.sync(client=client, domain=host)]
found["set_local_storage"] = set_local_storage.sync(client=client, body=[entry]).to_dict()
[stored] = get_local_storage.sync(client=client)
found["get_local_storage"] = [stored.key, stored.expires == end]

state = {"cookies": [{"name": "e", "value": "f", "domain": host, "path": "/"}], "origins": []}
found["import_session"] = import_session.sync(client=client, body=state).cookies.created
found["list_sessions"] = [session.cookies for session in list_sessions.sync(client=client)]

file = store_file.sync(client=client, body=File(BytesIO(text)), filename="coffee.txt")
form = StoreFileFilesBody(file=File(BytesIO(text), "coffee.txt", "text/plain"))
found["store_file"] = [file.size, file.id == store_file.sync(client=client, body=form).id]
found["get_file"] = get_file.sync(file.id, client=client).payload.read().decode()

data = OutputInData.from_dict({"sku": "1001"})
files = [FileIn("leaflet", id=file.id)]
output = OutputIn("example-shop", f"https://{host}/1001", data, files=files)
found["store_outputs"] = store_outputs.sync(group, client=client, body=[output]).created
found["store_one_output"] = store_outputs.sync(group, client=client, body=output).unchanged
review = ReviewIn("example-shop", ReviewInStatus.APPROVED)
add_review.sync(group, client=client, body=review)
reviews = get_latest_reviews.sync(group, client=client)
found["get_latest_reviews"] = [review.status.value for review in reviews]
page = get_outputs.sync(group, client=client, created_after=datetime.date(2020, 1, 1), limit=1)
[item] = page.items
found["get_outputs"] = [
    item.data["sku"], item.is_approved, item.update_date.year > 2020, item.files[0].id == file.id,
    page.metadata.next_cursor,
]
found["export_outputs"] = json.loads(export_outputs.sync(group, client=client))["data"]
found["unknown group"] = get_outputs.sync("unknown", client=client).detail[0].type_
print(json.dumps(found))
"""

pytestmark = [pytest.mark.thorough, GENERATORS]


@pytest.fixture
def document(tmp_path: Path) -> Path:
    """The document as a file. It is the same on every engine."""
    path = tmp_path / "openapi.json"
    path.write_bytes(openapi.encoded(openapi.document(RESOURCES, Settings())))
    return path


def run(folder: Path, *command: str, **variables: str) -> str:
    """Runs a program of ``make generators``; returns all that it prints."""
    programs = (str(NODE_MODULES / ".bin"), str(PYTHON_PROGRAMS), os.environ["PATH"])
    done = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | QUIET | {"PATH": os.pathsep.join(programs)} | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_redocly_reports_no_error_and_no_warning(document: Path) -> None:
    printed = run(document.parent, "redocly", "lint", "--format", "json", document.name)
    report = json.loads(printed[printed.index("{\n") : printed.rindex("}") + 1])
    assert report["totals"] == {"errors": 0, "warnings": 0, "ignored": 0}, report


def test_spectral_reports_no_error_and_no_warning(document: Path) -> None:
    rules = document.with_name("rules.json")
    rules.write_text('{"extends": ["spectral:oas"]}')
    command = ("spectral", "lint", "--ruleset", rules.name, "--fail-severity", "hint")
    assert "No results" in run(document.parent, *command, document.name)


def test_typescript_accepts_a_minimal_cookie(document: Path) -> None:
    folder = document.parent
    shutil.copy(HERE / "minimal_cookie.ts", folder)
    run(folder, "openapi-typescript", document.name, "--output", "schema.ts")
    run(folder, "tsc", "--noEmit", "--strict", "--module", "nodenext", "minimal_cookie.ts")


def test_the_generated_python_client_works(
    document: Path, service: Service, client: Client
) -> None:
    """Generates without warnings; calls the six fixed operations, and uploads a file."""
    remove_unknown_media_types(document)
    folder = document.parent
    generate = ("openapi-python-client", "generate", "--fail-on-warning", "--path", document.name)
    assert "warning" not in run(folder, *generate).lower()
    (folder / "calls.py").write_text(CALLS)
    package = str(folder / "gleanery-client")
    token = str(client.token)
    printed = run(folder, "python", "calls.py", PYTHONPATH=package, URL=service.url, TOKEN=token)
    assert json.loads(printed) == {
        "set_cookies": {"created": 2, "updated": 0, "unchanged": 0},
        "get_cookies": [-1, 1893456000],
        "set_local_storage": {"created": 1, "updated": 0, "unchanged": 0},
        "get_local_storage": ["currency", True],
        "import_session": 1,
        "list_sessions": [3],
        "store_file": [12, True],
        "get_file": "Coffee, 1 kg",
        "store_outputs": 1,
        "store_one_output": 1,
        "get_latest_reviews": ["approved"],
        "get_outputs": ["1001", True, True, True, None],
        "export_outputs": {"sku": "1001"},
        "unknown group": "not_found",
    }


def remove_unknown_media_types(document: Path) -> None:
    """Removes the media types that openapi-python-client does not know, as the guide does."""
    found: dict[str, Any] = json.loads(document.read_text())
    paths = found["paths"]
    del paths["/v1/outputs/{group_id}"]["post"]["requestBody"]["content"][NDJSON]
    del paths["/v1/sessions/import"]["post"]["requestBody"]["content"][TEXT]
    document.write_text(json.dumps(found))


def test_only_bodies_of_ndjson_and_text_are_missing_in_a_client_of_the_whole_document(
    document: Path,
) -> None:
    printed = run(document.parent, "openapi-python-client", "generate", "--path", document.name)
    assert printed.count("WARNING") == 2
    assert printed.count(f"Unsupported content type {NDJSON}") == 1  # the body of outputs
    assert printed.count(f"Unsupported content type {TEXT}") == 1  # the body of an import
