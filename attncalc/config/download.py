"""HTTPS requests that are bounded in bytes, time and redirects, with the standard library only.

Whoever answers may be hostile or broken. Nothing is written to disk, nothing is decompressed, and a
request never leaves https for another scheme.
"""

import http.client
import os
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from time import monotonic
from typing import Any
from urllib.parse import urljoin, urlsplit

from .. import __version__
from ..records import NamedTuple
from ..units import truncate

# Seconds without a byte after which a server counts as gone.
PATIENCE = 10.0
# Seconds that all requests of a model may take together.
MAX_SECONDS = 60.0
# Bytes that all answers for a model may have together.
MAX_BYTES = 64 << 20
_MAX_REDIRECTS = 5
# Requests that are made at the same time.
_PARALLEL = 8

_REDIRECTS = (301, 302, 303, 307, 308)
_CHUNK = 1 << 16
# How http.client begins its error about a proxy.
_NO_TUNNEL = "Tunnel connection failed: "
_AGAIN = "try again later"
_CERTIFICATES = "check the clock; SSL_CERT_FILE names the file with the certificates to trust"


class DownloadError(Exception):
    """A request that failed.

    Attributes:
        problem: What happened, in one line without a secret.
        tip: What to do about it.
    """

    def __init__(self, problem: str, tip: str = _AGAIN) -> None:
        super().__init__(problem)
        self.problem = problem
        self.tip = tip


class Request(NamedTuple):
    url: str  # the address, without a password
    # the value of the Authorization header, which only the host of `url` receives; '' for none
    secret: str
    limit: int  # bytes of the answer's body that are read at most
    # The first byte that is asked for; the last is `first + limit - 1`. None for the whole file.
    first: int | None = None


class Answer(NamedTuple):
    status: int  # the HTTP status, of the last host if there were redirects
    headers: Mapping[str, str]  # its headers, with small letters
    # its body: of a failure at most some kilobytes, and the beginning if the server ignored the
    # range
    content: bytes


class Downloads:
    """The requests for one model, which share a budget of bytes and time."""

    def __init__(self) -> None:
        self._end = monotonic() + MAX_SECONDS
        self._bytes = MAX_BYTES
        self._lock = Lock()
        self._opener = _opener()

    def get(self, request: Request) -> Answer:
        """Return the answer to one request. Raises DownloadError if there is none, or it breaks a
        limit.
        """
        return self.get_all([request])[0]

    def get_all(self, requests: Sequence[Request]) -> list[Answer]:
        """Return the answers to several requests, of which a few run at the same time. Raises
        DownloadError.
        """
        answers: list[Answer] = []
        for i in range(0, len(requests), _PARALLEL):
            started = [self._start(request) for request in requests[i : i + _PARALLEL]]
            answers += [finish() for finish in started]
        return answers

    def _start(self, request: Request) -> Callable[[], Answer]:
        """Start a request, and return the function that waits for its answer.

        It runs in a thread of its own, because no timeout of Python's covers the look-up of the
        name, the handshake of TLS and headers that arrive byte by byte. The thread is abandoned
        when the time is over.
        """
        outcome: SimpleQueue[Answer | DownloadError] = SimpleQueue()

        def run() -> None:
            try:
                outcome.put(self._follow(request))
            except DownloadError as error:
                outcome.put(error)
            # its message may contain the address of a proxy with its password
            except Exception as error:
                outcome.put(
                    DownloadError(f"{_host(request.url)} cannot be reached: {type(error).__name__}")
                )

        Thread(target=run, daemon=True).start()

        def finish() -> Answer:
            try:
                result = outcome.get(timeout=max(0.0, self._end - monotonic()))
            except Empty:
                raise self._too_slow(request.url) from None
            if isinstance(result, DownloadError):
                raise result
            return result

        return finish

    def _follow(self, request: Request) -> Answer:
        url = request.url
        for _ in range(_MAX_REDIRECTS + 1):
            answer = self._ask(request, url)
            if answer.status not in _REDIRECTS:
                return answer
            url = _next_url(url, answer.headers.get("location", ""))
        raise DownloadError(f"{_host(request.url)} redirects more than {_MAX_REDIRECTS} times")

    def _ask(self, request: Request, url: str) -> Answer:
        headers = {"User-Agent": f"attncalc/{__version__}", "Accept-Encoding": "identity"}
        if request.secret and _origin(url) == _origin(request.url):
            headers["Authorization"] = request.secret
        if request.first is not None:
            headers["Range"] = f"bytes={request.first}-{request.first + request.limit - 1}"
        try:
            with self._opener.open(
                urllib.request.Request(url, headers=headers), timeout=PATIENCE
            ) as response:
                received = {name.lower(): value for name, value in response.headers.items()}
                return Answer(
                    response.status, received, self._body(request, url, response, received)
                )
        except DownloadError:
            raise
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise _failure(url, error) from None

    def _body(self, request: Request, url: str, response: Any, headers: Mapping[str, str]) -> bytes:
        """Return the body, of a failure and of a range at most its beginning."""
        is_file = response.status in (200, 206)
        if response.status in _REDIRECTS:
            return b""
        if is_file and headers.get("content-encoding", "identity") != "identity":
            raise DownloadError(f"{_host(url)} sends a compressed answer, which is not read")
        limit = request.limit if is_file else _CHUNK
        is_whole = is_file and request.first is None
        length = headers.get("content-length", "")
        if (
            is_whole
            and length.isdecimal()
            and (len(length) > 20 or int(length) > min(limit, self._bytes))
        ):
            raise _too_long(url, min(limit, self._bytes))
        content = self._read(response, url, limit + 1 if is_whole else limit)
        if is_whole and len(content) > limit:
            raise _too_long(url, limit)
        if is_whole and length.isdecimal() and len(content) < int(length):
            raise DownloadError(f"{_host(url)} ended its answer early")
        return content

    def _read(self, response: Any, url: str, limit: int) -> bytes:
        chunks: list[bytes] = []
        remaining = limit
        while remaining:
            if monotonic() > self._end:
                raise self._too_slow(url)
            chunk = response.read1(min(remaining, _CHUNK))
            if not chunk:
                break
            chunks.append(chunk)
            remaining -= len(chunk)
            with self._lock:
                self._bytes -= len(chunk)
            if self._bytes < 0:
                raise DownloadError(
                    f"{_host(url)} has sent more than {MAX_BYTES >> 20} MiB", _AGAIN
                )
        return b"".join(chunks)

    def _too_slow(self, url: str) -> DownloadError:
        return DownloadError(f"{_host(url)} takes longer than {MAX_SECONDS:g} s")


def _opener() -> urllib.request.OpenerDirector:
    """Return what opens http and https addresses, through the proxies of the environment, and
    returns every status.

    Python's own opener would follow redirects to ftp too, and send the token along.
    """
    opener = urllib.request.OpenerDirector()
    variable = next(
        (name for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE") if os.environ.get(name)), ""
    )
    try:
        context = ssl.create_default_context(cafile=os.environ.get(variable))
    except OSError:
        raise DownloadError(
            f"the file in {variable} has no certificates", f"correct {variable}, or unset it"
        ) from None
    opener.add_handler(urllib.request.ProxyHandler())
    opener.add_handler(urllib.request.HTTPHandler())
    opener.add_handler(urllib.request.HTTPSHandler(context=context))
    opener.add_handler(urllib.request.UnknownHandler())
    return opener


def _next_url(url: str, location: str) -> str:
    """Return where a redirect leads. Raises DownloadError if it leaves https, or contains a
    password.
    """
    try:
        target = urljoin(url, location)
        parts = urlsplit(target)
        is_safe = parts.scheme == "https" or (
            parts.scheme == "http" and urlsplit(url).scheme == "http"
        )
        is_plain = (
            bool(location and parts.hostname) and "@" not in parts.netloc and target.isascii()
        )
    except ValueError:
        is_safe = True
        is_plain = False
        parts = urlsplit("")
    if not is_safe:
        schemes = f"{urlsplit(url).scheme} to {truncate(parts.scheme, 20)}"
        raise DownloadError(f"{_host(url)} redirects from {schemes}, which is not followed")
    if not is_plain:
        raise DownloadError(f"{_host(url)} redirects to no valid address")
    return target


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port


def _host(url: str) -> str:
    """Return the part of an address that errors name."""
    return truncate(urlsplit(url).hostname or "the hub", 80)


def _too_long(url: str, limit: int) -> DownloadError:
    return DownloadError(f"{_host(url)} answers with more than {limit:,} bytes")


def _failure(url: str, error: Exception) -> DownloadError:
    host = _host(url)
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    text = str(cause)
    proxies = [
        name
        for name in ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")
        if os.environ.get(name)
    ]
    if proxies:
        check = f"check the connection and the proxy in {proxies[0]}"
    else:
        check = "check the connection"
    tip = f"{check}; without a network, give the path of the model's config.json"
    if isinstance(cause, ssl.SSLError):
        reason = getattr(cause, "verify_message", "") or cause.reason or "it failed"
        problem = f"no safe connection to {host}: {truncate(reason, 80)}"
        tip = _CERTIFICATES
    elif isinstance(cause, TimeoutError):
        problem = f"{host} does not answer within {PATIENCE:g} s"
        tip = _AGAIN
    elif isinstance(cause, socket.gaierror):
        problem = f"{host} cannot be found: there is no network, or no such host"
    elif isinstance(cause, (http.client.HTTPException, ConnectionResetError, ValueError)):
        problem = f"{host} ended its answer early, or does not answer as a web server"
    elif text.startswith(_NO_TUNNEL):  # the proxy's status: '407 Proxy Authentication Required'
        problem = (
            f"the proxy refuses a connection to {host}: "
            f"{truncate(text.removeprefix(_NO_TUNNEL), 60)}"
        )
    else:
        reason = (cause.strerror if isinstance(cause, OSError) else None) or type(cause).__name__
        problem = f"{host} cannot be reached: {truncate(reason, 80).lower()}"
    return DownloadError(problem, tip)
