"""Formats of datasets: those that headrace knows, and what a format of your own is made of.

`headrace docs formats/own` shows one.
"""

from headrace.formats._builder import Builder
from headrace.formats._format import Format, Sample
from headrace.formats._hdf5.hdf5 import Hdf5
from headrace.formats._tables.coco import Coco
from headrace.formats._tables.manifest import Manifest
from headrace.formats.arrays import Arrays, Records
from headrace.formats.table import register
from headrace.formats.tokens import Tokens
from headrace.formats.webdataset import WebDataset

__all__ = [
    "Arrays",
    "Builder",
    "Coco",
    "Format",
    "Hdf5",
    "Manifest",
    "Records",
    "Sample",
    "Tokens",
    "WebDataset",
    "register",
]
