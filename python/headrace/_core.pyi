"""The C++ core of headrace. Private: use the package `headrace`."""

from collections.abc import Callable, Sequence
import enum
from typing import Annotated, Any

import numpy
import numpy.typing
from numpy.typing import NDArray


version: str = '0.1.0'

def status_codes() -> dict[str, int]:
    """
    By the name of an error of headrace.errors: its number in messages between processes.
    """

class Field:
    """One named part of every sample."""

    @property
    def name(self) -> str: ...

    @property
    def kind(self) -> str: ...

    @property
    def dtype(self) -> str: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def batch_dtype(self) -> str:
        """the dtype of the rows of a batch: `dtype`, or a wider one"""

    @property
    def is_inline(self) -> bool: ...

    @property
    def has_checksums(self) -> bool: ...

    @property
    def coding(self) -> str:
        """how each sample is compressed; "stored": it is not"""

    @property
    def is_shuffled(self) -> bool: ...

    @property
    def header_bytes(self) -> int:
        """in front of the value, of what is decoded"""

    @property
    def has_decoded_sizes(self) -> bool: ...

class Index:
    """A memory-mapped index: where every sample's bytes lie."""

    @staticmethod
    def open(path: str | bytes) -> Index: ...

    @property
    def sample_count(self) -> int: ...

    @property
    def object_count(self) -> int: ...

    @property
    def block_count(self) -> int: ...

    @property
    def file_bytes(self) -> int: ...

    @property
    def path(self) -> str:
        """Its file, as it was opened."""

    @property
    def root(self) -> str: ...

    @property
    def fingerprint(self) -> str: ...

    @property
    def fields(self) -> list[Field]: ...

    @property
    def attributes(self) -> dict[str, str]: ...

    def content(self) -> str:
        """
        32 hexadecimal digits: the fingerprint without the objects' times of change
        """

    def pieces(self, count: int, bytes: int, seed: int) -> tuple[Annotated[NDArray[numpy.uint64], dict(shape=(None,))], Annotated[NDArray[numpy.uint64], dict(shape=(None,))], Annotated[NDArray[numpy.uint64], dict(shape=(None,))]]:
        """
        (objects, offsets, sizes) of ranges that are spread over the bytes of all objects
        """

    def first_other_object(self, other: Index) -> int | None:
        """
        the first object that has another name or size in `other`, or is in one alone
        """

    def object(self, id: int) -> tuple[str, int, int]:
        """(name, size, mtime_ns)"""

    def extents(self, field: int, first: int = 0, count: int | None = None) -> tuple[Annotated[NDArray[numpy.uint64], dict(shape=(None,))], Annotated[NDArray[numpy.uint64], dict(shape=(None,))], Annotated[NDArray[numpy.uint64], dict(shape=(None,))]]:
        """(objects, offsets, sizes) of samples [first, first + count)"""

    def inline_values(self, field: int, first: int = 0, count: int | None = None) -> numpy.typing.NDArray[Any]: ...

    def inline_ragged(self, field: int, first: int = 0, count: int | None = None) -> tuple[Annotated[NDArray[numpy.uint8], dict(shape=(None,))], Annotated[NDArray[numpy.uint64], dict(shape=(None,))]]:
        """
        Values that differ in length: (all bytes end to end, the bytes of each)
        """

    def decoded_sizes(self, field: int, first: int = 0, count: int | None = None) -> Annotated[NDArray[numpy.uint64], dict(shape=(None,))] | None:
        """
        The bytes of value that each sample decodes to; None of fields that are not decoded
        """

    def checksums(self, field: int, first: int = 0, count: int | None = None) -> Annotated[NDArray[numpy.uint64], dict(shape=(None,))] | None:
        """XXH3-64 of each sample's bytes; None where not known"""

    def blocks(self, first: int = 0, count: int | None = None) -> tuple[Annotated[NDArray[numpy.uint64], dict(shape=(None,))], Annotated[NDArray[numpy.uint64], dict(shape=(None,))], Annotated[NDArray[numpy.uint64], dict(shape=(None,))], Annotated[NDArray[numpy.uint64], dict(shape=(None,))], Annotated[NDArray[numpy.uint64], dict(shape=(None,))], Annotated[NDArray[numpy.uint64], dict(shape=(None,))] | None]:
        """
        (first_samples, sample_counts, objects, offsets, sizes, checksums or None)
        """

    def verify_all(self) -> None: ...

    def folder_is_current(self) -> bool: ...

def hash64(data: object) -> int:
    """XXH3-64, seed 0."""

def hash64_ranges(data: object, offsets: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], sizes: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> Annotated[NDArray[numpy.uint64], dict(shape=(None,))]:
    """XXH3-64 of each range of `data`."""

class Homes:
    """On which nodes' own disks the objects of an index lie."""

    @staticmethod
    def of(index: Index) -> Homes: ...

    @property
    def count(self) -> int:
        """1: all lie in one place"""

    def of_object(self, object: int) -> int: ...

    def of_sample(self, sample: int) -> int: ...

    def of_samples(self) -> Annotated[NDArray[numpy.uint32], dict(shape=(None,))]:
        """The home of every sample."""

    def present(self) -> list[tuple[bool, str]]:
        """
        For each home whether it is on this node, and why it cannot be read although its folder is; empty: it can.
        """

class MixtureEnd(enum.Enum):
    NEVER = 0

    FIRST = 1

    ALL = 2

class Mixture:
    """Which source has each position; a pure function."""

    def __init__(self, sources: list[tuple[str, int, int | None]], stages: list[tuple[int, list[float]]], end: MixtureEnd, epoch_samples: int) -> None: ...

    @property
    def epoch_samples(self) -> int: ...

    @property
    def length(self) -> int | None:
        """Positions; None: it goes on for ever."""

    def counts_before(self, position: int) -> list[int]:
        """Draws of each source before it."""

def join_indexes(parts: list[tuple[str, str, list[tuple[str, str]]]], part_field: str, prefixed_names: bool, path: str) -> None:
    """
    Writes an index file that stands for the parts: (name, path, renames), joined.
    """

class IndexContents:
    """What an index says, column by column."""

    def __init__(self, sample_count: int, root: str | bytes) -> None: ...

    def add_objects(self, names: Sequence[str | bytes], sizes: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], mtimes_ns: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None: ...

    def add_extent_field(self, name: str | bytes, type: tuple[str | bytes, str | bytes, Sequence[int]], extents: tuple[Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)]], checksums: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, batch_dtype: str | bytes | None = None) -> None: ...

    def set_decoding(self, decoding: tuple[str | bytes, bool, int, bool], decoded_sizes: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None) -> None:
        """
        Of the field that was added last: (coding, shuffled, header bytes, decoded sizes)
        """

    def add_inline_field(self, name: str | bytes, type: tuple[str | bytes, str | bytes, Sequence[int]], values: object, lengths: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None) -> None: ...

    def add_blocks(self, sample_counts: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], extents: tuple[Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)]], checksums: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None: ...

    def set_attribute(self, key: str | bytes, value: str | bytes) -> None: ...

def write_index(contents: IndexContents, path: str | bytes) -> None:
    """Writes an index file: temporary, synced, renamed."""

def build_folder_index(root: str | bytes, path: str | bytes, progress: Callable[[int], object] | None = None, skip: Sequence[str | bytes] = [], jobs: int = 1) -> None:
    """Walks a folder of class folders and writes its index."""

def files_found(folder: str | bytes, names: Sequence[str | bytes], jobs: int = 1) -> tuple[Annotated[NDArray[numpy.int64], dict(shape=(None,))], Annotated[NDArray[numpy.int64], dict(shape=(None,))]]:
    """Of each name: the file's size, -1 if there is none, and its time."""

def tar_members(fd: int, file_bytes: int, at: int, members_max: int) -> tuple[bytes, Annotated[NDArray[numpy.int64], dict(shape=(None,))], Annotated[NDArray[numpy.int64], dict(shape=(None,))], int, bool]:
    """
    Files of a tar with plain headers: names, offsets, sizes, the next header's place.
    """

class IndexBuilder:
    """Writes an index in pieces of any size."""

    def __init__(self, path: str | bytes, root: str | bytes) -> None: ...

    def add_field(self, name: str | bytes, type: tuple[str | bytes, str | bytes, Sequence[int]], is_inline: bool = False, checksums: bool = False, batch_dtype: str | bytes | None = None, decoding: tuple[str | bytes, bool, int, bool] | None = None) -> int:
        """
        The position of the field. `decoding`: (coding, shuffled, header bytes, decoded sizes)
        """

    def add_objects(self, names: Sequence[str | bytes], sizes: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], mtimes_ns: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None: ...

    def add_extents(self, field: int, extents: tuple[Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)]]) -> None: ...

    def add_inline_values(self, field: int, values: object) -> None: ...

    def add_ragged(self, field: int, values: object, lengths: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None:
        """Inline values end to end, and the bytes of each."""

    def add_checksums(self, field: int, checksums: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None: ...

    def add_decoded_sizes(self, field: int, sizes: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None: ...

    def add_blocks(self, sample_counts: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], extents: tuple[Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)]]) -> None: ...

    def set_attribute(self, key: str | bytes, value: str | bytes) -> None: ...

    @property
    def object_count(self) -> int: ...

    def sample_count(self, field: int) -> int: ...

    def publish(self) -> None:
        """Checks the whole and writes it; once, last."""

    def discard(self) -> None:
        """Leaves nothing."""

decodes_tiff: bool = True

def decode_bytes(coding: str | bytes, encoded: object, decoded_bytes: int, element_bytes: int = 1) -> NDArray[numpy.uint8]:
    """
    What compressed bytes decode to: "stored", "zstd", "zlib", "deflate", "snappy" or "gzip" ones. Elements of more than 1 byte were shuffled before.
    """

class RandomResizedCrop:
    """A random box of the image, resized: torchvision's algorithm."""

    def __init__(self) -> None: ...

    @property
    def scale(self) -> list[float]:
        """share of the area, an interval in (0, 1]"""

    @scale.setter
    def scale(self, arg: Sequence[float], /) -> None: ...

    @property
    def ratio(self) -> list[float]:
        """width / height, an interval"""

    @ratio.setter
    def ratio(self, arg: Sequence[float], /) -> None: ...

class ImageTransform:
    """How an encoded image becomes a fixed-shape row of a batch."""

    def __init__(self) -> None: ...

    @property
    def random_resized_crop(self) -> RandomResizedCrop | None:
        """the random box, or None: the whole image"""

    @random_resized_crop.setter
    def random_resized_crop(self, arg: RandomResizedCrop | None, /) -> None: ...

    @property
    def resize_shorter(self) -> int:
        """
        pixels of the shorter side before the centre crop; 0: resize to height x width
        """

    @resize_shorter.setter
    def resize_shorter(self, arg: int, /) -> None: ...

    @property
    def flip_probability(self) -> float: ...

    @flip_probability.setter
    def flip_probability(self, arg: float, /) -> None: ...

    @property
    def height(self) -> int:
        """of the row, pixels"""

    @height.setter
    def height(self, arg: int, /) -> None: ...

    @property
    def width(self) -> int:
        """of the row, pixels"""

    @width.setter
    def width(self, arg: int, /) -> None: ...

    @property
    def to_float(self) -> bool:
        """float32, normalised; else uint8"""

    @to_float.setter
    def to_float(self, arg: bool, /) -> None: ...

    @property
    def mean(self) -> list[float]:
        """per channel, of values in [0, 1]"""

    @mean.setter
    def mean(self, arg: Sequence[float], /) -> None: ...

    @property
    def std(self) -> list[float]:
        """per channel, of values in [0, 1]"""

    @std.setter
    def std(self, arg: Sequence[float], /) -> None: ...

    @property
    def channels_first(self) -> bool:
        """[3, height, width]; else [height, width, 3]"""

    @channels_first.setter
    def channels_first(self, arg: bool, /) -> None: ...

    @property
    def exact(self) -> bool:
        """equal to Pillow's pixels; else faster"""

    @exact.setter
    def exact(self, arg: bool, /) -> None: ...

    @property
    def pixels_max(self) -> int:
        """an image beyond is refused"""

    @pixels_max.setter
    def pixels_max(self, arg: int, /) -> None: ...

def look_at_headers(bytes: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], sizes: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], at: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> tuple[Annotated[NDArray[numpy.uint32], dict(shape=(None,))], Annotated[NDArray[numpy.uint32], dict(shape=(None,))], Annotated[NDArray[numpy.uint64], dict(shape=(None,))]]:
    """
    Widths and heights of images by parts of their bytes, and the bytes to look at next.
    """

def form_bytes(widths: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', writable=False)], heights: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', writable=False)], transform: ImageTransform) -> Annotated[NDArray[numpy.uint32], dict(shape=(None,))]:
    """Bytes of images in decoded form in a tier; 0: they stay as stored."""

header_look_bytes: int = 1024

def decode_image(encoded: bytes, transform: ImageTransform, seed: int = 0, epoch: int = 0, sample: int = 0) -> numpy.typing.NDArray[Any]:
    """Decodes one image as the loader does for this (seed, epoch, sample)."""

def decode_pixels(encoded: numpy.typing.NDArray[numpy.uint8]) -> numpy.typing.NDArray[numpy.uint8]:
    """Every pixel of an image: uint8[height, width, 3], RGB."""

def is_image_of_other_kind(encoded: numpy.typing.NDArray[numpy.uint8]) -> bool:
    """
    Whether the bytes are an image that others decode: a BMP, PNM, CMYK TIFF, ...
    """

class SoundTransform:
    """How an encoded sound becomes a row of float32[frames, channels]."""

    def __init__(self) -> None: ...

    @property
    def frames(self) -> int | None:
        """of every row; None: those of the sound"""

    @frames.setter
    def frames(self, arg: int | None, /) -> None: ...

    @property
    def random_begin(self) -> bool:
        """cut at a random frame of each epoch"""

    @random_begin.setter
    def random_begin(self, arg: bool, /) -> None: ...

    @property
    def channels(self) -> int:
        """that every sound has"""

    @channels.setter
    def channels(self, arg: int, /) -> None: ...

    @property
    def rate(self) -> int:
        """that every sound has; 0: any"""

    @rate.setter
    def rate(self, arg: int, /) -> None: ...

def decode_sound(encoded: numpy.typing.NDArray[numpy.uint8]) -> tuple[numpy.typing.NDArray[numpy.float32], int]:
    """
    All frames of a WAV or FLAC: float32[frames, channels]; and frames a second.
    """

def read_sound_info(begin: numpy.typing.NDArray[numpy.uint8], file_bytes: int) -> tuple[int, int, int]:
    """Frames, channels and frames a second of a file, from its first bytes."""

decoded_bytes_kept: int = 268435456

def set_helper_command(command: list[str]) -> None:
    """
    The program and arguments that stores of this process start helpers with.
    """

class StoredReader:
    """Reads stored bytes as a loader does: same stores, retries, errors."""

    def __init__(self, index: Index, remedies: tuple[str | bytes, str | bytes, str | bytes], threads: int = 0, decoded_bytes: int = 0) -> None:
        """
        `threads`: number of reads that run at once; 0: the number of a loader. `decoded_bytes`: memory for files and row groups that are decoded as a whole; 0: as much as is useful.
        """

    def read_into(self, objects: NDArray[numpy.uint64], offsets: NDArray[numpy.uint64], sizes: NDArray[numpy.uint64], target: bytearray | memoryview) -> None:
        """
        Fills all of `target` with the ranges, one after the other. Ctrl-C ends it.
        """

    def check(self, object: int) -> None:
        """Raises unless the object is there, and as it was indexed."""

    def check_open(self) -> None:
        """
        Raises if a file that it has open has changed since it was indexed, or had when it was closed.
        """

    def close(self) -> None: ...

class MachineModel:
    """
    What reads, decoding and epochs take on a machine: headrace docs model.
    """

    def __init__(self, *, storage: Sequence[tuple[int, Sequence[tuple[float, float]]]] = (), storage_rate_max: float = ..., storage_shared: bool = True, readers: float = 1, tiers: Sequence[tuple[Any, Any, float]] = (), staging: tuple[Any, Any, float] = ..., link: tuple[Any, float] | None = None, decode: Sequence[tuple[float, float]] = (), copy: Sequence[tuple[float, float]] = (), preprocess_rate: float = ...) -> None: ...

    @property
    def values(self) -> dict[str, Any]:
        """The arguments that give this model."""

    def storage_rate(self, read_bytes: float, reads_in_flight: float) -> float:
        """Bytes a second."""

    def predict_epoch(self, *, samples: float = 0, storage: Sequence[tuple[float, float]] = (), tiers: Sequence[tuple[Sequence[tuple[float, float]], Sequence[tuple[float, float]]]] = (), peers: Sequence[tuple[float, float]] = (), decode_bytes: float = 0, copy_bytes: float = 0, demand: float = ..., threads: float = 1, reads_in_flight: float = 1, storage_sharers: float = 1) -> dict[str, Any]:
        """seconds, bound, and what each resource needs alone"""

    def predict_stream(self, bytes: NDArray[numpy.float64], which: NDArray[numpy.uint32], sources: Sequence[tuple[str, int]], compute_rate: float) -> dict[str, Any]:
        """NoPFS's recurrence over one worker's stream"""

    def rank_sources(self, bytes: float, candidates: Sequence[tuple[str | bytes, int]], nodes: float = 1.0) -> list[tuple[str, int, float]]:
        """(kind, tier, seconds), fastest first; kinds are tier, peer, storage"""

def begin_exit() -> None:
    """
    The interpreter is about to finalize: other threads stop where they meet the core.
    """

def stop_at_exit() -> None:
    """
    Returns, unless begin_exit() was called, and this is a thread that stops then.
    """

def stops_at_exit() -> bool:
    """Whether stop_at_exit() would stop this thread."""

def exempt_thread() -> None:
    """This thread does not stop then: who ends the interpreter waits for it."""

def allow_leaks() -> None:
    """
    Threads that go on while the interpreter ends keep objects: nanobind is not to report them.
    """

class OrderSpec:
    """Which order, and what fixes it beside the job."""

    def __init__(self, name: str, parameters: dict[str, int | str], homes: numpy.typing.NDArray[Any] | None = None, costs: numpy.typing.NDArray[Any] | None = None) -> None: ...

    @property
    def name(self) -> str: ...

    def leaving_out(self, numbers: numpy.typing.NDArray[Any]) -> OrderSpec:
        """The same, but no epoch holds the samples of these numbers, ascending."""

    def of_mixture(self, mixture: Mixture) -> OrderSpec:
        """The same, of the samples that a mixture draws."""

    def with_parameters(self, parameters: dict[str, int | str]) -> OrderSpec: ...

    @property
    def exchanging_nodes(self) -> int:
        """
        Nodes that send each other samples in a run of so many; 1: each reads all it delivers.
        """

    @property
    def parameters(self) -> dict[str, int | str]: ...

def stored_bytes(index: Index) -> numpy.typing.NDArray[Any]:
    """Stored bytes of every sample, over all its fields."""

def resident_bytes(index: Index, block_samples: int) -> int:
    """Bytes that all samples take when they are resident."""

class EncodedImages(enum.Enum):
    UNCHECKED = 0

    DECODABLE = 1

    DECODABLE_OR_OTHER_KIND = 2

class OnError(enum.Enum):
    RAISE = 0

    SUBSTITUTE = 1

class LoaderOptions:
    """What one rank's Loader is made from. Nothing changes it."""

    def __init__(self, **members: Any) -> None:
        """
        The members of the struct, those that are structs as dicts; others have defaults.
        """

    @property
    def memory_bytes(self) -> int: ...

    @property
    def prefetch(self) -> int | None: ...

    @property
    def threads(self) -> int: ...

    @property
    def io(self) -> str: ...

    @property
    def verify(self) -> bool: ...

    @property
    def worker_results(self) -> bool: ...

    @property
    def shared_batches(self) -> bool: ...

    @property
    def batches_behind(self) -> int: ...

    @property
    def schedule(self) -> str: ...

    @property
    def sample_count(self) -> int: ...

    @property
    def batch_size(self) -> int: ...

    @property
    def world_size(self) -> int: ...

    @property
    def rank(self) -> int: ...

    @property
    def ranks(self) -> int: ...

    @property
    def exchange(self) -> bool: ...

    @property
    def seed(self) -> int: ...

    @property
    def shuffle(self) -> bool: ...

    @property
    def drop_last(self) -> bool: ...

    @property
    def epochs(self) -> int: ...

    @property
    def bijection_from(self) -> int: ...

    @property
    def placement(self) -> str: ...

    @property
    def horizon_epochs(self) -> int: ...

    @property
    def ask(self) -> str: ...

    @property
    def await_inserts(self) -> bool: ...

    @property
    def decoded_field(self) -> str: ...

    def replace(self, **members: Any) -> LoaderOptions:
        """
        Others, which differ in these members, and of those that are dicts in what these have.
        """

    @property
    def order(self) -> OrderSpec: ...

    @property
    def on_error(self) -> OnError: ...

    @property
    def tier_count(self) -> int: ...

class NodeAddress:
    """Where a rank finds its node process."""

    def __init__(self, socket: str | bytes, job: str | bytes, local: tuple[int, int], lanes: tuple[int, int, int], start_timeout_s: int) -> None:
        """
        local: (local rank, local ranks); lanes: (rank of the process, lane, lanes)
        """

class Batch:
    """One batch; its arrays are views that keep its memory."""

    @property
    def epoch(self) -> int: ...

    @property
    def step(self) -> int: ...

    @property
    def ends_epoch(self) -> bool: ...

    @property
    def beyond_budget(self) -> bool: ...

    def samples(self) -> Annotated[NDArray[numpy.uint64], dict(shape=(None,))]:
        """The numbers of its samples, by slot."""

    def field(self, position: int) -> object:
        """
        A DLPack and buffer exporter; a list of them where rows differ in length.
        """

class Loader:
    """Runs a plan in this process, or by a node process."""

    def __init__(self, index: Index, options: LoaderOptions, node: NodeAddress | None = None) -> None: ...

    @property
    def schema(self) -> list[tuple[str, str, tuple[int, ...], bool]]: ...

    @property
    def steps_per_epoch(self) -> int: ...

    @property
    def order_parameters(self) -> dict[str, int | str]: ...

    @property
    def order_origins(self) -> dict[str, int | str]: ...

    @property
    def expected_inflation(self) -> dict[str, float | None] | None: ...

    @property
    def peer_address(self) -> str: ...

    def connect_nodes(self, node: int, addresses: Sequence[str | bytes], token: str | bytes, answer_and_begin_s: tuple[int, int], rate_bytes_per_s: int) -> None:
        """Tells the node process where those of all nodes are."""

    def start(self, epoch: int, step: int) -> None: ...

    def start_list(self, ids: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], batch_ends: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], epoch: int, first_step: int) -> None: ...

    def next(self) -> Batch | None:
        """The next batch, or None after the last."""

    def stop(self) -> None: ...

    def close(self) -> None: ...

    def explain(self, epoch: int, step: int) -> list[tuple[int, int, str, str, str, int, int, str]]:
        """
        (slot, sample, field, source, object, offset, size, actual source) of every row
        """

    def explain_rows(self, samples: Sequence[int]) -> list[tuple[int, int, str, str, str, int, int, str]]: ...

    def tiers_in_trouble(self) -> list[tuple[str, str]]:
        """(name, reason) of the tiers that failed"""

    def decode_times(self) -> list[tuple[int, float, int, int, float]]:
        """
        What preprocessing was seen to take: (transform, bytes, threads, count, seconds)
        """

    def stats(self) -> dict[str, Any]:
        """Once the loader is closed, the last ones."""

    def step_times(self) -> dict[str, numpy.typing.NDArray[numpy.int64]]:
        """
        The newest batches that were taken, lane after lane: a column a property
        """

def placements() -> list[str]:
    """Names of the placements, the default first."""

def placement_keeps_blocks(name: str | bytes) -> bool:
    """Whether tiers are of use to it."""

def stores() -> list[str]:
    """What io= may be: a store, or the first that suits."""

def memory_limit_bytes() -> int:
    """
    Bytes of memory that this process may use: the machine's, or its cgroup's.
    """

def errno_text(error: int) -> str:
    """
    What the system says of an errno; of EACCES also who lacks permission, and a remedy.
    """

def permutation(size: int, seed: int, epoch: int, stream: int) -> Annotated[NDArray[numpy.uint64], dict(shape=(None,))]:
    """The permutation of [0, size) that orders use: headrace docs orders."""

class Blocks:
    """How a dataset falls into blocks."""

    @staticmethod
    def uniform(samples: int, block_samples: int) -> Blocks:
        """Without data: a sample is one unit of one byte."""

    @staticmethod
    def of_index(index: Index, block_samples: int = 0) -> Blocks: ...

    @property
    def sample_count(self) -> int: ...

    @property
    def block_count(self) -> int: ...

    @property
    def unit_bytes(self) -> int: ...

    @property
    def total_units(self) -> int: ...

    @property
    def largest_block(self) -> int: ...

    def bounds(self) -> Annotated[NDArray[numpy.uint64], dict(shape=(None,))]:
        """The first sample of each block, then the number of samples."""

class PlannedStep:
    """One global batch, as far as a rank takes part in it."""

    @property
    def epoch(self) -> int: ...

    @property
    def step(self) -> int: ...

    @property
    def ends_epoch(self) -> bool: ...

    @property
    def ids(self) -> Annotated[NDArray[numpy.uint64], dict(shape=(None,))]: ...

    @property
    def slots(self) -> Annotated[NDArray[numpy.uint32], dict(shape=(None,))]: ...

    @property
    def ranks(self) -> Annotated[NDArray[numpy.uint32], dict(shape=(None,))]: ...

    @property
    def block_read(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]:
        """
        Of each delivery: the block read that keeps its sample; -1: it is read by itself.
        """

    @property
    def block_reads(self) -> list[tuple[int, int, int, list[int], bool]]:
        """
        (number, first, count, kept, again); nothing kept means all of them are.
        """

    @property
    def releases(self) -> list[tuple[int, int]]:
        """(block_read, sample)"""

    @property
    def parcel_reads(self) -> list[tuple[int, int, int]]:
        """
        Of the block reads those that another node sends: (number, home, parcel).
        """

    @property
    def parcels(self) -> list[tuple[int, int, list[tuple[int, int]], bool]]:
        """
        What is sent: (node, number, [(block_read, sample)], whether it goes ahead, so that others come first).
        """

class OrderStream:
    """An order's steps, planned without reading anything."""

    def __init__(self, order: str, parameters: dict[str, int | str], *, index: Index | Blocks | tuple[int, int], block_samples: int = 0, batch_size: int = 1, world_size: int = 1, rank: int = 0, ranks: int = 1, exchange: bool = False, seed: int = 0, shuffle: bool = True, drop_last: bool = False, epochs: int = 16777216, epoch: int = 0, step: int = 0, homes: NDArray[numpy.uint32] | None = None, costs: NDArray[numpy.uint32] | None = None, rank_units: int | None = None) -> None: ...

    def __iter__(self) -> OrderStream: ...

    def __next__(self) -> PlannedStep: ...

    def ids(self, max_steps: int = 18446744073709551615) -> Annotated[NDArray[numpy.uint64], dict(shape=(None,))]:
        """
        The samples of the next steps, in one array; empty after the last step.
        """

    def counters(self) -> dict[str, float]:
        """What the planner counted so far."""

    def dump(self) -> str:
        """
        The planner's state after the last step, as JSON; empty if it tells none.
        """

    @property
    def parameters(self) -> dict[str, int | str]:
        """With every default filled in."""

    @property
    def steps_per_epoch(self) -> int: ...

    @property
    def resident_units(self) -> int:
        """Units (Blocks.unit_bytes) that the stream has resident at most."""

class IdHasher:
    """XXH3-64 over numbers of samples, 8 bytes each."""

    def __init__(self) -> None: ...

    def add(self, ids: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None: ...

    def digest(self) -> str:
        """16 hexadecimal digits."""

def resolve_order(order: str, parameters: dict[str, int | str], *, index: Index | Blocks | tuple[int, int], block_samples: int = 0, batch_size: int = 1, world_size: int = 1, rank: int = 0, ranks: int = 1, exchange: bool = False, seed: int = 0, shuffle: bool = True, drop_last: bool = False, epochs: int = 16777216, epoch: int = 0, step: int = 0, homes: NDArray[numpy.uint32] | None = None, costs: NDArray[numpy.uint32] | None = None, rank_units: int | None = None) -> dict[str, int | str]:
    """The order's parameters with every default filled in."""

def expected_inflation(order: str, parameters: dict[str, int | str], *, labels: NDArray[numpy.uint32] | None = None, index: Index | Blocks | tuple[int, int], block_samples: int = 0, batch_size: int = 1, world_size: int = 1, rank: int = 0, ranks: int = 1, exchange: bool = False, seed: int = 0, shuffle: bool = True, drop_last: bool = False, epochs: int = 16777216, epoch: int = 0, step: int = 0, homes: NDArray[numpy.uint32] | None = None, costs: NDArray[numpy.uint32] | None = None, rank_units: int | None = None) -> dict[str, float | None] | None:
    """
    sharing, of_blocks, correlation, of_labels of a batch; None: no closed form.
    """

def inline_labels(index: Index) -> NDArray[numpy.uint32] | None:
    """The number of each sample's label, by first appearance."""

def default_rank_units(blocks: Blocks, world_size: int) -> int:
    """
    Units that a loader without memory= has for what its order keeps, on this machine.
    """

class OrderFactory:
    """A row of the table of orders."""

    @property
    def name(self) -> str: ...

    @property
    def reads_blocks(self) -> bool: ...

    @property
    def follows_lists(self) -> bool: ...

    @property
    def takes_costs(self) -> bool: ...

    @property
    def budget_parameter(self) -> str:
        """The parameter that says how many bytes stay resident; empty: none."""

    @property
    def reproduces_requests_of(self) -> OrderFactory | None:
        """Of a paper's own order, to compare with: whose requests it answers."""

def find_order(name: str | bytes) -> OrderFactory:
    """The order of that name."""

def order_names() -> list[str]:
    """The orders that there are, the default first."""

good_label_inflation: float = 1.05

class QualityMeter:
    """Measures M0 to M11 over epochs of samples."""

    def __init__(self, blocks: Blocks, *, batch: int = 256, labels: NDArray[numpy.uint32] | None = None, costs: NDArray[numpy.uint32] | None = None, stored_shuffled: bool = False, windows: Sequence[int] = (), dropped: int = 0, padded: int = 0, partial: bool = False, alpha: float = 0.001) -> None: ...

    def add(self, ids: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None: ...

    def add_requested(self, ids: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None: ...

    def end_epoch(self) -> None: ...

    def report(self) -> dict[str, Any]: ...

class Slice:
    """One measurement."""

    @property
    def rate(self) -> float:
        """bytes a second"""

    @property
    def operations_rate(self) -> float:
        """reads, writes or samples a second"""

    @property
    def operations(self) -> int: ...

    @property
    def bytes(self) -> int: ...

class StorageSlice:
    """One measurement of storage."""

    @property
    def slice(self) -> Slice: ...

    @property
    def read_bytes(self) -> int:
        """of all reads, uncounted ones too"""

    @property
    def device_bytes(self) -> int:
        """what devices gave this process for them; -1: unknown"""

class StorageProbe:
    """Reads a dataset's files past the page cache, as a loader would."""

    def __init__(self, index: Index) -> None: ...

    def read(self, read_bytes: int, in_flight: int, seconds: float, seconds_max: float) -> StorageSlice:
        """Ranges of `read_bytes`; 0: whole samples, of 4 MiB at most."""

    @property
    def reads_ranges(self) -> bool: ...

    @property
    def object_bytes_max(self) -> int: ...

    @property
    def store(self) -> str: ...

    @property
    def note(self) -> str: ...

    @property
    def direct_bytes(self) -> int:
        """read past the page cache so far"""

class DecodeProbe:
    """Decodes some samples, from memory."""

    def __init__(self, storage: StorageProbe, image: ImageTransform | None) -> None: ...

    def run(self, threads: int, seconds: float, seconds_max: float) -> Slice: ...

    @property
    def is_copy(self) -> bool: ...

    @property
    def sample_count(self) -> int: ...

    @property
    def mean_bytes(self) -> float:
        """stored, of a sample"""

class FolderProbe:
    """Reads and writes a nameless file in a folder."""

    def __init__(self, folder: str | bytes, bytes: int, seconds_max: float) -> None: ...

    def read(self, bytes: int, threads: int, seconds: float, seconds_max: float) -> Slice: ...

    def write(self, bytes: int, threads: int, seconds: float, seconds_max: float) -> Slice: ...

    @property
    def direct(self) -> bool:
        """past the page cache"""

    @property
    def bytes(self) -> int:
        """of its file"""

def measure_copy(threads: int, seconds: float, seconds_max: float) -> Slice:
    """Copies memory larger than the caches."""

def usable_cores() -> int:
    """Processors that this process may use."""

class RankBatches:
    """The samples of a rank's batches, planned without reading anything."""

    def __init__(self, index: Index, options: LoaderOptions, parameters: dict[str, int | str], lane: tuple[int, int], start: tuple[int, int]) -> None:
        """
        `parameters`: all of the order. `lane`: the rank's place among those that share its engine, and their number. `start`: epoch and step.
        """

    def next(self) -> tuple[int, int, bool, list[int]] | None:
        """
        (epoch, step, whether it ends the epoch, samples); None after the last.
        """

class EpochPlanner:
    """Plans a loader's job epoch by epoch."""

    def __init__(self, index: Index, options: LoaderOptions) -> None: ...

    def next(self) -> dict[str, Any] | None:
        """
        The next epoch: reads as (bytes, count) from storage, and of each tier read and written; None after the last.
        """

    @property
    def steps_per_epoch(self) -> int: ...

    @property
    def threads(self) -> int: ...

    @property
    def reads_in_flight(self) -> int: ...

    @property
    def reads_blocks(self) -> bool: ...

    @property
    def request_bytes_max(self) -> int:
        """A longer read from storage is several requests; 0: none is."""

    @property
    def order_parameters(self) -> dict[str, int | str]: ...

    @property
    def expected_inflation(self) -> dict[str, float | None] | None: ...

def reuse_distances(index: Index, options: LoaderOptions, epochs: int) -> dict[str, Any]:
    """
    How many steps lie between uses of a sample, or a block: bins [i] of 2^i steps up.
    """

def plan_schedule(index: Index, options: LoaderOptions, path: str | bytes, steps: int, train_seconds: float) -> int:
    """
    Writes the threads of each rank and what tiers do, for so many steps at most; how many.
    """

def lane_policies() -> list[str]:
    """Names of the policies by which ranks share a node, the default first."""

def used_more_often(epochs: int, nodes: int, times: float) -> float:
    """
    The share of samples that a node uses more than `times` the mean, epochs / nodes, if each epoch gives each sample to a node at random.
    """

reads_in_flight: int = 64

block_reads_in_flight: int = 16

joined_read_bytes: int = 1048576

block_read_bytes: int = 4194304

def sample_reads_in_flight(read_bytes: int) -> int:
    """Reads of a loader that reads samples of this mean size."""

def published_policies() -> list[tuple[str, str, str, bool]]:
    """(name, title, paper, whether it changes the order) of each."""

def run_published(policy: str, sizes: NDArray[numpy.float64], *, nodes: int = 1, batch_size: int = 1, epochs: int = 1, seed: int = 0, compute_rate: float = ..., sample_rate: float = ..., preprocess_rate: float = ..., allreduce_seconds: float = 0, allreduce_noise: float = 0, storage: Sequence[tuple[float, float]] = (), storage_link_rate: float = ..., storage_latency: float = 0, reads_share: bool = False, network_rate: float = ..., staging: tuple[float, int, float] = ..., tiers: Sequence[tuple[float, int, float, bool]] = ()) -> dict[str, Any]:
    """
    A job by a published policy, sample by sample. Rates are bytes a second.
    """

class PolicyRates:
    """Seconds a byte on a simulated cluster."""

    def from_storage(self, readers: int) -> float:
        """Of one read. `readers`: the nodes that read storage then."""

    def storage_wait(self, bytes: float, readers: int) -> float:
        """
        Seconds by which storage's latency makes a read of so many bytes longer.
        """

    def from_tier(self, tier: int) -> float: ...

    def from_peer(self, tier: int) -> float: ...

    def to_staging(self) -> float:
        """Preprocessing and writing, by one thread."""

    def staged(self, fetch: float) -> float:
        """
        Through all threads of staging, of reads that take one of them `fetch`.
        """

class PolicyReaders:
    """Which nodes read storage at a time."""

    def at(self, node: int, seconds: float) -> int:
        """Nodes that read then, `node` included."""

    def reads(self, node: int, until: float) -> None:
        """The node reads until then."""

def run_own_policy(prepare: Callable[..., Any], sizes: NDArray[numpy.float64], *, nodes: int = 1, batch_size: int = 1, epochs: int = 1, seed: int = 0, compute_rate: float = ..., sample_rate: float = ..., preprocess_rate: float = ..., allreduce_seconds: float = 0, allreduce_noise: float = 0, storage: Sequence[tuple[float, float]] = (), storage_link_rate: float = ..., storage_latency: float = 0, reads_share: bool = False, network_rate: float = ..., staging: tuple[float, int, float] = ..., tiers: Sequence[tuple[float, int, float, bool]] = ()) -> dict[str, Any]:
    """The same by a policy of Python's: headrace.simulation.own."""

def run_order(order: str, sizes: NDArray[numpy.float64], *, parameters: dict[str, int | str] = ..., placement: str = ..., schedule: str = ..., fast: bool = False, ranks: int = 1, batches_max: int = 64, reads_in_flight: int = 0, reads_per_second: float = ..., files: bool = False, nodes: int = 1, batch_size: int = 1, epochs: int = 1, seed: int = 0, compute_rate: float = ..., sample_rate: float = ..., preprocess_rate: float = ..., allreduce_seconds: float = 0, allreduce_noise: float = 0, storage: Sequence[tuple[float, float]] = (), storage_link_rate: float = ..., storage_latency: float = 0, reads_share: bool = False, network_rate: float = ..., staging: tuple[float, int, float] = ..., tiers: Sequence[tuple[float, int, float, bool]] = ()) -> dict[str, Any]:
    """
    A job by an order of Headrace, its engines in virtual time; otherwise as run_published().
    """

class WorkerChannel:
    """A worker's end of its connection."""

    @staticmethod
    def open(socket: int, host: int) -> WorkerChannel: ...

    def receive(self) -> tuple[list[tuple[int, numpy.typing.NDArray[Any]]], list[int], bytes] | None:
        """
        (memory to map by number, numbers of memory that is gone, message); None at the end
        """

    def send(self, message: bytes) -> bool:
        """False if the host is gone."""

    COMPUTE: int = 1

    WRITE: int = 2

    READY: int = 1

    FAILED: int = 2

    ERROR: int = 3

    DONE: int = 4

    SHAPED: int = 5

    UNLIKE: int = 6

    ROWS: int = 0

    PADDED: int = 1

    LIST: int = 2

    OBJECT: int = 3

    COMPUTE_HEAD: str = 'QQQQQ?'

    WRITE_HEAD: str = 'QQ'

    READY_HEAD: str = 'I'

    UNLIKE_HEAD: str = 'Q'

    ERROR_HEAD: str = 'QI'

    DONE_HEAD: str = 'QQQ'

    SHAPED_HEAD: str = 'QQQI'

    LEAF_HEAD: str = '?I'

    LEAVES_MAX: int = 4096

    ITEM_BYTES_MAX: int = 64

    REPLY_BYTES_MAX: int = 67108864

class TransformedBatch:
    """What workers made of a batch."""

    @property
    def epoch(self) -> int: ...

    @property
    def step(self) -> int: ...

    @property
    def ends_epoch(self) -> bool: ...

    @property
    def beyond_budget(self) -> bool: ...

    def samples(self) -> Annotated[NDArray[numpy.uint64], dict(shape=(None,))]: ...

    @property
    def tree(self) -> bytes: ...

    @property
    def leaf_count(self) -> int: ...

    def leaf(self, position: int) -> tuple[Any, ...]:
        """
        (kind, dtype, dims, bytes, dims of rows), or (kind, dtype, rows), or (kind,)
        """

    def objects(self) -> list[bytes]: ...

class WorkerPool:
    """Hosts the workers of a loader."""

    def __init__(self, loader: Loader, sockets: Sequence[int], whole_batches: bool, ragged: str, batches_max: int, memory_bytes: int) -> None: ...

    def attach(self, loader: Loader) -> None: ...

    def detach(self) -> None: ...

    def start(self, epoch: int, step: int) -> None: ...

    def start_list(self, ids: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], batch_ends: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], epoch: int, first_step: int) -> None: ...

    def next(self) -> TransformedBatch | dict[str, Any] | None: ...

    def stop(self) -> None: ...

    def close(self) -> None: ...

    @property
    def broken(self) -> bool: ...

    def stats(self) -> dict[str, Any]: ...

class ReaderPool:
    """Hosts workers that read samples by keys."""

    def __init__(self, sockets: Sequence[int], whole_batches: bool, in_order: bool, batches_max: int, threads: int) -> None: ...

    def begin(self) -> int: ...

    def add(self, run: int, epoch: int, step: int, first: int, keys: list[bytes]) -> None: ...

    def next(self, timeout_ns: int) -> TransformedBatch | dict[str, Any] | None: ...

    def halt(self, timeout_ns: int) -> bool: ...

    def renew_memory(self) -> None: ...

    def close(self) -> None: ...

    def stats(self) -> dict[str, Any]: ...
