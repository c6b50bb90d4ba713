"""Headrace: training samples at the speed of the storage, in the order you asked for.

>>> import headrace as hr
>>> dataset = hr.open("/data/images")
>>> for image, label in hr.Loader(dataset, batch_size=256, transform=hr.image.train(224)):
...     ...
"""

from headrace._process import command as _command  # noqa: F401  # before what takes time

# isort: split
import logging
from typing import TYPE_CHECKING

from headrace import _core
from headrace._process import at_exit as _at_exit  # noqa: F401
from headrace._process.lazy import lazy_names

if TYPE_CHECKING:
    from headrace import audio, errors, formats, image, orders, profile, tiers
    from headrace import pack as pack  # not in __all__: it needs pyarrow
    from headrace._dataset import Dataset
    from headrace._dataset import open_dataset as open
    from headrace._loader import Loader
    from headrace._options.groups import Cache, Engine, NodeProcess, Nodes, Sharding, Workers
    from headrace._show.batch import show
    from headrace._signature import Batch
    from headrace._workers import Padded, Sample
    from headrace.errors import HeadraceError
    from headrace.formats._base.findings import Finding

logging.getLogger("headrace").addHandler(logging.NullHandler())  # Silent unless asked for.

__version__: str = _core.version

__all__ = [
    "Batch",
    "Cache",
    "Dataset",
    "Engine",
    "Finding",
    "HeadraceError",
    "Loader",
    "NodeProcess",
    "Nodes",
    "Padded",
    "Sample",
    "Sharding",
    "Workers",
    "__version__",
    "audio",
    "errors",
    "formats",
    "image",
    "open",
    "orders",
    "profile",
    "show",
    "tiers",
]

_PLACES = {
    "Batch": "._signature",
    "Cache": "._options.groups",
    "Dataset": "._dataset",
    "Engine": "._options.groups",
    "Finding": ".formats._base.findings",
    "HeadraceError": ".errors",
    "Loader": "._loader",
    "NodeProcess": "._options.groups",
    "Nodes": "._options.groups",
    "Padded": "._workers",
    "Sample": "._workers",
    "Sharding": "._options.groups",
    "Workers": "._options.groups",
    "audio": "",
    "errors": "",
    "formats": "",
    "image": "",
    "open": "._dataset:open_dataset",
    "orders": "",
    "pack": "",
    "profile": "",
    "show": "._show.batch",
    "tiers": "",
}

# `import headrace` takes a fraction of the time of NumPy, which the rest imports when it is used.
if not TYPE_CHECKING:  # A type checker would take any name for one of these.
    __getattr__, __dir__ = lazy_names(__name__, _PLACES)
