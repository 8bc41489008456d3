"""Looks up the pinned versions among the known vulnerabilities, where those can be reached.

pip-audit does the looking up. It can't tell a network that it is shut off from a fault of its own,
so the service is first asked one question: without an answer nothing is audited, and that is said.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from urllib.request import Request, urlopen

ROOT = Path(__file__).parent.parent
PINS = ("constraints.txt", "constraints-build.txt", "constraints-bench.txt")
SERVICE = os.environ.get("PIP_AUDIT_OSV_URL", "https://api.osv.dev/v1/query")

_ANSWER_SECONDS = 5
_QUESTION = {"package": {"name": "pip-audit", "ecosystem": "PyPI"}, "version": "2.10.0"}


def main() -> int:
    if why := _why_unreachable():
        print(f"not audited: {SERVICE} can't be reached ({why})", file=sys.stderr)
        return 0
    return max([_audit(name) for name in PINS])


def _why_unreachable() -> str | None:
    """What stands between us and the service; a proxy that answers in its place is that, too."""
    body = json.dumps(_QUESTION).encode()
    question = Request(SERVICE, body, {"Content-Type": "application/json"})  # noqa: S310
    try:
        with urlopen(question, timeout=_ANSWER_SECONDS) as answer:  # noqa: S310
            is_known = isinstance(json.load(answer), dict)
    except (OSError, ValueError) as error:
        return str(error)
    return None if is_known else "what answers is something else"


def _audit(name: str) -> int:
    """Not 0 if one of the versions has a known vulnerability, or if they can't be looked up."""
    print(f"{name}: ", end="", file=sys.stderr, flush=True)
    options = ("--no-deps", "--disable-pip", "--progress-spinner", "off", "--format", "columns")
    service = ("--vulnerability-service", "osv", "--osv-url", SERVICE)
    seconds = ("--timeout", str(_ANSWER_SECONDS))
    return subprocess.run(
        [sys.executable, "-m", "pip_audit", "-r", name, *options, *service, *seconds],
        cwd=ROOT,
        env=os.environ | {"PIP_AUDIT_LOGLEVEL": "ERROR"},
        check=False,
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
