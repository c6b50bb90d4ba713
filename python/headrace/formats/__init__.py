"""Formats of datasets: those that headrace knows, and what a format of your own is made of.

`headrace docs formats/own` shows one.
"""

from headrace.formats._builder import Builder
from headrace.formats._format import Format, Sample
from headrace.formats.table import register

__all__ = [
    "Builder",
    "Format",
    "Sample",
    "register",
]
