"""Batches as dicts, and the errors of those who expect them, or samples by number."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from loader_data import LABELS
from rank_scripts import environment, real_packages
from test_image_transforms import torchvision

import headrace as hr
from headrace.errors import InvalidArgumentError

__all__ = ["torchvision"]  # a fixture

NAMES = {"pixel_values": "image", "labels": "label"}
SIZE = hr.image.resize(8, dtype="uint8")


def check(batch: dict[str, Any]) -> int:
    assert list(batch) == ["pixel_values", "labels", "sample_id"]
    ids = [int(each) for each in batch["sample_id"]]
    assert [int(each) for each in batch["labels"]] == [int(LABELS[i]) for i in ids]
    assert batch["pixel_values"].shape == (len(ids), 3, 8, 8)
    return len(ids)


@pytest.mark.parametrize("output", ["torch", "numpy"])
def test_a_dict_of_fields_makes_batches_dicts(numbered: Path, output: Any) -> None:
    named = hr.Output(output, fields=NAMES, ids=True)
    with hr.Loader(numbered, 9, transform=SIZE, output=named) as loader:
        assert sum(map(check, loader)) == len(hr.open(numbered))
        state = loader.state_dict()
    with hr.Loader(
        numbered, 9, output=hr.Output(output, fields={"x": "label"}), transform=None
    ) as loader:
        loader.load_state_dict(state)  # It does not depend on the fields.
        assert list(next(iter(loader))) == ["x"]


def test_they_are_those_of_named_tuples(numbered: Path) -> None:
    plain = hr.Loader(numbered, 9, transform=SIZE)
    with plain, hr.Loader(numbered, 9, output=hr.Output(fields=NAMES), transform=SIZE) as ours:
        for mine, (images, labels) in zip(ours, plain, strict=True):
            assert np.array_equal(mine["pixel_values"], images)
            assert np.array_equal(mine["labels"], labels)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_library_s_transform_keeps_the_names(
    numbered: Path, workers: int, torchvision: Any
) -> None:
    crop = torchvision.transforms.v2.CenterCrop(8)
    named = hr.Output(fields=NAMES, ids=True)
    with hr.Loader(numbered, 9, transform=crop, workers=workers, output=named) as loader:
        assert sum(map(check, loader)) == len(hr.open(numbered))


def test_samples_for_torch_are_dicts(numbered: Path) -> None:
    torch = pytest.importorskip("torch")
    from headrace.papers.redox import RedoxFetcher

    with hr.Loader(numbered, 9, output=hr.Output(fields=NAMES, ids=True), transform=SIZE) as loader:
        samples = RedoxFetcher(loader)
        batches = torch.utils.data.DataLoader(samples, batch_sampler=samples.sampler)
        assert sum(map(check, batches)) == len(hr.open(numbered))


def pair(sample: hr.Sample) -> tuple[Any, Any]:
    return sample.image, sample.label


def test_names_that_cannot_be_are_refused(numbered: Path) -> None:
    for fields, options, message in (
        (
            {1: "image"},
            {},
            r"must be the field of each name that a batch is to have, as hr\.Output\(fields={'p",
        ),
        ({"sample_id": "label"}, {}, "sample_id is the name that ids=True gives"),
        ({"x": "images"}, {}, "Output.fields: got 'images'; the dataset has image, label"),
        ({"x": "label", "y": "label"}, {}, "must be names, each once"),
        (
            NAMES,
            {"transform": pair},
            r"return a dict from the function, and write hr\.Output\(fields=",
        ),
    ):
        named = hr.Output(fields=fields, ids="sample_id" in fields)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgumentError, match=message):
            hr.Loader(numbered, 9, output=named, **options)  # type: ignore[arg-type]


def test_samples_by_number_are_those_of_the_dataset(numbered: Path) -> None:
    torch = pytest.importorskip("torch")
    with hr.Loader(numbered, 9) as loader:
        with pytest.raises(
            TypeError, match="gives batches to a loop, not samples by number: iterate"
        ):
            next(iter(torch.utils.data.DataLoader(loader)))
        assert len(list(loader)) == len(loader)


TENSORFLOW = """
import sys
import headrace as hr, headrace.tensorflow

fields = {"pixel_values": "image", "labels": "label"}
output = hr.Output("numpy", fields=fields)
loader = hr.Loader(sys.argv[1], 9, transform=hr.image.resize(8), output=output)
for batch in headrace.tensorflow.dataset(loader):
    assert batch["pixel_values"].shape[1:] == (3, 8, 8), batch
    assert list(batch) == list(fields), batch
"""


def test_tensorflow_gets_dicts(numbered: Path) -> None:
    env = environment(real_packages("tensorflow"))
    command = [sys.executable, "-c", TENSORFLOW, str(numbered)]
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr


# Hugging Face's Trainer.

SCRIPT = """
import sys
from transformers import Trainer, TrainingArguments, ViTConfig, ViTForImageClassification
import headrace as hr
from headrace.torch import TrainerLoader

class Images(Trainer):
    def get_train_dataloader(self):
        return TrainerLoader(loader)

    def get_eval_dataloader(self, eval_dataset=None):
        return TrainerLoader(
            hr.Loader(sys.argv[1], 8, transform=hr.image.evaluate(32), output=output)
        )

output = hr.Output(fields={"pixel_values": "image", "labels": "label"})
loader = hr.Loader(sys.argv[1], 8, transform=hr.image.train(32), **eval(sys.argv[3]))
sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
sizes |= {"intermediate_size": 32, "image_size": 32, "patch_size": 8, "num_labels": 10}
arguments = TrainingArguments(
    sys.argv[2], num_train_epochs=2, per_device_train_batch_size=8, report_to=[], use_cpu=True,
    save_strategy="no", disable_tqdm=True, eval_strategy="epoch",
)
model = ViTForImageClassification(ViTConfig(**sizes))
made = Images(model, arguments, eval_dataset=[0]).train()
print("steps", made.global_step)
"""


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        ("{'output': output}", 0, "steps 26"),
        (
            "{}",
            1,
            "as output=hr.Output(fields={'pixel_values': 'image', 'labels': 'label'}), or by a",
        ),
    ],
)
def test_a_trainer_takes_a_loader_of_dicts(
    numbered: Path, tmp_path: Path, options: str, code: int, said: str
) -> None:
    env = environment(real_packages("trainers"), PYTHONWARNINGS="ignore,default::RuntimeWarning")
    command = [sys.executable, "-c", SCRIPT, str(numbered), str(tmp_path / "run"), options]
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    assert done.returncode == code, done.stderr
    assert said in (done.stderr if code else done.stdout)
