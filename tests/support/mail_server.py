"""A mail server on loopback: it keeps each message, and answers as the test says."""

from __future__ import annotations

import asyncio
import email
import email.policy
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import EmailMessage
from pathlib import Path
from typing import Any, NamedTuple

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, LoginPassword

from tests.support.process import free_port
from tests.support.waiting import TIMEOUT_SECONDS, wait_until


class ReceivedMail(NamedTuple):
    """One message that the server has accepted."""

    sender: str
    recipients: list[str]
    content: bytes
    is_encrypted: bool
    login: str | None

    @property
    def message(self) -> EmailMessage:
        return email.message_from_bytes(self.content, policy=email.policy.SMTP)

    @property
    def subject(self) -> str:
        return str(self.message["Subject"])

    @property
    def text(self) -> str:
        return str(self.message.get_content()).replace("\r\n", "\n")


class MailServer:
    """A server of SMTP on 127.0.0.1, in a thread. It accepts every message at first."""

    def __init__(
        self,
        certificate: tuple[Path, Path] | None = None,
        *,
        is_tls: bool = False,
        login: tuple[str, str] | None = None,
    ) -> None:
        """With a certificate it requires STARTTLS, or TLS from the beginning."""
        self._context: ssl.SSLContext | None = None
        if certificate is not None:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.load_cert_chain(*certificate)
        self._is_tls = is_tls
        self._login = login
        self._lock = threading.Lock()
        self._received: list[ReceivedMail] = []
        self.refused: dict[str, str] = {}
        """Replies to recipients that the server refuses."""
        self.reply = "250 accepted"
        """Reply to each message."""
        self.slow: threading.Event | None = None
        """Replies to messages wait for this event."""
        self.begun = 0
        """Messages whose content has arrived."""
        self.port = free_port()
        self._controller: Controller | None = None
        self.start()

    def start(self) -> None:
        """Listen, always on the same port."""
        options: dict[str, Any] = {}
        if self._context is not None and not self._is_tls:
            options |= {"tls_context": self._context, "require_starttls": True}
        if self._login is not None:
            options |= {"authenticator": self._authenticate, "auth_required": True}
            options |= {"auth_require_tls": self._context is not None and not self._is_tls}
        self._controller = Controller(
            self,
            "127.0.0.1",
            self.port,
            ssl_context=self._context if self._is_tls else None,
            **options,
        )
        self._controller.start()

    def stop(self) -> None:
        """Refuse connections until ``start`` is called again."""
        if self._controller is not None:
            self._controller.stop()
            self._controller = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def received(self) -> list[ReceivedMail]:
        with self._lock:
            return [*self._received]

    def wait_for(self, count: int) -> list[ReceivedMail]:
        wait_until(lambda: len(self.received()) >= count)
        return self.received()

    # --- what the server calls -------------------------------------------------------------------

    def _authenticate(
        self, _server: SMTP, _session: Any, _envelope: Any, _mechanism: str, data: Any
    ) -> AuthResult:
        assert isinstance(data, LoginPassword)
        given = data.login.decode(), data.password.decode()
        return AuthResult(success=given == self._login, handled=False, auth_data=given[0])

    async def handle_RCPT(  # noqa: N802
        self, _server: SMTP, _session: Any, envelope: Any, address: str, _options: list[str]
    ) -> str:
        if address in self.refused:
            return self.refused[address]
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Any, envelope: Any) -> str:  # noqa: N802
        self.begun += 1
        if self.slow is not None:
            await asyncio.get_running_loop().run_in_executor(None, self.slow.wait, TIMEOUT_SECONDS)
        transport = server.transport
        if self.reply.startswith("2") and transport is not None:
            mail = ReceivedMail(
                envelope.mail_from,
                [*envelope.rcpt_tos],
                envelope.content,
                transport.get_extra_info("ssl_object") is not None,
                session.auth_data,
            )
            with self._lock:
                self._received.append(mail)
        return self.reply


@contextmanager
def mail_server(*arguments: Any, **options: Any) -> Iterator[MailServer]:
    made = MailServer(*arguments, **options)
    try:
        yield made
    finally:
        made.stop()
