"""Vulnerability check: audits the pinned versions with pip-audit if its database is reachable.

pip-audit fails in the same way for a missing network and for an internal error. Therefore this
script first sends one query. Without a valid response it skips the audit and says so.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from urllib.request import Request, urlopen

ROOT = Path(__file__).parent.parent
PIN_FILES = (
    *("constraints.txt", "constraints-build.txt"),
    *("constraints-bench.txt", "constraints-generators.txt"),
    "constraints-session-tools.txt",
)
OSV_URL = os.environ.get("PIP_AUDIT_OSV_URL", "https://api.osv.dev/v1/query")

_TIMEOUT = 5
_QUERY = {"package": {"name": "pip-audit", "ecosystem": "PyPI"}, "version": "2.10.0"}


def main() -> int:
    if reason := _unreachable_reason():
        print(f"not audited: {OSV_URL} can't be reached ({reason})", file=sys.stderr)
        return 0
    return max([_audit(name) for name in PIN_FILES])


def _unreachable_reason() -> str | None:
    """Return why the database is not reachable; None if it is.

    A proxy that responds in its place counts as unreachable too.
    """
    body = json.dumps(_QUERY).encode()
    request = Request(OSV_URL, body, {"Content-Type": "application/json"})  # noqa: S310
    try:
        with urlopen(request, timeout=_TIMEOUT) as response:  # noqa: S310
            is_valid = isinstance(json.load(response), dict)
    except (OSError, ValueError) as error:
        return str(error)
    return None if is_valid else "another service responds"


def _audit(name: str) -> int:
    """Return a non-zero status if a version has a known vulnerability or the audit fails."""
    print(f"{name}: ", end="", file=sys.stderr, flush=True)
    options = ("--no-deps", "--disable-pip", "--progress-spinner", "off", "--format", "columns")
    service = ("--vulnerability-service", "osv", "--osv-url", OSV_URL)
    timeout = ("--timeout", str(_TIMEOUT))
    return subprocess.run(
        [sys.executable, "-m", "pip_audit", "-r", name, *options, *service, *timeout],
        cwd=ROOT,
        env=os.environ | {"PIP_AUDIT_LOGLEVEL": "ERROR"},
        check=False,
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
