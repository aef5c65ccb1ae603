"""One keep-alive connection that posts bodies and reads answers, and the clock around that.

Takes a server's URL; returns ``Reply``s and never raises for what a server does: an error is a result. The clock runs
from just before the first byte of the POST is handed to the socket until the whole body is there and decoded to text.
Building the message, connecting, JSON and everything about rows are outside. Apart because these few lines are in every
latency of a run; what they cost is measured against the null endpoint.
"""

from __future__ import annotations

import select
import socket
import time
from dataclasses import dataclass
from typing import Self
from urllib.parse import urlsplit

import httptools

CHUNK_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back; without a whole response only ``started_ns`` and ``error`` are there."""

    started_ns: int
    """Wall clock just before sending."""
    latency_ns: int | None
    status: int | None
    text: str | None
    error: str | None


class _Response:
    """What httptools calls back on; each reply has its own."""

    __slots__ = ("body", "complete", "keep", "parser")

    def __init__(self) -> None:
        self.body: list[bytes] = []
        self.complete = False
        self.keep = False
        self.parser = httptools.HttpResponseParser(self)

    def on_body(self, data: bytes) -> None:
        self.body.append(data)

    def on_message_complete(self) -> None:
        self.complete = True
        self.keep = self.parser.should_keep_alive()  # afterwards the parser has forgotten


class Client:
    """A closed loop of one: the next post starts when the last reply is there."""

    def __init__(self, url: str, timeout_s: float) -> None:
        parts = urlsplit(url)
        self._host, self._port, self._timeout_s = parts.hostname or "", parts.port or 80, timeout_s
        self._socket: socket.socket | None = None

    def message(self, path: str, body: bytes) -> bytes:
        """The bytes of a POST, to be made before the clock starts."""
        head = f"POST {path} HTTP/1.1\r\nHost: {self._host}:{self._port}\r\nContent-Type: application/json\r\n"
        return f"{head}Accept: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body

    def post(self, message: bytes) -> Reply:
        """Send and wait for the whole reply. A connection found closed is made anew, before the clock starts."""
        try:
            connection = self._connection()
        except OSError as problem:
            return Reply(time.time_ns(), None, None, None, f"no connection: {_told(problem)}")
        response = _Response()
        parser = response.parser
        started_ns = time.time_ns()
        begin_ns = time.perf_counter_ns()
        try:
            connection.sendall(message)
            while not response.complete:
                data = connection.recv(CHUNK_BYTES)
                if not data:
                    raise ConnectionError("the server closed the connection before the reply was whole")
                parser.feed_data(data)
            text = b"".join(response.body).decode()
            latency_ns = time.perf_counter_ns() - begin_ns
        except (OSError, UnicodeDecodeError, httptools.HttpParserError) as problem:
            self.close()
            return Reply(started_ns, None, None, None, _told(problem))
        if not response.keep:
            self.close()
        return Reply(started_ns, latency_ns, parser.get_status_code(), text, None)

    def _connection(self) -> socket.socket:
        """The open connection, or a new one; bytes or an end where none is expected mean that the old one is done."""
        if self._socket is not None and select.select([self._socket], [], [], 0)[0]:
            self.close()
        if self._socket is None:
            self._socket = socket.create_connection((self._host, self._port), timeout=self._timeout_s)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self._socket

    def close(self) -> None:
        """Close the connection; the next post opens another."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _told(problem: Exception) -> str:
    return f"{type(problem).__name__}: {problem}"
