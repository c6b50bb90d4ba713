"""Buckets in memory, and S3's answers about them, for object_server.py. No sockets, no faults."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from email.utils import formatdate
from urllib.parse import quote, unquote
from xml.sax.saxutils import escape

XML = "application/xml"
_OTHER_BYTES = bytes(range(255, -1, -1))


@dataclass
class Request:
    method: str
    bucket: str
    key: str
    query: dict[str, str]
    headers: dict[str, str]  # by their names in small letters
    body: bytes = b""

    @property
    def range(self) -> tuple[int, int | None] | None:
        """First byte and last, as asked for; first -N for the last N."""
        found = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("range", ""))
        if not found or found[0] == "bytes=-":
            return None
        if not found[1]:
            return -int(found[2]), None
        return int(found[1]), int(found[2]) if found[2] else None

    @property
    def access_key(self) -> str:
        """Of S3's signature, AWS4-HMAC-SHA256 Credential=KEY/DATE/...; empty of gs."""
        signature = self.headers.get("authorization", "")
        return signature.partition("Credential=")[2].partition("/")[0]


@dataclass
class Answer:
    status: int
    body: bytes | memoryview = b""
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class Object:
    data: bytes
    etag: str
    modified: float

    @classmethod
    def of(cls, data: bytes) -> Object:
        # S3's is such a sum, too.
        return cls(data, f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"', time.time())

    def headers(self) -> dict[str, str]:
        return {
            "ETag": self.etag,
            "Last-Modified": formatdate(self.modified, usegmt=True),
            "Accept-Ranges": "bytes",
            "x-goog-generation": str(int(self.modified * 1e6)),
        }


@dataclass
class Upload:
    bucket: str
    key: str
    parts: dict[int, Object] = field(default_factory=dict)


def refusal(status: int, code: str, message: str = "", **headers: str) -> Answer:
    body = (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code>'
        f"<Message>{escape(message or code)}</Message><RequestId>1</RequestId></Error>"
    )
    return Answer(status, body.encode(), {"Content-Type": XML, **headers})


class Buckets:
    """What is stored, and the answers of S3's API. gs is served, too: its XML API is S3's."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Object]] = {}
        self.uploads: dict[str, Upload] = {}
        self.begun = 0  # uploads

    def put(self, bucket: str, key: str, data: bytes) -> None:
        self.objects.setdefault(bucket, {})[key] = Object.of(data)

    def answer(self, request: Request, changed: bool = False) -> Answer:
        """`changed`: as if the object had been written again, with other bytes of the same size."""
        if request.bucket not in self.objects:
            return refusal(404, "NoSuchBucket", "The specified bucket does not exist")
        of_bucket: dict[str, Callable[[Request], Answer]] = {
            "GET": self._list_uploads if "uploads" in request.query else self._list,
            "HEAD": lambda _: Answer(200),
            "POST": self._delete_several,
        }
        of_key: dict[str, Callable[[Request], Answer]] = {
            "GET": self._list_parts if "uploadId" in request.query else self._get,
            "HEAD": self._get,
            "PUT": self._put_part if "partNumber" in request.query else self._put,
            "POST": self._create if "uploads" in request.query else self._complete,
            "DELETE": self._abort if "uploadId" in request.query else self._delete,
        }
        if request.key and changed and request.method in ("GET", "HEAD"):
            was = self.objects[request.bucket].get(request.key)
            if was is not None:
                return self._read(request, Object.of(was.data.translate(_OTHER_BYTES)))
        chosen = (of_key if request.key else of_bucket).get(request.method)
        return chosen(request) if chosen else refusal(405, "MethodNotAllowed")

    # Objects

    def _get(self, request: Request) -> Answer:
        found = self.objects[request.bucket].get(request.key)
        if found is None:
            return refusal(404, "NoSuchKey", "The specified key does not exist.")
        return self._read(request, found)

    @staticmethod
    def _read(request: Request, found: Object) -> Answer:
        headers = found.headers()
        match = request.headers.get("if-match")
        if match not in (None, "*") and found.etag not in map(str.strip, match.split(",")):
            return refusal(412, "PreconditionFailed", **headers)
        size = len(found.data)
        if request.range is None:
            return Answer(200, memoryview(found.data), headers)
        first, last = request.range
        if first < 0:
            first = max(0, size + first)
        last = size - 1 if last is None else min(last, size - 1)
        if first >= size or last < first:
            return refusal(416, "InvalidRange", **{"Content-Range": f"bytes */{size}"})
        headers["Content-Range"] = f"bytes {first}-{last}/{size}"
        return Answer(206, memoryview(found.data)[first : last + 1], headers)

    def _put(self, request: Request) -> Answer:
        return self._store(request, Object.of(request.body))

    def _store(self, request: Request, new: Object) -> Answer:
        held = self.objects[request.bucket]
        there = held.get(request.key)
        absent = request.headers.get("if-none-match") == "*"
        absent = absent or request.headers.get("x-goog-if-generation-match") == "0"
        match = request.headers.get("if-match")
        if (absent and there) or (match and (not there or there.etag != match)):
            return refusal(412, "PreconditionFailed")
        held[request.key] = new
        return Answer(200, b"", new.headers())

    def _delete(self, request: Request) -> Answer:
        self.objects[request.bucket].pop(request.key, None)
        return Answer(204)

    def _delete_several(self, request: Request) -> Answer:
        body = ""
        for key in re.findall(r"<Key>(.*?)</Key>", request.body.decode()):
            self.objects[request.bucket].pop(_plain(key), None)
            body += f"<Deleted><Key>{key}</Key></Deleted>"
        return _xml("DeleteResult", body)

    # Lists

    def _list(self, request: Request) -> Answer:
        query = request.query
        page = int(query.get("max-keys", "1000"))
        url = query.get("encoding-type") == "url"
        entries, more = [], ""
        after = query.get("continuation-token") or query.get("start-after", "")
        for name, key in self._names(request.bucket, query.get("prefix", ""), query, after):
            if len(entries) == page:
                more = entries[-1][0]
                break
            entries.append((name, key))
        shown: Callable[[str], str] = (lambda text: quote(text, safe="/")) if url else escape
        body = f"<Name>{request.bucket}</Name><Prefix>{shown(query.get('prefix', ''))}</Prefix>"
        body += f"<KeyCount>{len(entries)}</KeyCount><MaxKeys>{page}</MaxKeys>"
        if url:
            body += "<EncodingType>url</EncodingType>"
        body += f"<IsTruncated>{'true' if more else 'false'}</IsTruncated>"
        if more:
            body += f"<NextContinuationToken>{escape(more)}</NextContinuationToken>"
        for name, found in entries:
            if found is None:
                body += f"<CommonPrefixes><Prefix>{shown(name)}</Prefix></CommonPrefixes>"
                continue
            changed = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(found.modified))
            body += (
                f"<Contents><Key>{shown(name)}</Key><LastModified>{changed}</LastModified>"
                f"<ETag>{escape(found.etag)}</ETag><Size>{len(found.data)}</Size>"
                "<StorageClass>STANDARD</StorageClass></Contents>"
            )
        return _xml("ListBucketResult", body)

    def _names(
        self, bucket: str, prefix: str, query: dict[str, str], after: str
    ) -> Iterator[tuple[str, Object | None]]:
        """Keys with their objects, and common prefixes with None, in the order of UTF-8."""
        delimiter = query.get("delimiter", "")
        last = ""
        for key, found in sorted(self.objects[bucket].items(), key=lambda one: one[0].encode()):
            if not key.startswith(prefix):
                continue
            at = key.find(delimiter, len(prefix)) if delimiter else -1
            name = key if at < 0 else key[: at + len(delimiter)]
            if name.encode() <= after.encode() or (at >= 0 and name == last):
                continue
            last = name
            yield name, found if at < 0 else None

    # Uploads in parts

    def _create(self, request: Request) -> Answer:
        self.begun += 1
        name = f"upload-{self.begun}"
        self.uploads[name] = Upload(request.bucket, request.key)
        return _xml(
            "InitiateMultipartUploadResult", _named(request, f"<UploadId>{name}</UploadId>")
        )

    def _put_part(self, request: Request) -> Answer:
        upload = self.uploads.get(request.query.get("uploadId", ""))
        if upload is None:
            return refusal(404, "NoSuchUpload")
        part = Object.of(request.body)
        upload.parts[int(request.query["partNumber"])] = part
        return Answer(200, b"", {"ETag": part.etag})

    def _complete(self, request: Request) -> Answer:
        name = request.query.get("uploadId", "")
        upload = self.uploads.get(name)
        if upload is None:
            return refusal(404, "NoSuchUpload")
        numbers = [int(one) for one in re.findall(r"<PartNumber>(\d+)<", request.body.decode())]
        if not numbers or any(number not in upload.parts for number in numbers):
            return refusal(400, "InvalidPart")
        whole = Object.of(b"".join(upload.parts[number].data for number in numbers))
        whole.etag = f'{whole.etag[:-1]}-{len(numbers)}"'
        stored = self._store(request, whole)
        if stored.status != 200:
            return stored
        del self.uploads[name]
        etag = f"<ETag>{escape(whole.etag)}</ETag>"
        return _xml("CompleteMultipartUploadResult", _named(request, etag))

    def _abort(self, request: Request) -> Answer:
        gone = self.uploads.pop(request.query.get("uploadId", ""), None)
        return Answer(204) if gone else refusal(404, "NoSuchUpload")

    def _list_uploads(self, request: Request) -> Answer:
        body = "".join(
            f"<Upload><Key>{escape(one.key)}</Key><UploadId>{name}</UploadId></Upload>"
            for name, one in self.uploads.items()
            if one.bucket == request.bucket and one.key.startswith(request.query.get("prefix", ""))
        )
        return _xml("ListMultipartUploadsResult", f"<IsTruncated>false</IsTruncated>{body}")

    def _list_parts(self, request: Request) -> Answer:
        upload = self.uploads.get(request.query["uploadId"])
        if upload is None:
            return refusal(404, "NoSuchUpload")
        body = "".join(
            f"<Part><PartNumber>{number}</PartNumber><ETag>{escape(part.etag)}</ETag>"
            f"<Size>{len(part.data)}</Size></Part>"
            for number, part in sorted(upload.parts.items())
        )
        return _xml("ListPartsResult", _named(request, f"<IsTruncated>false</IsTruncated>{body}"))

    # Of the test that runs the server: bucket "-"

    def control(self, request: Request) -> Answer | None:
        """None: not a matter of what is stored."""
        what, _, name = request.key.partition("/")
        bucket, _, key = name.partition("/")
        if what == "etag":
            return Answer(200, self.objects[bucket][key].etag.encode())
        if what == "object":
            if request.method == "PUT":
                self.put(bucket, key, request.body)
                return Answer(200)
            found = self.objects.get(bucket, {}).get(key)
            return Answer(200, found.data) if found else Answer(404)
        if request.key == "uploads":
            return Answer(200, json.dumps({k: v.key for k, v in self.uploads.items()}).encode())
        return None


def _named(request: Request, rest: str) -> str:
    return f"<Bucket>{request.bucket}</Bucket><Key>{escape(request.key)}</Key>{rest}"


def _plain(text: str) -> str:
    for shown, character in (("&lt;", "<"), ("&gt;", ">"), ("&quot;", '"'), ("&apos;", "'")):
        text = text.replace(shown, character)
    return text.replace("&amp;", "&")


def _xml(root: str, body: str) -> Answer:
    return Answer(
        200,
        f'<?xml version="1.0" encoding="UTF-8"?>\n<{root}>{body}</{root}>'.encode(),
        {"Content-Type": XML},
    )


def parsed_target(target: str) -> tuple[str, str, dict[str, str]]:
    """Bucket, key and query of a request's target."""
    if "://" in target:  # of a client for which this is its proxy
        target = "/" + target.partition("://")[2].partition("/")[2]
    path, _, query = target.partition("?")
    bucket, _, key = path.removeprefix("/").partition("/")
    pairs = (one.partition("=") for one in query.split("&") if one)
    return (
        unquote(bucket),
        unquote(key),
        {name: unquote(v.replace("+", " ")) for name, _, v in pairs},
    )
