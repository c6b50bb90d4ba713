"""obstore's clients, by URL. Everything is settled by the environment: AWS_*, GOOGLE_*, AZURE_*,
HTTPS_PROXY, NO_PROXY, SSL_CERT_FILE.

They never try again, unless they are made to: src/store/objects/ and the place decide about that.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import obstore.store

from headrace._objects.clients import credentials
from headrace._objects.clients.addresses import WEB, Address, address_of, object_address
from headrace._objects.clients.failures import Failure, Result, failure, without_user

__all__ = ["Address", "Clients", "Failure", "Result", "address_of", "failure", "object_address"]

CONNECT_S = 10
READ_S = 40
"""Without a byte. Longer than the store waits for one (objects.md), which ends it."""
REQUEST_S = 3600
_ENDPOINTS = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT")
_PREFIXES = {"s3": "AWS_", "gs": "GOOGLE_", "az": "AZURE_"}
_OPTIONS = ("allow_invalid_certificates", "proxy_url", "proxy_excludes", "user_agent")


class Clients:
    """The clients of buckets and hosts, made when they are needed. Thread safety: any thread."""

    def __init__(self, retries: Mapping[str, Any] | None = None) -> None:
        """`retries`: obstore's RetryConfig; None: it never tries again."""
        self._retries = retries or {"max_retries": 0}
        self._made: dict[str, Any] = {}
        self._lock = threading.Lock()

    def of(self, address: Address) -> Any:
        """Raises PermissionError or ValueError, with cause and remedy, without a request."""
        made = self._made.get(address.store)
        if made is not None:
            return made
        with self._lock:
            if address.store not in self._made:
                self._made[address.store] = _client(address, self._retries)
            return self._made[address.store]

    def renew(self, address: Address, made: Any) -> None:
        """The next client reads the credentials again, if the present one is `made`."""
        with self._lock:
            if self._made.get(address.store) is made:
                del self._made[address.store]


def _client(address: Address, retries: Mapping[str, Any]) -> Any:
    arguments: dict[str, Any] = {"retry_config": retries}
    stores = obstore.store
    try:
        if address.scheme in WEB:
            options = client_options(address.scheme, {}, plain=address.scheme == "http")
            return stores.HTTPStore.from_url(address.store, client_options=options, **arguments)
        if address.scheme == "s3":
            found = credentials.of_environment()
            variables = (os.environ.get(name, "") for name in _ENDPOINTS)
            endpoint = found.config.get("endpoint") or next(filter(None, variables), "")
            return stores.S3Store(
                address.root,
                config=found.config,  # type: ignore[arg-type]
                client_options=client_options("s3", os.environ, endpoint.startswith("http:")),
                credential_provider=found.provider,
                **arguments,
            )
        allowed = os.environ.get(f"{_PREFIXES[address.scheme]}ALLOW_HTTP", "")
        options = client_options(address.scheme, os.environ, plain=allowed.lower() == "true")
        made = stores.GCSStore if address.scheme == "gs" else stores.AzureStore
        return made(address.root, client_options=options, **arguments)
    except obstore.exceptions.BaseError as error:
        # Of a configuration, whose text may have a secret.
        line = without_user(str(error)).split("\n", 1)[0]
        if "Account must be specified" in line:
            line = "which account is not known; set AZURE_STORAGE_ACCOUNT_NAME"
        raise ValueError(f"no client for {address.store}: {line[:200]}") from None


def client_options(scheme: str, environment: Mapping[str, str], plain: bool) -> Any:
    """obstore takes these from the environment only if none are given. `plain`: http is asked
    for."""
    options: dict[str, Any] = {
        "allow_http": plain,
        "connect_timeout": f"{CONNECT_S}s",
        "read_timeout": f"{READ_S}s",
        "timeout": f"{REQUEST_S}s",
    }
    for name in _OPTIONS:
        value = environment.get(_PREFIXES.get(scheme, "") + name.upper())
        if value:
            options[name] = value.lower() == "true" if name.startswith("allow") else value
    bundle = os.environ.get("AWS_CA_BUNDLE") if scheme == "s3" else None
    bundle = bundle or os.environ.get("SSL_CERT_FILE")
    if bundle:
        try:
            options["root_certificate"] = Path(bundle).read_bytes()
        except OSError as error:
            raise ValueError(
                f"{bundle}, of certificates, cannot be read: {error.strerror}"
            ) from error
    return options
