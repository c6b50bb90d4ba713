"""obstore's errors, as what went wrong and what to do. Their own texts are never shown whole: they
may have credentials in a quoted request, and are long."""

from __future__ import annotations

import errno
import re
from collections.abc import Container
from enum import IntEnum
from typing import NamedTuple

from headrace._objects.clients.addresses import Address


class Result(IntEnum):
    """AttemptResult of src/store/objects/read_events.h."""

    OK = 0
    SLOW_DOWN = 1
    BROKEN = 2
    REFUSED = 3
    CHANGED = 4
    ABSENT = 5


class Failure(NamedTuple):
    """How a request failed."""

    result: Result
    cause: str
    code: int = errno.EIO  # of an OSError
    renew: bool = False  # with a client made anew it may succeed

    def os_error(self, path: str) -> OSError:
        """One of the class that belongs to the number; the cause is its `strerror`."""
        return OSError(self.code, self.cause, path)


_TRIES = 6
_TRIES_TO_CONNECT = 3
_AWAY = (errno.ECONNREFUSED, errno.EHOSTUNREACH)
_FIRST_WAIT_S = 0.2  # doubled after each try
_WAIT_S_MAX = 5.0
_SLOW_S_MAX = 300.0  # that a job waits for a store which asks for fewer requests: objects.md


def wait_after(failed: Failure, tries: int, waited_s: float, *, of_data: bool) -> float | None:
    """Seconds until a request of the place that has failed `tries` times is made again; None:
    never. `of_data`: of a range of an object, for which a job may wait."""
    wait_s = min(_FIRST_WAIT_S * 2 ** (tries - 1), _WAIT_S_MAX)
    if failed.result == Result.SLOW_DOWN and of_data:
        return wait_s if waited_s < _SLOW_S_MAX else None
    may_pass = failed.result in (Result.BROKEN, Result.SLOW_DOWN)
    tries_max = _TRIES_TO_CONNECT if failed.code in _AWAY else _TRIES
    return wait_s if may_pass and tries < tries_max else None


_STATUS = re.compile(r"non-2xx status code: (\d{3})")
_CODE = re.compile(r"<Code>\s*([A-Za-z0-9_.]{1,60})\s*</Code>")
_REGION = re.compile(r"<Region>([a-z0-9-]{1,40})</Region>")
_KIND = re.compile(r"\bkind: (Connect|Timeout|Interrupted|Decode|Request|Unknown),")
_HOST = re.compile(r"Error performing \w+ (\w+://[^/?\s@]+)")
_USER = re.compile(r"(://)[^/?\s\"]*@")
_RANGES = re.compile(r"Requested (\d+)\.\.(\d+), got (\d+)\.\.(\d+)")

_METADATA = ("169.254.169.254", "169.254.170.2", "metadata.google.internal", "metadata")
_CLOCK = "the clock of this machine is off; set it: timedatectl set-ntp true"
_KEYS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
    "http": "a URL that needs no credentials: none are sent",
    "https": "a URL that needs no credentials: none are sent",
}
_EXPIRED = frozenset({"ExpiredToken", "TokenRefreshRequired", "ExpiredTokenException"})
_SKEWED = frozenset({"RequestTimeTooSkewed", "RequestExpired"})
_NO_BUCKET = frozenset({"NoSuchBucket", "ContainerNotFound"})
_REGIONS = frozenset(
    {"PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"}
)
_WRONG_KEYS = frozenset(
    {"InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "AuthenticationFailed"}
)
_BUSY = frozenset({"SlowDown", "ServerBusy", "RequestLimitExceeded", "TooManyRequests"})


def failure(error: BaseException, address: Address, right: str = "read and list") -> Failure:
    """What an error of a request for the address says. `right`: what the request needs."""
    text = without_user(str(error))
    found = _CODE.search(text)
    code = found[1] if found else ""
    number = _STATUS.search(text)
    status = int(number[1]) if number else 0
    name = type(error).__name__
    host = _HOST.search(text)
    if host and host[1].partition("://")[2].partition(":")[0] in _METADATA:
        return _no_credentials(status, text, address)
    if name == "PreconditionError" or status == 412:
        return Failure(Result.CHANGED, "the object has changed since it was indexed")
    if status or code:
        return _answered(status, code, text, address, right)
    if isinstance(error, FileNotFoundError):
        return _missing(code, address)
    if name in ("PermissionDeniedError", "UnauthenticatedError"):
        return _denied(status, code, address, right)
    return _not_answered(error, text, address)


def says_only_status(error: BaseException, statuses: Container[int]) -> bool:
    """Whether the server answered with one of these, and no code that says why."""
    text = str(error)
    number = _STATUS.search(text)
    return number is not None and int(number[1]) in statuses and not _CODE.search(text)


def _no_credentials(status: int, text: str, address: Address) -> Failure:
    """The last place where the client looks for them is the service of a cloud's machines."""
    cause = (
        f"no credentials were found, and this machine is given none; set {_KEYS[address.scheme]}"
    )
    if address.scheme == "s3":
        cause += "; for a bucket that anybody may read, AWS_SKIP_SIGNATURE=true"
    busy = status == 429 or status >= 500 or "kind: Timeout" in text
    return Failure(Result.BROKEN if busy else Result.REFUSED, cause, errno.EACCES)


def _answered(status: int, code: str, text: str, address: Address, right: str) -> Failure:
    """A status, and S3's code where the body has one."""
    said = f"the server answered {status}" + (f" {code}" if code else "")
    if status in (429, 503) or code in _BUSY:
        return Failure(Result.SLOW_DOWN, f"{said}: it asks for fewer requests", errno.EAGAIN)
    if code in _EXPIRED:
        cause = f"{said}: the credentials have expired; get new ones: {_KEYS[address.scheme]}"
        return Failure(Result.BROKEN, cause, errno.EACCES, renew=True)
    if code in _SKEWED:
        return Failure(Result.REFUSED, f"{said}: {_CLOCK}", errno.EACCES)
    if code in _REGIONS or status == 301:
        return _elsewhere(said, text, address)
    if status == 404:
        return _missing(code, address)
    if status in (401, 403) or code in _WRONG_KEYS:
        return _denied(status, code, address, right)
    if status == 416:
        return Failure(Result.CHANGED, f"{said}: the object is shorter than when it was indexed")
    if status >= 500 or status == 408 or code == "RequestTimeout":
        return Failure(Result.BROKEN, said)
    return Failure(Result.REFUSED, f"{said}; check the endpoint, and what it serves")


def _missing(code: str, address: Address) -> Failure:
    if code in _NO_BUCKET:
        what = "container" if address.scheme == "az" else "bucket"
        cause = f"there is no {what} {address.root}; correct the name, or the endpoint"
        return Failure(Result.REFUSED, cause, errno.ENOENT)
    return Failure(Result.ABSENT, "there is no such object", errno.ENOENT)


def _denied(status: int, code: str, address: Address, right: str) -> Failure:
    said = f"the server answered {status or 403}" + (f" {code}" if code else "")
    keys = _KEYS[address.scheme]
    if code in _WRONG_KEYS:
        cause = f"{said}: the credentials are wrong; correct {keys}"
    elif code == "InvalidObjectState":
        cause = f"{said}: the object is archived; restore it first"
    elif address.scheme in ("http", "https"):
        cause = f"{said}: give {keys}"
    else:
        cause = (
            f"{said}: these credentials may not do this; ask the bucket's owner for the right to "
            f"{right}, or use other credentials: {keys}"
        )
    return Failure(Result.REFUSED, cause, errno.EACCES)


def _elsewhere(said: str, text: str, address: Address) -> Failure:
    region = _REGION.search(text)
    where = region[1] if region else "REGION"
    remedy = (
        f"set AWS_REGION={where}" if address.scheme == "s3" else "use the address of its region"
    )
    return Failure(
        Result.REFUSED, f"{said}: the bucket {address.root} is in another region; {remedy}"
    )


def _not_answered(error: BaseException, text: str, address: Address) -> Failure:
    """No status: the connection, or an answer that the client refused."""
    ranges = _RANGES.search(text)
    whole = "non-partial response" in text or "Range request not supported" in text
    if ranges or whole or "Content-Length Header missing" in text:
        what = "the whole object for a range" if whole else "no Content-Length"
        if ranges:
            asked, got = (f"[{ranges[at]}, {ranges[at + 1]})" for at in (1, 3))
            what = f"bytes {got} in place of {asked}"
        cause = f"the server sent {what}: it cannot serve ranges; use another server, or a copy"
        return Failure(Result.REFUSED, cause)
    if "without LOCATION" in text:
        return _elsewhere("the server answered 301", text, address)
    host = _HOST.search(text)
    server = host[1] if host else address.store
    if "TooManyRedirects" in text:
        cause = f"{server} redirects without end; correct the endpoint"
        return Failure(Result.REFUSED, cause, errno.ELOOP)
    if "BadScheme" in text:
        return Failure(Result.REFUSED, f"{server} is http, where https is asked for")
    if any(word in text.lower() for word in ("certificate", "invalidcert", "unknownissuer")):
        variable = "AWS_CA_BUNDLE" if address.scheme == "s3" else "SSL_CERT_FILE"
        cause = (
            f"the certificate of {server} is not trusted; set {variable} to its authority's file"
        )
        return Failure(Result.REFUSED, cause)
    kind = _KIND.search(text)
    if kind:
        return _cut(kind[1], text, server)
    if isinstance(error, ValueError | TypeError):
        return Failure(Result.REFUSED, _first_line(text), errno.EINVAL)
    return Failure(Result.BROKEN, f"{type(error).__name__}: {_first_line(text)}")


def _cut(kind: str, text: str, server: str) -> Failure:
    if "dns error" in text:
        cause = f"{server}: its name is not known; correct the endpoint, or this machine's DNS"
        return Failure(Result.BROKEN, cause, errno.EHOSTUNREACH)
    if "ConnectionRefused" in text:
        cause = f"{server} refused the connection; start it, or correct the endpoint"
        return Failure(Result.BROKEN, cause, errno.ECONNREFUSED)
    if kind == "Timeout":
        return Failure(Result.BROKEN, f"{server} did not answer in time", errno.ETIMEDOUT)
    if kind == "Connect":
        cause = f"{server} cannot be reached; correct the endpoint or the proxy"
        return Failure(Result.BROKEN, cause, errno.ECONNREFUSED)
    if "body" in text:
        return Failure(Result.BROKEN, f"{server} ended the body early", errno.ECONNRESET)
    return Failure(Result.BROKEN, f"{server} closed the connection", errno.ECONNRESET)


def without_user(text: str) -> str:
    """The text; its URLs lose a user and password, which an endpoint may have."""
    return _USER.sub(r"\1", text)


def _first_line(text: str) -> str:
    """Without what may have a secret: a query, and obstore's structures."""
    line = text.split("\n", 1)[0].split("Debug source", 1)[0]
    return re.sub(r"\?\S*", "?...", line).strip()[:200]
