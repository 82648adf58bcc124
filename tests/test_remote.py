"""A repository on the hub: which bytes are asked for, and what each answer means. No request leaves
the test.
"""

import json
from collections.abc import Callable, Sequence

import pytest
from asking import refusal

from attncalc import AttncalcError
from attncalc.config import remote
from attncalc.config.download import Answer, DownloadError, Request
from attncalc.config.hub import Repository
from attncalc.config.remote import RemoteFile, RemoteFolder

COMMIT = "0123456789abcdef0123456789abcdef01234567"
FILE = bytes(range(100))
Server = Callable[[Request], Answer]


def ranged(request: Request, content: bytes = FILE) -> Answer:
    """Answer with the part that was asked for."""
    first = request.first or 0
    part = content[first : first + request.limit]
    where = f"bytes {first}-{first + len(part) - 1}/{len(content)}"
    return Answer(206, {"content-range": where}, part)


class Scripted:
    """Downloads whose answers a function gives, and which remembers the requests."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.requests: list[Request] = []

    def get(self, request: Request) -> Answer:
        self.requests.append(request)
        return self.server(request)

    def get_all(self, requests: Sequence[Request]) -> list[Answer]:
        return [self.get(request) for request in requests]

    def parts(self) -> list[tuple[int | None, int]]:
        """Return [(first byte, number of bytes)] of the requests since the last call."""
        parts = [(request.first, request.limit) for request in self.requests]
        self.requests.clear()
        return parts


def listing(names: Sequence[object], sha: object = COMMIT) -> Answer:
    return Answer(
        200,
        {},
        json.dumps({"sha": sha, "siblings": [{"rfilename": name} for name in names]}).encode(),
    )


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    for name in (
        "HF_ENDPOINT",
        "HF_TOKEN",
        "HUGGING_FACE_HUB_TOKEN",
        "HF_HUB_DISABLE_IMPLICIT_TOKEN",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_TOKEN_PATH", f"{tmp_path}/none")


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Scripted:
    """Return the downloads of every folder; at first they list `f`, `a/b c.GGUF` and
    `m.safetensors`.
    """
    downloads = Scripted(lambda _: listing(["f", "a/b c.GGUF", "m.safetensors"]))
    monkeypatch.setattr(remote, "Downloads", lambda: downloads)
    return downloads


@pytest.fixture
def folder(scripted: Scripted) -> RemoteFolder:
    """Return a folder whose files have the bytes 0 to 99."""
    folder = RemoteFolder(Repository("org/name"))
    scripted.requests.clear()
    scripted.server = ranged
    return folder


def message(call: Callable[[], object]) -> str:
    return refusal(call).message


# Parts of a file


def opened(folder: RemoteFolder, head: int = 10) -> RemoteFile:
    """Return a file of 100 bytes, of which the first ones are known."""
    return RemoteFile(
        folder, "f", Answer(206, {"content-range": f"bytes 0-{head - 1}/100"}, FILE[:head])
    )


@pytest.mark.parametrize(
    ("start", "end", "part"),
    [
        (0, 0, None),
        (0, 10, None),
        (3, 7, None),
        (9, 10, None),
        (7, 7, None),
        (20, 20, None),
        (30, 20, None),
        (100, 120, None),  # after the end of the file
        (0, 11, (10, 1)),
        (9, 30, (10, 20)),
        (10, 30, (10, 20)),
        (11, 30, (11, 19)),  # the bytes before it are not needed
        (90, 100, (90, 10)),
        (90, 120, (90, 10)),
    ],
)
def test_only_the_bytes_that_are_not_known_are_asked_for(
    folder: RemoteFolder, scripted: Scripted, start: int, end: int, part: tuple[int, int] | None
) -> None:
    assert opened(folder).read(start, end) == FILE[start:end]
    assert scripted.parts() == [part or ()][: part is not None]


def test_bytes_that_continue_the_beginning_are_kept_and_others_are_not(
    folder: RemoteFolder, scripted: Scripted
) -> None:
    file = opened(folder)
    file.read(50, 60)
    file.read(5, 40)
    assert scripted.parts() == [(50, 10), (10, 30)]
    assert (file.read(0, 40), file.read(39, 40)) == (FILE[:40], FILE[39:40])
    assert scripted.parts() == []
    assert file.read(38, 42) == FILE[38:42]
    assert file.read(42, 45) == file.read(42, 45) == FILE[42:45]
    assert scripted.parts() == [(40, 2), (42, 3)]


def test_the_beginning_of_a_file_may_have_as_many_bytes_as_all_answers(
    folder: RemoteFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "MAX_BYTES", 30)
    assert opened(folder).read(0, 30) == FILE[:30]
    assert opened(folder).read(31, 61) == FILE[31:61]
    with pytest.raises(AttncalcError, match="org/name/f: needs more than 0 MiB"):
        opened(folder).read(0, 31)


def test_the_error_about_a_long_beginning_has_mebibytes(folder: RemoteFolder) -> None:
    file = RemoteFile(folder, "f", Answer(206, {}, FILE))
    assert message(lambda: file.read(0, (64 << 20) + 1)) == "org/name/f: needs more than 64 MiB"


def test_an_answer_that_is_too_short_is_an_error_if_the_size_is_known(
    folder: RemoteFolder, scripted: Scripted
) -> None:
    scripted.server = lambda request: ranged(request, FILE[:25])
    assert "the answer ended early" in message(lambda: opened(folder).read(0, 26))
    assert opened(folder).read(0, 25) == FILE[:25]
    unknown = RemoteFile(folder, "f", Answer(206, {}, FILE[:10]))
    assert unknown.size is None
    assert unknown.read(0, 50) == FILE[:25]


def test_of_a_whole_file_the_part_is_taken(folder: RemoteFolder, scripted: Scripted) -> None:
    """A server that ignores ranges answers 200; the same bytes are then asked for from the first
    one.
    """
    scripted.server = lambda request: Answer(200, {}, FILE[: request.limit])
    assert opened(folder).read(40, 50) == FILE[40:50]
    assert scripted.parts() == [(40, 10), (0, 50)]


def test_a_server_that_sends_parts_only_from_the_first_byte_is_read(
    folder: RemoteFolder, scripted: Scripted
) -> None:
    scripted.server = lambda request: (
        Answer(200, {}, FILE[:5]) if request.first else ranged(request)
    )
    assert opened(folder).read(40, 50) == FILE[40:50]


def test_a_server_without_ranges_sends_at_most_a_quarter_of_all_bytes(
    folder: RemoteFolder, scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted.server = lambda request: Answer(200, {}, FILE[: request.limit])
    monkeypatch.setattr(remote, "MAX_BYTES", 200)
    assert opened(folder).read(40, 50) == FILE[40:50]  # 200 // 4
    assert "does not send parts of files" in message(lambda: opened(folder).read(40, 51))


@pytest.mark.parametrize(
    ("status", "headers", "size"),
    [
        (206, {"content-range": "bytes 0-9/100"}, 100),
        (206, {"content-range": "bytes 0-9/0"}, 0),
        (206, {"content-range": "bytes 0-9/100 "}, 100),
        (206, {"content-range": "bytes 0-9/*"}, None),
        (206, {"content-range": f"bytes 0-9/{10**19 - 1}"}, 10**19 - 1),
        (206, {"content-range": f"bytes 0-9/{10**19}"}, None),
        (206, {"content-length": "10"}, None),
        (200, {"content-length": "100"}, 100),
        (200, {"content-length": str(10**19 - 1)}, 10**19 - 1),
        (200, {"content-length": str(10**19)}, None),
        (200, {"content-length": "x"}, None),
        (200, {"content-range": "bytes 0-9/100"}, None),
        (200, {}, None),
    ],
)
def test_the_size_of_a_file_is_that_of_the_first_answer(
    folder: RemoteFolder, status: int, headers: dict[str, str], size: int | None
) -> None:
    assert RemoteFile(folder, "f", Answer(status, headers, FILE[:10])).size == size


# Files of a folder


def test_a_file_is_opened_once_with_the_bytes_of_its_header(
    folder: RemoteFolder, scripted: Scripted
) -> None:
    """Most headers of safetensors have less than 128 KiB; a GGUF file's has its vocabulary, often 1
    MiB.
    """
    folder.prepare(["m.safetensors", "a/b c.GGUF", "not there"])
    assert [
        request.url.removeprefix("https://huggingface.co") for request in scripted.requests
    ] == [f"/org/name/resolve/{COMMIT}/m.safetensors", f"/org/name/resolve/{COMMIT}/a/b%20c.GGUF"]
    assert scripted.parts() == [(0, 128 << 10), (0, 1 << 20)]
    folder.prepare(["m.safetensors", "f"])
    assert scripted.parts() == [(0, 128 << 10)]
    file = folder.open("f")
    assert file is not None
    assert (file, file.size, file.name) == (folder.open("f"), 100, "org/name/f")
    assert scripted.parts() == []
    assert folder.open("not there") is None


def test_a_file_that_is_not_prepared_is_prepared_when_it_is_opened(
    folder: RemoteFolder, scripted: Scripted
) -> None:
    file = folder.open("f")
    assert file is not None
    assert (file.size, file.read(0, 100)) == (100, FILE)
    assert scripted.parts() == [(0, 128 << 10)]


def test_a_small_file_is_read_whole_up_to_a_limit(folder: RemoteFolder, scripted: Scripted) -> None:
    scripted.server = lambda _: Answer(200, {}, FILE)
    assert folder.read("f", 4000) == FILE
    assert scripted.parts() == [(None, 4000)]
    assert folder.read("not there", 4000) is None
    assert scripted.parts() == []


def test_at_most_64_headers_of_a_complete_folder_are_read(folder: RemoteFolder) -> None:
    assert (folder.max_headers, folder.is_complete) == (64, True)


def test_a_download_that_fails_is_an_error_of_the_repository(
    folder: RemoteFolder, scripted: Scripted
) -> None:
    def fail(_: Request) -> Answer:
        raise DownloadError("no network", "plug it in")

    scripted.server = fail
    for call in (
        lambda: folder.open("f"),
        lambda: folder.read("f", 9),
        lambda: folder.request_part("f", 0, 9),
    ):
        error = refusal(call)
        assert (error.message, error.tip) == ("org/name: no network", "plug it in")


def test_an_empty_part_is_no_failure(folder: RemoteFolder, scripted: Scripted) -> None:
    """416: nothing is at that place, because the file is empty or ends before."""
    scripted.server = lambda _: Answer(416, {}, b"words of the server")
    file = folder.open("f")
    assert file is not None
    assert (file.size, file.read(0, 0)) == (None, b"")
    scripted.requests.clear()
    assert folder.request_part("f", 5, 9) == b""
    # a part, although an empty one: the whole file is not asked for
    assert scripted.parts() == [(5, 4)]


@pytest.mark.parametrize(
    ("where", "is_the_part"),
    [
        ("bytes 5-8/100", True),
        (" bytes 5-8/100 ", True),
        ("bytes 5-8/*", True),
        (f"bytes 5-{10**19 - 1}/{10**19 - 1}", True),
        (f"bytes 5-{10**19}/100", False),
        ("bytes 4-8/100", False),
        ("bytes 6-8/100", False),
        ("bytes 5-8", False),
        ("items 5-8/100", False),
        ("", False),
    ],
)
def test_a_part_starts_where_it_was_asked_to(
    folder: RemoteFolder, scripted: Scripted, where: str, is_the_part: bool
) -> None:
    scripted.server = lambda _: Answer(206, {"content-range": where}, b"5678")
    if is_the_part:
        assert folder.request_part("f", 5, 9) == b"5678"
    else:
        assert "does not answer like a Hugging Face hub" in message(
            lambda: folder.request_part("f", 5, 9)
        )


@pytest.mark.parametrize("first", [0, 5])
@pytest.mark.parametrize("status", [205, 207])
def test_another_status_is_no_part(
    folder: RemoteFolder, scripted: Scripted, status: int, first: int
) -> None:
    scripted.server = lambda _: Answer(status, {"content-range": f"bytes {first}-8/100"}, b"5678")
    assert "does not answer like a Hugging Face hub" in message(
        lambda: folder.request_part("f", first, 9)
    )


def test_a_part_is_no_answer_to_a_request_for_a_whole_file(
    folder: RemoteFolder, scripted: Scripted
) -> None:
    scripted.server = lambda _: Answer(206, {"content-range": "bytes 0-99/100"}, FILE)
    assert "does not answer like a Hugging Face hub" in message(lambda: folder.read("f", 4000))


# The listing


def test_the_listing_may_have_4_mib(scripted: Scripted) -> None:
    RemoteFolder(Repository("org/name", "refs/pr/1"))
    assert scripted.requests == [
        Request(
            "https://huggingface.co/api/models/org/name/revision/refs%2Fpr%2F1", "", 4 << 20, None
        )
    ]


@pytest.mark.parametrize(
    ("name", "is_listed"),
    [
        ("a", True),
        ("", False),
        ("n" * 500, True),
        ("n" * 501, False),
        ("a b", True),
        ("a\nb", False),
        (5, False),
    ],
)
def test_names_are_printable_and_bounded(scripted: Scripted, name: object, is_listed: bool) -> None:
    names: set[object] = {"f", name} if is_listed else {"f"}
    scripted.server = lambda _: listing([name, "f"])
    assert set(RemoteFolder(Repository("org/name")).names()) == names


@pytest.mark.parametrize(
    ("sha", "revision"),
    [
        ("a" * 6, "v%2F2"),
        ("a" * 7, "a" * 7),
        ("f0" * 32, "f0" * 32),
        ("f" * 65, "v%2F2"),
        ("g" * 40, "v%2F2"),
        ("A" * 40, "v%2F2"),
        (5, "v%2F2"),
        (None, "v%2F2"),
    ],
)
def test_files_are_of_the_commit_if_the_listing_has_one(
    scripted: Scripted, sha: object, revision: str
) -> None:
    scripted.server = lambda _: listing(["f"], sha)
    folder = RemoteFolder(Repository("org/name", "v/2"))
    scripted.server = lambda _: Answer(200, {}, FILE)
    folder.read("f", 200)
    assert scripted.requests[-1].url == f"https://huggingface.co/org/name/resolve/{revision}/f"


@pytest.mark.parametrize(("files", "allowed"), [(0, True), (100_000, True), (100_001, False)])
def test_a_repository_may_have_a_hundred_thousand_files(
    scripted: Scripted, files: int, allowed: bool
) -> None:
    answer = Answer(200, {}, b'{"siblings":[' + b",".join([b"{}"] * files) + b"]}")
    scripted.server = lambda _: answer
    if allowed:
        assert RemoteFolder(Repository("org/name")).names() == frozenset()
    else:
        assert "does not answer like" in message(lambda: RemoteFolder(Repository("org/name")))


@pytest.mark.parametrize(("names", "allowed"), [("ab", True), ("abc", True), ("abcd", False)])
def test_a_listing_has_at_most_as_many_names_as_the_limit(
    scripted: Scripted, monkeypatch: pytest.MonkeyPatch, names: str, allowed: bool
) -> None:
    monkeypatch.setattr(remote, "MAX_NAMES", 3)
    scripted.server = lambda _: listing(list(names))
    if allowed:
        assert RemoteFolder(Repository("org/name")).names() == frozenset(names)
    else:
        assert "does not answer like" in message(lambda: RemoteFolder(Repository("org/name")))


def test_long_names_are_cut_in_errors(folder: RemoteFolder) -> None:
    assert folder.label() == "org/name"
    assert folder.label("config.json") == "org/name/config.json"
    assert len(folder.label("n" * 500)) == 200


# Failures

NO_MODEL, TOKEN, TERMS = "no such model on", "does not accept this token", "accept its terms on"
# {case: (status, X-Error-Code, X-Error-Message, whether a token is set, problem, tip)}.
FAILURES: dict[str, tuple[int, str, str, bool, str, str]] = {
    "a gated model": (401, "GatedRepo", "", False, "a gated model", TERMS),
    "a gated model with a token": (403, "GatedRepo", "", True, "a gated model", TERMS),
    "a revision": (
        404,
        "RevisionNotFound",
        "",
        True,
        "has no such revision",
        "/tree/main lists them",
    ),
    "a file": (
        404,
        "EntryNotFound",
        "",
        True,
        "the repository has no f",
        "check the name of the file",
    ),
    "a file, with a status of its own": (
        401,
        "EntryNotFound",
        "",
        True,
        "the repository has no f",
        "check the name",
    ),
    "no model, with a token": (
        401,
        "RepoNotFound",
        "",
        True,
        NO_MODEL,
        "a private model needs a token",
    ),
    "no model, with a bad token": (
        401,
        "RepoNotFound",
        "Invalid user token",
        True,
        NO_MODEL,
        "check the name",
    ),
    "a model that was taken offline": (410, "RepoNotFound", "", False, NO_MODEL, "check the name"),
    "401 without a token": (401, "", "", False, NO_MODEL, "check the name"),
    "401 with a token": (401, "", "", True, TOKEN, "renew HF_TOKEN"),
    "401 with words": (401, "", "Invalid credentials", False, TOKEN, "renew HF_TOKEN"),
    "404 with a token": (404, "", "", True, NO_MODEL, "check the name"),
    "404 with words": (404, "", "Invalid credentials", False, NO_MODEL, "check the name"),
    "403": (403, "", "", True, "denies access", TERMS),
    "402": (402, "", "", True, "does not answer like", "check HF_ENDPOINT"),
    "405": (405, "", "", True, "does not answer like", "check HF_ENDPOINT"),
    "400": (400, "", "", True, "does not answer like", "check HF_ENDPOINT"),
    "429": (429, "", "", True, "allows no more requests for now", "try again in some minutes"),
    "428": (428, "", "", True, "does not answer like", "check HF_ENDPOINT"),
    "430": (430, "", "", True, "does not answer like", "check HF_ENDPOINT"),
    "499": (499, "", "", True, "does not answer like", "check HF_ENDPOINT"),
    "500": (500, "", "", True, "https://huggingface.co answered 500", "try again later"),
    "503": (503, "", "", True, "https://huggingface.co answered 503", "try again later"),
    "101": (101, "", "", True, "does not answer like", "check HF_ENDPOINT"),
    "201": (201, "", "", True, "does not answer like", "check HF_ENDPOINT"),
    "415": (415, "", "", True, "does not answer like", "check HF_ENDPOINT"),
    "417": (417, "", "", True, "does not answer like", "check HF_ENDPOINT"),
}


@pytest.mark.parametrize("case", FAILURES)
def test_a_failure_has_the_reason_that_huggingface_hub_gives(
    scripted: Scripted, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    status, code, words, has_token, problem, tip = FAILURES[case]
    if has_token:
        monkeypatch.setenv("HF_TOKEN", "hf_x")
    folder = RemoteFolder(Repository("org/name"))
    scripted.server = lambda _: Answer(
        status, {"x-error-code": code, "x-error-message": words}, b""
    )
    error = refusal(folder.read, "f", 200)
    assert problem in error.message
    assert tip in error.tip


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"retry-after": "30"}, "in 30 s"),
        ({"retry-after": "99999"}, "in 99999 s"),
        ({"retry-after": "100000"}, "in some minutes"),
        ({"retry-after": "30.5"}, "in some minutes"),
        ({"ratelimit": '"api";r=0;t=55'}, "in 55 s"),
        ({"ratelimit": '"api";r=0;t=99999'}, "in 99999 s"),
        ({"ratelimit": '"api";r=0;t=100000'}, "in some minutes"),
        ({"retry-after": "30", "ratelimit": '"api";r=0;t=55'}, "in 30 s"),
        ({}, "in some minutes"),
    ],
)
@pytest.mark.parametrize("has_token", [False, True])
def test_a_rate_limit_has_the_wait_of_the_server(
    scripted: Scripted,
    monkeypatch: pytest.MonkeyPatch,
    headers: dict[str, str],
    wait: str,
    has_token: bool,
) -> None:
    if has_token:
        monkeypatch.setenv("HF_TOKEN", "hf_x")
    scripted.server = lambda _: Answer(429, headers, b"")
    error = refusal(RemoteFolder, Repository("org/name"))
    higher = "" if has_token else "; with a token in HF_TOKEN the limit is higher"
    assert error.tip == f"try again {wait}{higher}"


# Addresses


@pytest.mark.parametrize(
    ("endpoint", "address", "secret"),
    [
        (None, "https://huggingface.co", ""),
        ("", "https://huggingface.co", ""),
        ("https://hub.example.org/", "https://hub.example.org", ""),
        ("http://hub.example.org:1/path/", "http://hub.example.org:1/path", ""),
        ("https://hub.example.org:65535", "https://hub.example.org:65535", ""),
        # base64 of 'me:' and of 'me:my secret'
        ("https://me@hub.example.org", "https://hub.example.org", "Basic bWU6"),
        (
            "https://me:my%20secret@hub.example.org:8",
            "https://hub.example.org:8",
            "Basic bWU6bXkgc2VjcmV0",
        ),
    ],
)
def test_the_endpoint_is_asked_without_its_password(
    scripted: Scripted,
    monkeypatch: pytest.MonkeyPatch,
    endpoint: str | None,
    address: str,
    secret: str,
) -> None:
    if endpoint is not None:
        monkeypatch.setenv("HF_ENDPOINT", endpoint)
    RemoteFolder(Repository("org/name"))
    request = scripted.requests[0]
    assert (request.url, request.secret) == (f"{address}/api/models/org/name/revision/main", secret)


def test_a_token_goes_before_a_password(
    scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "https://me:secret@hub.example.org")
    monkeypatch.setenv("HF_TOKEN", "hf_x")
    RemoteFolder(Repository("org/name"))
    assert scripted.requests[0].secret == "Bearer hf_x"


@pytest.mark.parametrize(
    "endpoint",
    [
        "https://h:0",
        "https://h:65536",
        "https://h?secret",
        "https://",
        "ftp://h",
        "https://é",
        "x",
        "file:///etc",
        "me:secret@h",
        "http://me:secret@",
        "http://me:secret@h:port",
        "http://[me:secret@h",
        "http://me:secret@h o",
    ],
)
def test_another_endpoint_is_an_error_without_its_password(
    scripted: Scripted, monkeypatch: pytest.MonkeyPatch, endpoint: str
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    error = refusal(RemoteFolder, Repository("org/name"))
    assert error.message == "org/name: HF_ENDPOINT is not the address of a hub"
    assert "secret" not in error.tip
    assert scripted.requests == []
