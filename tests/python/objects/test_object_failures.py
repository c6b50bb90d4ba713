"""What errors of the client say that no server of these tests can cause."""

from __future__ import annotations

import errno

import pytest

from headrace._objects.clients.addresses import object_address
from headrace._objects.clients.failures import Failure, Result, failure, wait_after

SECRET = "FwoGZXIvYXdzEBYaD-not-a-token"


class GenericError(Exception):
    """Named as obstore's."""


def failed(text: str, url: str = "s3://data/x", error: type[Exception] = GenericError) -> Failure:
    return failure(error(text), object_address(url))


def answered(status: str, body: str, url: str = "s3://data/x") -> Failure:
    return failed(
        f"Generic S3 error: Error performing GET https://s3.amazonaws.com/data/x in 1ms - Server "
        f"returned non-2xx status code: {status}: {body}\n\nDebug source: ...",
        url,
    )


@pytest.mark.parametrize(
    ("status", "body", "result", "cause"),
    [
        (
            "403 Forbidden",
            "<Code>SignatureDoesNotMatch</Code><StringToSign>x-amz-security-token:{}",
            Result.REFUSED,
            "403 SignatureDoesNotMatch: the credentials are wrong; correct AWS_ACCESS_KEY_ID",
        ),
        (
            "400 Bad Request",
            "<Code>AuthorizationHeaderMalformed</Code><Region>eu-central-1</Region>{}",
            Result.REFUSED,
            "the bucket data is in another region; set AWS_REGION=eu-central-1",
        ),
        (
            "403 Forbidden",
            "<Code>InvalidObjectState</Code>{}",
            Result.REFUSED,
            "the object is archived; restore it first",
        ),
        ("502 Bad Gateway", "<html>{}", Result.BROKEN, "the server answered 502"),
        ("400 Bad Request", "<Code>RequestTimeout</Code>{}", Result.BROKEN, "400 RequestTimeout"),
        ("400 Bad Request", "<Code>Weird</Code>{}", Result.REFUSED, "answered 400 Weird"),
        ("503 Service Unavailable", "{}", Result.SLOW_DOWN, "answered 503: it asks for fewer"),
    ],
)
def test_an_answer_is_read_by_its_code_and_its_text_is_not_shown(
    status: str, body: str, result: Result, cause: str
) -> None:
    found = answered(status, body.format(SECRET))
    assert found.result is result
    assert cause in found.cause
    assert SECRET not in found.cause


@pytest.mark.parametrize(
    ("url", "host", "what"),
    [
        (
            "s3://data/x",
            "http://169.254.169.254",
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        ),
        ("gs://data/x", "http://metadata.google.internal", "set GOOGLE_APPLICATION_CREDENTIALS"),
    ],
)
def test_credentials_that_nobody_gives_are_said_to_be_missing(
    url: str, host: str, what: str
) -> None:
    text = f"Error performing GET {host}/computeMetadata in 9ms - "
    for ending, result in (
        ("Server returned non-2xx status code: 403 Forbidden: no", Result.REFUSED),
        ("HTTP error: error sending request ... kind: Connect, ... dns error", Result.REFUSED),
        ("HTTP error: error sending request ... kind: Timeout, ...", Result.BROKEN),
        ("Server returned non-2xx status code: 503 Busy: no", Result.BROKEN),
    ):
        found = failed(text + ending, url)
        assert found.result is result
        assert found.cause.startswith("no credentials were found, and this machine is given none")
        assert what in found.cause


def test_a_failure_is_the_os_error_of_its_number() -> None:
    text = "Error performing GET https://host/x in 1ms - Server returned non-2xx status code: "
    for ending, error in (
        ("404 Not Found", FileNotFoundError),
        ("403 Forbidden", PermissionError),
        ("503 Slow Down", BlockingIOError),
        ("HTTP error: error sending request kind: Timeout,", TimeoutError),
    ):
        found = failed((text if ending[0] in "45" else text[:45]) + ending, "https://host/x")
        raised = found.os_error("https://host/x")
        assert type(raised) is error
        assert (raised.filename, raised.strerror) == ("https://host/x", found.cause)
    assert failed("?", error=FileNotFoundError).code == errno.ENOENT


def test_a_text_of_no_known_sort_loses_its_query() -> None:
    found = failed(f"odd https://h/x?X-Amz-Signature={SECRET} thing\nDebug source: {SECRET}")
    assert found == Failure(Result.BROKEN, "GenericError: odd https://h/x?... thing")


SLOW = Failure(Result.SLOW_DOWN, "503", errno.EAGAIN)
WAITS: dict[str, tuple[Failure, bool, int, float]] = {
    "of a range that the store is to slow down": (SLOW, True, 65, 300),
    "of a list that the store is to slow down": (SLOW, False, 6, 6.2),
    "broken": (Failure(Result.BROKEN, "cut"), True, 6, 6.2),
    "not to be reached": (Failure(Result.BROKEN, "refused", errno.ECONNREFUSED), True, 3, 0.6),
    "refused": (Failure(Result.REFUSED, "403"), True, 1, 0),
}


@pytest.mark.parametrize("what", WAITS)
def test_the_place_tries_again_what_may_pass(what: str) -> None:
    failed, of_data, tries, seconds = WAITS[what]
    waits: list[float] = []
    while (wait := wait_after(failed, len(waits) + 1, sum(waits), of_data=of_data)) is not None:
        waits.append(wait)
    assert len(waits) == tries - 1
    assert seconds <= sum(waits) + 1e-9 < seconds + 5
    assert waits == sorted(waits)
