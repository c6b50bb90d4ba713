"""What a fetcher makes of each fault of a server: the result, the bytes, and words that help."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from fetcher_process import End, Fetcher
from served_objects.object_server import ObjectServer

from headrace._objects.clients.failures import Result

pytest.importorskip("obstore")

DATA = random.Random(7).randbytes(2_000_000)
SIZE = 1_000_000
OFFSET = 1000
WANT = DATA[OFFSET : OFFSET + SIZE]
SECRETS = ("secret-of-test", "token-of-test")


@pytest.fixture(scope="module")
def server() -> Iterator[ObjectServer]:
    with ObjectServer() as made:
        made.put("x", DATA)
        yield made


@pytest.fixture(scope="module")
def shared(server: ObjectServer) -> Iterator[Fetcher]:
    with Fetcher({**server.environment(), "AWS_SESSION_TOKEN": "token-of-test"}) as made:
        yield made


@pytest.fixture
def fetcher(server: ObjectServer, shared: Fetcher) -> Fetcher:
    server.no_faults()
    server.put("x", DATA)
    server.clear_log()
    shared.memory[:] = bytes(len(shared.memory))
    return shared


def read(fetcher: Fetcher, url: str = "s3://data/x", **fields: Any) -> tuple[End, bytes]:
    one = {"url": url, "offset": OFFSET, "size": SIZE, "object_bytes": len(DATA), **fields}
    end, got = fetcher.read(**one)
    assert not any(secret in end.cause for secret in SECRETS)
    assert got == DATA[one["offset"] :][: end.received] or end.result is Result.CHANGED
    return end, got


FAULTS = [
    ("fin", Result.BROKEN, "ended the body early"),
    ("rst", Result.BROKEN, "ended the body early"),
    ("close", Result.BROKEN, "closed the connection"),
    ("error", Result.BROKEN, "the server answered 500 InternalError"),
    ("slow-down", Result.SLOW_DOWN, "the server answered 503 SlowDown: it asks for fewer"),
    ("too-many", Result.SLOW_DOWN, "the server answered 429 TooManyRequests: it asks for fewer"),
    ("expired", Result.BROKEN, "400 ExpiredToken: the credentials have expired; get new ones"),
    ("whole", Result.REFUSED, "the server sent the whole object for a range"),
    ("shifted", Result.REFUSED, "sent bytes [999, 1000999) in place of [1000, 1001000)"),
    ("short", Result.REFUSED, "sent bytes [1000, 501000) in place of [1000, 1001000)"),
    ("lying", Result.BROKEN, "the body ended 500000 bytes early"),
    ("chunked", Result.REFUSED, "the server sent no Content-Length"),
    ("range", Result.CHANGED, "416 InvalidRange: the object is shorter than when it was indexed"),
    ("denied", Result.REFUSED, "403 AccessDenied: these credentials may not do this; ask"),
    ("missing", Result.ABSENT, "there is no such object"),
    ("skewed", Result.REFUSED, "403 RequestTimeTooSkewed: the clock of this machine is off"),
    ("other-region", Result.REFUSED, "the bucket data is in another region; set AWS_REGION="),
]


@pytest.mark.parametrize(("kind", "result", "cause"), FAULTS)
def test_a_fault_is_one_request_and_one_end(
    fetcher: Fetcher, server: ObjectServer, kind: str, result: Result, cause: str
) -> None:
    server.fault(kind)
    end, got = read(fetcher)
    assert end.result is result
    assert cause in end.cause
    assert "\n" not in end.cause
    assert len(server.log()) == 1
    # The next try gets the rest, as the reads ask for it.
    again, rest = read(fetcher, offset=OFFSET + end.received, size=SIZE - end.received)
    assert again.result is Result.OK
    assert got + rest == WANT


@pytest.mark.parametrize("kind", ["fin", "rst"])
def test_what_arrived_of_a_body_is_kept(fetcher: Fetcher, server: ObjectServer, kind: str) -> None:
    server.fault(kind, bytes=600_000)
    end, _ = read(fetcher)
    assert end.result is Result.BROKEN
    assert 600_000 - 2 * 65536 <= end.received <= 600_000


@pytest.mark.parametrize(
    ("kind", "result"),
    [
        *((kind, Result.REFUSED) for kind in ("whole", "shifted", "denied")),
        *(("missing", Result.ABSENT), ("slow-down", Result.SLOW_DOWN), ("fin", Result.BROKEN)),
    ],
)
@pytest.mark.parametrize("scheme", ["gs", "http"])
def test_gs_and_http_are_read_alike(
    fetcher: Fetcher, server: ObjectServer, scheme: str, kind: str, result: Result
) -> None:
    url = f"{server.url}/data/x" if scheme == "http" else "gs://data/x"
    assert read(fetcher, url)[1] == WANT
    server.no_faults()
    server.fault(kind, times=None)
    assert read(fetcher, url)[0].result is result


@pytest.mark.parametrize("kind", ["late", "stall"])
def test_a_pause_is_waited_for(fetcher: Fetcher, server: ObjectServer, kind: str) -> None:
    server.fault(kind, seconds=0.2)
    end, got = read(fetcher)
    assert (end.result, got) == (Result.OK, WANT)


def test_a_redirect_is_followed(fetcher: Fetcher, server: ObjectServer) -> None:
    server.put("x.moved", DATA)
    server.fault("elsewhere", key="x")
    end, got = read(fetcher)
    assert (end.cause, got) == ("", WANT)
    assert [one["key"] for one in server.log()] == ["x", "x.moved"]
    server.fault("elsewhere", times=None)
    end, _ = read(fetcher)
    assert end.result is Result.REFUSED
    assert end.cause == f"{server.url} redirects without end; correct the endpoint"


# Versions


def test_another_version_is_no_byte(fetcher: Fetcher, server: ObjectServer) -> None:
    indexed = server.etag("x")
    assert read(fetcher, version=indexed)[1] == WANT  # the ETag is known from now on
    server.put("x", bytes(255 - byte for byte in DATA))
    end, _ = read(fetcher, version=indexed)
    assert (end.result, end.received) == (Result.CHANGED, 0)
    assert end.cause == "the object has changed since it was indexed"
    first, second = server.log()
    assert (first["if_match"], first["status"]) == (None, 206)
    assert (second["if_match"], second["status"]) == (indexed, 412)
    # An index of the new version.
    indexed = server.etag("x")
    for _ in range(2):
        (number,) = fetcher.start(
            {"url": "s3://data/x", "size": 9, "object_bytes": len(DATA), "version": indexed}
        )
        assert fetcher.end(number).result is Result.OK
    assert [one["if_match"] for one in server.log()[2:]] == [None, indexed]


def test_a_version_that_changes_within_a_range_is_found(
    fetcher: Fetcher, server: ObjectServer
) -> None:
    indexed = server.etag("x")
    server.fault("rst", bytes=500_000)
    server.fault("changed", after=1, times=None)
    end, _ = read(fetcher, version=indexed)
    assert end.result is Result.BROKEN
    end, _ = read(fetcher, version=indexed, offset=OFFSET + end.received, size=SIZE - end.received)
    assert (end.result, end.received) == (Result.CHANGED, 0)


def test_a_server_that_ignores_if_match_is_compared(fetcher: Fetcher, server: ObjectServer) -> None:
    server.put("old", DATA)
    end, _ = read(fetcher, "s3://data/old", version='"another"')
    assert (end.result, end.received) == (Result.CHANGED, 0)
    assert server.log()[0]["status"] == 206


def test_another_size_is_another_version(fetcher: Fetcher) -> None:
    end, _ = read(fetcher, object_bytes=len(DATA) + 1, version=0)
    assert (end.result, end.received) == (Result.CHANGED, 0)
    assert end.cause == "the object has 2000000 bytes, and had 2000001 when it was indexed"


@pytest.mark.parametrize("kind", ["no-etag", "no-version"])
def test_a_server_without_etags_is_read(fetcher: Fetcher, server: ObjectServer, kind: str) -> None:
    server.fault(kind, times=None)
    assert read(fetcher)[1] == WANT
    end, got = read(fetcher, version='"etag"')
    if kind == "no-etag":  # the time is compared
        assert end.result is Result.CHANGED
    else:
        assert got == WANT


# What cannot be reached, and credentials


def test_an_endpoint_that_nobody_serves_is_named(server: ObjectServer) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        for endpoint, cause in (
            (f"http://127.0.0.1:{port}", f"http://127.0.0.1:{port} refused the connection"),
            ("http://no-such-host.invalid", "http://no-such-host.invalid: its name is not known"),
        ):
            environment = {**server.environment(), "AWS_ENDPOINT_URL": endpoint}
            with Fetcher(environment) as fetcher:
                end, _ = read(fetcher)
                assert end.result is Result.BROKEN
                assert cause in end.cause
                assert "; " in end.cause


def test_no_bucket_is_told_from_no_object(fetcher: Fetcher) -> None:
    end, _ = read(fetcher, "s3://nothing-here/x")
    assert end.result is Result.REFUSED
    assert end.cause == ("there is no bucket nothing-here; correct the name, or the endpoint")


def test_expired_credentials_are_read_again(server: ObjectServer, tmp_path: Any) -> None:
    server.no_faults()
    server.clear_log()
    profile = tmp_path / "credentials"
    text = "[default]\naws_access_key_id = {}\naws_secret_access_key = secret-of-test\n"
    profile.write_text(text.format("FIRST"))
    environment = {
        **server.environment(),
        "AWS_SHARED_CREDENTIALS_FILE": str(profile),
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_ACCESS_KEY_ID": "",
        "AWS_SECRET_ACCESS_KEY": "",
    }
    with Fetcher(environment) as fetcher:
        assert read(fetcher)[1] == WANT
        profile.write_text(text.format("SECOND"))
        server.fault("expired", after=1)
        assert read(fetcher)[1] == WANT
        assert read(fetcher)[0].result is Result.BROKEN
        assert read(fetcher)[1] == WANT
    assert [one["access_key"] for one in server.log()] == ["FIRST"] * 3 + ["SECOND"]


def test_no_credentials_are_a_refusal_without_a_request(server: ObjectServer) -> None:
    server.clear_log()
    environment = {
        **server.environment(),
        "AWS_ACCESS_KEY_ID": "",
        "AWS_SECRET_ACCESS_KEY": "",
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_CONFIG_FILE": os.devnull,
    }
    with Fetcher(environment) as fetcher:
        end, _ = read(fetcher)
        assert end.result is Result.REFUSED
        assert "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE" in end.cause
    assert server.log() == []
    with Fetcher({**environment, "AWS_SKIP_SIGNATURE": "true"}) as fetcher:
        assert read(fetcher)[1] == WANT
    assert server.log()[0]["access_key"] == ""


def test_a_proxy_of_the_environment_is_used(server: ObjectServer) -> None:
    server.clear_log()
    environment = {**server.environment(), "AWS_ENDPOINT_URL": "http://s3.invalid"}
    with Fetcher({**environment, "HTTP_PROXY": server.url}) as fetcher:
        assert read(fetcher)[1] == WANT
    with Fetcher({**environment, "HTTP_PROXY": server.url, "NO_PROXY": "s3.invalid"}) as fetcher:
        assert "http://s3.invalid: its name is not known" in read(fetcher)[0].cause
    assert len(server.log()) == 1
