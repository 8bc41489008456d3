"""Check that the coordinator of Citus can log in to its workers as the serving role."""

from __future__ import annotations

from typing import Any

from gleanery.errors import SettingsError
from gleanery.storage.postgres import row_security
from gleanery.storage.postgres.transactions import SCRIPT_SECONDS

# Citus logs in as the current user, and gives up by itself (citus.node_connection_timeout).
_TAKE_ROLE = f"SET LOCAL ROLE {row_security.ROLE}"
_FAILED_LOGINS = """
SELECT format('%s:%s', nodename, nodeport) FROM pg_dist_node
WHERE groupid > 0 AND isactive AND noderole = 'primary'
    AND NOT citus_check_connection_to_node(nodename, nodeport)
ORDER BY nodeid
"""
_REASON = "failed with the following error: "


async def check(connection: Any) -> None:
    """Raise SettingsError if a login fails. The connection is in a transaction.

    Citus reports the reason of a failed login only as a warning.
    """
    warnings: list[str] = []

    def note(_: Any, message: Any) -> None:
        warnings.append(message.message)

    await connection.execute(_TAKE_ROLE)
    connection.add_log_listener(note)
    try:
        failed = await connection.fetch(_FAILED_LOGINS, timeout=SCRIPT_SECONDS)
    finally:
        connection.remove_log_listener(note)
    if failed:
        raise SettingsError(_explain([row[0] for row in failed], warnings))


def _explain(workers: list[str], warnings: list[str]) -> str:
    reasons = [warning.rpartition(_REASON)[2].splitlines()[0] for warning in warnings if warning]
    reason = f" ({reasons[0]})" if reasons else ""
    noun = "worker" if len(workers) == 1 else "workers"
    return (
        f"The coordinator cannot log in to the {noun} {' '.join(workers)} as {row_security.ROLE}"
        f"{reason}, and nothing was copied: check that each worker runs and allows this login in "
        "pg_hba.conf, and that the coordinator's server has a certificate, or a password in its "
        "file .pgpass"
    )
