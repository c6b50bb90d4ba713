"""Credentials of s3 that obstore does not find by itself: profiles, of the files that AWS's own
tools use. It reads the environment, web identities and instance metadata without help."""

from __future__ import annotations

import configparser
import os
from pathlib import Path
from typing import Any, NamedTuple

_BY_ITSELF = (
    *("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_SKIP_SIGNATURE"),
    *("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI"),
)
"""With one of them set, the environment says which credentials are meant."""
_STATIC = {
    "aws_access_key_id": "access_key_id",
    "aws_secret_access_key": "secret_access_key",
    "aws_session_token": "session_token",
}
_PROVIDED = ("role_arn", "sso_session", "sso_start_url", "credential_process", "login_session")


class Found(NamedTuple):
    config: dict[str, str]  # of obstore's S3Store
    provider: Any = None  # a credential_provider


def of_environment() -> Found:
    """Raises PermissionError: a profile that cannot be used, with the remedy."""
    config: dict[str, str] = {}
    named = os.environ.get("AWS_PROFILE") or os.environ.get("AWS_DEFAULT_PROFILE")
    profile = _profile(named or "default")
    if named and profile is None and "AWS_ACCESS_KEY_ID" not in os.environ:
        raise PermissionError(
            f"AWS_PROFILE is {named}, which is neither in {_file('credentials')} nor in "
            f"{_file('config')}; correct it, or unset it"
        )
    profile = profile or {}
    for key, variables in (
        ("region", ("AWS_REGION", "AWS_DEFAULT_REGION")),
        ("endpoint_url", ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT")),
    ):
        if key in profile and not any(os.environ.get(one) for one in variables):
            config["region" if key == "region" else "endpoint"] = profile[key]
    # obstore does not know this one.
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if region:
        config["region"] = region
    if any(os.environ.get(name) for name in _BY_ITSELF):
        return Found(config)
    if any(key in profile for key in _PROVIDED):
        return Found(config, _provider(named or "default"))
    if "aws_access_key_id" in profile:
        config |= {ours: profile[key] for key, ours in _STATIC.items() if key in profile}
    elif os.environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
        raise PermissionError(
            "there are no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
            "AWS_PROFILE; for a bucket that anybody may read, AWS_SKIP_SIGNATURE=true"
        )
    return Found(config)


def _provider(name: str) -> Any:
    try:
        import boto3
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError as error:
        raise PermissionError(
            f"profile {name} of {_file('config')} gets its credentials by a role, by sso or by a "
            "command, which needs boto3: pip install boto3"
        ) from error
    return Boto3CredentialProvider(boto3.session.Session(profile_name=name))


def _file(name: str) -> Path:
    variable = {"credentials": "AWS_SHARED_CREDENTIALS_FILE", "config": "AWS_CONFIG_FILE"}[name]
    return Path(os.environ.get(variable) or f"~/.aws/{name}").expanduser()


def _profile(name: str) -> dict[str, str] | None:
    """What both files say of it; None: neither has it."""
    found: dict[str, str] | None = None
    for file in ("config", "credentials"):
        # A secret may have any character: no interpolation, and no duplicates refused.
        parser = configparser.RawConfigParser(strict=False, default_section="")
        try:
            parser.read(_file(file), encoding="utf-8")
        except (OSError, UnicodeDecodeError, configparser.Error) as error:
            # The parser's own message has the line, which may be a secret.
            raise PermissionError(
                f"{_file(file)} is not readable as a file of AWS profiles "
                f"({type(error).__name__}); correct it"
            ) from None
        sections = [name] if file == "credentials" or name == "default" else []
        sections += [f"profile {name}"] if file == "config" else []
        for section in sections:
            if parser.has_section(section):
                found = {**(found or {}), **dict(parser.items(section))}
    return found
