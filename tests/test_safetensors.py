"""The weights in a folder of safetensors files: to the byte, from the headers, or an error that
names the file.
"""

import csv
import io
import json
import math
import os
import struct
from pathlib import Path
from typing import Any

import pytest
from asking import REPOSITORY, Ask, results
from evaluate import evaluate
from hypothesis import given
from hypothesis import strategies as st
from tables import each

from attncalc import AttncalcError, load
from attncalc.checkpoint import BITS, CheckpointWeights, StoredDtype
from attncalc.config.folder import LocalFolder
from attncalc.config.safetensors import INDEX, stored_weights

# {name: (dtype, shape)}.
Tensors = dict[str, tuple[str, list[int]]]
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 2000000\n"


def size_of(dtype: str, shape: list[int]) -> int:
    return math.prod(shape) * BITS[dtype] // 8


def header_of(tensors: Tensors) -> dict[str, Any]:
    """Return the header of a file with `tensors` one after the other."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, (dtype, shape) in tensors.items():
        start, end = end, end + size_of(dtype, shape)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}
    return header


def write_file(path: Path, header: object, size: int) -> None:
    """Write a file with this header and `size` bytes of data, which occupy no disk space."""
    content = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(content)) + content)
        file.truncate(8 + len(content) + size)


def write(folder: Path, **files: Tensors) -> None:
    """Write files; 'model_1' is the file 'model-1.safetensors'."""
    for name, tensors in files.items():
        path = folder / f"{name.replace('_', '-')}.safetensors"
        write_file(path, header_of(tensors), sum(size_of(*tensor) for tensor in tensors.values()))


def write_index(folder: Path, shards: object, metadata: object = None) -> None:
    (folder / INDEX).write_text(json.dumps({"metadata": metadata, "weight_map": shards}))


# 2 * 3 elements of 2 bytes, and 5 of 4
TWO: Tensors = {"a": ("BF16", [2, 3]), "b": ("F32", [5])}
EXPECTED = CheckpointWeights(1, 2, (StoredDtype("F32", 5, 20), StoredDtype("BF16", 6, 12)), 32)
SHARDS = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
BOTH: dict[str, Tensors] = {
    "model_00001_of_00002": {"a": ("BF16", [2, 3])},
    "model_00002_of_00002": {"b": ("F32", [5])},
}


def test_the_weights_of_one_file(tmp_path: Path) -> None:
    write(tmp_path, model=TWO)
    assert stored_weights(LocalFolder(tmp_path)) == EXPECTED
    assert EXPECTED.parameters == 11


def test_a_folder_without_weights_has_none(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"x")
    (tmp_path / "sub").mkdir()
    write(tmp_path / "sub", model=TWO)
    assert stored_weights(LocalFolder(tmp_path)) is None


@pytest.mark.parametrize("with_index", [True, False])
def test_shards_are_added(tmp_path: Path, with_index: bool) -> None:
    write(tmp_path, **BOTH)
    if with_index:
        write_index(tmp_path, SHARDS, {"total_size": 1})  # the files' sizes count, not the index's
    assert stored_weights(LocalFolder(tmp_path)) == EXPECTED._replace(files=2)


@pytest.mark.parametrize("with_index", [True, False])
def test_a_missing_shard_is_an_error_that_names_it(tmp_path: Path, with_index: bool) -> None:
    write(tmp_path, model_00002_of_00002=BOTH["model_00002_of_00002"])
    if with_index:
        write_index(tmp_path, SHARDS, {"total_size": 32})
    with pytest.raises(
        AttncalcError,
        match=r"1 of the 2 files .* missing, such as model-00001-of-00002\.safetensors",
    ):
        stored_weights(LocalFolder(tmp_path))


@pytest.mark.parametrize("total", [32, 32.0])
def test_an_index_alone_gives_its_total(tmp_path: Path, total: float) -> None:
    write_index(tmp_path, SHARDS, {"total_size": total})
    checkpoint = stored_weights(LocalFolder(tmp_path))
    assert checkpoint == CheckpointWeights(2, 2, (), 32)
    assert isinstance(checkpoint.size, int)
    assert checkpoint.parameters is None


@pytest.mark.parametrize("metadata", [None, {}, {"total_parameters": 5}])
def test_an_index_alone_without_a_total_gives_no_weights(tmp_path: Path, metadata: object) -> None:
    write_index(tmp_path, SHARDS, metadata)
    assert stored_weights(LocalFolder(tmp_path)) is None


def test_files_that_are_not_fetched_count_as_missing(tmp_path: Path) -> None:
    write_index(tmp_path, SHARDS, {"total_size": 32})
    (tmp_path / SHARDS["a"]).write_text(POINTER)
    os.symlink(tmp_path / "blobs/none", tmp_path / SHARDS["b"])
    assert stored_weights(LocalFolder(tmp_path)) == CheckpointWeights(2, 2, (), 32)
    write(tmp_path, model=TWO)
    assert stored_weights(LocalFolder(tmp_path)) == EXPECTED


@pytest.mark.parametrize(
    "beside",
    [
        "consolidated",
        "consolidated_00001_of_00002",
        "adapter_model",
        "model.fp16",
        "model_00001_of_00003",
    ],
)
def test_the_same_weights_in_other_files_are_not_counted_twice(tmp_path: Path, beside: str) -> None:
    write(tmp_path, model=TWO, **{beside: TWO})
    assert stored_weights(LocalFolder(tmp_path)) == EXPECTED


def test_the_files_of_an_index_are_preferred_to_others(tmp_path: Path) -> None:
    write(tmp_path, **BOTH, consolidated=TWO, model=TWO)
    write_index(tmp_path, SHARDS)
    assert stored_weights(LocalFolder(tmp_path)) == EXPECTED._replace(files=2)


def test_files_of_other_names_are_read_if_none_is_called_model(tmp_path: Path) -> None:
    write(
        tmp_path, consolidated_1={"a": TWO["a"]}, consolidated_2={"b": TWO["b"]}, adapter_model=TWO
    )
    assert stored_weights(LocalFolder(tmp_path)) == EXPECTED._replace(files=2)


def test_an_adapter_alone_gives_no_weights(tmp_path: Path) -> None:
    write(tmp_path, adapter_model=TWO)
    assert stored_weights(LocalFolder(tmp_path)) is None


def test_a_tensor_in_two_files_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, one=TWO, two=TWO)
    with pytest.raises(
        AttncalcError, match=r"two\.safetensors: tensor 'a' is in one\.safetensors too"
    ):
        stored_weights(LocalFolder(tmp_path))


def test_an_index_and_files_of_two_releases_are_an_error(tmp_path: Path) -> None:
    write(tmp_path, **BOTH)
    write_index(tmp_path, {**SHARDS, "c": SHARDS["a"]})
    with pytest.raises(
        AttncalcError, match=r"tensor 'c' is not in model-00001-of-00002\.safetensors"
    ):
        stored_weights(LocalFolder(tmp_path))


names = st.text(max_size=5).filter(lambda name: name != "__metadata__")
tensors = st.tuples(st.sampled_from(sorted(BITS)), st.lists(st.integers(0, 50), max_size=4)).map(
    lambda tensor: (tensor[0], [8, *tensor[1]])  # 8 elements of any dtype fill whole bytes
)


@given(st.dictionaries(names, tensors, max_size=8))
def test_any_file_gives_its_elements_and_bytes(content: Tensors) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), model=content)
        checkpoint = stored_weights(LocalFolder(Path(folder)))
    assert checkpoint is not None
    assert (checkpoint.files, checkpoint.tensors) == (1, len(content))
    assert checkpoint.size == sum(size_of(*tensor) for tensor in content.values())
    for name, elements, size in checkpoint.by_dtype:
        assert elements == sum(
            math.prod(shape) for dtype, shape in content.values() if dtype == name
        )
        assert size == sum(size_of(*tensor) for tensor in content.values() if tensor[0] == name)
    assert {stored.name for stored in checkpoint.by_dtype} == {
        dtype for dtype, _ in content.values()
    }


def test_a_file_that_the_safetensors_library_wrote(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file

    dtypes = [
        torch.bfloat16,
        torch.float32,
        torch.float8_e4m3fn,
        torch.uint8,
        torch.bool,
        torch.int64,
    ]
    state = {str(dtype): torch.zeros(7, 3).to(dtype) for dtype in dtypes}
    save_file(state, tmp_path / "model.safetensors")
    checkpoint = stored_weights(LocalFolder(tmp_path))
    assert checkpoint is not None
    assert checkpoint.size == sum(tensor.nbytes for tensor in state.values())
    assert {stored.name: stored.elements for stored in checkpoint.by_dtype} == dict.fromkeys(
        ("BF16", "F32", "F8_E4M3", "U8", "BOOL", "I64"), 21
    )


def entry(**changes: object) -> dict[str, object]:
    return {"w": {"dtype": "F16", "shape": [2, 3], "data_offsets": [0, 12], **changes}}


BROKEN_HEADERS: dict[str, tuple[object, int, str]] = {
    "a dtype that is not known": (entry(dtype="Q4"), 12, "has the dtype 'Q4', which is not known"),
    "no dtype": (entry(dtype=None), 12, "no valid dtype, shape and data_offsets"),
    "a shape with a fraction": (
        entry(shape=[2.0, 3]),
        12,
        "no valid dtype, shape and data_offsets",
    ),
    "a shape of booleans": (entry(shape=[True, 6]), 12, "no valid dtype, shape and data_offsets"),
    "offsets in the wrong order": (entry(data_offsets=[12, 0]), 12, "does not fill"),
    "a gap before the first": (
        entry(data_offsets=[2, 14]),
        14,
        "does not start where the one before it ends",
    ),
    "half a byte": (entry(dtype="F4", shape=[3], data_offsets=[0, 1]), 1, "does not fill"),
    "a tensor that is a number": ({"w": 5}, 0, "no valid dtype, shape and data_offsets"),
    "a list": ([], 0, "not a JSON object"),
}


@each("case", BROKEN_HEADERS)
def test_a_contradictory_header_is_an_error(tmp_path: Path, case: str) -> None:
    header, size, message = BROKEN_HEADERS[case]
    write_file(tmp_path / "model.safetensors", header, size)
    with pytest.raises(AttncalcError, match=rf"model\.safetensors.*: .*{message}"):
        stored_weights(LocalFolder(tmp_path))


BROKEN_FILES: dict[str, tuple[bytes, str]] = {
    "an empty file": (b"", "shorter than its header"),
    "no header": (struct.pack("<Q", 0), "not JSON"),
    "no JSON": (struct.pack("<Q", 4) + b"{x:1", "not JSON"),
    "no UTF-8": (struct.pack("<Q", 4) + b'"\xff\xff"', "not a text file"),
    "JSON too deep": (struct.pack("<Q", 10**5) + b"[" * 10**5, "JSON that cannot be read"),
    "a number of 5000 digits": (
        struct.pack("<Q", 5006) + b'{"a":' + b"9" * 5000 + b"}",
        "'a' has no valid dtype",
    ),
    "a name twice": (struct.pack("<Q", 15) + b'{"a":{},"a":{}}', "a: given twice"),
}


@each("case", BROKEN_FILES)
def test_a_file_that_is_not_a_safetensors_file_is_an_error(tmp_path: Path, case: str) -> None:
    content, message = BROKEN_FILES[case]
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(AttncalcError, match=rf"model\.safetensors.*: .*{message}") as raised:
        stored_weights(LocalFolder(tmp_path))
    assert "fetch the file again" in raised.value.tip or case == "a name twice"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "not a JSON object"),
        ("{}", "weight_map"),
        ('{"weight_map": {"a": "../x.safetensors"}}', "weight_map"),
        ('{"weight_map": {"a": 5}}', "weight_map"),
        ('{"weight_map": {}, "metadata": {"total_size": "12"}}', "total_size is '12'"),
        ('{"weight_map": {}, "metadata": {"total_size": -1}}', "total_size is '-1'"),
        ('{"weight_map": {}, "metadata": {"total_size": 1.5}}', "total_size is '1.5'"),
        ('{"weight_map": {}, "metadata": {"total_size": Infinity}}', "total_size is 'inf'"),
    ],
)
def test_an_invalid_index_is_an_error(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / INDEX).write_text(content)
    with pytest.raises(AttncalcError, match=rf"model\.safetensors\.index\.json: .*{message}"):
        stored_weights(LocalFolder(tmp_path))


@pytest.mark.parametrize("name", ["model.safetensors", INDEX])
def test_a_folder_where_a_file_should_be_is_an_error(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(AttncalcError, match=rf"{name}: is a directory"):
        stored_weights(LocalFolder(tmp_path))


# Parameters of GPT-2.
TOTAL = 124_439_808


@pytest.fixture
def gpt2(tmp_path: Path) -> Path:
    """Return a folder with GPT-2's model file."""
    folder = tmp_path / "my-gpt2"
    folder.mkdir()
    (folder / "model.yaml").write_text((REPOSITORY / "presets/models/gpt2.yaml").read_text())
    return folder


def unwrapped(text: str) -> str:
    """Return a screen as one line."""
    return " ".join(text.split())


def test_params_shows_stored_weights_by_dtype(ask: Ask, gpt2: Path) -> None:
    write(gpt2, model={"a": ("F16", [TOTAL - 10]), "b": ("F32", [10])})
    answer = ask("params", str(gpt2))
    assert (answer.code, answer.err) == (0, "")
    assert "weights as stored elements F16 124,439,798 237.35 MiB 248,879,596 B" in unwrapped(
        answer.out
    )
    assert "F32 10 40 B 40 B total 237.35 MiB 248,879,636 B" in unwrapped(answer.out)
    assert "elements," not in answer.out
    figures = results(ask("params", str(gpt2), "--json"))
    assert figures["weights_stored"] == 2 * (TOTAL - 10) + 4 * 10
    assert figures["weights_stored_f16"] == 2 * (TOTAL - 10)
    assert figures["weights_stored_f32"] == 40


def test_kv_and_fit_have_the_stored_weights(ask: Ask, gpt2: Path) -> None:
    write(gpt2, model={"a": ("F16", [TOTAL])})  # the config says fp32
    assert "weights as stored 237.35 MiB" in unwrapped(ask("kv", str(gpt2)).out)
    kv = results(ask("kv", str(gpt2), "--json"))
    fit = results(ask("fit", str(gpt2), "--gpu", "l4", "--engine", "ideal", "--json"))
    assert kv["weights"] == kv["weights_stored"] == fit["weights"] == 2 * TOTAL
    # another dtype is not the files'
    other = unwrapped(ask("kv", str(gpt2), "--dtype", "bf16").out)
    assert "weights in bf16 237.35 MiB" in other
    # the counted bytes are on one device, the files hold those of all
    shared = results(ask("kv", str(gpt2), "--tp", "2", "--json"))
    split = results(
        ask("fit", str(gpt2), "--gpu", "l4", "--tp", "2", "--engine", "ideal", "--json")
    )
    assert shared["weights"] == split["weights"] < shared["weights_stored"] == 2 * TOTAL


@pytest.mark.parametrize("command", ["kv", "params"])
def test_without_files_the_stored_weights_are_null(ask: Ask, gpt2: Path, command: str) -> None:
    figures = results(ask(command, str(gpt2), "--json"))
    assert figures["weights_stored"] is None
    assert "as stored" not in ask(command, str(gpt2)).out
    assert results(ask(command, "gpt2", "--json")).keys() == figures.keys()


@pytest.mark.parametrize("command", ["kv", "params"])
@pytest.mark.parametrize(
    ("elements", "difference"), [(TOTAL + 12, "12 more"), (TOTAL - 7, "7 fewer")]
)
def test_files_with_more_or_fewer_parameters_are_noted(
    ask: Ask, gpt2: Path, command: str, elements: int, difference: str
) -> None:
    write(gpt2, model={"a": ("BF16", [elements])})
    assert f"hold {elements:,} elements, {difference} than the parameters counted" in unwrapped(
        ask(command, str(gpt2)).out
    )


def test_packed_elements_are_not_compared_with_parameters(ask: Ask, gpt2: Path) -> None:
    write(gpt2, model={"a": ("U8", [TOTAL // 2]), "b": ("F16", [100])})
    assert "elements, " not in ask("params", str(gpt2)).out


def test_an_index_without_its_files_is_noted(ask: Ask, gpt2: Path) -> None:
    write_index(gpt2, SHARDS, {"total_size": 3 * 2**30})
    for command in ("kv", "params"):
        answer = ask(command, str(gpt2))
        assert (
            "the index's total: the headers of its 2 safetensors files were not read"
            in unwrapped(answer.out)
        )
        assert "3.00" in answer.out
        assert results(ask(command, str(gpt2), "--json"))["weights_stored"] == 3 * 2**30


def test_stored_weights_of_several_devices_are_not_compared(ask: Ask, gpt2: Path) -> None:
    write(gpt2, model={"a": ("F16", [TOTAL + 1])})
    screen = unwrapped(ask("kv", str(gpt2), "--tp", "2").out)
    assert "weights as stored, all devices 237.35 MiB" in screen
    assert "than the parameters counted" not in screen


def test_another_attention_has_no_stored_weights(ask: Ask, gpt2: Path) -> None:
    write(gpt2, model={"a": ("F16", [TOTAL])})
    assert results(ask("kv", str(gpt2), "--attention", "mqa", "--json"))["weights_stored"] is None
    assert load(gpt2).stored is not None


def test_a_model_file_without_its_folder_reads_no_weights(ask: Ask, gpt2: Path) -> None:
    (gpt2 / "model.safetensors").write_bytes(b"broken")
    assert ask("kv", str(gpt2)).error.startswith(f"error: {gpt2}/model.safetensors: ")
    assert ask("kv", str(gpt2 / "model.yaml")).code == 0


def test_formulas_of_stored_weights_give_their_values_in_every_format(ask: Ask, gpt2: Path) -> None:
    write(
        gpt2,
        model={
            "a": ("F4", [16]),
            "b": ("F6_E2M3", [4]),
            "c": ("F8_E8M0", [3]),
            "d": ("BF16", [TOTAL]),
        },
    )
    document = ask("params", str(gpt2), "--json").document
    stored = {r["name"]: r for r in document["results"] if r["name"].startswith("weights_stored")}
    assert {name: r["value"] for name, r in stored.items()} == {
        "weights_stored": 2 * TOTAL + 8 + 3 + 3,  # 16 * 4 bits, 4 * 6 bits, 3 * 8 bits
        "weights_stored_bf16": 2 * TOTAL,
        "weights_stored_f4": 8,
        "weights_stored_f6_e2m3": 3,
        "weights_stored_f8_e8m0": 3,
    }
    for result in stored.values():
        assert (
            evaluate(result["formula"], result["symbols"])
            == result["value"]
            == evaluate(result["substituted"])
        )
    rows = list(csv.DictReader(io.StringIO(ask("params", str(gpt2), "--format", "csv").out)))
    assert {row["name"] for row in rows} >= stored.keys()
    assert (
        "| weights as stored | elements |" in ask("params", str(gpt2), "--format", "markdown").out
    )
    for command in ("kv", "params"):
        screen = ask(command, str(gpt2), "--explain").out
        assert "weights as stored" in screen
        assert max(map(len, screen.splitlines())) <= 80
