"""Faults of the object server: which requests have one, and what the server answers instead."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from served_objects.served_buckets import Answer, Request, refusal

CUTS = ("fin", "rst", "stall")
"""They end or stop the body in the middle: by FIN, by RST, or with the connection left open."""
KINDS = (
    *CUTS,
    "late",  # waits before the first byte, for `seconds` or until release()
    "close",  # closes the connection without an answer
    "whole",  # 200 with the whole object for a range
    "shifted",  # another range than asked for, and says so
    "short",  # half of the range, and says so
    "lying",  # half of the range, but says that it is all of it
    "chunked",  # no Content-Length
    "changed",  # another version of the object: other bytes, another ETag
    "no-etag",
    "no-version",  # neither ETag nor Last-Modified
    "elsewhere",  # 307 to the same key with ".moved" behind it
    "other-region",  # 301 as of S3 for a bucket of another region
    *("slow-down", "too-many", "error", "denied", "missing", "range"),
    *("expired", "skewed"),
)
_REFUSALS = {
    "slow-down": (503, "SlowDown"),
    "too-many": (429, "TooManyRequests"),
    "error": (500, "InternalError"),
    "denied": (403, "AccessDenied"),
    "missing": (404, "NoSuchKey"),
    "range": (416, "InvalidRange"),
    "expired": (400, "ExpiredToken"),
    "skewed": (403, "RequestTimeTooSkewed"),
}


@dataclass
class Fault:
    """What happens to requests for keys that match. Of each range, `times` tries have the fault,
    after the first `after` ones that have not; times=None: all of them. Tries are counted by the
    key and the last byte asked for: a body that is resumed is the next try."""

    kind: str
    key: str = "*"
    method: str = "GET"  # "*": any
    access_key: str = ""  # of the signature; "": any
    times: int | None = 1
    after: int = 0
    skip: int = 0  # the first so many, of all requests that it would happen to, have it not
    every: int = 1  # then only the first, and every N-th further one
    most: int | None = None  # so many requests at most, of all
    within: float | None = None  # seconds since the first one
    bytes: int | None = None  # of the body that are sent before it is cut; None: half
    seconds: float | None = None  # of "late" and "stall"; None: until release()
    retry_after: int | None = None  # seconds; a header of "slow-down" and "too-many"
    _tries: Counter[tuple[str, str, int | None]] = field(default_factory=Counter)
    _seen: int = 0
    _began: float | None = None

    def applies(self, request: Request) -> bool:
        if self.method not in ("*", request.method) or not fnmatchcase(request.key, self.key):
            return False
        if self.access_key not in ("", request.access_key):
            return False
        last = request.range[1] if request.range else None
        of_range = (request.bucket, request.key, last)
        tried = self._tries[of_range]
        self._tries[of_range] += 1
        if tried < self.after or (self.times is not None and tried >= self.after + self.times):
            return False
        now = time.monotonic()
        self._began = now if self._began is None else self._began
        if self.within is not None and now > self._began + self.within:
            return False
        number, self._seen = self._seen - self.skip, self._seen + 1
        in_turn = number >= 0 and number % self.every == 0
        return in_turn and (self.most is None or number // self.every < self.most)

    def replaced(self, request: Request, address: str) -> Answer | None:
        """What is answered in place of an answer. None: not a fault of that sort."""
        if self.kind in _REFUSALS:
            status, code = _REFUSALS[self.kind]
            headers = {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}
            return refusal(status, code, **headers)
        if self.kind == "other-region":
            headers = {"x-amz-bucket-region": "eu-west-1"}
            return refusal(301, "PermanentRedirect", "use the bucket's endpoint", **headers)
        if self.kind == "elsewhere":
            where = f"{address}/{request.bucket}/{request.key}.moved"
            return Answer(307, b"", {"Location": where})
        return None

    def altered(self, answer: Answer, whole: Answer) -> Answer:
        """The answer, made wrong. `whole`: the answer to the same request without a range."""
        if self.kind == "whole":
            return whole
        if self.kind == "no-etag":
            answer.headers.pop("ETag", None)
        if self.kind == "no-version":
            for name in ("ETag", "Last-Modified"):
                answer.headers.pop(name, None)
        if self.kind in ("shifted", "short", "lying") and answer.status == 206:
            span, _, size = answer.headers["Content-Range"].removeprefix("bytes ").partition("/")
            first, last = map(int, span.split("-"))
            if self.kind == "shifted":
                first, last = (first - 1, last - 1) if first else (first + 1, last + 1)
                answer.body = memoryview(whole.body)[first : last + 1]
            else:
                shorter = first + max(1, (last + 1 - first) // 2)
                answer.body = answer.body[: shorter - first]
                last = shorter - 1 if self.kind == "short" else last
            answer.headers["Content-Range"] = f"bytes {first}-{last}/{size}"
        return answer
