"""The names of models on the Hugging Face hub, and their files in huggingface_hub's cache, without
a network.
"""

import os
import re
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote

from ..errors import AttncalcError, clash
from ..records import NamedTuple
from ..units import truncate
from .folder import LocalFolder
from .user_files import open_file

HUB = "https://huggingface.co"
MAIN = "main"

_NAME = r"[A-Za-z0-9_](?:[\w.-]{0,94}[A-Za-z0-9_])?"
_PATH = r"[\w][\w./ +-]*"
_REPO = re.compile(
    rf"(?P<name>{_NAME}/{_NAME})(?:@(?P<revision>\w[\w./-]*))?(?::(?P<file>{_PATH}))?", re.ASCII
)
_ADDRESS = re.compile(r"(?:https?://)?(?P<host>[\w.:-]+)/(?P<rest>.+)", re.ASCII | re.IGNORECASE)
_PAGE = re.compile(
    rf"(?P<name>{_NAME}/{_NAME})"
    r"(?:/(?:tree|blob|resolve|raw)/(?P<revision>refs/(?:pr|convert)/[\w.-]+"
    rf"|[\w.-]+)(?:/(?P<file>{_PATH}))?)?"
    r"/?(?:[?#].*)?",
    re.ASCII,
)
# Endings of the names of files, and never of repositories.
_FILE_SUFFIXES = (".yaml", ".yml", ".json", ".safetensors", ".gguf", ".git")
_HOSTS = ("huggingface.co", "www.huggingface.co", "hf.co")
# First parts of addresses on the hub that are no organisations.
_OTHER_PAGES = ("datasets", "spaces", "models", "docs", "blog", "papers", "collections", "api")


class Repository(NamedTuple):
    """A model on the hub."""

    name: str  # 'org/name'
    revision: str = MAIN  # a branch, a tag or a commit
    file: str = ""  # a file in it, or the quantization of a GGUF file ('Q4_K_M'); '' for none

    def __str__(self) -> str:
        """Return the name as a user writes it."""
        revision = "" if self.revision == MAIN else f"@{self.revision}"
        return f"{self.name}{revision}" + (f":{self.file}" if self.file else "")


def parse_repository(text: str) -> Repository | None:
    """Return the repository that `text` names, or None if it is not the name of one.

    Its forms are 'org/name', 'org/name@revision', 'org/name:file' and the address of a page of the
    hub. The rules of a name are those of huggingface_hub's `validate_repo_id`, and an organisation
    is required.
    """
    is_page, path = _without_host(text)
    match = _REPO.fullmatch(path) or (_PAGE.fullmatch(unquote(path)) if is_page else None)
    if (
        match is None
        or ".." in text
        or "--" in match["name"]
        or match["name"].lower().endswith(_FILE_SUFFIXES)
    ):
        return None
    if is_page and match["name"].split("/")[0] in _OTHER_PAGES:
        return None
    parts = match.groupdict()
    revision = parts["revision"] or MAIN
    file = parts["file"] or ""
    if revision.endswith("/") or file.endswith(("/", " ")):
        return None
    return Repository(match["name"], revision, file)


def _without_host(text: str) -> tuple[bool, str]:
    """Return whether `text` is the address of a page of the hub, with or without 'https://', and
    the path in it.
    """
    if text.startswith("hf://"):
        return True, text[5:]
    match = _ADDRESS.fullmatch(text)
    # user:password@host:port
    endpoint = os.environ.get("HF_ENDPOINT", "").partition("://")[2].partition("/")[0]
    if match and match["host"].lower() in (*_HOSTS, endpoint.rpartition("@")[2].lower()):
        return True, match["rest"]
    return False, text


def is_address(text: str) -> bool:
    """Return whether `text` is an address, and not the path of a file."""
    return re.match(r"(?:https?|ftp|file|hf|s3|gs)://", text, re.IGNORECASE) is not None


def with_revision(text: str, revision: str) -> str:
    """Return the name of a repository with another revision.

    Raises AttncalcError if `text` is not the name of one, or names a revision too.
    """
    found = parse_repository(text)
    if found is None or os.path.exists(text):
        raise AttncalcError(
            f"--revision has no effect on '{truncate(text)}'",
            "it needs the name of a model on the hub, as org/name",
        )
    if found.revision not in (MAIN, revision):
        raise clash(
            f"--revision {truncate(revision)}", f"'{truncate(text)}'", "give the revision once"
        )
    return str(found._replace(revision=revision))


def cached_folder(repository: Repository) -> LocalFolder | None:
    """Return the folder in huggingface_hub's cache that has the repository's model file, or None.

    The cache has it in models--org--name/snapshots/COMMIT, and the commit of a branch or tag in
    refs/REVISION.
    """
    # By the rules of huggingface_hub's constants.py.
    cache = (
        os.environ.get("HF_HUB_CACHE")
        or os.environ.get("HUGGINGFACE_HUB_CACHE")
        or os.path.join(_home(), "hub")
    )
    folder = _expanded(cache) / f"models--{repository.name.replace('/', '--')}"
    commit = repository.revision
    # If there is no such branch or tag, the revision is a commit.
    with suppress(OSError, ValueError), open_file(folder / "refs" / commit) as file:
        commit = file.read(1000).decode().strip()
    # a longer one is no commit, and too long for a file's name
    if not re.fullmatch(r"\w{1,64}", commit, re.ASCII):
        return None
    snapshot = folder / "snapshots" / commit
    if repository.file:
        if _has_file(snapshot, repository.file):
            return LocalFolder(snapshot, is_complete=False)
        return None
    is_cached = any((snapshot / name).is_file() for name in ("config.json", "params.json"))
    if is_cached:
        return LocalFolder(snapshot, is_complete=False)
    return None


def token() -> str:
    """Return the user's token, from HF_TOKEN or the file that 'hf auth login' writes; '' for none.

    Raises AttncalcError, without the token, if it has characters that no header may contain.
    """
    if _is_on("HF_HUB_DISABLE_IMPLICIT_TOKEN"):
        return ""
    found = os.environ.get("HF_TOKEN") or os.environ.get("HUGGING_FACE_HUB_TOKEN") or ""
    origin = "HF_TOKEN"
    if not found:
        path = _expanded(os.environ.get("HF_TOKEN_PATH") or os.path.join(_home(), "token"))
        origin = truncate(path, 200)
        with suppress(OSError, ValueError), open_file(path) as file:
            found = file.read(1000).decode()
    found = found.strip()
    if not re.fullmatch(r"[!-~]{0,500}", found):
        raise AttncalcError(
            f"the token in {origin} is not valid",
            "a token looks like hf_... : 'hf auth login' writes it",
        )
    return found


def is_offline() -> bool:
    """Return whether requests are switched off, by huggingface_hub's rules."""
    return _is_on("HF_HUB_OFFLINE") or _is_on("TRANSFORMERS_OFFLINE")


def _is_on(variable: str) -> bool:
    return os.environ.get(variable, "").upper() in ("1", "ON", "YES", "TRUE")


def _home() -> str:
    return os.environ.get("HF_HOME") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface"
    )


def _expanded(path: str) -> Path:
    return Path(os.path.expandvars(os.path.expanduser(path)))


def _has_file(snapshot: Path, file: str) -> bool:
    from .gguf.files import gguf_file

    try:
        names = [
            path.relative_to(snapshot).as_posix()
            for path in (*snapshot.glob("*"), *snapshot.glob("*/*.gguf"))
        ]
    except OSError:
        return False
    return file in names or gguf_file(names, file) is not None
