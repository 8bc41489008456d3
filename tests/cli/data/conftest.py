"""Fixtures: the commands on data, against a real service."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.process import gleanery_in_process
from tests.support.service import Client, Service


class CommandLine:
    """Runs commands with the address and the token of an organization, and a folder for logins."""

    def __init__(self, url: str, token: str, folder: Path) -> None:
        self.url = url
        self.token = token
        self.folder = folder

    @property
    def no_login(self) -> dict[str, str]:
        """Variables of a user who has never logged in."""
        return {"XDG_CONFIG_HOME": str(self.folder)}

    @property
    def variables(self) -> dict[str, str]:
        return {**self.no_login, "GLEANERY_URL": self.url, "GLEANERY_TOKEN": self.token}

    def __call__(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Runs a command inside this process."""
        return gleanery_in_process(*arguments, **(self.variables | variables))


@pytest.fixture
def gleanery(service: Service, client: Client, tmp_path: Path) -> CommandLine:
    assert client.token is not None
    return CommandLine(service.url, client.token, tmp_path / "config")
