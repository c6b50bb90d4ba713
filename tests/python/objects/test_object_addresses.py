"""URLs of objects, versions, and the clients that the environment gives."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from served_objects.object_server import ObjectServer

from headrace._objects.clients import credentials
from headrace._objects.clients.addresses import object_address
from headrace._objects.clients.version import version_of

MODIFIED = datetime(2026, 11, 28, tzinfo=UTC)
SECRET = "wJalrXUtnFEMI-not-a-key"


@pytest.fixture
def no_aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No credentials at all; the folder in which profiles may be written."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    return tmp_path


@pytest.mark.parametrize(
    ("url", "store", "key"),
    [
        ("s3://b/a key+#?%20.bin", "s3://b", "a key+#?%20.bin"),
        ("gs://b/é/ü", "gs://b", "é/ü"),
        ("az://box/x/y", "az://box", "x/y"),
        ("https://host:8/a%20b/%3Fc%2520", "https://host:8", "a b/?c%20"),
        ("http://[::1]:80/x", "http://[::1]:80", "x"),
    ],
)
def test_a_url_is_a_store_and_a_key(url: str, store: str, key: str) -> None:
    address = object_address(url)
    assert (address.store, address.key) == (store, key)


@pytest.mark.parametrize(
    ("url", "cause"),
    [
        ("s3://b/a//b", 'the key "a//b" has an empty part, as beside //'),
        ("s3://b//a", 'the key "/a" has an empty part'),
        ("s3://b/a/", 'the key "a/" has an empty part'),
        ("gs://b/a/../b", 'the key "a/../b" has the part ".."'),
        ("s3://", "the URL names no bucket; write s3://BUCKET/KEY"),
        ("hf://b/a", "hf:// is not a scheme of an object store; use one of s3://, gs://"),
        ("https://h/a?b=c", "has a part behind ?, which is not sent; give a URL without, or %3F"),
        ("https://h/a#b", "has a part behind #"),
        (f"https://me:{SECRET}@h/a", "has a user name or password before @"),
        ("https://h/%FF", "are not UTF-8"),
    ],
)
def test_a_url_that_cannot_be_read_is_refused_with_a_remedy(url: str, cause: str) -> None:
    with pytest.raises(ValueError, match=r"; (write|use|copy|give)|UTF-8") as raised:
        object_address(url)
    assert cause in str(raised.value)
    assert SECRET not in str(raised.value)


def test_a_version_is_the_etag_without_marks_or_else_the_time() -> None:
    assert version_of('"abc"', MODIFIED) == version_of('W/"abc"', None) == version_of("abc", None)
    assert version_of('"abc"', None) != version_of('"abd"', None)
    assert version_of(None, MODIFIED) not in (0, version_of('"abc"', MODIFIED))
    assert version_of(None, datetime.fromtimestamp(0, UTC)) == version_of(None, None) == 0
    numbers = [version_of(f'"{number}"', None) for number in range(1000)]
    assert len(set(numbers)) == 1000
    assert all(1 <= number < 2**63 for number in numbers)
    assert version_of('"abc"', None) == 6455300059550759897  # kept in indexes


def test_a_profile_gives_keys_region_and_endpoint(
    no_aws: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (no_aws / "credentials").write_text(
        f"[work]\naws_access_key_id = id\naws_secret_access_key = %{SECRET}\n"
    )
    (no_aws / "config").write_text("[profile work]\nregion = eu-north-1\nendpoint_url = http://h\n")
    monkeypatch.setenv("AWS_PROFILE", "work")
    assert credentials.of_environment().config == {
        "region": "eu-north-1",
        "endpoint": "http://h",
        "access_key_id": "id",
        "secret_access_key": f"%{SECRET}",
    }
    monkeypatch.setenv("AWS_REGION", "us-west-2")
    assert credentials.of_environment().config["region"] == "us-west-2"
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of the environment")
    assert "secret_access_key" not in credentials.of_environment().config


def test_a_profile_without_keys_names_what_it_needs(
    no_aws: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(PermissionError, match="there are no credentials: set AWS_ACCESS_KEY_ID"):
        credentials.of_environment()
    monkeypatch.setenv("AWS_PROFILE", "work")
    with pytest.raises(PermissionError, match="AWS_PROFILE is work, which is neither in"):
        credentials.of_environment()
    (no_aws / "config").write_text("[profile work]\nrole_arn = arn:aws:iam::1:role/x\n")
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(PermissionError, match="needs boto3: pip install boto3"):
        credentials.of_environment()
    (no_aws / "credentials").write_text(f"{SECRET}\n[work]\n")
    with pytest.raises(
        PermissionError, match="is not readable as a file of AWS profiles"
    ) as raised:
        credentials.of_environment()
    assert SECRET not in str(raised.value)


CLIENTS = """
import sys
import obstore
from headrace._objects.clients import client
clients = client.Clients()
for url in sys.argv[1:]:
    address = client.object_address(url)
    held = clients.of(address)
    assert clients.of(address) is held
    print(bytes(obstore.get(held, address.key, options={"range": (2, 5)}).bytes()).decode())
    clients.renew(address, None)
    assert clients.of(address) is held
    clients.renew(address, held)
    assert clients.of(address) is not held
try:
    client.Clients().of(client.address_of("az://box/x"))
except ValueError as error:
    print(error)
"""
"""A process of its own: one that has loaded obstore must not fork, as other tests do."""


def test_clients_are_kept_until_they_are_renewed() -> None:
    pytest.importorskip("obstore")
    with ObjectServer() as server:
        server.put("a key+?#%20/ü", b"0123456789")
        urls = [f"{scheme}://data/a key+?#%20/ü" for scheme in ("s3", "gs")]
        urls.append(f"{server.url}/data/a%20key+%3F%23%2520/%C3%BC")
        environment = {**os.environ, **server.environment()}
        environment.pop("AZURE_STORAGE_ACCOUNT_NAME", None)
        command = [sys.executable, "-c", CLIENTS, *urls]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.stderr == ""
        *got, azure = done.stdout.splitlines()
        assert got == ["234"] * 3
        assert azure.endswith("which account is not known; set AZURE_STORAGE_ACCOUNT_NAME")
        assert [one["key"] for one in server.log()] == ["a key+?#%20/ü"] * 3
