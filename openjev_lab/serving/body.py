"""The request body: read under a limit while it streams in, and decompressed under the same limit.

Takes a Starlette request, returns bytes. A body past the limit is refused before it is held whole and before it is
parsed, a small one that unfolds past it too. ``typesafe-sdk`` sends zstd from 1 KiB on where its client has it.
"""

from __future__ import annotations

import asyncio
import importlib
import zlib
from typing import TYPE_CHECKING, Any

from openjev_lab.contract import MAX_BODY_BYTES

if TYPE_CHECKING:
    from starlette.requests import Request

BODY_TIMEOUT_S = 30.0


class BodyRefused(Exception):
    """A body that is not taken; ``status`` is the HTTP status that says so."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def _too_large() -> BodyRefused:
    return BodyRefused(
        413, f"the body is larger than {MAX_BODY_BYTES} bytes (4 MiB); send fewer questions or less text"
    )


async def read_body(request: Request) -> bytes:
    """The whole body, decompressed. Raises ``BodyRefused``: too large, too slow, in an unknown encoding, or broken."""
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > MAX_BODY_BYTES:
        raise _too_large()
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            body = await _stream(request)
    except TimeoutError:
        raise BodyRefused(408, f"the body did not arrive within {BODY_TIMEOUT_S:g} s") from None
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding == "identity":
        return body
    return await asyncio.to_thread(decompress, body, encoding)


async def _stream(request: Request) -> bytes:
    chunks: list[bytes] = []
    size_bytes = 0
    async for chunk in request.stream():
        size_bytes += len(chunk)
        if size_bytes > MAX_BODY_BYTES:
            raise _too_large()
        chunks.append(chunk)
    return b"".join(chunks)


def decompress(body: bytes, encoding: str) -> bytes:
    """The body unfolded from gzip or zstd, never past the limit."""
    if encoding == "gzip":
        unfolder: Any = zlib.decompressobj(wbits=31)
    elif encoding == "zstd":
        unfolder = zstd().ZstdDecompressor()
    else:
        raise BodyRefused(415, f"content-encoding {encoding!r} is not read here; send identity, gzip or zstd")
    try:
        whole = unfolder.decompress(body, MAX_BODY_BYTES + 1)
    except Exception as error:  # zlib.error or ZstdError: the two libraries share no base
        raise BodyRefused(400, f"the body is not {encoding}: {error}") from error
    if len(whole) > MAX_BODY_BYTES:
        raise _too_large()
    if not unfolder.eof:
        raise BodyRefused(400, f"the {encoding} body is cut short; send all of it")
    if unfolder.unused_data:
        raise BodyRefused(400, f"the {encoding} body goes on after its end; send one {encoding} stream and no more")
    return whole


def zstd() -> Any:
    """Python's own module from 3.14 on, its backport before."""
    for name in ("compression.zstd", "backports.zstd"):
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    raise BodyRefused(415, "zstd is not installed here (pip install backports.zstd); send identity or gzip")
