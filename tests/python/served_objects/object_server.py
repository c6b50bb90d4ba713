"""An object server for tests, in a process of its own: S3's API, by paths, with faults.

    with ObjectServer() as server:
        server.put("a key", b"bytes")                     # bucket "data"
        server.fault("rst", key="a*", times=1)            # served_faults.py has the kinds
        env = server.environment()                        # settles s3:// and gs://
        ... open "s3://data/a key", "gs://data/a key", or server.url + "/data/a%20key"
        server.wait(2)                                    # until two requests have ended
        server.log()                                      # a dict of each request

Signatures are not checked. `pace`: bytes a second of all bodies together; `latency`: seconds before
each answer; `host`: addresses with a comma between, of one port; `certificate`: a file with one and
its key, for https.
As a program, in tests/python, it serves s3://data/big.bin:
python -m served_objects.object_server BYTES [PACE [LATENCY]].
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import http.client
import json
import os
import ssl
import subprocess
import sys
import time
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote

from served_objects.served_buckets import Answer, Buckets, Request, parsed_target
from served_objects.served_faults import CUTS, KINDS, Fault

_TESTS = Path(__file__).parents[1]
_HEAD_BYTES_MAX = 1 << 20
_PIECE_BYTES = 1 << 16


class ObjectServer:
    """Starts the server; ends it at the end of the block. Call it from one thread."""

    def __init__(
        self,
        pace: float | None = None,
        latency: float = 0,
        host: str = "127.0.0.1",
        certificate: str = "",
    ):
        program = [sys.executable, "-m", "served_objects.object_server", "--serve", host]
        program += [str(pace or 0), str(latency), certificate]
        self._process = subprocess.Popen(
            program, cwd=_TESTS, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())
        self.pid = self._process.pid
        host = host.partition(",")[0]
        name = f"[{host}]" if ":" in host else host
        self.url = f"{'https' if certificate else 'http'}://{name}:{self.port}"
        self._tls = ssl.create_default_context(cafile=certificate) if certificate else None
        self._host = host

    def __enter__(self) -> ObjectServer:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def environment(self) -> dict[str, str]:
        """What leads s3:// and gs:// here. Replace AWS_PROFILE and the like by your own."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "secret-of-test",
            "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "GOOGLE_ALLOW_HTTP": "true",
            "GOOGLE_SERVICE_ACCOUNT_KEY": json.dumps(
                {
                    "gcs_base_url": self.url,
                    "disable_oauth": True,
                    "client_email": "",
                    "private_key": "",
                    "private_key_id": "",
                }
            ),
        }

    def put(self, key: str, data: bytes, bucket: str = "data") -> None:
        """Writes an object, and makes the bucket. Not in the log."""
        self._ask("PUT", f"object/{bucket}/{key}", data)

    def get(self, key: str, bucket: str = "data") -> bytes:
        """What is stored. Not in the log."""
        return self._ask("GET", f"object/{bucket}/{key}")

    def etag(self, key: str, bucket: str = "data") -> str:
        """The object's ETag, with its quotes. Not in the log."""
        return self._ask("GET", f"etag/{bucket}/{key}").decode()

    def uploads(self) -> dict[str, str]:
        """The keys of uploads in parts that are not complete, by upload id."""
        return json.loads(self._ask("GET", "uploads"))

    def fault(self, kind: str, **fields: Any) -> None:
        """Adds a Fault. Several may happen to one request."""
        assert kind in KINDS, kind
        Fault(kind, **fields)
        self._ask("POST", "fault", json.dumps({"kind": kind, **fields}).encode())

    def no_faults(self) -> None:
        self._ask("POST", "no_faults")

    def release(self) -> None:
        """Goes on with all requests that "late" and "stall" hold now."""
        self._ask("POST", "release")

    def log(self, method: str | None = None) -> list[dict[str, Any]]:
        """Requests in the order of their arrival: method, bucket, key, query, range (first and last
        byte), if_match, access_key, faults, connection, to (which of the host's addresses), at
        (seconds), status, sent (bytes of the body), end ("": not ended; "sent", "cut", or "client
        closed"), held ("late" or "stall" holds it)."""
        found = json.loads(self._ask("GET", "log"))
        return [one for one in found if method in (None, one["method"])]

    def clear_log(self) -> None:
        self._ask("POST", "clear_log")

    def wait(self, count: int, *, ended: bool = True, timeout: float = 20) -> list[dict[str, Any]]:
        """Until so many requests have come, or have ended; the log."""
        return self._wait("end" if ended else "", count, timeout)

    def wait_held(self, count: int, timeout: float = 20) -> list[dict[str, Any]]:
        """Until "late" and "stall" hold so many requests, which release() lets go; the log."""
        return self._wait("held", count, timeout)

    def _wait(self, what_has: str, count: int, timeout: float) -> list[dict[str, Any]]:
        what = {"has": what_has, "count": count, "timeout": timeout}
        found = self._ask("POST", "wait", json.dumps(what).encode())
        assert found, f"after {timeout} s fewer than {count} requests: {self.log()}"
        return json.loads(found)

    def _ask(self, method: str, what: str, body: bytes = b"") -> bytes:
        connection = (
            http.client.HTTPSConnection(self._host, self.port, timeout=90, context=self._tls)
            if self._tls
            else http.client.HTTPConnection(self._host, self.port, timeout=90)
        )
        with contextlib.closing(connection):
            connection.request(method, "/-/" + quote(what), body)
            answer = connection.getresponse()
            data = answer.read()
        assert answer.status == 200, f"{method} {what}: {answer.status} {data[-2000:]!r}"
        return data


class _Protocol(asyncio.StreamReaderProtocol):
    """Says, too, when the client has closed the connection, whoever reads."""

    def __init__(self, server: _Server) -> None:
        self.gone = asyncio.Event()
        reader = asyncio.StreamReader(limit=_HEAD_BYTES_MAX)
        super().__init__(reader, lambda r, w: server.serve(_Connection(r, w, self.gone)))

    def eof_received(self) -> bool | None:
        self.gone.set()
        return super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone.set()
        super().connection_lost(exc)


@dataclasses.dataclass
class _Connection:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    gone: asyncio.Event


class _Server:
    def __init__(self, pace: float, latency: float) -> None:
        self.buckets = Buckets()
        self.pace, self.latency = pace, latency
        self.address = ""
        self._faults: list[Fault] = []
        self._log: list[dict[str, Any]] = []
        self._changed = asyncio.Condition()
        self._released = asyncio.Event()
        self._connections = 0
        self._free_at = 0.0  # when the link can send the next byte

    async def serve(self, connection: _Connection) -> None:
        number, self._connections = self._connections, self._connections + 1
        try:
            while (request := await self._received(connection)) is not None:
                if request.bucket == "-":
                    await self._send(connection, request, await self._controlled(request))
                elif not await self._answered(connection, request, number):
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            connection.writer.close()

    async def _received(self, connection: _Connection) -> Request | None:
        try:
            head = (await connection.reader.readuntil(b"\r\n\r\n")).decode("latin1")
        except asyncio.IncompleteReadError:
            return None
        first, *lines = head.rstrip("\r\n").split("\r\n")
        method, target, _ = first.split(" ", 2)
        pairs = (line.partition(":") for line in lines)
        headers = {name.lower(): value.strip() for name, _, value in pairs}
        if headers.get("expect", "").lower() == "100-continue":
            connection.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = await connection.reader.readexactly(int(headers.get("content-length", "0")))
        return Request(method, *parsed_target(target), headers, body)

    # Requests of clients

    async def _answered(self, connection: _Connection, request: Request, number: int) -> bool:
        """Whether the connection goes on."""
        faults = [fault for fault in self._faults if fault.applies(request)]
        entry = {
            **{name: getattr(request, name) for name in ("method", "bucket", "key", "query")},
            "range": request.range,
            "if_match": request.headers.get("if-match"),
            "access_key": request.access_key,
            "faults": [fault.kind for fault in faults],
            "connection": number,
            "to": connection.writer.get_extra_info("sockname")[0],
            "at": time.monotonic(),
            "status": 0,
            "sent": 0,
            "end": "",
            "held": False,
        }
        self._log.append(entry)
        await self._tell()
        try:
            if self.latency:
                await asyncio.sleep(self.latency)
            goes_on = await self._with_faults(connection, request, faults, entry)
            entry["end"] = "sent" if goes_on else "cut"
        except ConnectionError:
            entry["end"] = "client closed"
            raise
        finally:
            await self._tell()
        return goes_on

    async def _with_faults(
        self, connection: _Connection, request: Request, faults: list[Fault], entry: dict[str, Any]
    ) -> bool:
        kinds = {fault.kind: fault for fault in faults}
        if late := kinds.get("late"):
            await self._hold(connection, late.seconds, entry)
        if "close" in kinds:
            return False
        answer = self.buckets.answer(request, changed="changed" in kinds)
        headers = {k: v for k, v in request.headers.items() if k != "range"}
        whole = dataclasses.replace(request, headers=headers)
        for fault in faults:
            replaced = fault.replaced(request, self.address)
            if replaced:
                answer = replaced
                break
            if request.range and answer.status == 206:
                answer = fault.altered(answer, self.buckets.answer(whole, "changed" in kinds))
        cut = next((kinds[kind] for kind in CUTS if kind in kinds), None)
        return await self._send(connection, request, answer, entry, cut, "chunked" in kinds)

    async def _send(
        self,
        connection: _Connection,
        request: Request,
        answer: Answer,
        entry: dict[str, Any] | None = None,
        cut: Fault | None = None,
        chunked: bool = False,
    ) -> bool:
        entry = {} if entry is None else entry
        entry.update(status=answer.status, sent=0)
        headers = {**answer.headers, "Content-Length": str(len(answer.body))}
        if chunked:
            del headers["Content-Length"]
            headers["Transfer-Encoding"] = "chunked"
        lines = [f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        writer = connection.writer
        writer.write("\r\n".join([*lines, "", ""]).encode("latin1"))
        await writer.drain()
        if request.method == "HEAD":
            return True
        body = memoryview(answer.body)
        size = len(body)
        if cut:
            size = len(body) // 2 if cut.bytes is None else min(cut.bytes, len(body))
        for at in range(0, size, _PIECE_BYTES):
            piece = body[at : min(at + _PIECE_BYTES, size)]
            if self.pace and request.bucket != "-":
                await self._wait_for_link(len(piece))
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
            await writer.drain()
            entry["sent"] += len(piece)
        if chunked and not cut:
            writer.write(b"0\r\n\r\n")
            await writer.drain()
        if cut and cut.kind == "stall":
            await self._hold(connection, cut.seconds, entry)
            writer.write(body[size:])
            await writer.drain()
            entry["sent"] = len(body)
            return True
        if cut and cut.kind == "rst":
            # What was sent has to arrive before: a reset drops what the client has not read.
            await asyncio.sleep(0.05)
            writer.transport.abort()
        return cut is None

    async def _wait_for_link(self, count: int) -> None:
        now = time.monotonic()
        # After a pause the link is not faster than before: it is free since at most one piece.
        self._free_at = max(self._free_at, now - _PIECE_BYTES / self.pace) + count / self.pace
        if self._free_at > now:
            await asyncio.sleep(self._free_at - now)

    async def _hold(
        self, connection: _Connection, seconds: float | None, entry: dict[str, Any]
    ) -> None:
        waits = [asyncio.ensure_future(one.wait()) for one in (self._released, connection.gone)]
        entry["held"] = True
        await self._tell()
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        entry["held"] = False
        for one in waits:
            one.cancel()
        if connection.gone.is_set():
            raise ConnectionResetError

    # Requests of the test

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _controlled(self, request: Request) -> Answer:
        stored = self.buckets.control(request)
        if stored:
            return stored
        if request.key == "wait":
            return await self._waited(**json.loads(request.body))
        if request.key == "fault":
            self._faults.append(Fault(**json.loads(request.body)))
        elif request.key == "no_faults":
            self._faults.clear()
        elif request.key == "release":
            self._released.set()
            self._released = asyncio.Event()
        elif request.key == "clear_log":
            self._log.clear()
        elif request.key == "log":
            return Answer(200, json.dumps(self._log).encode())
        else:
            return Answer(404)
        return Answer(200)

    async def _waited(self, has: str, count: int, timeout: float) -> Answer:
        def is_there() -> bool:
            return sum(1 for one in self._log if not has or one[has]) >= count

        async with self._changed:
            try:
                await asyncio.wait_for(self._changed.wait_for(is_there), timeout)
            except TimeoutError:
                return Answer(200)
        return Answer(200, json.dumps(self._log).encode())


async def _serve(
    host: str, pace: float, latency: float, certificate: str = "", size: int = 0
) -> None:
    loop = asyncio.get_running_loop()
    server = _Server(pace, latency)
    server.buckets.objects["data"] = {}
    if size:
        server.buckets.put("data", "big.bin", os.urandom(1 << 20) * (size >> 20))
    tls = None
    if certificate:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(certificate)
    port = 0
    for address in host.split(","):
        listening = await loop.create_server(
            lambda: _Protocol(server), address, port, backlog=1024, ssl=tls
        )
        port = listening.sockets[0].getsockname()[1]
    host = host.partition(",")[0]
    server.address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    print(port, flush=True)
    if size:
        await listening.serve_forever()
    # Ends with the process that has the other end of its input.
    await loop.run_in_executor(None, sys.stdin.buffer.read)
    os._exit(0)


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        asyncio.run(_serve(sys.argv[2], float(sys.argv[3]), float(sys.argv[4]), sys.argv[5]))
    else:
        numbers = [float(one) for one in sys.argv[2:]]
        asyncio.run(_serve("127.0.0.1", *[*numbers, 0, 0][:2], size=int(sys.argv[1])))
