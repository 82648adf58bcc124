"""Requests to the hub from a browser's worker.

It has the names of attncalc/config/download.py and stands for it, since a browser has neither
sockets nor threads: the browser makes the request, follows redirects and keeps its own limits of
time. Nothing is asked that is not allowed.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

# Bytes that all answers for a model may have together.
MAX_BYTES = 64 << 20
_TIP = "check the connection; or download the model's config.json, and drop it on this page"
_allowed: set[str] = set()
# What the hub has answered: the same model is asked for with each letter that is typed elsewhere.
_answers: dict[Request, Answer] = {}


class AsksHubError(Exception):
    """The question needs a repository of the hub that the reader has not asked for. Its text is the
    name.
    """


class DownloadError(Exception):
    """A request that failed, as in download.py."""

    def __init__(self, problem: str, tip: str = _TIP) -> None:
        super().__init__(problem)
        self.problem = problem
        self.tip = tip


class Request(NamedTuple):
    """What to ask for, as in download.py."""

    url: str
    secret: str
    limit: int
    first: int | None = None


class Answer(NamedTuple):
    """What a server answered, as in download.py."""

    status: int
    headers: Mapping[str, str]
    content: bytes


class Downloads:
    """The requests for one model, which share a budget of bytes."""

    def __init__(self) -> None:
        self._bytes = MAX_BYTES

    def get(self, request: Request) -> Answer:
        """Return the answer to one request. Raises DownloadError if there is none, AsksHubError if
        it may not ask.
        """
        if request not in _answers:
            _answers[request] = _ask(request)
        self._bytes -= len(_answers[request].content)
        if self._bytes < 0:
            raise DownloadError(
                f"{_host_and_path(request)[0]} has sent more than {MAX_BYTES >> 20} MiB"
            )
        return _answers[request]

    def get_all(self, requests: Sequence[Request]) -> list[Answer]:
        """Return the answers to several requests."""
        return [self.get(request) for request in requests]


def allow(repositories: Iterable[str]) -> None:
    """Allow requests for these repositories, and for no others."""
    _allowed.clear()
    _allowed.update(repositories)


def install() -> None:
    """Stand for attncalc/config/download.py, which cannot be imported in a browser."""
    sys.modules["attncalc.config.download"] = sys.modules[__name__]


def _host_and_path(request: Request) -> tuple[str, str]:
    # urllib.parse takes 50 ms to import in a browser
    host, _, path = request.url.partition("://")[2].partition("/")
    return host, path


def _ask(request: Request) -> Answer:
    repository = "/".join(_host_and_path(request)[1].removeprefix("api/models/").split("/")[:2])
    if repository not in _allowed:
        raise AsksHubError(repository)
    from js import XMLHttpRequest
    from pyodide.ffi import JsException

    sent = XMLHttpRequest.new()
    sent.open("GET", request.url, False)  # a worker may wait
    sent.responseType = "arraybuffer"
    if request.first is not None:
        sent.setRequestHeader("Range", f"bytes={request.first}-{request.first + request.limit - 1}")
    try:
        sent.send()
    except JsException:
        raise DownloadError(
            f"{_host_and_path(request)[0]} cannot be reached from this page"
        ) from None
    lines = re.findall(r"(?m)^([\w-]+): *(.*?)\r?$", sent.getAllResponseHeaders() or "")
    headers = {name.lower(): value for name, value in lines}
    content = sent.response.to_bytes()[: request.limit] if sent.response else b""
    # a server may keep this header from pages of other hosts
    if sent.status == 206 and request.first is not None:
        headers.setdefault(
            "content-range", f"bytes {request.first}-{request.first + len(content)}/*"
        )
    return Answer(sent.status, headers, content)
