"""Stands for docker: runs the command of the image as a process of this machine.

It applies what the Dockerfile and the options of ``docker run`` say about the service: variables,
entry point, volume and published port. Building and isolation need a container runtime;
``make container`` checks those.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(os.environ["MACHINE_ROOT"])
RUN = ROOT / "run"
DOCKERFILE = Path(__file__).parents[3] / "Dockerfile"
INHERITED = ("PATH", "PYTHONPATH", "MACHINE_ROOT")
PAUSE_SECONDS = 0.02
FLAGS = ("--detach", "--init", "--read-only", "--rm")
OPTIONS = (
    *("--name", "--restart", "--stop-timeout", "--tmpfs", "--cap-drop", "--security-opt"),
    *("--env-file", "--volume", "--publish", "--env"),
)


def instruction(name: str) -> str:
    """The last instruction of this name in the Dockerfile."""
    text = DOCKERFILE.read_text().replace("\\\n", " ")
    return re.findall(rf"^{name} (.+)$", text, re.M)[-1]


def variables(given: argparse.Namespace) -> dict[str, str]:
    """Variables of the image and of the options, and nothing of the shell."""
    made = {name: os.environ[name] for name in INHERITED if name in os.environ}
    image = [pair.split("=", 1) for pair in shlex.split(instruction("ENV"))]
    made |= {name: value for name, value in image if name not in INHERITED}
    for file in [given.env_file] if given.env_file else []:
        made |= dict(line.split("=", 1) for line in Path(file).read_text().splitlines())
    made |= {"GLEANERY_DATA": str(ROOT / "volume"), "TMPDIR": str(ROOT / "tmp")}
    made["PATH"] = f"{ROOT}/opt/gleanery/bin:{made['PATH']}"
    host, port, _ = (given.publish or "127.0.0.1:0:0").split(":")
    return made | {"GLEANERY_HOST": host, "GLEANERY_PORT": port}


def build(*words: str) -> None:
    assert "--tag" in words
    assert DOCKERFILE.exists()


def run(*words: str) -> None:
    parser = argparse.ArgumentParser()
    for flag in FLAGS:
        parser.add_argument(flag, action="store_true")
    for option in OPTIONS:
        parser.add_argument(option)
    parser.add_argument("image")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    given = parser.parse_args(words)
    assert given.volume.endswith(f":{instruction('VOLUME')}")
    command = given.command or json.loads(instruction("CMD"))
    start([*json.loads(instruction("ENTRYPOINT")), *command], given)


def start(command: list[str], given: argparse.Namespace) -> None:
    if not given.detach:
        sys.exit(subprocess.run(command, env=variables(given), check=False).returncode)
    with (RUN / f"{given.name}.log").open("ab") as log:
        process = subprocess.Popen(
            command, env=variables(given), stdout=log, stderr=log, start_new_session=True
        )
    state = {"pid": process.pid, "variables": variables(given)}
    (RUN / f"{given.name}.container").write_text(json.dumps(state))
    print(f"{process.pid:064x}")


def execute(*words: str) -> None:
    name, *command = (word for word in words if word not in ("--env", "TMPDIR=/data"))
    state = json.loads((RUN / f"{name}.container").read_text())
    command = [word.replace("/data/", f"{ROOT}/volume/") for word in command]
    sys.exit(subprocess.run(command, env=state["variables"], check=False).returncode)


def logs(*words: str) -> None:
    print((RUN / f"{words[-1]}.log").read_text(), end="")


def stop(name: str) -> None:
    pid = json.loads((RUN / f"{name}.container").read_text())["pid"]
    os.kill(pid, getattr(signal, instruction("STOPSIGNAL")))
    while Path(f"/proc/{pid}").exists() and "Z" not in _state(pid):
        time.sleep(PAUSE_SECONDS)
    print(name)


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def rm(name: str) -> None:
    (RUN / f"{name}.container").unlink()
    print(name)


VERBS = {"build": build, "run": run, "exec": execute, "logs": logs, "stop": stop, "rm": rm}

if __name__ == "__main__":
    VERBS[sys.argv[1]](*sys.argv[2:])
