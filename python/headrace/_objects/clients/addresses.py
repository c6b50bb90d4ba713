"""Where an object lies, by its URL: scheme, bucket or host, key."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import unquote_to_bytes

CLOUDS = ("s3", "gs", "az")
"""Their URLs are SCHEME://BUCKET/KEY, and the key is as it stands."""
WEB = ("http", "https")


class Address(NamedTuple):
    scheme: str
    root: str  # s3, gs, az: the bucket; http, https: the host and its port
    key: str  # as obstore takes it

    @property
    def store(self) -> str:
        """The URL of what one client serves."""
        return f"{self.scheme}://{self.root}"


def address_of(url: str) -> Address:
    """Raises ValueError, with cause and remedy: no key of this URL can be read."""
    scheme, _, rest = url.partition("://")
    root, _, key = rest.partition("/")
    if scheme in WEB:
        key = _web_key(root, key)
    elif scheme not in CLOUDS:
        raise ValueError(
            f"{scheme}:// is not a scheme of an object store; use one of "
            + ", ".join(f"{name}://" for name in (*CLOUDS, *WEB))
        )
    if not root:
        raise ValueError(f"the URL names no bucket; write {scheme}://BUCKET/KEY")
    return Address(scheme, root, key)


def object_address(url: str) -> Address:
    """As address_of(); also refuses keys that the client would send as another key."""
    address = address_of(url)
    for part in address.key.split("/"):
        if part in ("", ".", ".."):
            what = f'the part "{part}"' if part else "an empty part, as beside //"
            raise ValueError(
                f'the key "{address.key}" has {what}, which the client cannot ask for; '
                "copy the object to a key without it"
            )
    return address


def _web_key(host: str, path: str) -> str:
    if "@" in host:
        raise ValueError(
            "the URL has a user name or password before @, which would be kept in indexes; "
            "give a URL without"
        )
    for mark, escaped in (("?", "%3F"), ("#", "%23")):
        if mark in path:
            raise ValueError(
                f"the URL has a part behind {mark}, which is not sent; give a URL without, or "
                f"{escaped} where the name itself has a {mark}"
            )
    try:
        return unquote_to_bytes(path).decode()
    except UnicodeDecodeError as error:
        raise ValueError("its escapes such as %FF are not UTF-8, which the client needs") from error
