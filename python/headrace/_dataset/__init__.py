"""`headrace.open`, and the datasets that it gives."""

from headrace._dataset.dataset import (
    Dataset,
    FormatArgument,
    Skip,
    check_has_samples,
    epoch_samples,
    find_dataset,
    image_folder,
    left_out_of,
    let_go,
    open_dataset,
    open_object,
    samples_of,
)
from headrace._dataset.dataset import (
    _reopen as _reopen,  # Pickles of earlier versions name it here.
)
from headrace._dataset.indexing import index_folder
from headrace._dataset.mixture import Mixture, mix

__all__ = [
    "Dataset",
    "FormatArgument",
    "Mixture",
    "Skip",
    "check_has_samples",
    "epoch_samples",
    "find_dataset",
    "image_folder",
    "index_folder",
    "left_out_of",
    "let_go",
    "mix",
    "open_dataset",
    "open_object",
    "samples_of",
]
