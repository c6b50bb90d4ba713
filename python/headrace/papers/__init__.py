"""The interfaces that papers describe, over a `headrace.Loader`: `headrace docs papers`.

>>> from headrace.papers.nopfs import Job, NoPFSDataLoader, NoPFSImageFolder
>>> from headrace.papers.redox import Fetcher, Sampler
"""
