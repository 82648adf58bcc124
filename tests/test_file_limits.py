"""The limits of files and answers, at each limit and one beyond, and the names of files that errors
list.
"""

import json
import os
import struct
import threading
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from asking import refusal
from tables import each

from attncalc import AttncalcError, load
from attncalc.config import safetensors
from attncalc.config.folder import Folder
from attncalc.config.gpus import gpu
from attncalc.config.hub import Repository, cached_folder, token
from attncalc.config.layouts import reject_list, reject_other_layout
from attncalc.config.safetensors import INDEX, stored_weights
from attncalc.config.user_files import open_file

YAML = "d_model: 64\nn_layers: 2\nn_heads: 4\nd_ff: 9\nnorm: rmsnorm\n"


def padded(content: bytes, size: int, end: bytes = b"") -> bytes:
    return content + b" " * (size - len(content) - len(end)) + end


# Model files and those beside them


@pytest.mark.skipif(not hasattr(os, "O_NONBLOCK"), reason="no pipes on this system")
def test_opening_a_file_does_not_wait_and_reading_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = []

    def opened(path: str, given: int, real: Any = os.open) -> int:
        flags.append(given)
        descriptor: int = real(path, given)
        return descriptor

    (tmp_path / "f").write_bytes(b"x")
    monkeypatch.setattr(os, "open", opened)
    with open_file(tmp_path / "f") as file:
        assert os.get_blocking(file.fileno())
        assert file.read() == b"x"
    assert [given & os.O_NONBLOCK for given in flags] == [os.O_NONBLOCK]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes on this system")
@pytest.mark.parametrize(
    "name", ["m", "model.yaml", "config.json", "model.gguf", "model.safetensors"]
)
def test_a_pipe_that_nobody_writes_to_is_an_empty_file(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises(AttncalcError, match="the file is empty"):
        load(tmp_path / name)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes on this system")
def test_a_pipe_is_read_while_it_is_written(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    # without a reader, no writer could open the pipe
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with pipe.open("wb", buffering=0) as file:

        def write() -> None:
            file.write(YAML.encode())
            file.close()

        writer = threading.Timer(0.2, write)
        writer.start()
        assert load(pipe).main.n_layers == 2
        writer.join()
    os.close(reading)


def test_a_gpu_file_has_at_most_64_kibibytes(tmp_path: Path) -> None:
    text = b"title: A GPU\nvendor: me\nsources: [x]\nmemory_gb: 9\nbandwidth: 5\nflops: {fp16: 7}\n"
    file = tmp_path / "g.yaml"
    file.write_bytes(text + b"#" * (65_536 - len(text)))
    assert gpu(file).peak("fp16") == 7
    file.write_bytes(text + b"#" * (65_537 - len(text)))
    with pytest.raises(AttncalcError, match=r"g\.yaml: longer than 65,536 bytes"):
        gpu(file)


# safetensors


class InMemory(Folder):
    """A folder in memory; a file's size may be unknown."""

    def __init__(
        self, files: dict[str, bytes], *, max_headers: int | None = None, size: bool = True
    ) -> None:
        self.files, self.has_sizes = files, size
        self.max_headers = max_headers

    def names(self) -> frozenset[str]:
        return frozenset(self.files)

    def label(self, name: str = "") -> str:
        return name

    def read(self, name: str, limit: int) -> bytes | None:
        content = self.files.get(name)
        return None if content is None else content[: limit + 1]

    def open(self, name: str) -> Any:
        return Source(name, self.files[name], self.has_sizes) if name in self.files else None


class Source:
    def __init__(self, name: str, content: bytes, has_size: bool) -> None:
        self.name, self.content = name, content
        self.size: int | None = len(content) if has_size else None
        self.reads: list[tuple[int, int]] = []

    def read(self, start: int, end: int) -> bytes:
        self.reads.append((start, end))
        return self.content[start:end]


def file_of(
    tensors: dict[str, tuple[str, list[int], list[int]]], size: int, *, header: int = 0
) -> bytes:
    """Return a file with tensors of (dtype, shape, offsets), and a header of at least so many
    bytes.
    """
    entries = {
        name: {"dtype": t, "shape": shape, "data_offsets": place}
        for name, (t, shape, place) in tensors.items()
    }
    content = (
        padded(json.dumps(entries).encode(), header) if header else json.dumps(entries).encode()
    )
    return struct.pack("<Q", len(content)) + content + bytes(size)


ONE = {"a": ("F16", [2, 3], [0, 12])}


@pytest.mark.parametrize("length", [100, 101])
def test_a_safetensors_header_may_have_as_many_bytes_as_the_limit(
    monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    monkeypatch.setattr(safetensors, "MAX_HEADER", 100)
    folder = InMemory({"model.safetensors": file_of(ONE, 12, header=length)})
    if length == 100:
        stored = stored_weights(folder)
        assert stored
        assert (stored.size, stored.tensors, stored.files) == (12, 1, 1)
    else:
        with pytest.raises(AttncalcError, match="a header of 101 bytes, more than 100"):
            stored_weights(folder)


@pytest.mark.parametrize(
    ("length", "message"),
    [
        (16 << 20, "shorter than its header, or not a safetensors file"),
        ((16 << 20) + 1, "a header of 16,777,217 bytes, more than 16,777,216"),
    ],
)
def test_a_header_may_have_16_mib(length: int, message: str) -> None:
    """Thirty times the longest known. The file's size is unknown, and its header is missing."""
    with pytest.raises(AttncalcError, match=message):
        stored_weights(InMemory({"model.safetensors": struct.pack("<Q", length)}, size=False))


@pytest.mark.parametrize("length", [100, 101])
def test_an_index_may_have_as_many_bytes_as_the_limit(
    monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    monkeypatch.setattr(safetensors, "MAX_INDEX", 100)
    index = padded(b'{"weight_map": {}, "metadata": {"total_size": 7}}', length)
    if length == 100:
        stored = stored_weights(InMemory({INDEX: index}))
        assert stored
        assert stored.size == 7
    else:
        with pytest.raises(AttncalcError, match="longer than 100 bytes"):
            stored_weights(InMemory({INDEX: index}))


@each(
    ("tensors", "size", "message"),
    [
        ({"a": ("F16", [], [0, 2])}, 2, ""),
        ({"a": ("F16", [0], [0, 0])}, 0, ""),
        ({"a": ("F4", [2], [0, 1])}, 1, ""),
        ({"a": ("U8", [1] * 64, [0, 1])}, 1, ""),
        ({"a": ("U8", [1] * 65, [0, 1])}, 1, "no valid dtype, shape and data_offsets"),
        ({"a": ("U8", [2**64 - 1, 0], [0, 0])}, 0, ""),
        ({"a": ("U8", [2**64, 0], [0, 0])}, 0, "no valid dtype, shape and data_offsets"),
        ({"a": ("U8", [2**64 + 1, 0], [0, 0])}, 0, "no valid dtype, shape and data_offsets"),
        ({"a": ("U8", [1], [0])}, 1, "no valid dtype, shape and data_offsets"),
        ({"b": ("U8", [1], [1, 2]), "a": ("U8", [1], [0, 1])}, 2, ""),
        (
            {"b": ("U8", [1], [2, 3]), "a": ("U8", [1], [0, 1])},
            3,
            "'b' does not start where the one before it ends",
        ),
        ({"a": ("F32", [1], [0, 3])}, 3, "[1] in F32 does not fill the 3 bytes it has"),
        ({"a": ("F32", [1], [0, 5])}, 5, "[1] in F32 does not fill the 5 bytes it has"),
        (
            {"a": ("U8", [2], [0, 2]), "b": ("F32", [1], [2, 5])},
            5,
            "'b': [1] in F32 does not fill the 3 bytes it has",
        ),
        ({"a": ("U8", [-1, -1], [0, 1])}, 1, "no valid dtype, shape and data_offsets"),
        (ONE, 13, "1 bytes longer than its header describes"),
        (ONE, 10, "2 bytes shorter than its header describes"),
    ],
)
def test_tensors_fill_a_safetensors_file(tensors: Any, size: int, message: str) -> None:
    folder = InMemory({"model.safetensors": file_of(tensors, size)})
    if message:
        assert message in refusal(stored_weights, folder).message
    else:
        stored = stored_weights(folder)
        assert stored
        assert (stored.size, stored.tensors) == (size, len(tensors))


@pytest.mark.parametrize("has_size", [True, False])
@pytest.mark.parametrize("missing", [0, 1])
def test_a_header_ends_with_the_file_or_before(has_size: bool, missing: int) -> None:
    content = struct.pack("<Q", 2 + missing) + b"{}"
    folder = InMemory({"model.safetensors": content}, size=has_size)
    if missing:
        with pytest.raises(
            AttncalcError, match="shorter than its header, or not a safetensors file"
        ):
            stored_weights(folder)
    else:
        assert stored_weights(folder) is not None


@pytest.mark.parametrize(("size", "length"), [(9, 2), (10, 3), (50, 43), (50, 2**63)])
def test_a_header_that_its_file_cannot_contain_is_not_read(
    monkeypatch: pytest.MonkeyPatch, size: int, length: int
) -> None:
    """The length takes 8 bytes itself: a file of 10 bytes has room for a header of 2."""
    source = Source("model.safetensors", struct.pack("<Q", length).ljust(size), True)
    folder = InMemory({"model.safetensors": source.content})
    monkeypatch.setattr(folder, "open", lambda _: source)
    with pytest.raises(AttncalcError, match="shorter than its header, or not a safetensors file"):
        stored_weights(folder)
    assert source.reads == [(0, 8)]


@pytest.mark.parametrize("has_size", [True, False])
def test_a_file_of_seven_bytes_has_no_header(has_size: bool) -> None:
    with pytest.raises(AttncalcError, match="shorter than its header, or not a safetensors file"):
        stored_weights(InMemory({"model.safetensors": bytes(7)}, size=has_size))


@pytest.mark.parametrize(("files", "dtypes"), [(1, 1), (2, 1), (3, 0)])
def test_more_files_than_may_be_opened_are_known_by_their_index(files: int, dtypes: int) -> None:
    names = [f"model-{i}.safetensors" for i in range(files)]
    content = {name: file_of({f"t{i}": ("U8", [1], [0, 1])}, 1) for i, name in enumerate(names)}
    index = {
        "weight_map": {f"t{i}": name for i, name in enumerate(names)},
        "metadata": {"total_size": files},
    }
    stored = stored_weights(InMemory({**content, INDEX: json.dumps(index).encode()}, max_headers=2))
    assert stored
    assert (stored.files, stored.tensors, stored.size, len(stored.by_dtype)) == (
        files,
        files,
        files,
        dtypes,
    )
    assert all(type(part.size) is int for part in stored.by_dtype)


def test_an_index_whose_total_has_more_than_63_bits_is_an_error() -> None:
    for total in (2**63, 2**63 + 1, 2**64):
        index = json.dumps({"weight_map": {}, "metadata": {"total_size": total}}).encode()
        with pytest.raises(
            AttncalcError, match=f"its total_size is '{total}', not a number of bytes"
        ):
            stored_weights(InMemory({INDEX: index}))


def test_the_first_of_several_missing_files_is_named() -> None:
    folder = InMemory({"m-00002-of-00004.safetensors": file_of(ONE, 12)})
    with pytest.raises(
        AttncalcError, match=r"3 of the 4 files .* missing, such as m-00001-of-00004\.safetensors"
    ):
        stored_weights(folder)


@pytest.mark.parametrize("total", [0, 2**63 - 1, 5.0])
def test_an_index_has_a_total_of_up_to_63_bits(total: float) -> None:
    stored = stored_weights(
        InMemory(
            {INDEX: json.dumps({"weight_map": {}, "metadata": {"total_size": total}}).encode()}
        )
    )
    assert stored
    assert stored.size == total
    assert type(stored.size) is int


@pytest.mark.parametrize(
    ("files", "missing"), [(2, 1), (100_001, 100_000), (999_999_999, 999_999_998), (10**9, 0)]
)
def test_a_numbered_file_belongs_to_as_many(files: int, missing: int) -> None:
    width = max(5, len(str(files)))
    folder = InMemory({f"m-{1:0{width}}-of-{files:0{width}}.safetensors": file_of(ONE, 12)})
    if missing:
        with pytest.raises(
            AttncalcError, match=f"{missing:,} of the {files:,} files that are numbered are missing"
        ):
            stored_weights(folder)
    else:
        assert stored_weights(folder) is not None


def test_missing_files_are_counted_without_their_names() -> None:
    """30 empty files of 99,999 each: their 2,999,970 missing names would take 300 MB."""
    folder = InMemory({f"x{i:02}-00001-of-99999.safetensors": b"" for i in range(30)})
    tracemalloc.start()
    try:
        with pytest.raises(
            AttncalcError,
            match=r"2,999,940 of the 2,999,970 files .*, such as x00-00002-of-99999\.s",
        ):
            stored_weights(folder)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("names", "missing"),
    [
        (["m-1-of-10", "m-10-of-10"], "m-2-of-10"),
        (["m-01-of-02", "m-02-of-02", "m-02-of-03"], "m-01-of-03"),
        (["m-00000-of-00002", "m-00001-of-00002"], "m-00002-of-00002"),
        (["m-00003-of-00002"], "m-00001-of-00002"),
    ],
)
def test_a_gap_in_the_numbers_is_an_error_however_they_are_written(
    names: list[str], missing: str
) -> None:
    with pytest.raises(AttncalcError, match=rf"missing, such as {missing}\.safetensors"):
        stored_weights(InMemory({f"{name}.safetensors": file_of({}, 0) for name in names}))


def test_numbers_without_zeros_are_complete() -> None:
    stored = stored_weights(
        InMemory({f"m-{i}-of-10.safetensors": file_of({}, 0) for i in range(1, 11)})
    )
    assert stored
    assert stored.files == 10


def test_all_files_together_have_at_most_as_many_tensors_as_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(safetensors, "MAX_TENSORS", 3)
    names = {
        f"m-{i}-of-2.safetensors": file_of({f"{i}{n}": ("I8", [0], [0, 0]) for n in range(i)}, 0)
        for i in (1, 2)
    }
    stored = stored_weights(InMemory(names))
    assert stored
    assert stored.tensors == 3
    monkeypatch.setattr(safetensors, "MAX_TENSORS", 2)
    with pytest.raises(AttncalcError, match="more than 2 tensors in its files"):
        stored_weights(InMemory(names))


# The cache and the token


def cache(home: Path, files: dict[str, str], commit: str = "c0ffee") -> None:
    folder = home / "hub" / "models--org--name"
    for name, content in files.items():
        path = folder / "snapshots" / commit / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    (folder / "refs").mkdir(parents=True, exist_ok=True)
    (folder / "refs" / "main").write_text(commit)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in (
        "HF_TOKEN",
        "HUGGING_FACE_HUB_TOKEN",
        "HF_TOKEN_PATH",
        "HF_HUB_CACHE",
        "HUGGINGFACE_HUB_CACHE",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("HF_HUB_DISABLE_IMPLICIT_TOKEN", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("name", ["config.json", "params.json"])
def test_a_cached_repository_has_a_model_file(home: Path, name: str) -> None:
    cache(home, {"README.md": "x"})
    assert cached_folder(Repository("org/name")) is None
    cache(home, {name: "{}"})
    folder = cached_folder(Repository("org/name"))
    assert folder
    assert not folder.is_complete
    by_commit = cached_folder(Repository("org/name", "c0ffee"))
    assert by_commit
    assert by_commit.path == folder.path
    assert cached_folder(Repository("org/name", "v2")) is None
    assert cached_folder(Repository("org/other")) is None


def test_a_cached_repository_has_the_file_that_is_named(home: Path) -> None:
    cache(home, {"x/a-Q8_0.gguf": "GGUF", "b.json": "{}"})
    wanted = {"b.json": True, "Q8_0": True, "x/a-Q8_0.gguf": True, "Q4_0": False, "c.json": False}
    for file, is_there in wanted.items():
        folder = cached_folder(Repository("org/name", "main", file))
        assert (folder is not None) is is_there
        assert folder is None or not folder.is_complete


@pytest.mark.parametrize(("length", "is_read"), [(1, True), (64, True), (65, False)])
def test_a_commit_has_up_to_64_characters(home: Path, length: int, is_read: bool) -> None:
    cache(home, {"config.json": "{}"}, commit="c" * length)
    assert (cached_folder(Repository("org/name")) is not None) is is_read


@pytest.mark.parametrize(
    ("text", "is_valid"), [("x" * 500, True), (" x \n", True), ("x" * 501, False), ("a b", False)]
)
def test_a_token_has_up_to_500_characters(
    home: Path, monkeypatch: pytest.MonkeyPatch, text: str, is_valid: bool
) -> None:
    assert token() == ""
    (home / "token").write_text(text)
    for place in (str(home / "token"), "HF_TOKEN"):
        if place == "HF_TOKEN":
            monkeypatch.setenv(place, text)
        if is_valid:
            assert token() == text.strip()
        else:
            assert refusal(token).message == f"the token in {place} is not valid"


# Other layouts


BASE: dict[str, Any] = {"model_type": "llama", "hidden_size": 64}
LAYOUTS: list[tuple[dict[str, Any], str]] = [
    (BASE, ""),
    ({}, ""),
    ({**BASE, "peft_type": "LORA"}, "LoRA"),
    ({"base_model_name_or_path": "x"}, "LoRA"),
    ({**BASE, "base_model_name_or_path": "x"}, ""),
    ({"pretrained_config": {}, "version": "1"}, "TensorRT-LLM"),
    ({"pretrained_config": {}, "build_config": {}}, "TensorRT-LLM"),
    ({"pretrained_config": {}}, ""),
    ({"build_config": {}, "version": "1"}, ""),
    ({**BASE, "builder_config": {}}, "TensorRT-LLM"),
    *(
        ({"architecture": "X", key: 1}, "TensorRT-LLM")
        for key in ("mapping", "quantization", "producer")
    ),
    ({"architecture": "X"}, ""),
    ({**BASE, "architecture": "X", "mapping": {}}, ""),
    *(
        ({**BASE, "model_config": {}, key: 1}, "MLC LLM")
        for key in ("quantization", "conv_template", "local_id", "context_window_size", "model_lib")
    ),
    ({**BASE, "model_config": {}}, ""),
    ({**BASE, "model_config": 5, "quantization": 1}, ""),
    ({**BASE, "_diffusers_version": "1"}, "diffusers"),
    ({"_class_name": "X"}, "diffusers"),
    ({**BASE, "_class_name": "X"}, ""),
    ({"weight_map": {}}, "the index of safetensors files"),
    ({"general.architecture": "llama"}, "the metadata of a GGUF file"),
    ({"metadata": {"general.architecture": "llama"}}, "the metadata of a GGUF file"),
    ({"metadata": {}}, ""),
    ({"metadata": 5}, ""),
    ({"model": {"decoder": {}}, "search": {}}, "ONNX"),
    ({"model": {"decoder": {}}}, ""),
    ({"model": {}, "search": {}}, ""),
    ({"model": "decoder", "search": {}}, ""),
    ({"eos_token_id": 1, "transformers_version": "1"}, "a generation_config.json"),
    (
        {"eos_token_id": 1, "bos_token_id": 2, "transformers_version": "1"},
        "a generation_config.json",
    ),
    ({"eos_token_id": 1}, ""),
    ({"transformers_version": "1"}, ""),
    ({**BASE, "eos_token_id": 1, "transformers_version": "1"}, ""),
    ({"dim": 5, "eos_token_id": 1, "transformers_version": "1"}, ""),
    ({"tokenizer_class": "X"}, "a tokenizer's file"),
    ({**BASE, "tokenizer_class": "X"}, ""),
    ({"architectures": ["X"], "tokenizer_class": "X"}, ""),
    ({"added_tokens": [], "model": {}, "normalizer": None}, "a tokenizer's file"),
    ({"added_tokens": [], "model": {}}, ""),
    ({"added_tokens": [], "normalizer": None}, ""),
    ({"model": {}, "normalizer": None}, ""),
]


@each(("data", "layout"), LAYOUTS)
def test_another_layout_is_known_by_its_keys(data: dict[str, Any], layout: str) -> None:
    if not layout:
        reject_other_layout(data, "f.json")
        return
    error = refusal(reject_other_layout, data, "f.json")
    assert error.message.startswith("f.json: ")
    assert layout in error.message


@pytest.mark.parametrize(
    ("data", "tip"),
    [
        ({"peft_type": "X", "base_model_name_or_path": "org/x"}, "give the base model: org/x"),
        (
            {"peft_type": "X", "base_model_name_or_path": " "},
            "give the base model's config.json, or its name",
        ),
        (
            {"peft_type": "X", "base_model_name_or_path": 5},
            "give the base model's config.json, or its name",
        ),
        (
            {"_class_name": "X", "text_encoder": ["diffusers", "Y"]},
            "give the config.json of one of its models",
        ),
        (
            {"_class_name": "X", "text_encoder": ["transformers"]},
            "give the config.json of one of its models",
        ),
        (
            {"_class_name": "X", "text_encoder": ["transformers", "Y", "Z"]},
            "give the config.json of one of its models",
        ),
        (
            {"_class_name": "X", "vae": ["transformers", "Y"]},
            "give the config.json of one of its models",
        ),
        (
            {"_class_name": "X", "text_encoder": "transformers"},
            "give the config.json of one of its models",
        ),
        (
            {"_class_name": "X", **{f"encoder_{i}": ["transformers", "Y"] for i in range(4)}},
            "as encoder_0/config.json or encoder_1/config.json or encoder_2/config.json",
        ),
    ],
)
def test_another_layout_has_a_tip(data: dict[str, Any], tip: str) -> None:
    error = refusal(reject_other_layout, data, "f.json")
    assert tip in error.tip
    assert "encoder_3" not in error.tip


MODULE = {"path": "0_T", "type": "sentence_transformers.models.Transformer"}


@pytest.mark.parametrize(
    ("data", "message", "tip"),
    [
        ([MODULE], "the modules of sentence-transformers", "give 0_T/config.json"),
        (
            [5, {**MODULE, "path": ""}],
            "the modules of sentence-transformers",
            "give the config.json beside it",
        ),
        (
            [{**MODULE, "path": 5}],
            "the modules of sentence-transformers",
            "give the config.json beside it",
        ),
        (
            [{"type": "x"}, MODULE],
            "the modules of sentence-transformers",
            "give the config.json beside it",
        ),
        ([{"type": 5}], "not a JSON object", "a config.json is one JSON object"),
        ([], "not a JSON object", "a config.json is one JSON object"),
    ],
)
def test_a_list_is_named(data: list[Any], message: str, tip: str) -> None:
    error = refusal(
        reject_list, b"\xef\xbb\xbf \n" + json.dumps(data).encode() if message else b"", "f.json"
    )
    assert message in error.message
    assert tip in error.tip


@pytest.mark.parametrize(
    ("content", "is_rejected"),
    [
        (b"[1]", True),
        (b"\t\r\n [1]", True),
        (b"[1", False),
        (b"a: [1]", False),
        (padded(b"[1", 1 << 20, b"]"), True),
        (padded(b"[1", (1 << 20) + 1, b"]"), False),
        (b"[" * 10**5, False),
    ],
)
def test_only_a_list_of_json_up_to_a_mebibyte_is_named(content: bytes, is_rejected: bool) -> None:
    if is_rejected:
        with pytest.raises(AttncalcError, match="not a JSON object"):
            reject_list(content, "f.json")
    else:
        reject_list(content, "f.json")
