"""Checks that every C++ file is as clang-format writes it. `make lint` and CI run it.

Usage: python3 tools/check_format.py [--fix]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from source_tree import cpp_files


def main() -> int:
    parser = argparse.ArgumentParser(description="Check, or with --fix repair, the layout of C++.")
    parser.add_argument("--fix", action="store_true", help="rewrite the files")
    mode = ["-i"] if parser.parse_args().fix else ["--dry-run", "--Werror"]
    files = cpp_files(Path(__file__).resolve().parent.parent)
    tool = Path(sys.executable).with_name("clang-format")
    command = [str(tool), *mode, *map(str, files)]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
