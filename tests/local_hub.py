"""A Hugging Face hub on this machine, which can misbehave."""

import json
import re
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any, NamedTuple
from urllib.parse import unquote

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Sparse(NamedTuple):
    """A file of which only the beginning matters; the rest is zeros."""

    head: bytes
    size: int

    def part(self, start: int, end: int) -> bytes:
        end = min(end, self.size)
        head = self.head[start:end]
        return head + bytes(min(max(0, end - start - len(head)), 1 << 22))


class Seen(NamedTuple):
    """A request that arrived."""

    path: str
    token: str
    range: str


Behaviour = Callable[["Handler"], object]


class LocalHub:
    """A hub's repositories, how it misbehaves, and what it was asked.

    Attributes:
        files: {repository: {name: content}}.
        behaviours: {the end of a path: what answers it instead}.
        requests: The requests that arrived.
        sent: Bytes of bodies that were sent.
        over: Set when the test ends, so that no slow answer outlives it.
    """

    def __init__(self) -> None:
        self.files: dict[str, dict[str, bytes | Sparse]] = {}
        self.behaviours: dict[str, Behaviour] = {}
        self.requests: list[Seen] = []
        self.sent = 0
        self.over = Event()
        self.url = ""

    def paths(self) -> list[str]:
        return [seen.path for seen in self.requests]

    def add(self, name: str, **files: Any) -> None:
        """Add a repository with a config.json, or with the files {name: JSON data, bytes or
        Sparse}.
        """
        self.files[name] = {
            file: content if isinstance(content, (bytes, Sparse)) else json.dumps(content).encode()
            for file, content in files.items()
        }


class Handler(BaseHTTPRequestHandler):
    """Answers as the hub does; huggingface_hub's `hf_raise_for_status` reads the same codes."""

    hub: LocalHub

    def do_GET(self) -> None:
        headers = self.headers
        self.hub.requests.append(
            Seen(self.path, headers.get("Authorization", ""), headers.get("Range", ""))
        )
        path = unquote(self.path)
        behaviour = next(
            (known for end, known in self.hub.behaviours.items() if path.endswith(end)), None
        )
        with suppress(ConnectionError):
            behaviour(self) if behaviour else self.answer(path)

    def answer(self, path: str) -> None:
        listing = re.fullmatch(r"/api/models/([^/]+/[^/]+)/revision/(.+)", path)
        file = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
        match = listing or file
        files = self.hub.files.get(match[1]) if match else None
        if match is None or files is None:
            return self.end(401, "RepoNotFound")
        if match[2] not in ("main", "v2", "refs/pr/1", COMMIT):
            return self.end(404, "RevisionNotFound")
        if listing:
            return self.send(
                json.dumps(
                    {"sha": COMMIT, "siblings": [{"rfilename": name} for name in files]}
                ).encode()
            )
        content = files.get(match[3])
        return self.end(404, "EntryNotFound") if content is None else self.send_file(content)

    def send_file(self, content: bytes | Sparse) -> None:
        """Send a file, or the part of it that the request asks for."""
        file = content if isinstance(content, Sparse) else Sparse(content, len(content))
        part = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if part is None:
            return self.send(file.part(0, file.size), length=file.size)
        start, end = int(part[1]), min(int(part[2]) + 1, file.size)
        if start >= file.size:
            return self.end(416, headers={"Content-Range": f"bytes */{file.size}"})
        return self.send(
            file.part(start, end),
            status=206,
            headers={"Content-Range": f"bytes {start}-{end - 1}/{file.size}"},
        )

    def send(
        self,
        body: bytes,
        *,
        status: int = 200,
        length: int | None = -1,
        headers: Mapping[str, str] = {},
    ) -> None:
        """Send an answer. `length` is what Content-Length claims; None for no such header."""
        self.send_response(status)
        self.send_header("ETag", '"../../../a-hostile-etag"')
        self.send_header("X-Repo-Commit", "../../" + COMMIT)
        for name, value in headers.items():
            self.send_header(name, value)
        if length is not None:
            self.send_header("Content-Length", str(len(body) if length == -1 else length))
        self.end_headers()
        self.wfile.write(body)
        self.hub.sent += len(body)

    def end(
        self, status: int, error: str = "", message: str = "", headers: Mapping[str, str] = {}
    ) -> None:
        """Send a failure."""
        codes = {"X-Error-Code": error, "X-Error-Message": message}
        self.send(
            b"",
            status=status,
            headers={**{name: value for name, value in codes.items() if value}, **headers},
        )

    def drip(self, prefix: bytes = b"") -> None:
        """Send a byte now and then until the test ends; the request is never complete."""
        self.wfile.write(prefix)
        while not self.hub.over.wait(0.02):
            self.wfile.write(b"x")
            self.wfile.flush()

    def log_message(self, *_: object) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        pass  # a client that goes away in the middle of an answer


@contextmanager
def running_hub(certificate: tuple[Path, Path] | None = None) -> Iterator[LocalHub]:
    """Yield a hub on a port of 127.0.0.1, with TLS if there is a certificate (its file and its
    key's).
    """
    hub = LocalHub()
    server = _Server(("127.0.0.1", 0), type("HandlerOfHub", (Handler,), {"hub": hub}))
    scheme = "http"
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        server.socket = context.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
        scheme = "https"
    hub.url = f"{scheme}://127.0.0.1:{server.server_address[1]}"
    Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield hub
    finally:
        hub.over.set()
        server.shutdown()
        server.server_close()
