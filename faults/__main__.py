"""``make faults``: does one kind of damage after the other and prints what came of each."""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial

from faults import database_outage, disk_full, failover, kill, power_loss, results
from faults.environment import ROOT, Environment, open_environment
from faults.results import Result

ROUNDS = int(os.environ.get("GLEANERY_FAULT_ROUNDS", "100"))
_FEWER = max(1, ROUNDS // 10)  # of what takes longer, or depends less on the moment
_AWAY_SECONDS = 20
_FROZEN_SECONDS = 45  # longer than any statement may take

FAULTS: dict[str, Callable[[Environment], Result]] = {
    "kill-sqlite": partial(kill.kill_the_service, engine="SQLite", rounds=ROUNDS),
    "kill-postgres": partial(kill.kill_the_service, engine="PostgreSQL", rounds=ROUNDS),
    "kill-server": partial(kill.kill_the_database, rounds=ROUNDS),
    "kill-worker": partial(kill.kill_a_worker, rounds=_FEWER),
    "power-sqlite": partial(power_loss.cut_the_power, engine="SQLite", rounds=_FEWER),
    "power-postgres": partial(power_loss.cut_the_power, engine="PostgreSQL", rounds=_FEWER),
    "full-sqlite": partial(disk_full.fill_the_disk, engine="SQLite", rounds=_FEWER),
    "full-postgres": partial(disk_full.fill_the_disk, engine="PostgreSQL", rounds=_FEWER),
    "away": partial(database_outage.stop_the_database, seconds=_AWAY_SECONDS),
    "frozen": partial(database_outage.freeze_the_database, seconds=_FROZEN_SECONDS),
    "pool": database_outage.exhaust_the_pool,
    "lock": partial(database_outage.keep_a_lock, writers=6),
    "failover": partial(failover.fail_over, rounds=_FEWER),
}


def main() -> int:
    asked = _arguments()
    began = time.monotonic()
    found = [_result(name) for name in asked.faults or FAULTS]
    print(results.table(found))
    if asked.write:
        minutes = (time.monotonic() - began) / 60
        results.write(ROOT / "docs" / "reliability.md", found, minutes)
    return sum(not result.holds for result in found)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m faults", description=__doc__)
    parser.add_argument("faults", nargs="*", help=f"which: {', '.join(FAULTS)}; else all")
    parser.add_argument("--write", action="store_true", help="put the table into docs/")
    asked = parser.parse_args()
    if unknown := [name for name in asked.faults if name not in FAULTS]:
        parser.error(f"no such fault: {', '.join(unknown)}")
    if asked.write and asked.faults:
        parser.error("--write needs all faults")
    return asked


def _result(name: str) -> Result:
    """What the others found must not be lost with one that fails."""
    began = time.monotonic()
    try:
        with open_environment() as made:
            result = FAULTS[name](made)
    except Exception as why:
        traceback.print_exc()
        result = Result(name, "not to its end", f"{type(why).__name__}: {why}", False)
    word = "holds" if result.holds else "BROKEN"
    print(f"{name}: {word} ({time.monotonic() - began:.0f} s)", file=sys.stderr, flush=True)
    return result


if __name__ == "__main__":
    sys.exit(main())
