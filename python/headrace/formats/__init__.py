"""Formats of datasets: those that headrace knows, and what a format of your own is made of.

`headrace docs formats/own` shows one.
"""

from headrace.formats._builder import Builder
from headrace.formats._format import Format, Sample
from headrace.formats._shards.litdata import LitData
from headrace.formats._shards.mds import MDS
from headrace.formats._shards.tfrecord import TFRecord
from headrace.formats.arrays import Arrays, Records
from headrace.formats.table import register
from headrace.formats.tokens import Tokens
from headrace.formats.webdataset import WebDataset

__all__ = [
    "MDS",
    "Arrays",
    "Builder",
    "Format",
    "LitData",
    "Records",
    "Sample",
    "TFRecord",
    "Tokens",
    "WebDataset",
    "register",
]
