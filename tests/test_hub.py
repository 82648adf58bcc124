"""org/name: config.json from the local cache or from the hub, which is a local server here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import ClassVar

import pytest
from asking import REPOSITORY, Answer, results
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils._validators import validate_repo_id
from hypothesis import given
from hypothesis import strategies as st

from attncalc import AttncalcError
from attncalc.config.hub import config_file, is_repo

COMMIT = "0123456789abcdef0123456789abcdef01234567"
SECRET = "hf_a_token_that_may"
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
"""K and V of a token: 3 layers * 2 * 2 heads * 16 * 2 B = 384 B."""


STATUSES: dict[str, tuple[int, str] | tuple[int, str, str]] = {
    "org/gated": (403, "GatedRepo"),
    "org/forbidden": (403, ""),
    "org/secret": (401, "", "Invalid credentials in Authorization header"),
    "org/empty": (404, "EntryNotFound"),
    "org/busy": (503, ""),
    "org/no-hub": (200, ""),
}


class Hub(BaseHTTPRequestHandler):
    """Answers as the hub does (huggingface_hub's `hf_raise_for_status` reads X-Error-Code)."""

    requests: ClassVar[list[tuple[str, str, str]]] = []

    def do_HEAD(self) -> None:
        self.answer(b"")

    def do_GET(self) -> None:
        self.answer(json.dumps(CONFIG).encode())

    def answer(self, body: bytes) -> None:
        repo, _, rest = self.path.strip("/").partition("/resolve/")
        token = self.headers.get("Authorization", "")
        if repo.startswith("org/"):  # the library sends other requests too
            self.requests.append((self.command, self.path, token))
        if repo == "org/gated" and token == f"Bearer {SECRET}":
            repo = "org/name"
        if repo != "org/name":
            self.end(*STATUSES.get(repo, (401, "RepoNotFound")))
        elif rest not in ("main/config.json", "v2/config.json", f"{COMMIT}/config.json"):
            self.end(404, "RevisionNotFound")
        else:
            self.hand_over(body)

    def hand_over(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("ETag", '"a-hash-of-it"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("X-HF-Warning", "topic; a warning that the library logs")
        self.send_header("Content-Length", str(len(json.dumps(CONFIG))))
        self.end_headers()
        self.wfile.write(body)

    def end(self, code: int, error: str = "", message: str = "") -> None:
        self.send_response(code)
        if error:
            self.send_header("X-Error-Code", error)
        if message:
            self.send_header("X-Error-Message", message)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def hub() -> Iterator[str]:
    """Yield the address of a local hub, which records its requests in Hub.requests."""
    Hub.requests.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def run(script: str, *arguments: str, home: Path, **env: str) -> Answer:
    """Run a script in a new Python, because the library reads its settings once; HF_HOME is `home`."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "HUGGING", "TRANSFORMERS", "XDG_"))}
    settings = {"PYTHONPATH": str(REPOSITORY), "NO_PROXY": "*", "HF_HOME": str(home), **env}
    answer = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        env={**clean, **settings},
        check=False,
        timeout=60,
    )
    return Answer(answer.returncode, answer.stdout, answer.stderr)


ASK = """
import sys
from attncalc.config.hub import config_file
from attncalc.errors import AttncalcError
try:
    print(config_file(sys.argv[1]))
except AttncalcError as error:
    print(f"{error.message}\\n{error.tip}")
print("huggingface_hub" in sys.modules)
"""
WITHOUT = "import sys; sys.modules['huggingface_hub'] = None\n"
CLI = "import sys; sys.argv[0] = 'attncalc'; from attncalc.__main__ import main; main()"


def locate(repo: str, home: Path, *, before: str = "", **env: str) -> tuple[list[str], bool]:
    """Return the path, or the error and its tip, and whether the library was imported."""
    answer = run(before + ASK, repo, home=home, **env)
    assert (answer.code, answer.err) == (0, "")
    *lines, imported = answer.out.splitlines()
    return lines, imported == "True"


def fill_cache(home: Path, repo: str = "org/name", ref: str = "main") -> Path:
    """Write the repository's config.json into a cache, as the library would."""
    folder = home / "hub" / f"models--{repo.replace('/', '--')}"
    file = folder / "snapshots" / COMMIT / "config.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(CONFIG))
    (folder / "refs" / ref).parent.mkdir(parents=True, exist_ok=True)
    (folder / "refs" / ref).write_text(COMMIT)
    return file


def test_a_file_is_downloaded_once_and_then_read_from_the_cache(hub: str, tmp_path: Path) -> None:
    (path,), imported = locate("org/name", tmp_path, HF_ENDPOINT=hub)
    assert imported
    assert json.loads(Path(path).read_text()) == CONFIG
    assert {command for command, *_ in Hub.requests} == {"HEAD", "GET"}
    Hub.requests.clear()
    (again,), imported = locate("org/name", tmp_path, HF_ENDPOINT=hub)
    assert (again, imported, Hub.requests) == (path, False, [])


def test_a_token_gives_access_to_a_gated_model(hub: str, tmp_path: Path) -> None:
    (path,), _ = locate("org/gated", tmp_path, HF_ENDPOINT=hub, HF_TOKEN=SECRET)
    assert json.loads(Path(path).read_text()) == CONFIG
    assert {token for *_, token in Hub.requests} == {f"Bearer {SECRET}"}


def test_no_token_is_sent_if_none_is_set(hub: str, tmp_path: Path) -> None:
    locate("org/name", tmp_path, HF_ENDPOINT=hub)
    assert {token for *_, token in Hub.requests} == {""}


@pytest.mark.parametrize("revision", ["v2", COMMIT])
def test_a_revision_is_downloaded_and_cached(hub: str, tmp_path: Path, revision: str) -> None:
    (path,), _ = locate(f"org/name@{revision}", tmp_path, HF_ENDPOINT=hub)
    assert f"/org/name/resolve/{revision}/config.json" in {path for _, path, _ in Hub.requests}
    assert locate(f"org/name@{revision}", tmp_path, HF_HUB_OFFLINE="1") == ([path], False)


FAILURES = {
    "gated, no token": ("org/gated", {}, "a gated model", "accept its terms on http"),
    "gated, a token without access": ("org/gated", {"HF_TOKEN": "hf_other"}, "a gated model", "set HF_TOKEN"),
    "no access": ("org/forbidden", {}, "denies access to it", "accept its terms on http"),
    "a wrong token": ("org/secret", {"HF_TOKEN": "hf_old"}, "does not accept this token", "renew HF_TOKEN"),
    "no such model": ("org/nam", {}, "no such model on http", "check the name"),
    "no such revision": ("org/name@v3", {}, "has no such revision", "lists them"),
    "no config.json": ("org/empty", {}, "the repository has no config.json", "write a preset"),
    "a hub that is down": ("org/busy", {}, "answered 503", "try again later"),
    "no hub": ("org/no-hub", {}, "does not answer like a Hugging Face hub", "check HF_ENDPOINT"),
    "offline": ("org/name", {"HF_HUB_OFFLINE": "1"}, "not in the local cache, and HF_HUB_OFFLINE is set", "unset it"),
    "no connection": (
        "org/name",
        {"HF_ENDPOINT": "http://127.0.0.1:9"},
        "not in the local cache, and http://127.0.0.1:9 cannot be reached",
        "check the connection",
    ),
    "no endpoint": ("org/name", {"HF_ENDPOINT": "nonsense"}, "nonsense cannot be reached", "HF_ENDPOINT"),
    "no folder for the cache": (
        "org/name",
        {"HF_HOME": "/dev/null/x"},
        "cannot be stored in /dev/null/x/hub",
        "HF_HOME",
    ),
}


@pytest.mark.parametrize("case", FAILURES)
def test_every_failure_has_its_own_message_and_tip(hub: str, tmp_path: Path, case: str) -> None:
    repo, env, message, tip = FAILURES[case]
    (printed_message, printed_tip), _ = locate(
        repo, tmp_path, **{"HF_ENDPOINT": hub, "HF_HUB_VERBOSITY": "debug", **env}
    )
    assert printed_message.startswith(f"{repo}: ")
    assert message in printed_message
    assert tip in printed_tip


def test_the_cache_is_read_without_the_library_and_without_a_network(tmp_path: Path) -> None:
    file = fill_cache(tmp_path)
    nowhere = {"HF_ENDPOINT": "http://127.0.0.1:9"}
    assert locate("org/name", tmp_path, before=WITHOUT, **nowhere)[0] == [str(file)]
    assert locate(f"org/name@{COMMIT}", tmp_path, before=WITHOUT, HF_HUB_OFFLINE="1")[0] == [str(file)]


@pytest.mark.parametrize(
    ("variable", "folder"),
    [("HF_HUB_CACHE", "hub"), ("HUGGINGFACE_HUB_CACHE", "hub"), ("HF_HOME", ""), ("XDG_CACHE_HOME", "..")],
)
def test_the_cache_is_in_the_librarys_folder(tmp_path: Path, variable: str, folder: str) -> None:
    home = tmp_path / "huggingface"
    file = fill_cache(home)
    place = {"HF_HOME": "", variable: str((home / folder).resolve())}
    assert locate("org/name", home, **place) == ([str(file)], False)
    library = "from huggingface_hub import constants; print(constants.HF_HUB_CACHE)"
    unset = "import os; os.environ.get('HF_HOME') or os.environ.pop('HF_HOME'); "
    assert run(unset + library, home=home, **place).out.strip() == str(home / "hub")


def test_without_the_library_the_tip_is_to_install_it(hub: str, tmp_path: Path) -> None:
    (message, tip), _ = locate("org/name", tmp_path, before=WITHOUT, HF_ENDPOINT=hub)
    assert "models on the hub need huggingface_hub" in message
    assert tip == "pip install 'attncalc[hub]'"
    assert Hub.requests == []


@pytest.mark.parametrize("ref", ["../../../x", "/etc/passwd", "a b", "x\0", ""])
def test_a_ref_that_leads_out_of_the_cache_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ref: str
) -> None:
    file = fill_cache(tmp_path)
    (file.parent.parent.parent / "refs/main").write_text(ref)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(AttncalcError, match="not in the local cache"):
        config_file("org/name")


@pytest.mark.parametrize("text", ["org/name", "Qwen/Qwen3-0.6B", "a/b", "org/name@v2", "org/name@refs/pr/1", "o_1/_n"])
def test_names_of_repositories(text: str) -> None:
    assert is_repo(text)


@pytest.mark.parametrize(
    "text",
    [
        *("llama2-70b", "a/b/c", "/org/name", "./name", "../name", "~/name", "org/", "/name", "org//name", "org/.name"),
        *("org/na..me", "org/na--me", "org/name@", "org/name@../x", "org/name@-x", "org/name@x/", "org /name"),
        *(
            "presets/my.yaml",
            "my/config.json",
            "my/model.gguf",
            "org/name.git",
            "",
            "-",
            f"org/{'n' * 97}",
            "org/naïve",
        ),
        *("org/name\n", "https://huggingface.co/org/name"),
    ],
)
def test_names_that_are_not_repositories(text: str) -> None:
    assert not is_repo(text)


@given(st.text("aZ09_-./", max_size=12).map(lambda text: text.replace("", "") + "/"), st.text("aZ09_-.", max_size=100))
def test_every_repository_name_is_valid_for_the_library(org: str, name: str) -> None:
    if is_repo(org + name):
        validate_repo_id(org + name)


@given(st.text("aZ09_-.", max_size=8), st.text("aZ09_-.", max_size=8))
def test_every_name_that_the_library_accepts_is_a_repository_name(org: str, name: str) -> None:
    try:
        validate_repo_id(f"{org}/{name}")
    except HFValidationError:
        return
    assert is_repo(f"{org}/{name}")


def test_a_name_that_is_not_a_repository_is_an_error() -> None:
    with pytest.raises(AttncalcError, match="is not the name of a repository"):
        config_file("org/name/more")


def test_kv_of_a_model_on_the_hub(hub: str, tmp_path: Path) -> None:
    answer = run(CLI, "kv", "org/name", "-c", "10", "--json", home=tmp_path, HF_ENDPOINT=hub)
    assert (answer.code, answer.err) == (0, "")
    assert results(answer)["kv_cache"] == 10 * 384
    assert json.loads(answer.out)["model"]["name"] == "name"
    offline = run(CLI, "kv", "org/name", "-c", "10", "--json", home=tmp_path, HF_HUB_OFFLINE="1")
    assert offline == answer


def test_a_gated_model_is_an_error_of_the_command_line(hub: str, tmp_path: Path) -> None:
    answer = run(CLI, "kv", "org/gated", home=tmp_path, HF_ENDPOINT=hub)
    assert (answer.code, answer.out) == (2, "")
    error, tip = answer.err.splitlines()
    assert error.startswith("error: org/gated: a gated model")
    assert tip.startswith("  tip: accept its terms on http://127.0.0.1")


def test_a_folder_of_the_same_name_is_preferred_to_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "org" / "name"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({**CONFIG, "num_hidden_layers": 1}))
    monkeypatch.chdir(tmp_path)
    answer = run(CLI, "kv", "org/name", "-c", "10", "--json", home=tmp_path, HF_HUB_OFFLINE="1")
    assert results(answer)["kv_cache"] == 10 * 384 // 3
