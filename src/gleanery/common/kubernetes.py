"""Variables that Kubernetes sets for a service with the name gleanery: they are not settings."""

from __future__ import annotations

import re
from collections.abc import Mapping

VARIABLE_PREFIX = "GLEANERY_"
# For each service of a namespace, Kubernetes gives every pod variables with the service's name.
_KUBERNETES_NAME = re.compile(
    r"(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
_KUBERNETES_PORT = re.compile(r"(\w+_)?PORT=(tcp|udp|sctp)://.*")


def kubernetes_variables(environment: Mapping[str, str]) -> list[str]:
    """List the variables that Kubernetes sets for a service with the name gleanery."""
    return [
        f"{VARIABLE_PREFIX}{name}"
        for name in names_of(environment)
        if _is_kubernetes(name, environment)
    ]


def names_of(environment: Mapping[str, str]) -> list[str]:
    """Return the names of the ``GLEANERY_…`` variables, without the prefix."""
    return sorted(
        name.removeprefix(VARIABLE_PREFIX)
        for name in environment
        if name.startswith(VARIABLE_PREFIX)
    )


def _is_kubernetes(name: str, environment: Mapping[str, str]) -> bool:
    value = environment[f"{VARIABLE_PREFIX}{name}"]
    return bool(_KUBERNETES_NAME.fullmatch(name) or _KUBERNETES_PORT.fullmatch(f"{name}={value}"))
