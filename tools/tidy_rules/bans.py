"""What no source may have: patterns, each with the files where it is right and the way out.

tidy.py applies them, line by line. tests/test_tidy.py plants each violation once.
"""

from __future__ import annotations

from typing import NamedTuple

CPP = frozenset({".h", ".cc"})
CODE = CPP | {".py", ".cmake", ".sh"}
TEXT = CODE | {".pyi", ".md", ".txt", ".toml", ".json", ".yml", ".yaml", ""}


class Ban(NamedTuple):
    pattern: str
    files: frozenset[str]  # suffixes
    allowed: str  # a pattern of the paths where it is right; "" for nowhere
    rule: str


CMAKE = frozenset({".cmake", ".txt"})
PYTHON = frozenset({".py"})
NOT_SHIPPED = r"^(?!python/headrace/)"
NAMES_PAPERS = r"^(src/papers|benchmarks)/|^(bindings/module|src/node/main|.*_test)\.cc$"
CPP_TEST = r"(_test|_stress_test)\.cc$|_conformance\.(h|cc)$"

BANNED = [
    Ban(r"\b(FIXME|TODO|XXX|HACK)\b", CODE | CMAKE, "", "marker: open an issue instead"),
    Ban(r"\bstd::cout\b", CPP, r"^(examples|benchmarks)/", "std::cout: return it or report it"),
    Ban(r"\.detach\(\)", CPP, "", "detached thread: nobody can stop it"),
    Ban(
        r"\b(default_random_engine|mt19937(_64)?|random_device)\b|\bstd::(random_)?shuffle\b"
        r"|\bstd::\w+_distribution\b|\bs?rand\(",
        CPP,
        "",
        "order differs by library: use base/prng.h",
    ),
    Ban(
        r"\b(sleep_for|sleep_until|usleep|nanosleep)\b",
        CPP,
        r"^src/base/(?!.*_test\.cc$)",
        "sleep: wait for the thing itself, or take a Clock",
    ),
    Ban(r"\btime\.sleep\(", PYTHON, r"^(?!tests/)", "sleep: wait for the thing itself"),
    Ban(
        r"\bstd::(j?thread\b(?!::)|async\b)|\bpthread_create\b",
        CPP,
        rf"^src/(loader|workers|node|store|peer)/|/testing/|^(benchmarks|examples)/|{CPP_TEST}",
        "thread: take an Executor; loader/, workers/ and node/ start threads",
    ),
    Ban(
        r"\bNOLINT(NEXTLINE|BEGIN)?\b(?!\([\w.,* -]+\): *\S)(?!END)",
        CPP,
        "",
        "NOLINT must say NOLINT(check): reason",
    ),
    Ban(r"\bNOLINTEND\b(?!\([\w.,* -]+\))", CPP, "", "NOLINTEND must name its check"),
    Ban(
        r"\bDISABLED_\w|\bpytest\.mark\.(skip|xfail)\b(?!if)|\bunittest\.skip\(|^\s*#\s*if\s+0\b",
        CPP | PYTHON,
        "",
        "disabled: repair it or delete it",
    ),
    Ban(r"\bDISABLED\s+(TRUE|ON|1)\b", CMAKE, "", "disabled: repair it or delete it"),
    Ban(r"\bfile\(\s*GLOB", CMAKE, "", "glob: list the sources"),
    Ban(
        r'^\s*#\s*include\s*["<](Python\.h|nanobind/|pybind11/)',
        CPP,
        r"^bindings/",
        "Python outside bindings/",
    ),
    Ban(
        r"nanobind/stl/(string|string_view|filesystem)\.h\b",
        CPP,
        "",
        "text between Python and the core: use bindings/convert/text.h",
    ),
    Ban(
        r'^\s*#\s*include\s*["<](grpc\w*|absl)/',
        CPP,
        r"^src/(peer|node)/",
        "gRPC and Abseil outside peer/ and node/",
    ),
    Ban(
        r'^\s*#\s*include\s*["<](fmt|base/format)/',
        CPP,
        r"^src/base/format/|\.cc$",
        "fmt in a header: users of the core need not have it",
    ),
    Ban(
        r"\b__getattribute__\b|\bf_locals\b|\.__class__\s*=(?!=)|\bdef __class__\b"
        r"|[\"']__class__[\"']",
        PYTHON,
        NOT_SHIPPED,
        "disguise: an object is the same to every caller",
    ),
    Ban(
        r"\b_getframe\b|\binspect\.(currentframe|stack)\b",
        PYTHON,
        NOT_SHIPPED + r"|^python/headrace/formats/_base/findings\.py$",  # callers_level()
        "a caller's frame: an object is the same to every caller",
    ),
    Ban(
        r'^\s*#\s*include\s*["<](headrace/papers\.h|papers/)',
        CPP,
        NAMES_PAPERS,
        "papers register: ask an interface",
    ),
    Ban(r"(?<![\w.~}])/(home|root|Users|work)/\w", TEXT, "", "path of one machine"),
]
