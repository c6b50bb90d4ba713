"""The rules of tools/tidy.py about words: phrases and identifiers that hide their meaning, and
names in comments.

`phrases` refuses each pattern of PHRASES in C++, Python and Markdown, and says what to write
instead. `identifiers` refuses IDENTIFIERS in the package. `names` refuses a comment that cites a
name which the code does not have.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from source_tree import syntax_nodes

if TYPE_CHECKING:
    from tidy import SourceFile, Tree

Found = tuple[str, int, str]  # file, line, rule

# They quote what they refuse.
QUOTING = frozenset({"tools/tidy_rules/words.py", "tests/test_tidy.py"})

BE = r"(?:is|are|was|were|be|been)(?: not| never| still| only)?"


class Phrase(NamedTuple):
    pattern: str
    instead: str


PHRASES = [
    Phrase(r"can not", "cannot"),
    Phrase(
        r"(?:is|are|was|be|been) had(?! to)",
        "say what happens: 'is available', 'cannot be read', 'creation can fail'",
    ),
    Phrase(r"nothing of (?:it|its|them|the|this|that|a|one|what|where)", "say what is absent"),
    Phrase(r"came of|comes of", "name the result: 'the run did not start'"),
    Phrase(BE + r" told(?! apart)", "'receives', 'is notified of', 'the error names'"),
    Phrase(r"tells? of", "'reports', 'describes'"),
    Phrase(BE + r" said", "name who reports it: 'prints', 'returns an error', 'sends'"),
    Phrase(r"said together", "batched into one message"),
    Phrase(r"of no use", "'useless', or what to do instead: 'do not call it again'"),
    Phrase(r"of no type that", "expected {type} in {range}"),
    Phrase(r"has no such name", "unexpected keyword 'x'; did you mean 'y'?"),
    Phrase(r"the reasons? (?:is |are )?named", "prints the reason"),
    Phrase(r"what (?:\w+ ){1,4}(?:is|are) about", "name the subject"),
    Phrase(r"(?:is|are) as many as", "'is unbounded', or the bound"),
    Phrase(r"what can ?not go on", "a deadlock becomes an error"),
    Phrase(r"looking again|a look at", "call it what it does: 'a second call', 'a sample of'"),
    Phrase(r"meets? at", "shared by"),
    Phrase(r"what it is made from", "name it: 'the saved state', 'the options'"),
    Phrase(r"what (?:a|an|the) \w+ (?:has|leaves) that", "name it: 'resources', 'the error'"),
    Phrase(r"nobody vouches for", "untrusted"),
    Phrase(r"waited for is not in", "these figures exclude the wait for it"),
    Phrase(r"says? true", "returns true"),
    Phrase(r"takes? what \S+ leaves", "'the memory left after ...'"),
    Phrase(r"random mates", "randomly chosen samples"),
]


def phrases(tree: Tree) -> Iterator[Found]:
    patterns = [(re.compile(rf"\b(?:{p.pattern})\b", re.IGNORECASE), p.instead) for p in PHRASES]
    any_of_them = re.compile("|".join(pattern.pattern for pattern, _ in patterns), re.IGNORECASE)
    for file in tree.of(frozenset({".h", ".cc", ".py", ".md"})):
        if file.path in QUOTING:
            continue
        for number, line in enumerate(file.lines, 1):
            if not any_of_them.search(line):
                continue
            for pattern, instead in patterns:
                if hit := pattern.search(line):
                    yield file.path, number, f"'{hit[0]}' hides its meaning; write: {instead}"
                    break


IDENTIFIERS = {
    "each": "name the element: 'for field in fields'",
    "told": "name the text or the values: 'message', 'counters'",
}
PACKAGE = "python/headrace/"


def identifiers(tree: Tree) -> Iterator[Found]:
    """Variables, arguments, attributes, functions and classes of the package."""
    for file in tree.of(frozenset({".py"})):
        if not file.path.startswith(PACKAGE):
            continue
        for node in syntax_nodes(file.text):
            line, name = bound_name(node)
            if (word := name.strip("_")) in IDENTIFIERS:
                rule = f"'{name}' does not say what it holds; {IDENTIFIERS[word]}"
                yield file.path, line, rule


def bound_name(node: ast.AST) -> tuple[int, str]:
    """The line and the name that a node gives to something; empty: it gives none."""
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
            return node.lineno, name
        case ast.arg(arg=name):
            return node.lineno, name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return node.lineno, name
    return 0, ""


class Text(NamedTuple):
    """A file, divided."""

    code: str
    comments: list[tuple[int, str]]  # line, text


# A C++ file is comments, literals and the rest; only comments are wanted apart.
CPP_TOKEN = re.compile(
    r'//(?P<line>[^\n]*)|/\*(?P<block>.*?)\*/|R"(?P<mark>\w*)\(.*?\)(?P=mark)"'
    r'|"(?:\\.|[^"\\\n])*"|(?<!\w)\'(?:\\.|[^\'\\\n])+\'',
    re.DOTALL,
)


def divide_cpp(text: str) -> Text:
    comments = []
    code = []
    end = 0
    for token in CPP_TOKEN.finditer(text):
        comment = token["line"] if token["line"] is not None else token["block"]
        if comment is None:
            continue
        code.append(text[end : token.start()])
        end = token.end()
        first = text.count("\n", 0, token.start()) + 1
        comments += [(first + more, line) for more, line in enumerate(comment.split("\n"))]
    code.append(text[end:])
    return Text(" ".join(code), comments)


def divide_python(text: str) -> Text:
    try:
        docs = set()
        for node in syntax_nodes(text):
            if (
                isinstance(node, ast.Expr)
                and isinstance(node.value, ast.Constant)
                and isinstance(node.value.value, str)
            ):
                docs.add((node.lineno, node.col_offset))
        comments = []
        code = []
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT or token.start in docs:
                lines = token.string.split("\n")
                comments += [(token.start[0] + more, line) for more, line in enumerate(lines)]
            else:
                code.append(token.string)
    except (SyntaxError, tokenize.TokenError):  # ruff reports it
        return Text(text, [])
    return Text(" ".join(code), comments)


@cache
def divide(file: SourceFile) -> Text:
    return divide_python(file.text) if file.suffix == ".py" else divide_cpp(file.text)


# `Class::Member`; `Function()`; a backticked word that no prose has: inner capital or underscore.
CITED_MEMBER = re.compile(r"\b([A-Z][a-z]\w*)::~?([A-Za-z]\w*)")
CITED_CALL = re.compile(r"(?<![\w:.>`])([A-Z][a-z]+[A-Z]\w*)\(\)")
CITED_WORD = re.compile(r"`([A-Za-z]+(?:_[a-z]\w*|[a-z][A-Z]\w*))(?:\(\))?`")


DECLARED = re.compile(
    r"\b(?:class|struct|enum class|using)\s+(?:HEADRACE_\w+\s+)?([A-Z]\w*)\b(?!;)([^;{(]*)"
)


class Names:
    """What stands in the code of a tree, and which classes it declares."""

    def __init__(self, sources: list[SourceFile]) -> None:
        self.words: dict[str, set[str]] = {}
        self.declared_in: dict[str, set[str]] = defaultdict(set)
        self.bases: dict[str, set[str]] = defaultdict(set)
        for file in sources:
            code = divide(file).code
            self.words[file.path] = set(re.findall(r"\w+", code))
            for name, bases in DECLARED.findall(code) if file.suffix != ".py" else ():
                self.declared_in[name].add(file.path)
                self.bases[name] |= set(re.findall(r"[A-Z]\w+", bases)) - {name}
        self.known: set[str] = set().union(*self.words.values())

    def has(self, owner: str, member: str) -> bool:
        """A class of ours has it where it or a base is declared, another where it is used."""
        if owner not in self.declared_in:
            return any(owner in here and member in here for here in self.words.values())
        family, waiting = {owner}, [owner]
        while waiting:
            new = self.bases[waiting.pop()] - family
            family |= new
            waiting += new
        files = {path for name in family for path in self.declared_in.get(name, ())}
        return any(member in self.words[path] for path in files)


def names(tree: Tree) -> Iterator[Found]:
    sources = list(tree.of(frozenset({".h", ".cc", ".py"})))
    found = Names(sources)
    for file in sources:
        if file.path in QUOTING:
            continue
        for number, comment in divide(file).comments:
            cited = [name for name in CITED_WORD.findall(comment) if name not in found.known]
            if file.suffix != ".py":
                cited += [name for name in CITED_CALL.findall(comment) if name not in found.known]
                cited += [
                    f"{owner}::{member}"
                    for owner, member in CITED_MEMBER.findall(comment)
                    if not found.has(owner, member)
                ]
            for name in cited:
                yield file.path, number, f"the comment cites '{name}', which the code does not have"
