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
    from headrace import audio, errors, formats, image, orders, profile, simulation, tiers
    from headrace import pack as pack  # not in __all__: it needs pyarrow
    from headrace._dataset import Dataset, mix
    from headrace._dataset import open_dataset as open
    from headrace._loader import Loader
    from headrace._options.groups import Cache, EngineOptions, Job, Node, Output, Workers
    from headrace._show.batch import show
    from headrace._signature import Fields
    from headrace._workers import Padded, Sample
    from headrace.errors import HeadraceError
    from headrace.formats._base.findings import Finding

logging.getLogger("headrace").addHandler(logging.NullHandler())  # Silent unless asked for.

__version__: str = _core.version

__all__ = [
    "Cache",
    "Dataset",
    "EngineOptions",
    "Fields",
    "Finding",
    "HeadraceError",
    "Job",
    "Loader",
    "Node",
    "Output",
    "Padded",
    "Sample",
    "Workers",
    "__version__",
    "audio",
    "errors",
    "formats",
    "image",
    "mix",
    "open",
    "orders",
    "profile",
    "show",
    "simulation",
    "tiers",
]

_PLACES = {
    "Cache": "._options.groups",
    "Dataset": "._dataset",
    "EngineOptions": "._options.groups",
    "Fields": "._signature",
    "Finding": ".formats._base.findings",
    "HeadraceError": ".errors",
    "Job": "._options.groups",
    "Loader": "._loader",
    "Node": "._options.groups",
    "Output": "._options.groups",
    "Padded": "._workers",
    "Sample": "._workers",
    "Workers": "._options.groups",
    "audio": "",
    "errors": "",
    "formats": "",
    "image": "",
    "mix": "._dataset",
    "open": "._dataset:open_dataset",
    "orders": "",
    "pack": "",
    "profile": "",
    "show": "._show.batch",
    "simulation": "",
    "tiers": "",
}

# `import headrace` takes a fraction of the time of NumPy, which the rest imports when it is used.
if not TYPE_CHECKING:  # A type checker would take any name for one of these.
    __getattr__, __dir__ = lazy_names(__name__, _PLACES)
