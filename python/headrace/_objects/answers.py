"""What the lister asks stores, by obstore."""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import obstore

from headrace._objects.clients.addresses import Address, address_of, object_address
from headrace._objects.clients.client import Clients
from headrace._objects.clients.failures import (
    Failure,
    Result,
    failure,
    says_only_status,
    wait_after,
)
from headrace._objects.clients.version import version_of
from headrace._objects.listing import Head, Listing, Object, StoreDeniedError, StoreError

_AT_ONCE = 32  # requests of this process
_UNSAID = (400, 401, 403)
_PIECE_BYTES = 8 * 2**20  # of one request; more are requests at once

_pool = ThreadPoolExecutor(_AT_ONCE)
_clients = Clients()


def look(heads: Sequence[str], lists: Sequence[str]) -> tuple[list[Head], list[Listing | OSError]]:
    """As `Requests.look`."""
    listed = [_pool.submit(_tried, _listing, address_of(url)) for url in lists]
    found = [_pool.submit(_tried, _head, object_address(url)) for url in heads]
    return [head.result() for head in found], [listing.result() for listing in listed]


def _tried(ask: Callable[[Any, Address], Any], address: Address, *, of_data: bool = False) -> Any:
    """What `ask(client, address)` returns; None: there is no such object. An OSError: why not.

    What may pass is tried again. `of_data`: a job may wait for it.
    """
    tries, waited_s = 0, 0.0
    while True:
        client = None
        try:
            client = _clients.of(address)
            return ask(client, address)
        except _ChangedError:
            return StoreError("it has changed since it was listed; open the dataset again")
        except Exception as error:
            key = _wrong_key(error)
            if key is not None:
                return key
            failed = failure(error, address)
        tries += 1
        if failed.result is Result.ABSENT:
            return None if ask is not _listing else _no_lists(address)
        wait_s = wait_after(failed, tries, waited_s, of_data=of_data)
        if wait_s is None:
            return _error(failed)
        if failed.renew:
            _clients.renew(address, client)
        time.sleep(wait_s)
        waited_s += wait_s


def _wrong_key(error: Exception) -> OSError | None:
    """What to do about a key in a list that obstore refuses; None: it is another error."""
    if type(error).__name__ != "InvalidPathError":
        return None
    named = re.search(r'Path "([^"]*)', str(error))
    key = named[1] if named else "?"
    return OSError(
        f"the keys that begin with {key!r} have an empty part, '.' or '..', which no path can "
        "have; move these objects to other keys"
    )


def _error(failed: Failure) -> OSError:
    """With the cause as its text, and a remedy."""
    kind = StoreDeniedError if failed.code == errno.EACCES else StoreError
    if ";" in failed.cause:
        return kind(failed.cause)
    changed = failed.result is Result.CHANGED
    remedy = "open the dataset again" if changed else "try again when it answers"
    return kind(f"{failed.cause}; {remedy}")


def _no_lists(address: Address) -> OSError:
    """An object store answers a list of nothing with an empty one."""
    return StoreError(
        f"the server of {address.store} answered 404 to a list, as no object store does; correct "
        "the endpoint"
    )


def _head(store: Any, address: Address) -> Object:
    try:
        found = obstore.head(store, address.key)
    except (PermissionError, obstore.exceptions.BaseError) as error:
        if address.scheme != "s3" or not says_only_status(error, _UNSAID):
            raise
        # A HEAD has no body, so S3 does not say why: that credentials have expired, for one.
        found = obstore.get(store, address.key, options={"range": (0, 1)}).meta
    return Object(found["size"], version_of(found["e_tag"], found["last_modified"]))


def _listing(store: Any, address: Address) -> Listing:
    prefix = f"{address.key}/" if address.key else ""
    found = obstore.list_with_delimiter(store, prefix or None)
    skip = len(prefix)
    objects = {
        meta["path"][skip:]: Object(meta["size"], version_of(meta["e_tag"], meta["last_modified"]))
        for meta in found["objects"]
        if len(meta["path"]) > skip  # Else it is what some programs write for the folder.
    }
    return Listing(frozenset(path[skip:] for path in found["common_prefixes"]), objects)


def read(url: str, offset: int, size: int, version: int) -> Iterator[Any]:
    """As `Requests.read`: the pieces of the range, in order."""
    pieces = [
        _pool.submit(_read, url, at, min(_PIECE_BYTES, offset + size - at), version)
        for at in range(offset, offset + size, _PIECE_BYTES)
    ]
    return (piece.result() for piece in pieces)


def _read(url: str, offset: int, size: int, version: int) -> Any:
    def ask(store: Any, address: Address) -> Any:
        answer = obstore.get(store, address.key, options={"range": (offset, offset + size)})
        known = version_of(answer.meta["e_tag"], answer.meta["last_modified"])
        if known and version and known != version:
            raise _ChangedError
        return answer.bytes()

    found = _tried(ask, object_address(url), of_data=True)
    if found is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), url)
    if isinstance(found, OSError):
        raise found
    return found


class _ChangedError(Exception):
    """The object is not of the version that was asked for."""
