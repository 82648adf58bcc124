"""A repository on the hub as a folder, over HTTPS: its small files, and parts of its large ones."""

import base64
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import SplitResult, quote, unquote, urlsplit

from ..errors import AttncalcError, NetworkError, NoSuchModelError
from ..units import truncate
from .download import MAX_BYTES, Answer, DownloadError, Downloads, Request
from .folder import Folder
from .hub import HUB, MAIN, Repository, token
from .parse_json import parse_object

# Files whose headers are read. A model in more files is known by the total of its index: one
# request for all.
MAX_HEADERS = 64
# Files that a repository may have; a hub allows fewer.
MAX_NAMES = 100_000
# Bytes that the list of files may have: about 60 per file, so that 70,000 files have room.
_MAX_LISTING = 4 << 20

# Bytes that are read of a safetensors file at first: nearly all headers are shorter.
_HEAD_BYTES = 1 << 17
_GGUF_HEAD_BYTES = 1 << 20
_CHECK_NAME = "check the name; a private model needs a token in HF_TOKEN"
_OR_PATH = "or give the path to its config.json"


class RemoteFile:
    """A file on the hub. See ByteSource."""

    def __init__(self, folder: "RemoteFolder", file: str, first: Answer) -> None:
        self.name = folder.label(file)  # what errors call the file
        self._folder = folder
        self._file = file
        self._head = first.content
        self.size = _total(first)  # bytes of the whole file; None if the server does not tell

    def read(self, start: int, end: int) -> bytes:
        """Return the bytes [start, end), fewer only at the end of the file. Raises AttncalcError if
        it cannot.
        """
        end = end if self.size is None else min(end, self.size)
        known = len(self._head)
        if end <= known or start >= end:
            return self._head[start:end]
        if start > known:
            return self._part(start, end)
        if end > MAX_BYTES:
            raise AttncalcError(
                f"{self.name}: needs more than {MAX_BYTES >> 20} MiB",
                "fetch the file, and name its path",
            )
        self._head += self._part(known, end)
        return self._head[start:end]

    def _part(self, start: int, end: int) -> bytes:
        content = self._folder.request_part(self._file, start, end)
        if self.size is not None and len(content) < end - start:
            raise NetworkError(f"{self.name}: the answer ended early", "try again later")
        return content


class RemoteFolder(Folder):
    """The files of a repository at one commit."""

    max_headers = MAX_HEADERS

    def __init__(self, repository: Repository) -> None:
        """List the files. Raises AttncalcError if there is no such model or revision, or the hub
        cannot be reached.
        """
        self._repository = repository
        self._endpoint, self._secret = _endpoint_and_secret(repository)
        with self._reported():
            self._downloads = Downloads()
        self._opened: dict[str, RemoteFile] = {}
        self._revision, self._names = self._list_files()

    def names(self) -> frozenset[str]:
        return self._names

    def label(self, name: str = "") -> str:
        return truncate(f"{self._repository.name}/{name}".rstrip("/"), 200)

    def read(self, name: str, limit: int) -> bytes | None:
        if name not in self._names:
            return None
        return self._get(self._address(name), limit, name).content

    def open(self, name: str) -> RemoteFile | None:
        if name not in self._names:
            return None
        if name not in self._opened:
            self.prepare([name])
        return self._opened[name]

    def prepare(self, names: Iterable[str]) -> None:
        known = [name for name in names if name in self._names]
        files = [name for name in known if name not in self._opened]
        requests = []
        for name in files:
            size = _GGUF_HEAD_BYTES if name.lower().endswith(".gguf") else _HEAD_BYTES
            requests.append(self._request(self._address(name), size, 0))
        with self._reported():
            answers = self._downloads.get_all(requests)
        for name, answer in zip(files, answers, strict=True):
            self._opened[name] = RemoteFile(self, name, self._checked(answer, name, first=0))

    def request_part(self, name: str, start: int, end: int) -> bytes:
        """Return the bytes [start, end), of which the last ones are missing if the answer ends
        early.

        From a server that ignores ranges, all bytes up to `end` are fetched. Raises AttncalcError
        for another answer.
        """
        answer = self._get(self._address(name), end - start, name, first=start)
        if answer.status == 206:
            return answer.content
        if end > MAX_BYTES // 4:
            raise self._error(
                "the server does not send parts of files", f"fetch the file, {_OR_PATH}"
            )
        return self._get(self._address(name), end, name, first=0).content[start:]

    def _list_files(self) -> tuple[str, frozenset[str]]:
        """Return the commit, and the names of all files."""
        revision = self._repository.revision
        path = f"/api/models/{self._repository.name}/revision/{quote(revision, safe='')}"
        data = parse_object(
            self._get(path, _MAX_LISTING).content, self.label(), self._not_a_hub().tip
        )
        siblings = data.get("siblings")
        commit = data.get("sha")
        if not isinstance(siblings, list) or len(siblings) > MAX_NAMES:
            raise self._not_a_hub()
        names = set[str]()
        for entry in siblings:
            name = entry.get("rfilename") if isinstance(entry, Mapping) else None
            if isinstance(name, str) and 0 < len(name) <= 500 and name.isprintable():
                names.add(name)
        if isinstance(commit, str) and re.fullmatch(r"[0-9a-f]{7,64}", commit):
            revision = commit
        return revision, frozenset(names)

    def _address(self, name: str) -> str:
        return f"/{self._repository.name}/resolve/{quote(self._revision, safe='')}/{quote(name)}"

    def _request(self, path: str, limit: int, first: int | None = None) -> Request:
        return Request(self._endpoint + path, self._secret, limit, first)

    @contextmanager
    def _reported(self) -> Iterator[None]:
        """Turn a failed request into an error about the repository."""
        try:
            yield
        except DownloadError as error:
            raise self._error(error.problem, error.tip) from None

    def _get(self, path: str, limit: int, name: str = "", first: int | None = None) -> Answer:
        with self._reported():
            answer = self._downloads.get(self._request(path, limit, first))
        return self._checked(answer, name, first)

    def _checked(self, answer: Answer, name: str, first: int | None = None) -> Answer:
        """Return the answer if it has the file, or the part of it that starts at `first`, or the
        listing for ''.

        Raises AttncalcError for any other status, and for another part.
        """
        if answer.status == 200 or (
            answer.status == 206 and first is not None and _range_start(answer) == first
        ):
            return answer
        if answer.status == 416:  # nothing is at that place: the file is empty, or ends before
            return answer._replace(status=206, content=b"")
        raise self._status_error(answer, name)

    def _status_error(self, answer: Answer, name: str) -> AttncalcError:
        """Return the error for a failure. The codes are those of huggingface_hub's
        `hf_raise_for_status`.
        """
        status = answer.status
        hub = truncate(self._endpoint, 80)
        code = answer.headers.get("x-error-code", "")
        message = answer.headers.get("x-error-message", "")
        page = f"{hub}/{self._repository.name}"
        terms = f"accept its terms on {page}, and set HF_TOKEN to a token of that account"
        is_token_refused = (
            code != "RepoNotFound"
            and status == 401
            and (message.startswith("Invalid") or self._secret)
        )
        is_unknown = code == "RepoNotFound" or status in (401, 404)
        cases = (
            (
                code == "GatedRepo",
                "a gated model: its terms are not accepted, or HF_TOKEN is not set",
                terms,
            ),
            (
                code == "RevisionNotFound",
                "the model has no such revision",
                f"{page}/tree/{MAIN} lists them",
            ),
            (
                code == "EntryNotFound",
                f"the repository has no {truncate(name, 80)}",
                "check the name of the file",
            ),
            (
                is_token_refused,
                f"{hub} does not accept this token",
                "renew HF_TOKEN, or 'hf auth login'",
            ),
            (is_unknown, f"no such model on {hub}, and no such file or folder here", _CHECK_NAME),
            (status == 403, f"{hub} denies access to it", terms),
            (
                status == 429,
                f"{hub} allows no more requests for now",
                self._tip_for_rate_limit(answer),
            ),
            (status >= 500, f"{hub} answered {status}", f"try again later, {_OR_PATH}"),
        )
        kind: type[AttncalcError] = NetworkError
        if is_unknown and not is_token_refused and code in ("", "RepoNotFound"):
            kind = NoSuchModelError
        for applies, problem, tip in cases:
            if applies:
                return self._error(problem, tip, kind)
        return self._not_a_hub()

    def _tip_for_rate_limit(self, answer: Answer) -> str:
        """Return when to try again: after `Retry-After: 30`, or `RateLimit: "api";r=0;t=30`."""
        told = f"{answer.headers.get('retry-after', '')};{answer.headers.get('ratelimit', '')}"
        seconds = re.match(r"(\d{1,5});|.*;t=(\d{1,5})(?!\d)", told)
        wait = f"in {seconds[1] or seconds[2]} s" if seconds else "in some minutes"
        return f"try again {wait}" + (
            "" if self._secret else "; with a token in HF_TOKEN the limit is higher"
        )

    def _not_a_hub(self) -> AttncalcError:
        problem = f"{truncate(self._endpoint, 80)} does not answer like a Hugging Face hub"
        return self._error(problem, f"check HF_ENDPOINT, {_OR_PATH}")

    def _error(
        self, problem: str, tip: str, kind: type[AttncalcError] = NetworkError
    ) -> AttncalcError:
        return kind(f"{truncate(self._repository, 120)}: {problem}", tip)


def _endpoint_and_secret(repository: Repository) -> tuple[str, str]:
    """Return the hub's address, without a password, and the value of the Authorization header; ''
    for none.

    A user and password in HF_ENDPOINT are sent if there is no token. Raises AttncalcError, without
    the address, if it is not valid.
    """
    try:
        parts = urlsplit((os.environ.get("HF_ENDPOINT") or HUB).rstrip("/"))
        has_port = parts.port is None or parts.port > 0
    except ValueError:
        parts = SplitResult("", "", "", "", "")
        has_port = False
    address = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    is_valid = parts.scheme in ("http", "https") and parts.hostname and has_port and not parts.query
    if not is_valid or not re.fullmatch(r"[!-~]+", address):
        raise AttncalcError(
            f"{repository}: HF_ENDPOINT is not the address of a hub",
            f"an address looks like {HUB}; or unset HF_ENDPOINT",
        )
    secret = token()
    if secret:
        return address, f"Bearer {secret}"
    if not parts.username:
        return address, ""
    user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return address, f"Basic {base64.b64encode(user.encode()).decode()}"


def _range_start(answer: Answer) -> int | None:
    match = re.fullmatch(
        r"bytes (\d{1,19})-\d{1,19}/(?:\d{1,19}|\*)",
        answer.headers.get("content-range", "").strip(),
    )
    if match:
        return int(match[1])
    return None


def _total(answer: Answer) -> int | None:
    """Return the size of the whole file, or None if the server does not tell."""
    if answer.status == 200:
        length = answer.headers.get("content-length", "")
        if re.fullmatch(r"\d{1,19}", length):
            return int(length)
        return None
    match = re.search(r"/(\d{1,19})\s*$", answer.headers.get("content-range", ""))
    if match:
        return int(match[1])
    return None
