"""Requests for files of the hub: their headers, redirects and bounds. The server and the clock are
simulated.
"""

import http.client
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from queue import SimpleQueue
from typing import Any

import pytest

from attncalc.config import download
from attncalc.config.download import Answer, DownloadError, Downloads, Request

HUB = "https://hub.org/file"
GZIP = {"Content-Encoding": "gzip"}


class Response:
    """An answer whose body has `size` bytes, which arrive after `wait` seconds each time."""

    def __init__(
        self, size: int = 0, *, status: int = 200, headers: Mapping[str, str] = {}, wait: float = 0
    ) -> None:
        self.status, self.headers, self.size, self.wait = status, headers, size, wait
        self.read = 0

    def __enter__(self) -> "Response":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def read1(self, most: int) -> bytes:
        Clock.now += self.wait
        size = min(most, self.size - self.read)
        self.read += size
        return bytes(size)


class Clock:
    """The seconds that have passed."""

    now = 0.0


class Server:
    """Answers each request with the next response or failure, and remembers the requests."""

    def __init__(self) -> None:
        self.answers: list[Response | Exception] = []
        self.requests: list[urllib.request.Request] = []
        self.timeouts: list[float] = []

    def open(self, request: urllib.request.Request, timeout: float) -> Response:
        self.requests.append(request)
        self.timeouts.append(timeout)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def get(self, *answers: Response | Exception, url: str = HUB, **options: Any) -> Answer:
        """Return the answer to one request of a new model."""
        self.answers = list(answers)
        return Downloads().get(request(url, **options))

    def sent(self, header: str) -> list[str | None]:
        return [request.get_header(header) for request in self.requests]


class Inline:
    """A thread that runs as soon as it is started."""

    def __init__(self, target: Callable[[], None], daemon: bool) -> None:
        assert daemon  # an abandoned request must not keep the process alive
        self.start = target


@pytest.fixture(autouse=True)
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    server = Server()
    Clock.now = 1000.0
    monkeypatch.setattr(download, "_opener", lambda: server)
    monkeypatch.setattr(download, "Thread", Inline)
    monkeypatch.setattr(download, "monotonic", lambda: Clock.now)
    for name in ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    return server


def request(
    url: str = HUB, *, secret: str = "", limit: int = 1000, first: int | None = None
) -> Request:
    return Request(url, secret, limit, first)


def problem(call: Callable[[], object]) -> str:
    with pytest.raises(DownloadError) as raised:
        call()
    return raised.value.problem


def length(size: int | str) -> dict[str, str]:
    return {"Content-Length": str(size)}


# Requests


def test_a_request_has_its_headers_and_asks_for_no_compression(server: Server) -> None:
    server.get(Response())
    sent = dict(server.requests[0].header_items())
    assert sent.pop("User-agent").startswith("attncalc/")
    assert sent == {"Accept-encoding": "identity"}


def test_a_part_is_asked_for_by_its_first_and_last_byte(server: Server) -> None:
    server.get(Response(), first=10, limit=5)
    server.get(Response(), first=0, limit=1)
    assert server.sent("Range") == ["bytes=10-14", "bytes=0-0"]


def test_eight_requests_run_at_the_same_time(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []

    class Watched(SimpleQueue[Any]):
        def put(self, item: Any, *_: object, **__: object) -> None:
            events.append("start")
            super().put(item)

        def get(self, *_: object, **__: object) -> Any:
            events.append("wait")
            return super().get()

    monkeypatch.setattr(download, "SimpleQueue", Watched)
    server.answers = [Response(status=status) for status in range(400, 417)]
    answers = Downloads().get_all([request(f"{HUB}{i}") for i in range(17)])
    assert [answer.status for answer in answers] == list(range(400, 417))
    assert [sent.full_url for sent in server.requests] == [f"{HUB}{i}" for i in range(17)]
    assert events == (["start"] * 8 + ["wait"] * 8) * 2 + ["start", "wait"]
    assert Downloads().get_all([]) == []


# Redirects


@pytest.mark.parametrize("status", range(300, 310))
def test_five_statuses_are_redirects(server: Server, status: int) -> None:
    answer = server.get(Response(9, status=status, headers={"Location": "/other"}), Response(5))
    is_redirect = status in (301, 302, 303, 307, 308)
    assert (answer.status, len(answer.content)) == ((200, 5) if is_redirect else (status, 9))
    assert [sent.full_url for sent in server.requests] == [HUB, "https://hub.org/other"][
        : 1 + is_redirect
    ]


def test_the_body_of_a_redirect_is_not_read(server: Server) -> None:
    redirect = Response(9, status=302, headers={"Location": "/other", **GZIP})
    server.get(redirect, Response(5))
    assert redirect.read == 0


def test_five_redirects_are_followed_and_a_sixth_is_an_error(server: Server) -> None:
    redirects = [Response(status=302, headers={"Location": f"/{i}"}) for i in range(6)]
    assert server.get(*redirects[:5], Response(5)).status == 200
    assert (
        problem(lambda: server.get(*redirects, Response(5)))
        == "hub.org redirects more than 5 times"
    )


@pytest.mark.parametrize(
    ("url", "location", "target"),
    [
        ("https://hub.org/a", "b", "https://hub.org/b"),
        ("https://hub.org/a", "https://cdn.org/b", "https://cdn.org/b"),
        ("http://hub.org/a", "http://cdn.org/b", "http://cdn.org/b"),
        ("http://hub.org/a", "https://cdn.org/b", "https://cdn.org/b"),
        (
            "https://hub.org/a",
            "http://hub.org/b",
            "redirects from https to http, which is not followed",
        ),
        (
            "https://hub.org/a",
            "ftp://hub.org/b",
            "redirects from https to ftp, which is not followed",
        ),
        (
            "http://hub.org/a",
            "ftp://hub.org/b",
            "redirects from http to ftp, which is not followed",
        ),
        ("https://hub.org/a", "", "redirects to no valid address"),
        ("https://hub.org/a", "https://:8443/b", "redirects to no valid address"),
        ("https://hub.org/a", "https://me:secret@hub.org/b", "redirects to no valid address"),
        ("https://hub.org/a", "/é", "redirects to no valid address"),
        ("https://hub.org/a", "https://[x", "redirects to no valid address"),
    ],
)
def test_a_redirect_stays_on_https_and_has_a_plain_address(
    server: Server, url: str, location: str, target: str
) -> None:
    answers = Response(status=302, headers={"Location": location}), Response()
    if target.startswith("redirects"):
        assert problem(lambda: server.get(*answers, url=url)) == f"hub.org {target}"
        assert len(server.requests) == 1
    else:
        server.get(*answers, url=url)
        assert server.requests[1].full_url == target


@pytest.mark.parametrize(
    ("location", "is_sent"),
    [
        ("/other", True),
        ("https://hub.org/other", True),
        ("https://a.org/other", False),
        ("https://z.org/other", False),
        ("https://hub.org:8443/other", False),
        ("https://hub.org:1/other", False),
    ],
)
def test_only_the_host_that_was_asked_receives_the_token(
    server: Server, location: str, is_sent: bool
) -> None:
    server.get(Response(status=307, headers={"Location": location}), Response(), secret="Bearer x")
    assert server.sent("Authorization") == ["Bearer x", "Bearer x" if is_sent else None]


# Bounds of an answer


@pytest.mark.parametrize(
    ("status", "most"), [(200, 100_000), (201, 65_536), (404, 65_536), (500, 65_536)]
)
def test_of_a_failure_only_64_kib_are_read(server: Server, status: int, most: int) -> None:
    answer = server.get(Response(100_000, status=status), limit=200_000)
    assert (answer.status, len(answer.content)) == (status, most)


@pytest.mark.parametrize(("status", "most"), [(206, 100_000), (205, 65_536), (207, 65_536)])
def test_a_part_is_a_file_too(server: Server, status: int, most: int) -> None:
    answer = server.get(Response(150_000, status=status), limit=100_000, first=0)
    assert len(answer.content) == most


def test_a_compressed_file_is_an_error_and_a_compressed_failure_is_not(server: Server) -> None:
    compressed = "hub.org sends a compressed answer, which is not read"
    assert problem(lambda: server.get(Response(5, headers=GZIP))) == compressed
    assert problem(lambda: server.get(Response(5, status=206, headers=GZIP), first=0)) == compressed
    assert server.get(Response(5, status=404, headers=GZIP)).status == 404
    assert server.get(Response(5, headers={"Content-Encoding": "identity"})).status == 200


TOO_LONG = "hub.org answers with more than 1,000 bytes"
EARLY = "hub.org ended its answer early"


@pytest.mark.parametrize(
    ("size", "said", "error"),
    [
        (1000, None, ""),
        (1001, None, TOO_LONG),
        (5, None, ""),
        (1000, "1000", ""),
        (999, "999", ""),
        (999, "1000", EARLY),
        (0, "1", EARLY),
        (0, "0", ""),
        (0, "1001", TOO_LONG),
        (5, "x", ""),
        (5, "-1", ""),
        (5, "0" * 19 + "5", ""),  # 20 digits, as 2^64 has
        (5, "0" * 20 + "5", TOO_LONG),
        (5, "9" * 5000, TOO_LONG),
        (5, "3", ""),
    ],
)
def test_a_file_has_at_most_the_bytes_of_the_limit_and_all_that_it_names(
    server: Server, size: int, said: str | None, error: str
) -> None:
    response = Response(size, headers={} if said is None else length(said))
    if error:
        assert problem(lambda: server.get(response)) == error
    else:
        assert len(server.get(response).content) == size


def test_one_byte_more_than_the_limit_shows_that_a_file_is_too_long(server: Server) -> None:
    response = Response(10**9)
    assert problem(lambda: server.get(response)) == TOO_LONG
    assert response.read == 1001


@pytest.mark.parametrize(
    ("status", "headers"), [(206, length(5000)), (200, {}), (200, length(10**9)), (206, length(9))]
)
def test_of_a_part_no_more_than_was_asked_for_is_read(
    server: Server, status: int, headers: dict[str, str]
) -> None:
    """A server that ignores the range answers 200 with the whole file."""
    response = Response(10**9, status=status, headers=headers)
    assert len(server.get(response, first=5).content) == response.read == 1000


def test_the_length_of_a_failure_is_no_error(server: Server) -> None:
    assert server.get(Response(5, status=404, headers=length(10**9))).content == bytes(5)


# Bounds of all answers


def test_all_answers_together_have_at_most_64_mib(server: Server) -> None:
    assert problem(lambda: server.get(Response(headers=length(64 << 20)), limit=1 << 30)) == EARLY
    too_long = problem(lambda: server.get(Response(headers=length((64 << 20) + 1)), limit=1 << 30))
    assert too_long == "hub.org answers with more than 67,108,864 bytes"


def test_the_bytes_of_several_answers_are_added(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "MAX_BYTES", 100)
    downloads = Downloads()
    server.answers = [Response(60), Response(40), Response(headers=length(1)), Response(1)]
    assert [len(downloads.get(request()).content) for _ in range(2)] == [60, 40]
    assert problem(lambda: downloads.get(request())) == "hub.org answers with more than 0 bytes"
    assert problem(lambda: downloads.get(request())) == "hub.org has sent more than 0 MiB"


def test_the_error_about_all_answers_has_mebibytes(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "MAX_BYTES", 3 << 20)
    response = Response(1 << 30)
    assert (
        problem(lambda: server.get(response, limit=1 << 29)) == "hub.org has sent more than 3 MiB"
    )
    assert response.read == (3 << 20) + (1 << 16)


@pytest.mark.parametrize(
    ("waits", "in_time"), [((60.0,), True), ((30.0, 30.0), True), ((30.0, 30.5), False)]
)
def test_all_answers_together_take_at_most_a_minute(
    server: Server, waits: tuple[float, ...], in_time: bool
) -> None:
    """A body is complete when the next read has no bytes, so the time is checked once more after
    the last ones.
    """
    downloads = Downloads()
    server.answers = [Response(1, status=404, wait=wait / 2) for wait in waits]
    if in_time:
        for _ in waits:
            assert downloads.get(request()).content == bytes(1)
    else:
        downloads.get(request())
        assert (
            problem(lambda: [downloads.get(request()), downloads.get(request())])
            == "hub.org takes longer than 60 s"
        )


@pytest.mark.parametrize(("wait", "in_time"), [(60.0, True), (60.5, False)])
def test_bytes_that_arrive_at_the_end_of_the_minute_are_in_time(
    server: Server, wait: float, in_time: bool
) -> None:
    response = Response(1, status=404, wait=wait)
    if in_time:
        assert server.get(response).content == bytes(1)
    else:
        assert problem(lambda: server.get(response)) == "hub.org takes longer than 60 s"


def test_a_silent_server_has_ten_seconds(server: Server) -> None:
    assert problem(lambda: server.get(TimeoutError())) == "hub.org does not answer within 10 s"
    assert server.timeouts == [10.0]


def test_an_answer_that_does_not_come_is_given_up(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Never(SimpleQueue[Any]):
        def put(self, item: Any, *_: object, **__: object) -> None:
            Clock.now += 20

        def get(self, block: bool = True, timeout: float | None = None) -> Any:
            timeouts.append(timeout)
            return super().get(timeout=0)

    timeouts: list[float | None] = []
    monkeypatch.setattr(download, "SimpleQueue", Never)
    server.answers = [Response()]
    downloads = Downloads()
    for _ in range(4):
        assert problem(lambda: downloads.get(request())) == "hub.org takes longer than 60 s"
    assert timeouts == [40, 20, 0, 0]  # what is left of a minute, and never less than nothing


# Failures


def verification(reason: str) -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, reason)
    error.verify_message = reason
    return error


def named(reason: str | None) -> ssl.SSLError:
    error = ssl.SSLError(1, "words")
    error.reason = reason  # type: ignore[assignment]
    return error


NOT_THE_WEB = "hub.org ended its answer early, or does not answer as a web server"


@pytest.mark.parametrize(
    ("error", "message", "tip"),
    [
        (verification("expired"), "no safe connection to hub.org: expired", "SSL_CERT_FILE"),
        (named("WRONG_VERSION"), "no safe connection to hub.org: WRONG_VERSION", "SSL_CERT_FILE"),
        (named(None), "no safe connection to hub.org: it failed", "SSL_CERT_FILE"),
        (TimeoutError(), "hub.org does not answer within 10 s", "try again later"),
        (
            socket.gaierror(),
            "hub.org cannot be found: there is no network, or no such host",
            "check the connection;",
        ),
        (http.client.BadStatusLine("x"), NOT_THE_WEB, "check the connection;"),
        (ConnectionResetError(), NOT_THE_WEB, "check the connection;"),
        (ValueError("secret"), NOT_THE_WEB, "check the connection;"),
        (
            OSError("Tunnel connection failed: 407 Proxy Authentication Required"),
            "the proxy refuses a connection to hub.org: 407 Proxy Authentication Required",
            "check the connection;",
        ),
        (
            ConnectionRefusedError(111, "Refused"),
            "hub.org cannot be reached: refused",
            "check the connection;",
        ),
        (OSError(), "hub.org cannot be reached: oserror", "check the connection;"),
        (RuntimeError("secret"), "hub.org cannot be reached: RuntimeError", "try again later"),
    ],
)
@pytest.mark.parametrize("wrapped", [False, True])
def test_a_failure_has_its_reason_and_a_tip(
    server: Server, error: Exception, message: str, tip: str, wrapped: bool
) -> None:
    # as urllib does
    failure = urllib.error.URLError(error) if wrapped and isinstance(error, OSError) else error
    with pytest.raises(DownloadError) as raised:
        server.get(failure)
    assert raised.value.problem == message
    assert tip in raised.value.tip


def test_a_failure_that_is_only_words_is_named(server: Server) -> None:
    assert (
        problem(lambda: server.get(urllib.error.URLError("unknown")))
        == "hub.org cannot be reached: str"
    )


@pytest.mark.parametrize(
    ("variables", "tip"),
    [
        ((), "check the connection;"),
        (("ALL_PROXY",), "check the connection and the proxy in ALL_PROXY;"),
        (("all_proxy", "HTTPS_PROXY"), "check the connection and the proxy in HTTPS_PROXY;"),
        (("https_proxy", "all_proxy"), "check the connection and the proxy in https_proxy;"),
    ],
)
def test_the_tip_names_the_proxy(
    server: Server, monkeypatch: pytest.MonkeyPatch, variables: tuple[str, ...], tip: str
) -> None:
    for variable in variables:
        monkeypatch.setenv(variable, "http://me:secret@proxy")
    with pytest.raises(DownloadError) as raised:
        server.get(ConnectionRefusedError(111, "Refused"))
    assert raised.value.tip.startswith(tip)
    assert "secret" not in raised.value.tip
