"""Formats of datasets: those that headrace knows, and what a format of your own is made of.

`headrace docs formats/own` shows one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace._process.helpers import set_helper_command
from headrace._process.lazy import lazy_names

if TYPE_CHECKING:
    from headrace.formats import table as table
    from headrace.formats._base.builder import Builder
    from headrace.formats._base.format import Format, Given, Sample
    from headrace.formats._coco.coco import Coco
    from headrace.formats._hdf5.hdf5 import Hdf5
    from headrace.formats._huggingface.huggingface import HuggingFace
    from headrace.formats._litdata.litdata import LitData
    from headrace.formats._mds.mds import MDS
    from headrace.formats._parquet.parquet import Parquet
    from headrace.formats._tables.manifest import Manifest
    from headrace.formats._tfrecord.tfrecord import TFRecord
    from headrace.formats.arrays import Arrays, Records
    from headrace.formats.table import register
    from headrace.formats.tokens import Tokens
    from headrace.formats.webdataset import WebDataset

set_helper_command()

__all__ = [
    "MDS",
    "Arrays",
    "Builder",
    "Coco",
    "Format",
    "Given",
    "Hdf5",
    "HuggingFace",
    "LitData",
    "Manifest",
    "Parquet",
    "Records",
    "Sample",
    "TFRecord",
    "Tokens",
    "WebDataset",
    "register",
]

_MODULES = {
    "Arrays": ".arrays",
    "Builder": "._base.builder",
    "Coco": "._coco.coco",
    "Format": "._base.format",
    "Given": "._base.format",
    "Hdf5": "._hdf5.hdf5",
    "HuggingFace": "._huggingface.huggingface",
    "LitData": "._litdata.litdata",
    "MDS": "._mds.mds",
    "Manifest": "._tables.manifest",
    "Parquet": "._parquet.parquet",
    "Records": ".arrays",
    "Sample": "._base.format",
    "TFRecord": "._tfrecord.tfrecord",
    "Tokens": ".tokens",
    "WebDataset": ".webdataset",
    "table": "",
    "register": ".table",
}

# A training script that opens one format does without the others.
if not TYPE_CHECKING:  # A type checker would take any name for one of these.
    __getattr__, __dir__ = lazy_names(__name__, _MODULES)
