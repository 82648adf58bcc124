"""Which file of a repository is its model, and how the files of a folder are read."""

import os
from pathlib import Path

import pytest
from asking import refusal

from attncalc import AttncalcError
from attncalc.config import source
from attncalc.config.folder import POINTER, LocalFile, LocalFolder
from attncalc.config.hub import Repository
from attncalc.config.source import Source, repository_source

COMMIT = "0123456789abcdef0123456789abcdef01234567"
CONFIG = "config.json"


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return the folder that is every repository."""
    monkeypatch.setattr(source, "_folder_of", lambda _: LocalFolder(tmp_path))
    return tmp_path


def write(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).write_bytes(name.encode())


def model_file(wanted: str = "", revision: str = "main") -> Source:
    return repository_source(Repository("org/name", revision, wanted))


def error(wanted: str = "") -> AttncalcError:
    return refusal(model_file, wanted)


GGUF = "m-Q8_0.gguf"
WEIGHTS = "model.safetensors"


@pytest.mark.parametrize(
    ("wanted", "names", "file"),
    [
        ("", [CONFIG], CONFIG),
        ("", ["params.json"], "params.json"),
        ("", ["params.json", CONFIG], CONFIG),
        ("", ["modules.json", "adapter_config.json"], "adapter_config.json"),
        ("", [GGUF], GGUF),
        ("", [GGUF, CONFIG], GGUF),
        ("", [GGUF, CONFIG, WEIGHTS], CONFIG),
        ("", ["mmproj-F16.gguf", CONFIG], CONFIG),
        (CONFIG, [GGUF, CONFIG], CONFIG),
        ("params.json", [CONFIG, "params.json"], "params.json"),
        ("other.json", [CONFIG, "other.json"], "other.json"),
        (GGUF, [GGUF, CONFIG, WEIGHTS], GGUF),
        ("Q8_0", [GGUF, CONFIG, WEIGHTS], GGUF),
        # the addresses of pages with weights
        (WEIGHTS, [CONFIG, WEIGHTS], CONFIG),
        ("pytorch_model.bin", [CONFIG, "pytorch_model.bin"], CONFIG),
        ("model.safetensors.index.json", [CONFIG, "model.safetensors.index.json"], CONFIG),
    ],
)
def test_a_repository_has_one_model_file(
    folder: Path, wanted: str, names: list[str], file: str
) -> None:
    write(folder, *names)
    found = model_file(wanted)
    assert found.file == str(folder / file)
    if file == GGUF:
        assert ([part.name for part in found.gguf], found.name) == ([str(folder / file)], "m-Q8_0")
    else:
        assert (found.content, found.gguf, found.name) == (file.encode(), (), "name")


@pytest.mark.parametrize(
    ("wanted", "has_weights"),
    [("", True), (CONFIG, False), (WEIGHTS, True), ("a.safetensors", True)],
)
def test_weights_are_read_unless_a_model_file_is_named(
    folder: Path, wanted: str, has_weights: bool
) -> None:
    """'model.safetensors' and 'a.safetensors' sort after and before 'config.json'."""
    write(folder, CONFIG, WEIGHTS)
    found = model_file(wanted)
    assert (found.folder is not None, found.beside is not None) == (has_weights, True)


def test_files_beside_a_config_of_a_subfolder_are_not_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "sub").mkdir()
    write(folder, CONFIG, "sub/config.json")
    monkeypatch.setattr(LocalFolder, "names", lambda _: frozenset({CONFIG, "sub/config.json"}))
    assert model_file("sub/config.json").beside is None
    assert model_file().beside is not None


@pytest.mark.parametrize(
    ("revision", "name"),
    [
        ("main", "name"),
        ("a", "name@a"),
        ("z", "name@z"),
        (COMMIT, "name@0123456789ab"),
        (COMMIT[:39], f"name@{COMMIT[:39]}"),
    ],
)
def test_a_model_is_named_by_another_revision(folder: Path, revision: str, name: str) -> None:
    write(folder, CONFIG)
    assert model_file(revision=revision).name == name


@pytest.mark.parametrize("wanted", ["x.json", "Q4_0", "x.gguf", "README.md"])
def test_a_file_that_is_not_there_is_an_error(folder: Path, wanted: str) -> None:
    write(folder, CONFIG, "README.md")
    assert (
        error(wanted).message
        == f"org/name:{wanted}: the repository has no such file or quantization"
    )
    assert error(wanted).tip == f"leave ':{wanted}' out"


def test_the_error_lists_twenty_quantizations(folder: Path) -> None:
    write(folder, *(f"m-Q{i}.gguf" for i in range(10, 31)))
    assert error("F16").tip == "it has " + ", ".join(f"Q{i}" for i in range(10, 30))


@pytest.mark.parametrize(
    ("number", "listed"),
    [
        (0, "no files"),
        (4, "a, b, c, d"),
        (5, "a, b, c, d, e"),
        (6, "a, b, c, d, e, ..."),
        (7, "a, b, c, d, e, ..."),
    ],
)
def test_the_error_about_no_model_lists_five_files(folder: Path, number: int, listed: str) -> None:
    write(folder, *"gfedcba"[7 - number :])
    assert error().message.endswith(f"(it has {listed})")


def test_a_model_file_that_git_lfs_did_not_fetch_is_an_error(folder: Path) -> None:
    (folder / CONFIG).write_bytes(POINTER + b".github.com/spec/v1")
    assert error().message == "org/name: config.json cannot be read"


@pytest.mark.parametrize(("missing", "such_as"), [([2], 2), ([1, 3], 1), ([2, 3], 2)])
def test_all_parts_of_a_gguf_model_are_needed(
    folder: Path, missing: list[int], such_as: int
) -> None:
    names = [f"m-0000{i}-of-00003.gguf" for i in range(1, 4)]
    write(folder, *names)
    assert [Path(part.name).name for part in model_file(names[0]).gguf] == names
    for i in missing:
        (folder / names[i - 1]).write_bytes(POINTER)
    text = f"{len(missing)} of its 3 files are missing, such as {names[such_as - 1]}"
    assert error(names[0]).message == f"{folder / names[0]}: {text}"


@pytest.mark.parametrize("offline", [False, True])
def test_the_cache_is_used_when_requests_are_switched_off(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, offline: bool
) -> None:
    snapshot = tmp_path / "models--org--name" / "snapshots" / "main"
    snapshot.mkdir(parents=True)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", str(int(offline)))
    if offline:
        assert error().message == "org/name: not in the local cache, and HF_HUB_OFFLINE is set"
    write(snapshot, CONFIG)
    assert model_file().file == str(snapshot / CONFIG)


# Files of a folder


def test_bytes_of_a_file_are_read_from_and_to_a_place(tmp_path: Path) -> None:
    write(tmp_path, "0123456789")
    file = LocalFile(tmp_path / "0123456789")
    assert (file.size, file.name) == (10, str(tmp_path / "0123456789"))
    assert (file.read(3, 5), file.read(8, 20), file.read(0, 0)) == (b"34", b"89", b"")


def test_a_file_is_read_to_one_byte_beyond_the_limit(tmp_path: Path) -> None:
    write(tmp_path, "0123456789")
    folder = LocalFolder(tmp_path)
    assert folder.read("0123456789", 4) == b"01234"
    assert folder.read("0123456789", 10) == b"0123456789"
    assert folder.read("other", 4) is None


def test_a_folder_on_disk_is_complete_and_reads_all_headers(tmp_path: Path) -> None:
    write(tmp_path, "a", "b")
    folder = LocalFolder(tmp_path)
    assert (folder.is_complete, folder.max_headers) == (True, None)
    assert sorted(folder.names()) == ["a", "b"]
    assert (folder.label(), folder.label("a")) == (str(tmp_path), str(tmp_path / "a"))


@pytest.mark.parametrize(
    ("content", "is_file"),
    [
        (b"", True),
        (b"a", True),
        (b"z", True),
        (POINTER, False),
        (POINTER + b"x", False),
        (b"x" + POINTER, True),
    ],
)
def test_a_pointer_of_git_lfs_is_no_file(tmp_path: Path, content: bytes, is_file: bool) -> None:
    (tmp_path / "f").write_bytes(content)
    assert (LocalFolder(tmp_path).open("f") is not None) is is_file


def test_a_link_is_the_file_that_it_leads_to(tmp_path: Path) -> None:
    write(tmp_path, "target")
    os.symlink(tmp_path / "target", tmp_path / "link")
    os.symlink(tmp_path / "nothing", tmp_path / "dead")
    folder = LocalFolder(tmp_path)
    assert folder.read("link", 9) == b"target"
    assert folder.open("dead") is None


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="a system without named pipes")
def test_a_named_pipe_is_no_model(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    # with a writer, opening it does not wait
    writer = os.open(tmp_path / "pipe", os.O_RDWR | os.O_NONBLOCK)
    error = refusal(LocalFolder(tmp_path).open, "pipe")
    os.close(writer)
    assert error.message == f"{tmp_path / 'pipe'}: not a file"


def test_what_cannot_be_read_is_an_error_with_its_reason(tmp_path: Path) -> None:
    write(tmp_path, "file")
    (tmp_path / "folder").mkdir()
    for call, path, reason in (
        (lambda: LocalFolder(tmp_path).open("folder"), "folder", "is a directory"),
        (lambda: LocalFolder(tmp_path / "file").names(), "file", "not a directory"),
        (lambda: LocalFile(tmp_path / "none"), "none", "no such file or directory"),
        (lambda: LocalFile(tmp_path / "a\0b"), "a?b", "cannot be read"),
    ):
        assert refusal(call).message.lower() == f"{tmp_path / path}: {reason}".lower()
