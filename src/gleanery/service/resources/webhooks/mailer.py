"""Sends one event by e-mail: the message, and the conversation with the operator's mail server.

Python's client of SMTP waits in a thread. An attempt has 15 seconds in all. Then its connection is
shut down, whatever the thread waits for. A message has the same ``Message-ID`` in each attempt.

Clients see what the server says about recipients and the message. What concerns the operator, such
as a certificate or a login, is in the log. No text of a server about a login is shown or logged: it
can repeat a part of the password.
"""

from __future__ import annotations

import asyncio
import logging
import re
import smtplib
import socket
import ssl
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from functools import cached_property
from ipaddress import ip_address
from urllib.parse import urlsplit

from gleanery.common.mail_addresses import split_server
from gleanery.common.settings import Settings
from gleanery.service.foundation.scheduling.fair_shares import FairSemaphore
from gleanery.service.resources.webhooks.deliveries import Answer
from gleanery.service.resources.webhooks.messages import Mail
from gleanery.service.resources.webhooks.targets import mail_addresses

_log = logging.getLogger("gleanery")

TIMEOUT_SECONDS = 15.0
_CONVERSATIONS = 10  # with the mail server at the same time
_MAX_WAIT_SECONDS = 3600.0
_PORTS = {"tls": 465, "starttls": 587, "none": 587}
_MAX_REPLY = 300  # characters of a reply in an error
_MAX_RESPONSE = 1024
_UNREADABLE = re.compile(r"[\x00-\x1f\x7f-\x9f]+")
_NO_SERVER = "this service sends no e-mail any more: its operator can set --smtp-server"
_LATE = f"no complete answer of the mail server within {TIMEOUT_SECONDS:.0f} seconds"
_OF_OPERATOR = "the mail server of this service {}: its operator can see more in the log"


@dataclass(frozen=True)
class MailServer:
    """The mail server of the settings, and the names that it gets."""

    host: str
    port: int
    tls: str
    sender: str
    own_name: str
    """Name of this service in the greeting."""
    username: str | None = None
    password: str | None = field(default=None, repr=False)

    @cached_property
    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context()

    @classmethod
    def from_settings(cls, settings: Settings) -> MailServer | None:
        """Return None if no server is set."""
        if settings.smtp_server is None or settings.smtp_sender is None:
            return None
        host, port = split_server(settings.smtp_server)
        return cls(
            host,
            port or _PORTS[settings.smtp_tls],
            settings.smtp_tls,
            settings.smtp_sender,
            _greeting_name(urlsplit(settings.address).hostname or "localhost"),
            settings.smtp_username,
            settings.smtp_password,
        )


def _greeting_name(host: str) -> str:
    """Return a host as a client of SMTP introduces itself: an address is in brackets."""
    try:
        address = ip_address(host)
    except ValueError:
        return host if host.isascii() else "localhost"
    return f"[IPv6:{address}]" if address.version == 6 else f"[{address}]"


class Mailer:
    """Sends e-mail for all webhooks."""

    def __init__(self, server: MailServer | None) -> None:
        self._server = server
        self.slots = FairSemaphore(
            _CONVERSATIONS, _MAX_WAIT_SECONDS, "no free connection to the mail server"
        )
        """Whoever calls ``send`` holds one of them."""
        self._threads = ThreadPoolExecutor(_CONVERSATIONS, thread_name_prefix="mail")

    async def send(self, url: str, delivery_id: str, mail: Mail) -> Answer:
        """Send a message to the addresses of a URL. A failure is a part of the answer."""
        if self._server is None:
            return Answer(error=_NO_SERVER)
        recipients = mail_addresses(url)
        message = _compose(self._server, recipients, delivery_id, mail)
        conversation = _Conversation(self._server, recipients, message)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                return await loop.run_in_executor(self._threads, conversation.run)
        except TimeoutError:
            return Answer(error=_LATE)
        finally:
            conversation.end()

    def close(self) -> None:
        self._threads.shutdown(wait=False)


def _compose(server: MailServer, recipients: Sequence[str], delivery_id: str, mail: Mail) -> bytes:
    message = EmailMessage(policy=SMTP)
    message["From"] = Address("Gleanery", addr_spec=server.sender)
    message["To"] = ", ".join(recipients)
    message["Subject"] = mail.subject
    message["Date"] = format_datetime(datetime.now(UTC))
    message["Message-ID"] = f"<{delivery_id}@{server.sender.rpartition('@')[2]}>"
    message["Auto-Submitted"] = "auto-generated"
    message["Gleanery-Delivery-Id"] = delivery_id
    message["Gleanery-Event"] = mail.event
    message.set_content(mail.text, cte="quoted-printable")
    return message.as_bytes()


class _Conversation:
    """One connection to the server. ``run`` is for a thread, and ``end`` for any other one."""

    def __init__(self, server: MailServer, recipients: Sequence[str], message: bytes) -> None:
        self._server = server
        self._recipients = recipients
        self._message = message
        self._lock = threading.Lock()
        self._connection: socket.socket | None = None
        """Another descriptor of the connection, which nobody else closes."""
        self._is_over = False

    def note(self, connection: socket.socket) -> None:
        """Note the connection, so that ``end`` can shut it down. Raise TimeoutError after it."""
        with self._lock:
            if self._is_over:
                connection.close()
                raise TimeoutError
            self._connection = connection.dup()

    def end(self) -> None:
        """Shut the connection down, whatever the thread waits for."""
        with self._lock:
            self._is_over = True
            if self._connection is not None:
                with suppress(OSError):
                    self._connection.shutdown(socket.SHUT_RDWR)
                self._connection.close()
                self._connection = None

    def run(self) -> Answer:
        try:
            smtp = _Client(self, self._server)
            try:
                self._begin(smtp)
                return self._send(smtp)
            finally:
                smtp.close()
        except smtplib.SMTPDataError as error:
            text = _reply(error.smtp_code, error.smtp_error)
            return Answer(error.smtp_code, error=f"the mail server refuses the message: {text}")
        except smtplib.SMTPAuthenticationError as error:
            return self._problem("refuses the login", f"code {error.smtp_code}")
        except smtplib.SMTPResponseException as error:
            text = _reply(error.smtp_code, error.smtp_error)
            return self._problem("does not accept the connection", text)
        except smtplib.SMTPNotSupportedError as error:
            return self._problem("does not offer what the settings ask for", str(error))
        except ssl.SSLCertVerificationError as error:
            return self._problem("has no valid certificate", error.verify_message)
        except ssl.SSLError as error:
            return self._problem("does not speak TLS as the settings say", str(error))
        except smtplib.SMTPServerDisconnected:
            return Answer(error="the mail server has closed the connection")
        except TimeoutError:
            return Answer(error=_LATE)
        except smtplib.SMTPException as error:
            return self._problem("cannot be used as the settings say", str(error))
        except OSError as error:
            return self._problem("cannot be reached", str(error))

    def _begin(self, smtp: _Client) -> None:
        server = self._server
        smtp.ehlo_or_helo_if_needed()
        if server.tls == "starttls":
            smtp.starttls(context=server.context)
            smtp.ehlo_or_helo_if_needed()
        if server.username is not None and server.password is not None:
            smtp.login(server.username, server.password)

    def _send(self, smtp: _Client) -> Answer:
        code, reply = smtp.mail(self._server.sender)
        if code != 250:
            return self._problem("refuses the sender", _reply(code, reply))
        refused = {}
        for address in self._recipients:
            code, reply = smtp.rcpt(address)
            if code not in (250, 251):
                refused[address] = _reply(code, reply)
        if len(refused) == len(self._recipients):
            error = f"the mail server refuses all recipients: {_list(refused)}"
            return Answer(code, _reply(code, reply, _MAX_RESPONSE), error)
        code, reply = smtp.data(self._message)
        if code != 250:
            raise smtplib.SMTPDataError(code, reply)
        with suppress(OSError, smtplib.SMTPException):
            smtp.putcmd("quit")  # nothing depends on its answer
        warning = f"the mail server refused some recipients: {_list(refused)}" if refused else None
        return Answer(code, _reply(code, reply, _MAX_RESPONSE), warning=warning)

    def _problem(self, problem: str, reason: str) -> Answer:
        """Log what the operator can repair, and return the answer for clients."""
        if not self._is_over:
            reason = _UNREADABLE.sub(" ", reason)[:_MAX_REPLY]
            _log.warning(f"no e-mail is sent: the mail server {problem}", extra={"reason": reason})
        return Answer(error=_OF_OPERATOR.format(problem))


class _Client(smtplib.SMTP):
    """The client of Python, whose connection another thread can end."""

    def __init__(self, conversation: _Conversation, server: MailServer) -> None:
        self._conversation = conversation
        self._context = server.context if server.tls == "tls" else None
        super().__init__(server.host, server.port, server.own_name, TIMEOUT_SECONDS)

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        made: socket.socket = super()._get_socket(host, port, timeout)  # type: ignore[misc]
        self._conversation.note(made)
        if self._context is not None:
            made = self._context.wrap_socket(made, server_hostname=host)
        return made


def _list(refused: Mapping[str, str]) -> str:
    return "; ".join(f"{address} ({reply})" for address, reply in refused.items())


def _reply(code: int, text: bytes | str, length: int = _MAX_REPLY) -> str:
    """Return a reply as one readable line."""
    shown = text if isinstance(text, str) else text.decode("utf-8", "replace")
    return f"{code} {_UNREADABLE.sub(' ', shown)}"[:length]
