"""The commands: arguments in, a report or JSON out."""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from headrace import _charts, _dataset, _places
from headrace._arguments import choice
from headrace._text import one_line, printable
from headrace._units import counted, format_bytes, parse_bytes
from headrace.cli._checks import decode as _decoding
from headrace.cli._checks import verify as _checks
from headrace.cli._parts import inspecting as _inspect
from headrace.cli._parts.options import (
    DatasetPath,
    Decode,
    Failures,
    FormatName,
    FormatOptions,
    Json,
    On,
    Skip,
    SplitName,
    Threads,
)
from headrace.cli._parts.progress import bar, counting
from headrace.errors import InvalidArgumentError
from headrace.formats import table
from headrace.formats._base.findings import unmatched_skip
from headrace.formats._base.format import Format
from headrace.formats._base.outside import check_outside
from headrace.formats._files.objects import folder_of


def index(
    root: Annotated[
        str, typer.Argument(help="A folder with one folder of images a class, or other data.")
    ],
    output: Annotated[
        str | None, typer.Option("--output", "-o", help="Where to write; default: the user cache.")
    ] = None,
    skip: Skip = None,
    format: FormatName = None,
    options: FormatOptions = None,
    split: SplitName = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs",
            help="Files that are read at a time; default: 8. More may help if far away. Or tasks.",
        ),
    ] = None,
    on: On = None,
    decode: Decode = False,
    failures: Failures = None,
    as_json: Json = False,
) -> None:
    """List the files of a dataset again, write its index, and report what cannot be decoded.

    Opening a dataset does this the first time; run it after files were changed in place. Of a
    folder of images it reads names and sizes, and opens no file. Other commands open the index.
    If it is stopped, run it again: it goes on behind the files it had finished.

    Example: [bold]headrace index /data/images[/bold]
    """
    began = time.monotonic()
    _decoding.check_failures(decode, failures, skip)
    tasks = None
    if on is not None:
        choice("--on", on, ("ray",))
        from headrace.ray._indexing import IndexingTasks

        tasks = IndexingTasks("headrace index --on ray", jobs)
    with counting(f"listing {root}") as progress:
        dataset, path = _dataset.index_folder(
            root,
            output,
            progress,
            skip or (),
            format_row(format, options, root),
            jobs,
            tasks,
            split,
        )
    if tasks is not None and not tasks.was_used:
        _tell(f"{root} was indexed by this process alone: it is one file, or its files are listed")
    seconds = time.monotonic() - began
    _tell_unmatched_skip(dataset, skip)
    result = {
        "path": path,
        "samples": len(dataset),
        "classes": len(dataset.classes),
        "index_bytes": dataset.index.file_bytes,
        "fingerprint": dataset.fingerprint,
        "seconds": round(seconds, 3),
        "skip": list(dataset.skip),
        "report": _inspect.report(dataset),
    }
    problems, unlisted = _decoded(dataset, failures) if decode else (None, [])
    if problems is not None:
        result["decoding"] = [dataclasses.asdict(problem) for problem in problems]
    classes = f" of {counted(len(dataset.classes), 'class', 'classes')}" if dataset.classes else ""
    _report(
        result,
        as_json,
        f"indexed {counted(len(dataset), 'sample')}{classes} in {seconds:.1f} s; the index has "
        f"{format_bytes(dataset.index.file_bytes)}: {path}",
    )
    if not as_json:
        _print_findings(dataset)
    if problems is not None and not as_json:
        _decoding.print_failures(dataset, problems, failures, unlisted)
    if problems:
        raise typer.Exit(1)


def _decoded(
    dataset: _dataset.Dataset, failures: str | None, threads: int | None = None
) -> tuple[list[_checks.Problem], list[str]]:
    """Decodes every sample, and writes those that fail into the file `failures`. Also the names
    that cannot be written there."""
    if failures is not None:
        check_outside("--failures", failures, _dataset.image_folder(dataset))
    with bar(f"decoding {dataset.path}", in_bytes=False) as progress:
        problems = _decoding.decode(dataset, threads=threads, progress=progress)
    if failures is None:
        return problems, []
    return problems, _decoding.write_failures(failures, dataset, problems)


def _print_findings(dataset: _dataset.Dataset) -> None:
    """The findings, and what to do about them; nothing if there are none."""
    for finding in dataset.report:
        print(f"files: {finding}")
    fail = any(not finding.can_be_decoded for finding in dataset.report)
    if fail and not dataset.format_row.follows_skip:
        words = dataset.format_row.command_words(dataset.path)
        print(
            "files that cannot be decoded are samples, which fail in training: `headrace verify "
            f'--decode --failures FILE {words}` lists them, hr.open(..., skip="@FILE") leaves them '
            'out, and Loader(on_error="substitute") replaces them'
        )
    elif fail:
        print(
            "files that cannot be decoded are samples, which fail in training. To train without "
            'them, open the folder with hr.open(path, skip=":undecodable"), or write an index of '
            "the others, `headrace index PATH --skip :undecodable -o FILE.hri`, and open that, or "
            "a pack, `headrace pack PATH TARGET --skip :undecodable`; "
            'Loader(on_error="substitute") replaces them by others; for a Python transform= '
            "Pillow decodes the formats that it reads"
        )


def pack(
    source: DatasetPath,
    target: Annotated[str, typer.Argument(help="The folder to create.")],
    order: Annotated[
        str,
        typer.Option(help="shuffled: blocks are random samples; source: in the source's order."),
    ] = "shuffled",
    seed: Annotated[int, typer.Option(help="Seed of the shuffle: same seed, same pack.")] = 0,
    block_size: Annotated[str, typer.Option(help="Bytes a block; one block is one read.")] = "1MiB",
    block_samples: Annotated[
        int | None, typer.Option(help="Samples a block, of any size; instead of --block-size.")
    ] = None,
    shard_size: Annotated[str, typer.Option(help="Bytes a file.")] = "256MiB",
    shards_over: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="Deal the files to N folders, home-0, ..., each for a node's own disk.",
        ),
    ] = 1,
    skip: Skip = None,
    format: FormatName = None,
    options: FormatOptions = None,
    split: SplitName = None,
    threads: Threads = None,
    jobs: Annotated[int | None, typer.Option(help="Ray's tasks at a time.")] = None,
    overwrite: Annotated[bool, typer.Option(help="Replace an existing pack.")] = False,
    restart: Annotated[
        bool, typer.Option(help="Discard the finished part of an interrupted run.")
    ] = False,
    on: On = None,
    as_json: Json = False,
) -> None:
    """Rewrite a dataset as a pack: Arrow files; each record batch is a block of random samples.

    The same command continues an interrupted run. The pack appears complete or not at all.

    Example: [bold]headrace pack /data/images /data/images.pack --block-size 2MiB[/bold]
    """
    try:
        from headrace.pack import PackParameters, write_pack
    except ModuleNotFoundError as error:
        raise ImportError(
            f"headrace pack needs {error.name}: pip install 'headrace[pack]'"
        ) from error

    parameters = PackParameters(
        order=order,  # type: ignore[arg-type]  # It refuses other words.
        seed=seed,
        block_bytes=parse_bytes(block_size, "--block-size"),
        block_samples=block_samples,
        shard_bytes=parse_bytes(shard_size, "--shard-size"),
        shards_over=shards_over,
    )
    if on is None and jobs is not None:
        raise InvalidArgumentError("--jobs: is for packing with --on ray; give --threads")
    if on is not None and threads is not None:
        raise InvalidArgumentError("--threads: is for packing without --on ray; give --jobs")
    tasks = None
    if on is not None:
        choice("--on", on, ("ray",))
        from headrace.ray import pack_tasks

        tasks = pack_tasks(jobs)
    dataset = _open(source, skip, format, options, split)
    with bar(f"packing {source}", in_bytes=True) as progress:
        result = write_pack(
            dataset,
            target,
            parameters,
            workers=threads,
            overwrite=overwrite,
            restart=restart,
            progress=progress,
            on=tasks,
        )
    continued = (
        f" ({result.shards_continued} of them finished by an earlier run)"
        if result.shards_continued
        else ""
    )
    _report(
        dataclasses.asdict(result),
        as_json,
        f"packed {counted(result.samples, 'sample')}, {format_bytes(result.data_bytes)}, into "
        f"{counted(result.blocks, 'block')} in {counted(result.shards, 'shard')}{continued}"
        f"{f' over {result.homes} homes' if result.homes > 1 else ''}: {result.path}",
    )


def inspect(
    path: DatasetPath,
    samples: Annotated[
        int, typer.Option(min=0, help="Number of samples to show, spread over the dataset.")
    ] = 3,
    show: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Draw a sheet of images into this file (matplotlib)."),
    ] = None,
    skip: Skip = None,
    format: FormatName = None,
    options: FormatOptions = None,
    split: SplitName = None,
    as_json: Json = False,
) -> None:
    """Show a dataset: counts, sizes, classes, samples, blocks and how well they are mixed.

    Example: [bold]headrace inspect /data/images.pack[/bold]
    Example: [bold]headrace inspect "s-{0000..0099}.tar" --show sheet.png[/bold]
    """
    dataset = _open(path, skip, format, options, split)
    if show is not None:
        from headrace.cli._plots.image_sheet import draw

        check_outside("--show", show, _dataset.image_folder(dataset))
        _charts.check(Path(show), "headrace inspect --show")
        draw(Path(show), dataset)
    description = _inspect.describe(dataset, samples)
    if as_json:
        print(json.dumps(description, indent=1))
        return
    _inspect.print_description(description)
    _print_findings(dataset)


def verify(
    path: DatasetPath,
    skip: Skip = None,
    home: Annotated[
        list[int] | None,
        typer.Option(
            metavar="K", help="Only the files at this home, as on the node of it; may be repeated."
        ),
    ] = None,
    threads: Threads = None,
    decode: Decode = False,
    failures: Failures = None,
    format: FormatName = None,
    options: FormatOptions = None,
    split: SplitName = None,
    as_json: Json = False,
) -> None:
    """Check the index, every file, and every sample that has a checksum. Exit code 1: data is bad.

    Example: [bold]headrace verify /data/images.pack[/bold]
    Example: [bold]headrace verify /data/images --decode --failures broken.txt[/bold]
    """
    _decoding.check_failures(decode, failures, skip)
    if decode and home:
        raise InvalidArgumentError(
            "--home: --decode reads all samples; run it where all files are, or leave it out"
        )
    dataset = _open(path, skip, format, options, split)
    with bar(f"verifying {path}", in_bytes=False) as progress:
        report = _checks.verify(dataset, homes=home, threads=threads, progress=progress)
    problems, unlisted = _decoded(dataset, failures, threads) if decode else ([], [])
    if as_json:
        result = {"path": dataset.path, "ok": report.ok and not problems}
        result |= dataclasses.asdict(report)
        if decode:
            result["decoding"] = [dataclasses.asdict(problem) for problem in problems]
        print(json.dumps(result | {"report": _inspect.report(dataset)}))
    else:
        for problem in report.problems:
            print(f"bad: {one_line(problem.message)}", file=sys.stderr)
        print(
            f"{'good' if report.ok else 'BAD'}: {counted(report.samples, 'sample')} in "
            f"{counted(report.files, 'file')}; contents of {report.samples_compared:,} compared "
            f"({format_bytes(report.bytes)}), {counted(len(report.problems), 'problem')}"
        )
        if report.files and not any(field.has_checksums for field in dataset.index.fields):
            what = (
                "times of files"
                if _places.is_local(folder_of(dataset.index))
                else "versions of objects"
            )
            print(f"(the index has no checksums: sizes and {what} were compared)")
        _print_findings(dataset)
    if decode and not as_json:
        _decoding.print_failures(dataset, problems, failures, unlisted)
    if not report.ok or problems:
        raise typer.Exit(1)


def format_row(format: str | None, options: list[str] | None, path: str | None) -> Format | None:
    """The format of --format with each --option, by default that of `path`; None: neither."""
    return table.with_options(format, options or [], path) if format or options else None


def _open(
    path: str,
    skip: list[str] | None = None,
    format: str | None = None,
    options: list[str] | None = None,
    split: str | None = None,
) -> _dataset.Dataset:
    return find_dataset(path, skip, format_row(format, options, path), split)


def find_dataset(
    path: str, skip: list[str] | None, row: Format | None, split: str | None
) -> _dataset.Dataset:
    """The dataset of a command, of the format `row` if it is given."""
    with counting(f"listing {path}") as progress:
        dataset = _dataset.find_dataset(path, skip=skip, progress=progress, row=row, split=split)
    _tell_unmatched_skip(dataset, skip)
    return dataset


def _tell_unmatched_skip(dataset: _dataset.Dataset, skip: list[str] | None) -> None:
    unmatched = unmatched_skip(dataset.index) if skip else None
    if unmatched is not None:
        _tell(unmatched)


def _tell(text: str) -> None:
    print(printable(one_line(f"headrace: {text}")), file=sys.stderr)


def _report(result: dict[str, Any], as_json: bool, sentence: str) -> None:
    print(json.dumps(result) if as_json else sentence)
