"""Headrace's commands, called in this process: a new one takes half a second to import them."""

from __future__ import annotations

import json
from typing import Any

from typer.testing import CliRunner, Result

from headrace.cli.main import app


def run(*arguments: object, code: int = 0) -> Result:
    """What a command that is to end with `code` printed, on a wide terminal without colours."""
    runner = CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"})
    done = runner.invoke(app, [*map(str, arguments)])
    assert done.exit_code == code, done.output
    return done


def run_json(*arguments: object) -> dict[str, Any]:
    found = json.loads(run(*arguments, "--json").stdout)
    assert isinstance(found, dict)
    return found
