"""Sounds: against soundfile and the standard library, in all orders, with workers, damaged."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tarfile
import wave
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from rank_scripts import real_packages

import headrace as hr
from headrace import _core, errors, orders
from headrace.formats import HuggingFace, Manifest, WebDataset
from headrace.pack import write_pack
from headrace.tiers import Ram, Ssd

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "audio.md"
RATE = 16000
COUNT = 61

Numbers = NDArray[np.float32]


def tones(number: int, frames: int, channels: int = 1) -> NDArray[np.int16]:
    at = np.arange(frames)[:, None] / (5 + np.arange(channels) + number % 7)
    noise = np.random.default_rng(number).uniform(-2000, 2000, (frames, channels))
    return (20000 * np.sin(at) + noise).astype("<i2")


def wav(samples: NDArray[np.int16], rate: int = RATE) -> bytes:
    """A file as the standard library writes it."""
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(samples.shape[1])
        out.setsampwidth(2)
        out.setframerate(rate)
        out.writeframes(samples.tobytes())
    return file.getvalue()


def frames_of(number: int) -> int:
    return 300 + 137 * (number % 11)


def whole(number: int) -> Numbers:
    return tones(number, frames_of(number)).astype(np.float32) / 32768


@pytest.fixture
def tar(tmp_path: Path) -> Path:
    """A WebDataset of sounds of different lengths, and their numbers as labels."""
    path = tmp_path / "speech.tar"
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as out:
        for number in range(COUNT):
            sound = wav(tones(number, frames_of(number)))
            for name, data in (("wav", sound), ("cls", str(number).encode())):
                member = tarfile.TarInfo(f"{number:04}.{name}")
                member.size = len(data)
                out.addfile(member, io.BytesIO(data))
    return path


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of write_sounds.py; made before a test has its own cache."""
    packages = real_packages("soundfile")
    folder = tmp_path_factory.mktemp("sounds")
    done = subprocess.run(
        [sys.executable, str(HERE / "stand_ins" / "write_sounds.py"), str(folder)],
        capture_output=True,
        text=True,
        timeout=280,
        env=os.environ | {"PYTHONPATH": str(packages)},
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_every_format_gives_the_numbers_of_soundfile(written: Path) -> None:
    files = [each for each in written.iterdir() if each.suffix != ".npy"]
    assert len(files) == 18 + 12 + 72  # also RF64, and WAV that does not say its length
    for path in files:
        numbers, rate = hr.audio.decode(path.read_bytes())
        assert rate == 22050
        expected = np.load(path.with_name(f"{path.stem}-{path.suffix[1:]}.npy"))
        np.testing.assert_array_equal(numbers, expected, err_msg=path.name)


def test_a_wav_of_the_standard_library_is_its_numbers_over_32768() -> None:
    for channels in (1, 2, 7):
        samples = tones(5, 1001, channels)
        for encoded in (wav(samples), np.frombuffer(wav(samples), np.uint8)):
            numbers, rate = hr.audio.decode(encoded)
            assert rate == RATE
            assert numbers.dtype == np.float32
            np.testing.assert_array_equal(numbers, samples.astype(np.float32) / 32768)


def test_the_first_bytes_say_how_long_a_sound_is() -> None:
    data = np.frombuffer(wav(tones(1, 5000, 2)), np.uint8)
    assert _core.read_sound_info(data[:64], data.size) == (5000, 2, RATE)
    with pytest.raises(errors.HeadraceError, match="longer than 20 bytes"):
        _core.read_sound_info(data[:20], data.size)


def expected_row(number: int, frames: int) -> Numbers:
    row = np.zeros((frames, 1), np.float32)
    sound = whole(number)[:frames]
    row[: len(sound)] = sound
    return row


def loader_of(tar: Path, **options: Any) -> hr.Loader:
    transform = {"wav": hr.audio.clip(0.05, RATE)}
    defaults: dict[str, Any] = {"transform": transform, "output": "numpy", "seed": 3}
    return hr.Loader(tar, 5, **defaults | options)


def check_epoch(loader: hr.Loader, frames: int = 800) -> list[list[int]]:
    """Each row must be that of its sample, which its label names; the samples of each batch."""
    steps = []
    for batch in loader:
        assert batch.wav.dtype == np.float32
        for number, row in zip(batch.label.tolist(), batch.wav, strict=True):
            np.testing.assert_array_equal(row, expected_row(number, frames))
        steps.append(batch.label.tolist())
    assert sorted(number for step in steps for number in step) == list(range(COUNT))
    return steps


ORDERS: dict[str, Any] = {
    "exact": "exact",
    "batch": "batch",
    "epoch": "epoch",
    "small-pool": orders.Epoch(pool="50%", pools=2, block_samples=3),
    "redox": orders.Redox(chunks_per_virtual=4, block_samples=3),
}


@pytest.mark.filterwarnings("ignore:headrace")
@pytest.mark.parametrize("order", ORDERS)
def test_every_order_gives_each_sound_once_with_tiers_and_after_a_resume(
    tar: Path, order: str, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"order": ORDERS[order]}
    with loader_of(tar, **options) as loader:
        steps = check_epoch(loader)
    for tiers in ([Ram("1MiB")], [Ssd(tmp_path / "tier", "4MiB")]):
        with loader_of(tar, tiers=tiers, **options) as loader:
            assert check_epoch(loader) == steps
            assert check_epoch(loader) != []
    with loader_of(tar, **options) as loader:
        batches = iter(loader)
        next(batches)
        next(batches)
        state = loader.state_dict()
    with loader_of(tar, **options) as loader:
        loader.load_state_dict(state)
        assert [batch.label.tolist() for batch in loader] == steps[2:]


def test_a_node_process_gives_the_same_batches(tar: Path) -> None:
    with loader_of(tar) as loader:
        steps = check_epoch(loader)
    with loader_of(tar, job=hr.Job(node=hr.Node())) as loader:
        assert check_epoch(loader) == steps


def test_a_random_cut_is_a_part_of_the_sound_another_one_each_epoch(tar: Path) -> None:
    def cuts(**options: Any) -> list[dict[int, int]]:
        transform = hr.audio.clip(0.01, RATE, random=True)
        with loader_of(tar, transform=transform, **options) as loader:
            epochs = []
            for _ in range(2):
                begins = {}
                for batch in loader:
                    for number, row in zip(batch.label.tolist(), batch.wav, strict=True):
                        sound = whole(number)
                        (begin,) = (
                            at
                            for at in np.flatnonzero(sound[:, 0] == row[0, 0])
                            if np.array_equal(sound[at : at + 160], row)
                        )
                        begins[number] = begin
                epochs.append(begins)
        return epochs

    first = cuts(threads=1)
    assert first == cuts(threads=3)
    assert first == cuts(order="epoch", job=hr.Job(node=hr.Node()))
    assert first[0] != first[1]
    assert len(set(first[0].values())) > COUNT // 2
    assert first != cuts(seed=4)


def check_whole(batch: Any) -> list[int]:
    numbers: list[int] = batch.label.tolist()
    for number, row in zip(numbers, batch.wav, strict=True):
        assert row.dtype == np.float32
        np.testing.assert_array_equal(row, whole(number))
    return numbers


@pytest.mark.filterwarnings("ignore:headrace")
@pytest.mark.parametrize("order", ORDERS)
def test_sounds_of_any_length_are_lists_in_every_order_and_after_a_resume(
    tar: Path, order: str, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"order": ORDERS[order], "transform": hr.audio.whole(RATE)}
    with loader_of(tar, **options) as loader:
        steps = [check_whole(batch) for batch in loader]
    assert sorted(number for step in steps for number in step) == list(range(COUNT))
    for more in (
        {"tiers": [Ram("1MiB")]},
        {"tiers": [Ssd(tmp_path / "tier", "4MiB")]},
        {"job": hr.Job(node=hr.Node())},
    ):
        with loader_of(tar, **options, **more) as loader:
            assert [check_whole(batch) for batch in loader] == steps
            assert len([check_whole(batch) for batch in loader]) == len(steps)
    with loader_of(tar, **options) as loader:
        next(iter(loader))
        state = loader.state_dict()
    with loader_of(tar, **options) as loader:
        loader.load_state_dict(state)
        assert [check_whole(batch) for batch in loader] == steps[1:]


def test_sounds_of_any_length_are_padded_and_go_to_workers(tar: Path) -> None:
    transform = {"wav": hr.audio.whole(RATE)}
    with loader_of(tar, transform=transform, output=hr.Output(ragged="pad")) as loader:
        batch = next(iter(loader))
    lengths = [frames_of(number) for number in batch.label.tolist()]
    assert batch.wav.data.shape == (5, max(lengths), 1)
    assert batch.wav.shape.tolist() == [[length, 1] for length in lengths]
    pool = hr.Workers(2, start="fork")
    with loader_of(
        tar, transform=(transform, halved), output=hr.Output(ragged="list"), workers=pool
    ) as loader:
        for rows, labels in loader:
            for number, row in zip(labels.tolist(), rows, strict=True):
                np.testing.assert_array_equal(row, whole(number) / 2)


def test_a_pack_decodes_sounds_as_its_source_does(tar: Path, tmp_path: Path) -> None:
    write_pack(hr.open(tar), tmp_path / "pack")
    with loader_of(tmp_path / "pack", order="epoch") as loader:
        check_epoch(loader)
    with loader_of(tmp_path / "pack", transform=hr.audio.whole(RATE)) as loader:
        steps = [check_whole(batch) for batch in loader]
    assert sorted(number for step in steps for number in step) == list(range(COUNT))


def test_sounds_written_to_a_pipe_are_whole(tmp_path: Path) -> None:
    path = tmp_path / "some.tar"
    samples = [tones(number, frames_of(number)) for number in range(6)]
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as out:
        for number, size in enumerate((0, 0xFFFFFFFF, 0x7FFFF000) * 2):
            sound = bytearray(wav(samples[number]))
            sound[40:44] = size.to_bytes(4, "little")
            member = tarfile.TarInfo(f"{number}.wav")
            member.size = len(sound)
            out.addfile(member, io.BytesIO(sound))
    for transform, frames in ((hr.audio.whole(RATE), 9999), (hr.audio.clip(0.01, RATE), 160)):
        options: dict[str, Any] = {"transform": transform, "output": "numpy"}
        with hr.Loader(path, batch_sampler=[range(6)], **options) as loader:
            for row, expected in zip(next(iter(loader)).wav, samples, strict=True):
                np.testing.assert_array_equal(row, expected[:frames] / np.float32(32768))


def test_what_is_no_sound_is_said_when_indexing_and_fails_alone(tmp_path: Path) -> None:
    path = tmp_path / "some.tar"
    sounds = [wav(tones(number, 900)) for number in range(4)]
    sounds[1] = b"ID3 is no sound here"
    sounds[3] = sounds[3][:700]  # truncated
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as out:
        for number, sound in enumerate(sounds):
            member = tarfile.TarInfo(f"{number}.wav")
            member.size = len(sound)
            out.addfile(member, io.BytesIO(sound))
    with pytest.warns(RuntimeWarning, match=r"cannot be decoded: 2 of .*16 bits, replace them"):
        dataset = hr.open(path)
    (finding,) = dataset.report
    assert str(finding) == ("2 of a format that headrace does not decode (.wav): '1.wav', '3.wav'")
    assert dataset[1]["wav"] == sounds[1]
    options: dict[str, Any] = {"transform": hr.audio.whole(RATE), "output": "numpy"}
    with hr.Loader(dataset, batch_sampler=[[0, 2], [1]], **options) as loader:
        batches = iter(loader)
        assert [row.shape for row in next(batches)[0]] == [(900, 1)] * 2
        with pytest.raises(errors.DataLossError, match=r"sample 1 .*neither WAV nor FLAC"):
            next(batches)


def arrow_of(path: Path, sounds: list[bytes | None], paths: list[str | None]) -> Path:
    pa = pytest.importorskip("pyarrow")
    struct = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    rows = [{"bytes": one, "path": at} for one, at in zip(sounds, paths, strict=True)]
    table = pa.table({"audio": pa.array(rows, struct), "label": pa.array(range(len(rows)))})
    with pa.OSFile(str(path), "wb") as out, pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table, max_chunksize=4)
    return path


def check_sounds(dataset: hr.Dataset, field: str, count: int) -> None:
    """All sounds, whole; also of a pack."""
    transform = {field: hr.audio.whole(RATE)}
    ways: tuple[Literal["list", "pad"], ...] = ("list", "pad")
    for ragged in ways:
        seen = []
        output = hr.Output("numpy", ragged=ragged)
        with hr.Loader(dataset, 4, transform=transform, output=output) as loader:
            for batch in loader:
                for i, number in enumerate(batch.label.tolist()):
                    rows = batch[field].data[i] if ragged == "pad" else batch[field][i]
                    frames = frames_of(number)
                    np.testing.assert_array_equal(rows[:frames], whole(number))
                    assert not rows[frames:].any()
                    seen.append(number)
        assert sorted(seen) == list(range(count))


@pytest.mark.parametrize("own_files", [False, True])
def test_sounds_of_hugging_face_datasets_are_decoded_whole(tmp_path: Path, own_files: bool) -> None:
    sounds: list[bytes | None] = [wav(tones(number, frames_of(number))) for number in range(13)]
    paths: list[str | None] = [None] * 13
    if own_files:
        for number in range(3, 13):
            data = sounds[number]
            assert data is not None
            (tmp_path / f"{number}.wav").write_bytes(data)
            sounds[number], paths[number] = None, str(tmp_path / f"{number}.wav")
        sounds[:3], paths[:3] = sounds[3:6], paths[3:6]  # The first rows decide the root.
        for number in range(3):
            (tmp_path / f"{number}.wav").write_bytes(wav(tones(number, frames_of(number))))
            paths[number] = str(tmp_path / f"{number}.wav")
    path = arrow_of(tmp_path / "a.arrow", sounds, paths)
    dataset = hr.open(path, format=HuggingFace(sounds=("audio",)))
    check_sounds(dataset, "audio", 13)
    write_pack(dataset, tmp_path / "pack")
    check_sounds(hr.open(tmp_path / "pack"), "audio", 13)


def test_sounds_that_a_manifest_names_are_decoded_whole(tmp_path: Path) -> None:
    lines = ["audio,label"]
    for number in range(9):
        (tmp_path / f"{number}.wav").write_bytes(wav(tones(number, frames_of(number))))
        lines.append(f"{number}.wav,{number}")
    (tmp_path / "a.csv").write_text("\n".join(lines))
    check_sounds(hr.open(tmp_path / "a.csv", format=Manifest(sounds=("audio",))), "audio", 9)
    (tmp_path / "4.wav").write_bytes(b"ID3 is no sound here")
    (tmp_path / "a.csv").rename(tmp_path / "b.csv")
    with pytest.warns(RuntimeWarning, match="cannot be decoded: 1 of"):
        dataset = hr.open(tmp_path / "b.csv", format=Manifest(sounds=("audio",)))
    (finding,) = dataset.report
    assert (finding.kind, finding.count) == (".wav", 1)
    assert finding.examples[0].endswith("4.wav")


def test_sounds_names_fields_of_bytes(tmp_path: Path) -> None:
    path = arrow_of(tmp_path / "a.arrow", [wav(tones(0, 100)), b"no sound"], [None, None])
    for name, says in (("label", "it holds array"), ("x", "there is no such field")):
        with pytest.raises(errors.InvalidArgumentError, match=f"sounds: got '{name}': {says}"):
            hr.open(path, format=HuggingFace(sounds=(name,)))
    with pytest.warns(RuntimeWarning, match=r"does not decode \(\.sound\)"):
        hr.open(path, format=HuggingFace(sounds=("audio",)))


def test_an_index_that_does_not_say_how_long_sounds_are_says_so(tar: Path) -> None:
    dataset = hr.open(tar, format=WebDataset(raw=("wav",)))
    with pytest.raises(errors.InvalidArgumentError, match="does not say how long they are; give a"):
        loader_of(dataset, transform=hr.audio.whole(RATE))  # type: ignore[arg-type]


def halved(sample: hr.Sample) -> Any:
    return sample.wav / 2, sample.label


def decoded(sample: hr.Sample) -> Any:
    numbers, rate = hr.audio.decode(sample.wav)
    return numbers, int(sample.label) + rate


@pytest.mark.parametrize("workers", [0, 2])
def test_workers_get_rows_or_the_bytes(tar: Path, workers: int) -> None:
    pool = hr.Workers(workers, start="fork")
    pair = ({"wav": hr.audio.clip(0.05, RATE)}, halved)
    with loader_of(tar, transform=pair, workers=pool) as loader:
        for rows, labels in loader:
            for number, row in zip(labels.tolist(), rows, strict=True):
                np.testing.assert_array_equal(row, expected_row(number, 800) / 2)
    with loader_of(tar, transform=decoded, output=hr.Output(ragged="list"), workers=pool) as loader:
        for rows, labels in loader:
            for number, row in zip(labels.tolist(), rows, strict=True):
                np.testing.assert_array_equal(row, whole(number - RATE))


def test_batches_of_torch_are_tensors(tar: Path) -> None:
    with loader_of(tar, output="torch") as loader:
        batch = next(iter(loader))
    assert batch.wav.dtype == torch.float32
    assert batch.wav.shape == (5, 800, 1)


def test_a_sound_unlike_the_transform_names_its_sample_and_the_way_out(tar: Path) -> None:
    for transform, says in (
        (hr.audio.clip(0.1, 44100), r"sound of 16000 Hz: the field has 44100 Hz.*resample the f"),
        (hr.audio.clip(0.1, RATE, channels=2), "sound of 1 channel: the field has 2; write all"),
    ):
        with (
            loader_of(tar, transform=transform, shuffle=False) as loader,
            pytest.raises(errors.InvalidArgumentError, match=rf"sample 0 .*field wav: .*{says}"),
        ):
            next(iter(loader))


@pytest.mark.filterwarnings("ignore:headrace")
def test_a_damaged_sound_is_replaced_where_that_is_asked_for(tar: Path, tmp_path: Path) -> None:
    data = bytearray(tar.read_bytes())
    at = data.index(b"data", data.index(b"0007.wav"))
    data[at : at + 4] = b"dada"
    tar.write_bytes(data)
    with loader_of(tar, on_error="substitute", output=hr.Output(ids=True)) as loader:
        ids = [number for batch in loader for number in batch.sample_id.tolist()]
        stats = loader.stats()
    assert len(ids) == COUNT
    assert 7 not in ids
    assert [each["wanted"] for each in stats["substitutions"]] == [7]


def test_arguments_that_cannot_be_are_refused_by_name(tar: Path, numbered: Path) -> None:
    for given, says in (
        ({"seconds": 0, "rate": RATE}, "audio seconds: got 0, must be a number of seconds"),
        ({"seconds": float("nan"), "rate": RATE}, "audio seconds: got nan"),
        ({"seconds": "1", "rate": RATE}, "audio seconds: got '1'"),
        ({"seconds": 1, "rate": 0}, "audio rate: got 0"),
        ({"seconds": 1, "rate": RATE, "channels": 65}, "audio channels: got 65"),
        ({"seconds": 1e6, "rate": RATE}, r"sound transform frames: got 16000000000, must be in"),
    ):
        with pytest.raises(errors.InvalidArgumentError, match=says):
            loader_of(tar, transform=hr.audio.clip(**given))
    for data, transform, says in (
        (tar, hr.audio.whole, "the function headrace.audio.whole, which makes a transform: call"),
        (tar, hr.audio.clip, "the function headrace.audio.clip, which makes a transform: call it"),
        (tar, {"label": hr.audio.clip(1, RATE)}, "'label': a sound transform, but it holds no enc"),
        (numbered, hr.audio.clip(1, RATE), "of the fields wanted none is of kind bytes"),
        (
            numbered,
            {"image": hr.audio.clip(1, RATE)},
            "'image': a sound transform, but it holds no",
        ),
        (tar, {"wav": hr.image.resize(8)}, "'wav': an image transform, but it holds no encoded"),
    ):
        with pytest.raises(errors.InvalidArgumentError, match=says):
            loader_of(data, transform=transform)
    for wrong in ("text", 3, np.zeros(4, np.float32)):
        with pytest.raises(errors.InvalidArgumentError, match="decoding sound: got "):
            hr.audio.decode(wrong)  # type: ignore[arg-type]


def test_damaged_bytes_are_an_error_or_numbers(written: Path) -> None:
    rng = np.random.default_rng(11)
    files = [each.read_bytes() for each in sorted(written.iterdir()) if each.suffix != ".npy"]
    refused = 0
    for number in range(2000):
        data = bytearray(files[number % len(files)])
        if number % 4 == 0:
            data = data[: rng.integers(len(data))]
        else:
            most = 64 if number % 2 else len(data)
            for _ in range(rng.integers(1, 5)):
                data[rng.integers(most)] = rng.integers(256)
        try:
            hr.audio.decode(bytes(data))
        except (errors.DataLossError, errors.InvalidArgumentError):
            refused += 1
    assert 200 < refused < 2000


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 4
    data = wav(tones(1, 40000))
    with tarfile.open(tmp_path / "speech.tar", "w", format=tarfile.USTAR_FORMAT) as out:
        for number in range(8):
            member = tarfile.TarInfo(f"{number}.wav")
            member.size = len(data)
            out.addfile(member, io.BytesIO(data))
    monkeypatch.chdir(tmp_path)
    exec("\n".join(blocks), {"hr": hr})
