"""A server that lists many keys which nobody wrote: s3://data/many/NUMBER."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

PAGE = 1000


class ListedKeys:
    """Serves pages of a list, and counts them."""

    def __init__(self, keys: int) -> None:
        self.requests = 0
        lists = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                query = parse_qs(urlsplit(self.path).query)
                first = int(query.get("continuation-token", ["0"])[0])
                lists.requests += 1
                body = page(first, min(keys, first + PAGE), keys)
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever)

    def __enter__(self) -> ListedKeys:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def environment(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._server.server_port}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }


def page(first: int, end: int, keys: int) -> bytes:
    entries = "".join(
        f"<Contents><Key>many/{i:07}.npy</Key><Size>3</Size><ETag>&quot;{i}&quot;</ETag>"
        "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
        for i in range(first, end)
    )
    more = f"<NextContinuationToken>{end}</NextContinuationToken>" if end < keys else ""
    cut = "true" if end < keys else "false"
    return (
        f"<ListBucketResult><IsTruncated>{cut}</IsTruncated>{more}{entries}</ListBucketResult>"
    ).encode()
