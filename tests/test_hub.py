"""org/name: from huggingface_hub's cache or from the hub, which is a local server here,
well-behaved or not.
"""

import contextlib
import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from asking import REPOSITORY, Ask, refusal, results
from gguf_files import write_gguf
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils._validators import validate_repo_id
from hypothesis import given, settings
from hypothesis import strategies as st
from local_hub import COMMIT, Behaviour, LocalHub, Sparse, running_hub
from tables import each
from test_config import check_preset
from test_gguf import LLAMA_KEYS, LLAMA_SHAPES, small_llama, split

from attncalc import AttncalcError, load
from attncalc.config import download, load_with_config, remote
from attncalc.config.hub import Repository, parse_repository, with_revision
from attncalc.config.presets import preset_of, presets
from attncalc.config.safetensors import INDEX

SECRET = "hf_a_token_that_may"
# K and V of a token: 3 layers * 2 * 2 heads * 16 * 2 B = 384 B.
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
    "vocab_size": 1000,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
FOLDER_OF = {
    "HF_HUB_CACHE": "hub",
    "HUGGINGFACE_HUB_CACHE": "hub",
    "HF_HOME": "",
    "XDG_CACHE_HOME": "..",
}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let no setting of the machine reach a test; HF_HOME is an empty folder."""
    for name in list(os.environ):
        prefixes = ("HF_", "HUGGING", "TRANSFORMERS", "XDG_", "SSL_CERT", "REQUESTS_CA")
        if name.upper().startswith(prefixes) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalHub]:
    """Yield a local hub with one model."""
    with running_hub() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        hub.add(
            "org/name",
            **{
                "config.json": CONFIG,
                "README.md": b"words",
                "pytorch_model.bin": Sparse(b"", 10**10),
            },
        )
        yield hub


def header(tensors: dict[str, int], *, dtype: str = "BF16") -> bytes:
    """Return the beginning of a safetensors file with tensors of so many elements of 2 bytes."""
    entries, end = {}, 0
    for name, elements in tensors.items():
        entries[name] = {
            "dtype": dtype,
            "shape": [elements],
            "data_offsets": [end, end + 2 * elements],
        }
        end += 2 * elements
    content = json.dumps(entries).encode()
    return struct.pack("<Q", len(content)) + content


def weights(tensors: dict[str, int]) -> Sparse:
    """Return a safetensors file, of which only the header takes memory."""
    head = header(tensors)
    return Sparse(head, len(head) + 2 * sum(tensors.values()))


def failure(name: str) -> AttncalcError:
    """Return the error of loading a model. Both its lines are one line each."""
    error = refusal(load, name)
    assert error.tip
    assert "\n" not in error.message + error.tip
    return error


def fill_cache(home: Path, repo: str = "org/name", ref: str = "main") -> Path:
    """Write the repository's config.json into a cache, as huggingface_hub would."""
    folder = home / "hub" / f"models--{repo.replace('/', '--')}"
    file = folder / "snapshots" / COMMIT / "config.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(CONFIG))
    (folder / "refs" / ref).parent.mkdir(parents=True, exist_ok=True)
    (folder / "refs" / ref).write_text(COMMIT)
    return file


# Names


@pytest.mark.parametrize(
    "text", ["org/name", "Qwen/Qwen3-0.6B", "a/b", "org/name@v2", "org/name@refs/pr/1", "o_1/_n"]
)
def test_names_of_repositories(text: str) -> None:
    assert parse_repository(text)


@each(
    "text",
    [
        "llama2-70b",
        "a/b/c",
        "/org/name",
        "./name",
        "../name",
        "~/name",
        "org/",
        "/name",
        "org//name",
        "org/.name",
        "org/na..me",
        "org/na--me",
        "org/name@",
        "org/name@../x",
        "org/name@-x",
        "org/name@x/",
        "org /name",
        "presets/my.yaml",
        "my/config.json",
        "my/model.gguf",
        "org/name.git",
        "",
        "-",
        "org/naïve",
        "org/name\n",
        f"org/{'n' * 97}",
        "org/name:",
        "org/name:../x",
        "org/name:/x",
        "https://example.org/org/name",
        "https://huggingface.co/datasets/name",
        "https://huggingface.co/org",
        "ftp://huggingface.co/org/name",
        "org/name:x/",
        "org/name:x ",
        "hf://docs/name",
        "https://user@huggingface.co/org/name",
        "https://huggingface.co/org/name/../../x",
    ],
)
def test_names_that_are_not_repositories(text: str) -> None:
    assert parse_repository(text) is None


@pytest.mark.parametrize(
    ("text", "repository"),
    [
        ("https://huggingface.co/Qwen/Qwen3-32B", Repository("Qwen/Qwen3-32B")),
        ("https://huggingface.co/Qwen/Qwen3-32B/", Repository("Qwen/Qwen3-32B")),
        ("http://hf.co/Qwen/Qwen3-32B?library=vllm#x", Repository("Qwen/Qwen3-32B")),
        ("https://huggingface.co/org/name/tree/v2", Repository("org/name", "v2")),
        ("https://huggingface.co/org/name/tree/refs%2Fpr%2F1", Repository("org/name", "refs/pr/1")),
        (
            "https://huggingface.co/org/name/blob/main/config.json",
            Repository("org/name", "main", "config.json"),
        ),
        (
            "https://huggingface.co/o/n/resolve/main/UD/m.gguf?download=true",
            Repository("o/n", "main", "UD/m.gguf"),
        ),
        ("hf://org/name", Repository("org/name")),
        ("hf://org/name/tree/v2", Repository("org/name", "v2")),
        ("https://huggingface.co/org/docs", Repository("org/docs")),
        ("docs/name", Repository("docs/name")),
        ("org/name@a", Repository("org/name", "a")),
        ("org/name@z", Repository("org/name", "z")),
        ("huggingface.co/Qwen/Qwen3-32B", Repository("Qwen/Qwen3-32B")),
        ("HTTPS://HuggingFace.co/Qwen/Qwen3-32B", Repository("Qwen/Qwen3-32B")),
        (
            "hf.co/unsloth/Qwen3-8B-GGUF:Q4_K_M",
            Repository("unsloth/Qwen3-8B-GGUF", "main", "Q4_K_M"),
        ),
        ("unsloth/Qwen3-8B-GGUF:Q4_K_M", Repository("unsloth/Qwen3-8B-GGUF", "main", "Q4_K_M")),
        ("org/name@v2:model-Q8_0.gguf", Repository("org/name", "v2", "model-Q8_0.gguf")),
    ],
)
def test_addresses_and_files_of_repositories(text: str, repository: Repository) -> None:
    assert parse_repository(text) == repository
    assert parse_repository(str(repository)) == repository


def test_the_address_of_another_hub_is_read_if_it_is_the_endpoint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert parse_repository("https://hub.example.org:8080/org/name") is None
    monkeypatch.setenv("HF_ENDPOINT", "https://me:secret@hub.example.org:8080/")
    assert parse_repository("https://hub.example.org:8080/org/name")


@given(
    st.text("aZ09_-./", max_size=12).map(lambda text: text + "/"), st.text("aZ09_-.", max_size=100)
)
def test_every_repository_name_is_valid_for_the_library(org: str, name: str) -> None:
    if parse_repository(org + name):
        validate_repo_id(org + name)


@given(st.text("aZ09_-.", max_size=8), st.text("aZ09_-.", max_size=8))
def test_every_name_that_the_library_accepts_is_a_repository_name(org: str, name: str) -> None:
    try:
        validate_repo_id(f"{org}/{name}")
    except HFValidationError:
        return
    assert parse_repository(f"{org}/{name}")


def test_a_mistyped_address_is_an_error_that_shows_one() -> None:
    error = failure("https://example.org/org/name")
    assert (
        error.message == "'https://example.org/org/name' is not the address of a model on the hub"
    )
    assert "https://huggingface.co/org/name" in error.tip


def test_a_revision_is_added_to_a_name() -> None:
    assert with_revision("org/name", "v2") == "org/name@v2"
    assert with_revision("https://huggingface.co/org/name", "v2") == "org/name@v2"
    assert with_revision("org/name@v2", "v2") == "org/name@v2"


@pytest.mark.parametrize(
    ("name", "message"), [("gpt2", "no effect on 'gpt2'"), ("org/name@v3", "cannot be combined")]
)
def test_a_revision_of_something_else_is_an_error(name: str, message: str) -> None:
    with pytest.raises(AttncalcError, match=message):
        with_revision(name, "v2")


# The cache


def test_the_cache_is_read_without_a_network_and_without_the_library(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fill_cache(tmp_path / "home")
    script = (
        "import sys; sys.modules['huggingface_hub'] = None; from attncalc import load; "
        "print(load(sys.argv[1]).name);"
        "print([name for name in ('urllib.request', 'http.client', 'ssl') if name in sys.modules])"
    )
    for name in ("org/name", f"org/name@{COMMIT}", "https://huggingface.co/org/name"):
        answer = subprocess.run(
            [sys.executable, "-c", script, name],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY), "HF_ENDPOINT": "http://127.0.0.1:9"},
            check=True,
        )
        assert answer.stdout.splitlines() == [
            f"name@{COMMIT[:12]}" if "@" in name else "name",
            "[]",
        ]


@pytest.mark.parametrize("variable", FOLDER_OF)
def test_the_cache_is_in_the_librarys_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str
) -> None:
    home = tmp_path / "huggingface"
    fill_cache(home)
    monkeypatch.delenv("HF_HOME")
    monkeypatch.setenv(variable, str((home / FOLDER_OF[variable]).resolve()))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert load("org/name").main.n_layers == 3
    script = "from huggingface_hub import constants; print(constants.HF_HUB_CACHE)"
    library = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert library.stdout.strip() == str(home / "hub")


@pytest.mark.parametrize("ref", ["../../../x", "/etc/passwd", "a b", "x\0", "", "\xff", "é"])
def test_a_ref_that_leads_out_of_the_cache_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ref: str
) -> None:
    file = fill_cache(tmp_path / "home")
    (file.parent.parent.parent / "refs/main").write_text(ref, encoding="latin-1")
    for place in (file.parent.parent / "a b", file.parent.parent / "../../../x"):
        place.mkdir(parents=True, exist_ok=True)
        (place / "config.json").write_text(json.dumps(CONFIG))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert "not in the local cache" in failure("org/name").message


def test_the_weights_of_a_cached_model_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = fill_cache(tmp_path / "home").parent
    (folder / "model.safetensors").write_bytes(weights({"a": 3}).part(0, 10**6))
    stored = load("org/name").stored
    assert stored is not None
    assert stored.size == 6


def test_a_cache_without_all_weights_has_those_of_the_index(tmp_path: Path) -> None:
    folder = fill_cache(tmp_path / "home").parent
    (folder / "model-00001-of-00002.safetensors").write_bytes(weights({"a": 3}).part(0, 10**6))
    assert load("org/name").stored is None
    shards = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    (folder / INDEX).write_text(json.dumps({"weight_map": shards, "metadata": {"total_size": 77}}))
    stored = load("org/name").stored
    assert stored is not None
    assert (stored.size, stored.by_dtype) == (77, ())


@pytest.mark.parametrize(
    "name",
    [
        "Qwen/Qwen3-8B",
        "https://huggingface.co/Qwen/Qwen3-8B",
        "https://hf.co/Qwen/Qwen3-8B/tree/main",
        "https://huggingface.co/Qwen/Qwen3-8B/blob/main/config.json",
        "https://huggingface.co/Qwen/Qwen3-8B/resolve/main/config.json?download=true",
    ],
)
def test_a_model_that_is_built_in_needs_no_network(ask: Ask, hub: LocalHub, name: str) -> None:
    assert load(name).name == "qwen3-8b"
    assert "vllm serve Qwen/Qwen3-8B " in " ".join(
        ask("fit", name, "--gpu", "h100-80gb", "-c", "512").out.split()
    )
    assert hub.requests == []


def test_a_comparison_with_transformers_reads_the_config_of_a_model_that_is_built_in(
    tmp_path: Path,
) -> None:
    fill_cache(tmp_path / "home", "Qwen/Qwen3-8B")
    model, config = load_with_config("Qwen/Qwen3-8B")
    assert (model.main.n_layers, config) == (3, CONFIG)


def test_an_error_names_the_address_that_was_typed(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    address = "https://huggingface.co/no/such/blob/main/config.json"
    assert ask("params", address).error.startswith(f"error: {address}: not in the local cache")


def test_a_name_that_is_not_on_the_hub_has_no_habit(ask: Ask, hub: LocalHub) -> None:
    answer = ask("fit", "cyankiwi/Qwen3.6-27B-AWQ-4bit", "--gpu", "h100")
    assert answer.code == 2
    assert "no such model" in answer.err


def test_another_revision_of_a_model_that_is_built_in_is_fetched(hub: LocalHub) -> None:
    hub.add("Qwen/Qwen3-8B", **{"config.json": CONFIG})
    assert load("Qwen/Qwen3-8B@v2").main.n_layers == 3


def test_the_first_repository_of_a_preset_is_that_preset() -> None:
    for preset in presets():
        assert all(preset_of(repository) == preset.name for repository in preset.repositories[:1])


def test_a_folder_of_the_same_name_is_preferred_to_the_hub(
    ask: Ask, tmp_path: Path, hub: LocalHub
) -> None:
    folder = tmp_path / "org" / "name"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({**CONFIG, "num_hidden_layers": 1}))
    os.chdir(tmp_path)
    try:
        assert results(ask("kv", "org/name", "-c", "10", "--json"))["kv_cache"] == 10 * 384 // 3
    finally:
        os.chdir(REPOSITORY)
    assert hub.requests == []


# A hub that behaves


def test_kv_of_a_model_on_the_hub_reads_no_weights_and_writes_nothing(
    ask: Ask, hub: LocalHub, tmp_path: Path
) -> None:
    answer = ask("kv", "org/name", "-c", "10", "--json")
    assert (answer.code, answer.err) == (0, "")
    assert results(answer)["kv_cache"] == 10 * 384
    assert answer.document["model"]["name"] == "name"
    assert hub.paths() == [
        "/api/models/org/name/revision/main",
        f"/org/name/resolve/{COMMIT}/config.json",
    ]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["params", "flops", "memory", "compare"])
def test_every_command_takes_a_model_on_the_hub(ask: Ask, hub: LocalHub, command: str) -> None:
    assert (
        ask(command, "org/name", "-c", "10", "--json").code == 0
        if command != "params"
        else ask(command, "org/name")
    )


def test_fit_names_the_repository_in_its_command(ask: Ask, hub: LocalHub) -> None:
    for name in ("org/name", f"{hub.url}/org/name"):
        answer = ask("fit", name, "--gpu", "h100-80gb", "-c", "512")
        assert "vllm serve org/name " in " ".join(answer.out.split())


def test_the_launch_command_has_the_revision(ask: Ask, hub: LocalHub) -> None:
    for engine, option in (("vllm", "vllm serve org/name"), ("sglang", "--model-path org/name")):
        screen = ask(
            "fit", "org/name@v2", "--gpu", "h100-80gb", "-c", "512", "--engine", engine
        ).out
        assert f"{option} --revision v2 " in " ".join(screen.split())


def test_the_header_of_one_file_gives_its_weights(hub: LocalHub) -> None:
    hub.files["org/name"]["model.safetensors"] = weights({"a": 10**9, "b": 5})
    stored = load("org/name").stored
    assert stored is not None
    assert (stored.size, stored.by_dtype[0].name, stored.tensors) == (2 * (10**9 + 5), "BF16", 2)
    assert hub.sent < 1 << 18  # of 2 GB
    assert [seen.range for seen in hub.requests][-1] == "bytes=0-131071"


def test_a_long_header_needs_one_more_request(hub: LocalHub) -> None:
    tensors = {f"a.long.name.of.a.tensor.{i}": 3 for i in range(3000)}
    hub.files["org/name"]["model.safetensors"] = weights(tensors)
    stored = load("org/name").stored
    assert stored is not None
    assert (stored.size, stored.tensors) == (3000 * 6, 3000)
    assert len(hub.requests) == 4


def shards(number: int) -> dict[str, object]:
    names = [f"model-{i:05}-of-{number:05}.safetensors" for i in range(1, number + 1)]
    files: dict[str, object] = {name: weights({f"t{name}": 10**9}) for name in names}
    return {
        **files,
        INDEX: {
            "weight_map": {f"t{name}": name for name in names},
            "metadata": {"total_size": number * 2 * 10**9},
        },
    }


def test_the_headers_of_all_files_are_read(hub: LocalHub) -> None:
    hub.add("org/name", **{"config.json": CONFIG, **shards(20)})
    stored = load("org/name").stored
    assert stored is not None
    assert (stored.size, stored.files, stored.by_dtype[0].name) == (40 * 10**9, 20, "BF16")
    assert len(hub.requests) == 3 + 20


def test_the_weights_in_many_files_are_the_total_of_the_index(hub: LocalHub) -> None:
    hub.add("org/name", **{"config.json": CONFIG, **shards(remote.MAX_HEADERS + 1)})
    stored = load("org/name").stored
    assert stored is not None
    assert (stored.size, stored.by_dtype) == (65 * 2 * 10**9, ())
    assert len(hub.requests) == 3


def test_the_address_of_a_config_reads_no_weights(hub: LocalHub) -> None:
    hub.files["org/name"]["model.safetensors"] = Sparse(b"broken", 100)
    assert "broken" not in failure("org/name").message
    assert load(f"{hub.url}/org/name/blob/main/config.json").stored is None
    assert load("org/name:config.json").stored is None


def test_the_quantization_beside_the_config_is_read(hub: LocalHub) -> None:
    quantization = {
        "producer": {"name": "modelopt"},
        "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"},
    }
    assert load("org/name").kv_dtype is None
    hub.files["org/name"]["hf_quant_config.json"] = json.dumps(quantization).encode()
    assert load("org/name").kv_dtype == "fp8"


@pytest.mark.parametrize("revision", ["v2", COMMIT, "refs/pr/1"])
def test_a_revision_is_fetched(ask: Ask, hub: LocalHub, revision: str) -> None:
    for arguments in ([f"org/name@{revision}"], ["org/name", "--revision", revision]):
        assert ask("kv", *arguments, "--json").document["model"]["name"] == f"name@{revision[:12]}"
    assert hub.paths()[0] == f"/api/models/org/name/revision/{revision.replace('/', '%2F')}"


def test_all_files_are_of_the_commit_that_was_listed(hub: LocalHub) -> None:
    load("org/name")
    assert all(f"/resolve/{COMMIT}/" in path for path in hub.paths()[1:])


# Tokens and passwords


@pytest.mark.parametrize(
    "place", ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH", "HF_HOME"]
)
def test_a_token_is_sent(
    hub: LocalHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    (tmp_path / "token").write_text(f"{SECRET}\n")
    monkeypatch.setenv(
        place,
        {"HF_TOKEN_PATH": str(tmp_path / "token"), "HF_HOME": str(tmp_path)}.get(place, SECRET),
    )
    load("org/name")
    assert {seen.token for seen in hub.requests} == {f"Bearer {SECRET}"}


def test_no_token_is_sent_if_none_is_set_or_it_is_switched_off(
    hub: LocalHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    load("org/name")
    monkeypatch.setenv("HF_TOKEN", SECRET)
    monkeypatch.setenv("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")
    load("org/name")
    assert {seen.token for seen in hub.requests} == {""}


def test_a_token_with_a_line_break_is_an_error_without_the_token(
    hub: LocalHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", f"{SECRET}\r\nX-Header: x")
    error = failure("org/name")
    assert error.message == "the token in HF_TOKEN is not valid"
    assert hub.requests == []


def test_a_password_in_the_endpoint_is_sent_and_never_printed(
    hub: LocalHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", hub.url.replace("//", "//me:my%20secret@"))
    load("org/name")
    # base64 of 'me:my secret'
    assert {seen.token for seen in hub.requests} == {"Basic bWU6bXkgc2VjcmV0"}
    for name in ("org/nothing", "org/name@v9", "org/name:x.gguf"):
        error = failure(name)
        assert "secret" not in error.message + error.tip


@pytest.mark.parametrize(
    "address",
    ["http://127.0.0.1:9", "https://127.0.0.1:9", "http://a..invalid", "http://x.invalid"],
)
def test_an_endpoint_that_does_not_answer_is_an_error_without_its_password(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", address.replace("//", "//me:secret@"))
    error = failure("org/name")
    assert error.message.startswith("org/name: ")
    assert "secret" not in error.message + error.tip


def test_a_proxy_is_used_and_its_password_never_printed(
    hub: LocalHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://hub.invalid")
    monkeypatch.setenv("http_proxy", hub.url.replace("//", "//me:secret@"))
    hub.behaviours["/org/name/revision/main"] = lambda handler: handler.end(407)
    error = failure("org/name")
    assert hub.paths() == ["http://hub.invalid/api/models/org/name/revision/main"]
    assert "secret" not in error.message + error.tip


# A hub that refuses


def test_a_gated_model_is_an_error_of_the_command_line(ask: Ask, hub: LocalHub) -> None:
    hub.behaviours["/revision/main"] = lambda handler: handler.end(403, "GatedRepo")
    error, tip = ask("kv", "org/name").error.splitlines()
    assert error.startswith("error: org/name: a gated model")
    assert tip.startswith("  tip: accept its terms on http://127.0.0.1")


def test_offline_nothing_is_fetched(hub: LocalHub, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.setenv(variable, "yes")
        assert "not in the local cache, and HF_HUB_OFFLINE is set" in failure("org/name").message
        monkeypatch.delenv(variable)
    assert hub.requests == []


def test_no_network_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    error = failure("org/name")
    assert error.message == "org/name: 127.0.0.1 cannot be reached: connection refused"
    assert (
        error.tip
        == "check the connection; without a network, give the path of the model's config.json"
    )
    monkeypatch.setenv("HF_ENDPOINT", "http://hub.invalid")
    assert (
        "hub.invalid cannot be found: there is no network, or no such host"
        in failure("org/name").message
    )


def test_a_repository_without_a_model_lists_its_files(hub: LocalHub) -> None:
    hub.add("org/empty")
    hub.add("org/words", **{"README.md": b"words", ".gitattributes": b""})
    assert (
        "has no config.json, params.json or GGUF file (it has no files)"
        in failure("org/empty").message
    )
    assert "(it has .gitattributes, README.md)" in failure("org/words").message


# A hub that misbehaves


def listing(**changes: object) -> Behaviour:
    """Return a behaviour that lists one file, with changes."""
    data = {"sha": COMMIT, "siblings": [{"rfilename": "config.json"}], **changes}
    return lambda handler: handler.send(json.dumps(data).encode())


def sending(body: bytes, **options: object) -> Behaviour:
    return lambda handler: handler.send(body, **options)  # type: ignore[arg-type]


BODY = json.dumps(CONFIG).encode()
MISBEHAVIOURS: dict[str, tuple[str, Behaviour, str]] = {
    "no listing": ("/main", sending(b"<html>"), "not JSON"),
    "a listing of the wrong kind": ("/main", sending(b"[]"), "not a JSON object"),
    "a listing without files": (
        "/main",
        listing(siblings="config.json"),
        "does not answer like a Hugging Face hub",
    ),
    "a listing of other things": (
        "/main",
        listing(siblings=[5, {"rfilename": ["x"]}, {}]),
        "it has no files",
    ),
    "JSON that is nested deeply": (
        "/config.json",
        sending(b'{"a":' * 100_000),
        "JSON that cannot be read",
    ),
    "a number of 5,000 digits": (
        "/config.json",
        sending(b'{"a":' + b"9" * 5000 + b"}"),
        "model_type is missing",
    ),
    "no UTF-8": ("/config.json", sending(b'{"\xff":1}'), "not a text file"),
    "a length that is too large": (
        "/config.json",
        sending(BODY, length=len(BODY) + 9),
        "ended its answer early",
    ),
    "no HTTP": (
        "/config.json",
        lambda h: h.wfile.write(b"hello\r\n\r\n"),
        "does not answer as a web server",
    ),
    "200 headers": (
        "/config.json",
        sending(BODY, headers={f"X-{i}": "x" for i in range(200)}),
        "as a web server",
    ),
}


@pytest.mark.parametrize("case", MISBEHAVIOURS)
def test_a_hub_that_misbehaves_is_one_error(hub: LocalHub, tmp_path: Path, case: str) -> None:
    path, behaviour, message = MISBEHAVIOURS[case]
    hub.behaviours[path] = behaviour
    assert message in failure("org/name").message
    assert list(tmp_path.iterdir()) == []


def test_any_answer_of_a_hub_is_a_model_or_one_error(hub: LocalHub) -> None:
    """The listing, the config, the index and a header, each with damage."""
    good = {
        "/main": json.dumps(
            {"sha": COMMIT, "siblings": [{"rfilename": n} for n in ("config.json", INDEX, SHARD)]}
        ).encode(),
        "/config.json": BODY,
        "/" + INDEX: json.dumps(
            {"weight_map": {"a": SHARD}, "metadata": {"total_size": 2000}}
        ).encode(),
        "/" + SHARD: HEAD,
    }

    @settings(max_examples=30)
    @given(
        st.sampled_from(list(good)), st.integers(0, 3000), st.binary(max_size=6), st.integers(0, 20)
    )
    def check(path: str, start: int, damage: bytes, removed: int) -> None:
        for end, content in good.items():
            changed = (
                content[: start % len(content)] + damage + content[start % len(content) + removed :]
            )
            hub.behaviours[end] = sending(changed if end == path else content)
        with contextlib.suppress(AttncalcError):
            assert load("org/name").main.n_layers > 0

    check()


def test_a_name_that_leads_out_of_the_repository_stays_on_the_hub(
    hub: LocalHub, tmp_path: Path
) -> None:
    names = [
        "../../x.safetensors",
        "/etc/passwd",
        "model.safetensors/../../..",
        "a\n.json",
        "config.json",
    ]
    hub.behaviours["/revision/main"] = listing(siblings=[{"rfilename": name} for name in names])
    assert load("org/name").stored is None
    assert list(tmp_path.iterdir()) == []


FILE = weights({"a": 1000})
HEAD = FILE.part(0, 1 << 17)
SHARD = "model-00001-of-00001.safetensors"


SLOW: dict[str, tuple[str, Behaviour]] = {
    "a status that drips": ("/config.json", lambda h: h.drip(b"HTTP/1.1 200 ")),
    "headers that drip": ("/config.json", lambda h: h.drip(b"HTTP/1.1 200 OK\r\nX-A: ")),
    "a body that drips": (
        "/config.json",
        lambda h: h.drip(b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n"),
    ),
}


@pytest.mark.parametrize("case", SLOW)
def test_a_slow_answer_is_given_up(
    hub: LocalHub, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    path, behaviour = SLOW[case]
    monkeypatch.setattr(download, "MAX_SECONDS", 0.5)
    hub.behaviours[path] = behaviour
    assert failure("org/name").message == "org/name: 127.0.0.1 takes longer than 0.5 s"


# TLS


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return a certificate for 127.0.0.1 that signs itself, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    names = "-subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1"
    command = (
        f"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 {names}"
    )
    try:
        subprocess.run(
            [*command.split(), "-keyout", str(folder / "key"), "-out", str(folder / "crt")],
            check=True,
            capture_output=True,
        )
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("openssl makes the certificate of the local hub")
    return folder / "crt", folder / "key"


@pytest.fixture
def safe_hub(certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalHub]:
    """Yield a hub with TLS."""
    with running_hub(certificate) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        hub.add("org/name", **{"config.json": CONFIG})
        yield hub


def test_a_certificate_that_nobody_vouches_for_is_an_error(safe_hub: LocalHub) -> None:
    error = failure("org/name")
    assert error.message.startswith(
        "org/name: no safe connection to 127.0.0.1: self-signed certificate"
    )
    assert "SSL_CERT_FILE" in error.tip
    assert safe_hub.requests == []


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"])
def test_a_certificate_of_ones_own_is_trusted(
    safe_hub: LocalHub,
    certificate: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
) -> None:
    monkeypatch.setenv(variable, str(certificate[0]))
    assert load("org/name").main.n_layers == 3


def test_http_where_tls_should_be_is_an_error(
    hub: LocalHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", hub.url.replace("http://", "https://"))
    assert "no safe connection to 127.0.0.1" in failure("org/name").message


def test_a_file_of_certificates_that_is_missing_is_an_error(
    hub: LocalHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/no/such/file")
    assert "REQUESTS_CA_BUNDLE" in failure("org/name").message


# GGUF files of a repository

GGUF_NAMES = [
    "Qwen3-8B-IQ4_XS.gguf",
    "Qwen3-8B-Q4_0.gguf",
    "Qwen3-8B-IQ4_0.gguf",
    "Qwen3-8B-Q4_K_M.gguf",
    "mmproj-F16.gguf",
    "Qwen3-8B-UD-Q4_K_XL.gguf",
    "BF16/Qwen3-8B-BF16-00001-of-00002.gguf",
    "BF16/Qwen3-8B-BF16-00002-of-00002.gguf",
]


def test_a_quantization_that_is_not_there_is_an_error_that_lists_them(hub: LocalHub) -> None:
    hub.add("org/gguf", **dict.fromkeys(GGUF_NAMES, b"GGUF"))
    error = failure("org/gguf:Q5_K_M")
    assert error.message == "org/gguf:Q5_K_M: the repository has no such file or quantization"
    assert error.tip == "it has BF16, IQ4_0, IQ4_XS, Q4_0, Q4_K_M, UD-Q4_K_XL"
    assert "leave ':Q4_K_M' out" in failure("org/name:Q4_K_M").tip


@pytest.mark.parametrize(
    "name",
    [
        "org/gguf",
        "org/gguf:q4_k_m",
        "org/gguf:m-Q4_K_M.gguf",
        "URL/org/gguf/blob/main/m-Q4_K_M.gguf",
    ],
)
def test_a_gguf_file_on_the_hub_is_read_by_its_header(
    hub: LocalHub, tmp_path: Path, name: str
) -> None:
    """The header has 20,000 tokens in about 300 kB, so the file's first MiB is enough."""
    shapes = {**LLAMA_SHAPES, "token_embd.weight": (256, 20_000)}
    path = write_gguf(tmp_path / "m.gguf", "llama", LLAMA_KEYS, shapes, tokens=20_000)
    local = load(path)
    file = Sparse(path.read_bytes()[: 1 << 19], path.stat().st_size)
    hub.add("org/gguf", **{"config.json": CONFIG, "m-Q8_0.gguf": b"", "m-Q4_K_M.gguf": file})
    model = load(name.replace("URL", hub.url))
    assert (model.name, model.main.n_layers) == ("m-Q4_K_M", 2)
    assert model.stored == local.stored
    assert [seen.range for seen in hub.requests][1:] == ["bytes=0-1048575"]


def test_the_parts_of_a_gguf_model_on_the_hub_are_one_model(hub: LocalHub, tmp_path: Path) -> None:
    local = load(split(tmp_path)[0])
    hub.add("org/gguf", **{f"BF16/{path.name}": path.read_bytes() for path in tmp_path.iterdir()})
    model = load("org/gguf")
    assert (model.name, model.stored) == ("m", local.stored)
    del hub.files["org/gguf"]["BF16/m-00002-of-00003.gguf"]
    assert (
        "1 of its 3 files are missing, such as BF16/m-00002-of-00003.gguf"
        in failure("org/gguf").message
    )


def test_a_params_json_on_the_hub_is_read_with_its_weights(hub: LocalHub) -> None:
    sizes = {
        "dim": 4096,
        "n_layers": 2,
        "head_dim": 128,
        "hidden_dim": 14336,
        "n_heads": 32,
        "n_kv_heads": 8,
    }
    hub.add(
        "org/raw",
        **{
            "params.json": {**sizes, "vocab_size": 32000, "norm_eps": 1e-5},
            "consolidated.safetensors": weights({"a": 5}),
        },
    )
    model = load("org/raw")
    assert (model.model_type, model.sources[0][:16]) == ("mistral", "its params.json,")
    assert model.stored is not None
    assert model.stored.size == 10


def test_an_adapter_on_the_hub_names_its_base(hub: LocalHub) -> None:
    adapter = {"peft_type": "LORA", "base_model_name_or_path": "Qwen/Qwen3-8B"}
    hub.add(
        "org/lora",
        **{"adapter_config.json": adapter, "adapter_model.safetensors": weights({"a": 5})},
    )
    error = failure("org/lora")
    assert "org/lora/adapter_config.json: a LoRA adapter" in error.message
    assert error.tip == "give the base model: Qwen/Qwen3-8B"


def test_a_broken_gguf_file_on_the_hub_is_one_error(hub: LocalHub) -> None:
    hub.add(
        "org/gguf", **{"m-Q4_K_M.gguf": b"GGUF", "m-Q8_0.gguf": Sparse(b"GGUF" + bytes(20), 10**12)}
    )
    assert failure("org/gguf").message.startswith("org/gguf/m-Q4_K_M.gguf: ")
    assert failure("org/gguf:Q8_0").message.startswith("org/gguf/m-Q8_0.gguf: ")


def test_a_cached_gguf_file_is_read_without_a_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = fill_cache(tmp_path / "home", "org/gguf").parent
    small_llama(snapshot / "m-Q8_0.gguf")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert load("org/gguf:Q8_0").main.n_layers == 2
    assert load("org/gguf").main.n_layers == 2
    assert "not in the local cache" in failure("org/gguf:Q4_K_M").message


def test_a_gguf_file_becomes_a_model_file_of_the_same_figures(
    ask: Ask, hub: LocalHub, tmp_path: Path
) -> None:
    hub.add("org/gguf", **{"m-Q8_0.gguf": small_llama(tmp_path / "m.gguf").read_bytes()})
    text = ask("presets", "add", "org/gguf").out
    as_yaml, as_gguf = ask("kv", "-", "--json", stdin=text), ask("kv", "org/gguf", "--json")
    assert results(as_yaml)["kv_cache"] == results(as_gguf)["kv_cache"] > 0


def test_presets_add_writes_a_preset_of_the_repository(
    ask: Ask, hub: LocalHub, tmp_path: Path
) -> None:
    hub.add("org/small", **{"config.json": CONFIG})
    file = tmp_path / "presets/models/small.yaml"
    file.parent.mkdir(parents=True)
    (file.parent.parent / "model.schema.json").touch()
    assert ask("presets", "add", "org/small", "-o", str(file)).code == 0
    check_preset(file.read_text())
    assert "https://huggingface.co/org/small: its config.json, read as" in file.read_text()
    elsewhere = tmp_path / "small.yaml"
    assert ask("presets", "add", "org/small", "-o", str(elsewhere)).code == 0
    assert elsewhere.read_text().startswith("# From ")


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("org/gguf", "-hf org/gguf "),
        ("org/gguf:Q8_0", "-hf org/gguf:Q8_0 "),
        ("org/gguf:m-Q8_0.gguf", "-hf org/gguf -hff m-Q8_0.gguf "),
        ("{folder}", "-m {folder}/m.gguf "),
        ("{folder}/m.gguf", "-m {folder}/m.gguf "),
    ],
)
def test_llama_cpp_loads_the_gguf_file_that_was_read(
    ask: Ask, hub: LocalHub, tmp_path: Path, name: str, options: str
) -> None:
    content = small_llama(tmp_path / "m.gguf").read_bytes()
    hub.add("org/gguf", **{"m-Q8_0.gguf": content})
    name, options = name.format(folder=tmp_path), options.format(folder=tmp_path)
    answer = ask("fit", name, "--engine", "llamacpp", "--kv-memory", "1GiB", "-c", "64", "--json")
    assert f"llama-server {options}" in answer.document["launch_command"]
