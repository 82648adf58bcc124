"""A model's config.json from the Hugging Face hub: from the local cache, or downloaded into it."""

from __future__ import annotations

import io
import logging
import os
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, suppress
from pathlib import Path

from ..errors import AttncalcError
from ..units import truncate

FILE = "config.json"
HUB = "https://huggingface.co"

_NAME = r"[A-Za-z0-9_](?:[\w.-]{0,94}[A-Za-z0-9_])?"
_REPO = re.compile(rf"(?P<name>{_NAME}/{_NAME})(?:@(?P<revision>[\w][\w./-]*))?", re.ASCII)
_FILE_SUFFIXES = (".yaml", ".yml", ".json", ".safetensors", ".gguf", ".git")
"""Endings of the names of files, and never of repositories."""
_OR_PATH = f"or give the path to its {FILE}"


def is_repo(text: str) -> bool:
    """Return whether `text` could be a repository on the hub: 'org/name' or 'org/name@revision'.

    The rules are those of huggingface_hub's `validate_repo_id`, and an organisation is required.
    """
    match = _REPO.fullmatch(text)
    return match is not None and not (
        ".." in text or "--" in match["name"] or match["name"].lower().endswith(_FILE_SUFFIXES) or text.endswith("/")
    )


def config_file(repo: str) -> Path:
    """Return the path of the config.json of `repo`.

    A file in the local cache is used without a request and without importing huggingface_hub. HF_HOME, HF_HUB_CACHE,
    HF_ENDPOINT, HF_TOKEN and HF_HUB_OFFLINE have the same meaning as for that library.

    Args:
        repo: 'org/name' or 'org/name@revision', where the revision is a branch, a tag or a commit.

    Raises AttncalcError if there is no such model, revision or file, access is denied, huggingface_hub is not installed
    or the hub cannot be reached.
    """
    name, _, revision = repo.partition("@")
    if not is_repo(repo):
        raise AttncalcError(
            f"'{truncate(repo)}' is not the name of a repository", "write org/name, or org/name@revision"
        )
    return _find_in_cache(name, revision or "main") or _download(repo, name, revision or None)


def _find_in_cache(name: str, revision: str) -> Path | None:
    """Return the cached file, or None.

    The cache has it in models--org--name/snapshots/COMMIT, and the commit of a branch or tag in refs/REVISION.
    """
    folder = _cache_folder() / f"models--{name.replace('/', '--')}"
    with suppress(OSError, UnicodeDecodeError):  # if there is no such branch or tag, the revision is a commit
        revision = (folder / "refs" / revision).read_text().strip()
    if not re.fullmatch(r"\w+", revision):
        return None
    file = folder / "snapshots" / revision / FILE
    return file if file.is_file() else None


def _cache_folder() -> Path:
    """Return the cache of huggingface_hub, by the rules of its constants.py."""
    home = os.environ.get("HF_HOME") or os.path.join(os.environ.get("XDG_CACHE_HOME", "~/.cache"), "huggingface")
    cache = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE") or os.path.join(home, "hub")
    return Path(os.path.expandvars(os.path.expanduser(cache)))


def _download(repo: str, name: str, revision: str | None) -> Path:
    """Return the path of the file after huggingface_hub has downloaded it. Raises AttncalcError, with the reason."""
    if _is_offline():
        raise AttncalcError(f"{repo}: not in the local cache, and HF_HUB_OFFLINE is set", f"unset it, {_OR_PATH}")
    with _without_output():
        try:
            from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url
        except ImportError:
            raise AttncalcError(
                f"{repo}: no such file or folder here; models on the hub need huggingface_hub",
                "pip install 'attncalc[hub]'",
            ) from None
        try:
            with redirect_stderr(io.StringIO()):  # hides progress bars
                # The metadata request fails at once without a connection; the download would retry for half a minute.
                commit = get_hf_file_metadata(hf_hub_url(name, FILE, revision=revision)).commit_hash
                path = hf_hub_download(name, FILE, revision=revision) if commit else None
        except Exception as error:  # its HTTP library, its locks and the disk raise too many kinds to list
            raise _download_error(repo, name, error) from None
    if path is None:
        raise AttncalcError(
            f"{repo}: {_endpoint()} does not answer like a Hugging Face hub", f"check HF_ENDPOINT, {_OR_PATH}"
        )
    return Path(path)


def _download_error(repo: str, name: str, error: Exception) -> AttncalcError:
    """Return the error for a failed download: the reason, and what to do."""
    from huggingface_hub import errors

    if isinstance(error, errors.LocalEntryNotFoundError):  # its cause is the failed request
        return _connection_error(repo, name, error.__cause__ or error)
    for kind, problem, tip in (
        (errors.GatedRepoError, "a gated model: its terms are not accepted, or HF_TOKEN is not set", _terms(name)),
        (
            errors.RepositoryNotFoundError,
            f"no such model on {_endpoint()}, and no such file or folder here",
            "check the name; a private model needs a token in HF_TOKEN",
        ),
        (errors.RevisionNotFoundError, "the model has no such revision", f"{_endpoint()}/{name}/tree/main lists them"),
        (
            errors.EntryNotFoundError,
            f"the repository has no {FILE}",
            "it has no transformers model: write a preset, as 'attncalc presets show gpt2' prints one",
        ),
    ):
        if isinstance(error, kind):
            return AttncalcError(f"{repo}: {problem}", tip)
    return _connection_error(repo, name, error)


def _connection_error(repo: str, name: str, error: BaseException) -> AttncalcError:
    """Return an error with the hub's HTTP status, or with the reason why there was no answer."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status == 401:
        return AttncalcError(f"{repo}: {_endpoint()} does not accept this token", "renew HF_TOKEN, or 'hf auth login'")
    if status == 403:
        return AttncalcError(f"{repo}: {_endpoint()} denies access to it", _terms(name))
    if status is not None:
        return AttncalcError(f"{repo}: {_endpoint()} answered {status}", f"try again later, {_OR_PATH}")
    if isinstance(error, OSError) and error.strerror:
        return AttncalcError(
            f"{repo}: cannot be stored in {truncate(_cache_folder(), 200)}: {error.strerror.lower()}",
            f"set HF_HOME to another folder for the cache, {_OR_PATH}",
        )
    reason = truncate(str(error) or type(error).__name__, 80)
    return AttncalcError(
        f"{repo}: not in the local cache, and {_endpoint()} cannot be reached: {reason}",
        f"check the connection and HF_ENDPOINT, {_OR_PATH}",
    )


def _terms(name: str) -> str:
    return f"accept its terms on {_endpoint()}/{name}, and set HF_TOKEN to a token of that account"


def _is_offline() -> bool:
    """Return whether requests are switched off, by huggingface_hub's rules and without importing it."""
    value = os.environ.get("HF_HUB_OFFLINE") or os.environ.get("TRANSFORMERS_OFFLINE") or ""
    return value.upper() in ("1", "ON", "YES", "TRUE")


def _endpoint() -> str:
    """Return the address of the hub."""
    return truncate((os.environ.get("HF_ENDPOINT") or HUB).rstrip("/"), 80)


@contextmanager
def _without_output() -> Iterator[None]:
    """Hide huggingface_hub's warnings and log lines."""
    level_before = logging.root.manager.disable
    logging.disable()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level_before)
