"""From a name, a path or a dict to the file that describes the model: which one it is, and its
limits.
"""

import io
import json
import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from asking import refusal

import attncalc.config
from attncalc import AttncalcError, load
from attncalc.config import (
    _config_of_repository,
    _locate,
    _parse_config,
    _with_quantization_beside,
    load_with_config,
    preset_text,
    to_model_file,
)
from attncalc.config.folder import LocalFolder
from attncalc.config.source import Source
from attncalc.config.yaml import to_yaml

# Bytes of a model file, 4 MiB.
LIMIT = 4 << 20
CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "vocab_size": 1000,
    "max_position_embeddings": 1024,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
PARAMS: dict[str, Any] = {
    "dim": 64,
    "n_layers": 2,
    "n_heads": 4,
    "n_kv_heads": 4,
    "hidden_dim": 128,
    "vocab_size": 1000,
}
PARAMS |= {"head_dim": 16, "norm_eps": 1e-5}
MODEL = {
    "title": "Mine",
    "d_model": 64,
    "n_layers": 5,
    "norm": "rmsnorm",
    "n_heads": 4,
    "d_ff": 9,
    "vocab_size": 10,
}
UNKNOWN = {**CONFIG, "model_type": "a_new_one"}


def write(path: Path, data: dict[str, Any], size: int = 0) -> Path:
    """Write JSON, with blanks up to `size` bytes. A model file in JSON is YAML too."""
    path.write_text(json.dumps(data).ljust(size), encoding="utf-8")
    return path


def error(model: Any) -> AttncalcError:
    return refusal(load, model)


# Paths


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("config.json", "folder"),
        ("params.json", "folder"),
        ("other.json", "other"),
        ("a.b.json", "a.b"),
    ],
)
def test_a_config_is_called_by_its_folder_and_another_file_by_its_name(
    tmp_path: Path, file: str, name: str
) -> None:
    (tmp_path / "folder").mkdir()
    assert load(write(tmp_path / "folder" / file, CONFIG)).name == name


@pytest.mark.parametrize(
    ("files", "layers"),
    [
        ({"config.json": CONFIG}, 3),
        ({"config.json": CONFIG, "m.yaml": MODEL, "params.json": PARAMS}, 3),
        ({"m.yaml": MODEL}, 5),
        ({"m.yml": MODEL, "params.json": PARAMS}, 5),
        ({"params.json": PARAMS}, 2),
        ({"params.json": PARAMS, "modules.json": {}}, 2),
    ],
)
def test_a_folder_has_one_model_file(
    tmp_path: Path, files: dict[str, dict[str, Any]], layers: int
) -> None:
    for name, data in files.items():
        write(tmp_path / name, data)
    model = load(tmp_path)
    assert (model.main.n_layers, model.name) == (layers, tmp_path.name)


@pytest.mark.parametrize(
    ("files", "contents"),
    [
        ([], "no config.json and no model file"),
        (["a.txt"], "no config.json and no model file"),
        (["a.yaml", "b.yml"], "2 model files"),
        (["a.yaml", "b.yaml", "c.yaml", "params.json"], "3 model files"),
    ],
)
def test_a_folder_without_one_model_file_is_an_error(
    tmp_path: Path, files: list[str], contents: str
) -> None:
    for name in files:
        write(tmp_path / name, MODEL)
    assert error(tmp_path).message.endswith(f": the folder has {contents}")


def test_no_name_is_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "config.json", CONFIG)
    monkeypatch.chdir(tmp_path)
    assert error("").message == "no preset named '', and no such file"
    assert load(".").main.n_layers == 3


@pytest.mark.parametrize("name", ["a\0b", "x" * 5000])
def test_a_name_that_no_file_can_have_is_no_file(name: str) -> None:
    assert "no preset named" in error(name).message


def test_a_path_that_may_not_be_read_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "m.json", CONFIG)

    def forbidden(*_: object, **__: object) -> os.stat_result:
        raise PermissionError(13, "Permission denied")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Path, "stat", forbidden)
    assert error(path.name).message == "m.json: permission denied"


@pytest.mark.parametrize(
    ("failure", "reason"),
    [(OSError(5, "Input/output error"), "input/output error"), (OSError(), "cannot be read")],
)
def test_a_file_that_cannot_be_read_is_an_error_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: OSError, reason: str
) -> None:
    def fail(_: Path) -> io.BytesIO:
        raise failure

    path = write(tmp_path / "m.json", CONFIG)
    monkeypatch.setattr(attncalc.config, "open_file", fail)
    monkeypatch.chdir(tmp_path)
    assert error(path.name).message == f"m.json: {reason}"


def test_a_gguf_file_with_the_name_of_another_kind_is_an_error(tmp_path: Path) -> None:
    for suffix in (".json", ".yaml", ".yml"):
        path = tmp_path / f"m{suffix}"
        path.write_bytes(b"GGUF\x03")
        assert error(path).message == f"{path}: a GGUF file can only be read from a disk"


# Standard input


class Stdin(NamedTuple):
    buffer: io.BytesIO


@pytest.mark.parametrize(("size", "allowed"), [(0, True), (LIMIT, True), (LIMIT + 1, False)])
def test_standard_input_has_at_most_4_mib(
    monkeypatch: pytest.MonkeyPatch, size: int, allowed: bool
) -> None:
    monkeypatch.setattr(sys, "stdin", Stdin(io.BytesIO(json.dumps(CONFIG).ljust(size).encode())))
    if allowed:
        model = load("-")
        assert (model.name, model.title) == ("stdin", "llama")
    else:
        assert error("-").message == "<stdin>: longer than 4,194,304 bytes"


def test_without_standard_input_nothing_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert error("-").message == "there is no standard input"


# What a name leads to, before it is parsed


@pytest.mark.parametrize("size", [1, LIMIT, LIMIT + 1, LIMIT + 9])
def test_one_byte_beyond_the_limit_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(sys, "stdin", Stdin(io.BytesIO(bytes(size))))
    (tmp_path / "m.json").write_bytes(bytes(size))
    for name in ("-", str(tmp_path / "m.json")):
        assert len(_locate(name).content) == min(size, LIMIT + 1)


def test_a_folder_has_weights_and_a_file_in_it_has_files_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.json").write_bytes(b"{}")
    (tmp_path / "m.yaml").write_bytes(b"a: 1")
    here, config = LocalFolder(tmp_path), str(tmp_path / "config.json")
    monkeypatch.setattr("attncalc.config.folder.LocalFolder", {tmp_path: here}.__getitem__)
    assert _locate(str(tmp_path)) == Source(tmp_path.name, config, b"{}", folder=here, beside=here)
    assert _locate(config) == Source(tmp_path.name, config, b"{}", beside=here)
    assert _locate(str(tmp_path / "m.yaml")) == Source(
        "m", str(tmp_path / "m.yaml"), b"a: 1", beside=here
    )
    monkeypatch.setattr(sys, "stdin", Stdin(io.BytesIO(b"a: 2")))
    assert _locate("-") == Source("stdin", "<stdin>", b"a: 2")


@pytest.mark.parametrize("name", ["gpt2", "openai-community/gpt2", "GPT2"])
def test_a_preset_is_text_without_files_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    source = _locate(name)
    assert source == Source("gpt2", "gpt2.yaml", preset_text("gpt2").encode())
    (tmp_path / name).mkdir(parents=True)
    (tmp_path / name / "config.json").write_bytes(b"{}")
    # a path hides a repository, and no preset's name
    assert (_locate(name).content == b"{}") is (name != "gpt2")


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("Qwen/Qwen3-8B", "Qwen/Qwen3-8B:config.json"),
        ("Qwen/Qwen3-8B@v2", "Qwen/Qwen3-8B@v2:config.json"),
        ("Qwen/Qwen3-8B:params.json", None),
        ("Qwen/Qwen3-8B:config.json", "Qwen/Qwen3-8B:config.json"),
        ("org/unknown", None),
        ("org/unknown:config.json", None),
        ("qwen3-8b", None),
        ("a folder/name", None),
        ("", None),
    ],
)
def test_a_comparison_reads_the_config_of_a_repository_that_is_built_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, config: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    assert _config_of_repository(name) == config
    (tmp_path / name).mkdir(parents=True, exist_ok=True)
    assert _config_of_repository(name) is None


@pytest.mark.parametrize("name", ["no-such-model", "", "a\0b", "no/such/file/here"])
def test_a_name_that_leads_nowhere_is_an_error(name: str) -> None:
    with pytest.raises(AttncalcError, match="no preset named"):
        _locate(name)


@pytest.mark.parametrize(
    "name", ["https://example.org/m", "s3://bucket/m", "ftp://huggingface.co/org/name"]
)
def test_the_address_of_another_site_is_an_error(name: str) -> None:
    with pytest.raises(AttncalcError, match="is not the address of a model on the hub"):
        _locate(name)


@pytest.mark.parametrize(
    ("size", "is_read"), [(LIMIT - 1, True), (LIMIT, True), (LIMIT + 1, False)]
)
def test_a_file_about_the_quantization_has_at_most_4_mib(
    tmp_path: Path, size: int, is_read: bool
) -> None:
    (tmp_path / "quant_config.json").write_bytes(b'{"w_bit": 4}'.ljust(size))
    folder = LocalFolder(tmp_path)
    if is_read:
        config = _with_quantization_beside(CONFIG, folder)
        assert config == {**CONFIG, "quantization_config": {"quant_method": "awq", "w_bit": 4}}
    else:
        with pytest.raises(AttncalcError, match=r"longer than 4,194,304 bytes"):
            _with_quantization_beside(CONFIG, folder)
    for key in ("quantization", "quantization_config"):
        own = {**CONFIG, key: {}}
        assert _with_quantization_beside(own, folder) is own
    assert _with_quantization_beside(CONFIG, None) is CONFIG


# Kinds of files


@pytest.mark.parametrize(
    ("keys", "is_model_file"),
    [
        (["d_model", "norm"], True),
        (["d_model", "sources"], True),
        (["d_model", "norm", "sources"], True),
        (["d_model", "norm", "model_type", "title"], True),
        (["d_model", "norm", "model_type"], False),
        (["d_model"], False),
        (["norm", "sources"], False),
        (["norm", "title"], False),
    ],
)
def test_a_dict_is_a_model_file_by_its_keys(keys: list[str], is_model_file: bool) -> None:
    """A key that no model file has is an error only of a model file; a config needs a model_type
    that is known.
    """
    given = {
        key: {"norm": "rmsnorm", "d_model": 64, "sources": ["x"]}.get(key, "none") for key in keys
    }
    assert ("there is no such key" in error({**given, "other": 1}).message) is is_model_file


@pytest.mark.parametrize("first", [b"{", b"#"])
def test_a_file_of_4_mib_is_read_and_a_longer_one_is_not(first: bytes) -> None:
    """A file is parsed as JSON if it starts with a brace; a comment is YAML."""
    content = first + b" " * (LIMIT - 2) + (b"}" if first == b"{" else b"\n")
    assert _parse_config(Source("m", "m", content)) == ({} if first == b"{" else None)
    with pytest.raises(AttncalcError, match="m: longer than 4,194,304 bytes"):
        _parse_config(Source("m", "m", content + b"\n"))


@pytest.mark.parametrize(
    ("file", "content", "method"),
    [
        ("hf_quant_config.json", {"quantization": {"quant_algo": "FP8"}}, "modelopt"),
        ("quantize_config.json", {"bits": 4, "group_size": 128}, "gptq"),
        ("quant_config.json", {"w_bit": 4, "q_group_size": 128}, "awq"),
    ],
)
def test_the_quantization_beside_a_config_is_read_if_the_config_has_none(
    tmp_path: Path, file: str, content: dict[str, Any], method: str
) -> None:
    write(tmp_path / file, content)
    config = write(tmp_path / "config.json", CONFIG)
    for path in (tmp_path, config):
        quantization = load(path).quantization
        assert quantization is not None
        assert quantization.method == method
    write(config, {**CONFIG, "quantization_config": {"quant_method": "fp8"}})
    quantization = load(tmp_path).quantization
    assert quantization is not None
    assert quantization.method == "fp8"


def test_a_model_type_that_is_not_known_is_read_only_on_request(tmp_path: Path) -> None:
    path = write(tmp_path / "m.json", UNKNOWN)
    for read in (load, load_with_config, to_model_file):
        with pytest.raises(AttncalcError, match="a_new_one"):
            read(path)
    assert load(path, assume_grouped=True).main.n_layers == 3
    assert "n_layers: 3" in to_model_file(path, assume_grouped=True)


def test_only_a_config_becomes_a_model_file(tmp_path: Path) -> None:
    assert "n_layers: 3" in to_model_file(write(tmp_path / "m.json", CONFIG))
    path = write(tmp_path / "m.yaml", MODEL)
    assert refusal(to_model_file, path).message == f"{path} is already a model file"


def test_the_fields_of_a_config_are_returned_with_the_model(tmp_path: Path) -> None:
    assert load_with_config(write(tmp_path / "m.json", CONFIG))[1] == CONFIG
    assert load_with_config(write(tmp_path / "m.yaml", MODEL))[1] is None


def test_a_folder_called_like_a_repository_is_that_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "Qwen" / "Qwen3-8B").mkdir(parents=True)
    write(tmp_path / "Qwen" / "Qwen3-8B" / "config.json", CONFIG)
    assert load("Qwen/Qwen3-8B").name == "qwen3-8b"
    monkeypatch.chdir(tmp_path)
    assert (
        load("Qwen/Qwen3-8B").main.n_layers
        == load_with_config("Qwen/Qwen3-8B")[0].main.n_layers
        == 3
    )


def test_a_dict_is_called_by_its_path_or_its_model_type() -> None:
    assert load({**CONFIG, "_name_or_path": "org/a-name"}).name == "a-name"
    assert load(CONFIG).name == "llama"
    assert load(MODEL).name == "config"


def test_the_sources_of_a_params_json_name_it(tmp_path: Path) -> None:
    (source,) = load(write(tmp_path / "params.json", PARAMS)).sources
    assert source.startswith("its params.json, read as transformers ")


# Titles


@pytest.mark.parametrize(
    ("path", "title"),
    [
        ("org/name", "org/name"),
        ("name", "m"),
        ("a/b/c", "m"),
        ("./name", "m"),
        ("/name", "m"),
        ("../name", "m"),
        ("", "m"),
        (None, "m"),
    ],
)
def test_a_title_is_a_repository_or_the_files_name(
    tmp_path: Path, path: str | None, title: str
) -> None:
    assert load(write(tmp_path / "m.json", {**CONFIG, "_name_or_path": path})).title == title


# Writing a model file


def test_a_model_file_keeps_the_letters_and_the_order_of_its_keys() -> None:
    text = to_yaml(
        {"n_layers": 2, "title": "Größe", "layer_kinds": {"z": {"d_ff": 8}, "a": {"d_ff": 9}}},
        "a config",
    )
    assert text.splitlines()[0].startswith("# From a config; ")
    assert (
        text.index("title: Größe")
        < text.index("n_layers: 2")
        < text.index("z:")
        < text.index("a:", text.index("z:"))
    )
