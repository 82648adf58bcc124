"""A model's config.json from the Hugging Face hub: out of the local cache, else downloaded into it."""

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
_FILES = (".yaml", ".yml", ".json", ".safetensors", ".gguf", ".git")
"""What ends the names of files, but not of repositories."""
_OR_PATH = f"or give the path to its {FILE}"


def is_repo(text: str) -> bool:
    """Whether `text` could be a repository on the hub: 'org/name' or 'org/name@revision'.

    The rules are huggingface_hub's own (`validate_repo_id`), but that there must be an organisation.
    """
    found = _REPO.fullmatch(text)
    return found is not None and not (
        ".." in text or "--" in found["name"] or found["name"].lower().endswith(_FILES) or text.endswith("/")
    )


def config_file(repo: str) -> Path:
    """The config.json of `repo`, 'org/name' or 'org/name@revision' (a branch, a tag or a commit).

    One that is in the local cache is taken as it is, without asking the hub or importing its library.
    HF_HOME, HF_HUB_CACHE, HF_ENDPOINT, HF_TOKEN and HF_HUB_OFFLINE mean what they mean to that library.
    AttncalcError: no such model, revision or file, no access, no library, or the hub cannot be reached.
    """
    name, _, revision = repo.partition("@")
    if not is_repo(repo):
        raise AttncalcError(f"'{truncate(repo)}' is no repository's name", "write org/name, or org/name@revision")
    return _cached(name, revision or "main") or _downloaded(repo, name, revision or None)


def _cached(name: str, revision: str) -> Path | None:
    """Where the cache has it: models--org--name/snapshots/COMMIT, and refs/REVISION says which commit."""
    folder = _cache() / f"models--{name.replace('/', '--')}"
    with suppress(OSError, UnicodeDecodeError):  # no such branch or tag: a commit
        revision = (folder / "refs" / revision).read_text().strip()
    if not re.fullmatch(r"\w+", revision):
        return None
    file = folder / "snapshots" / revision / FILE
    return file if file.is_file() else None


def _cache() -> Path:
    """The library's cache, as its constants.py finds it."""
    home = os.environ.get("HF_HOME") or os.path.join(os.environ.get("XDG_CACHE_HOME", "~/.cache"), "huggingface")
    cache = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE") or os.path.join(home, "hub")
    return Path(os.path.expandvars(os.path.expanduser(cache)))


def _downloaded(repo: str, name: str, revision: str | None) -> Path:
    """The file, asked for by the hub's own library. AttncalcError: it cannot be had; says why."""
    if _is_offline():
        raise AttncalcError(f"{repo}: not in the local cache, and HF_HUB_OFFLINE is set", f"unset it, {_OR_PATH}")
    with _quiet():
        try:
            from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url
        except ImportError:
            raise AttncalcError(
                f"{repo}: no such file or folder here; models on the hub need huggingface_hub",
                "pip install 'attncalc[hub]'",
            ) from None
        try:
            with redirect_stderr(io.StringIO()):  # where progress bars would go
                # Asked first, since the download itself asks for half a minute where nothing answers.
                found = get_hf_file_metadata(hf_hub_url(name, FILE, revision=revision)).commit_hash
                path = hf_hub_download(name, FILE, revision=revision) if found else None
        except Exception as error:  # of its HTTP library, its locks and the disk too: too many kinds to name
            raise _refusal(repo, name, error) from None
    if path is None:
        raise AttncalcError(f"{repo}: {_hub()} does not answer as a hub does", f"check HF_ENDPOINT, {_OR_PATH}")
    return Path(path)


def _refusal(repo: str, name: str, error: Exception) -> AttncalcError:
    """In words, why there is no file, and what to do about it."""
    from huggingface_hub import errors

    if isinstance(error, errors.LocalEntryNotFoundError):  # its cause is what kept the library from asking
        return _unanswered(repo, name, error.__cause__ or error)
    for kind, what, tip in (
        (errors.GatedRepoError, "a gated model: its terms are not accepted, or no token is set", _terms(name)),
        (
            errors.RepositoryNotFoundError,
            f"no such model on {_hub()}, and no such file or folder here",
            "check the name; a private model needs a token in HF_TOKEN",
        ),
        (errors.RevisionNotFoundError, "the model has no such revision", f"{_hub()}/{name}/tree/main lists them"),
        (
            errors.EntryNotFoundError,
            f"the repository has no {FILE}",
            "it holds no transformers model: write its numbers as a preset, as 'attncalc presets show gpt2' does",
        ),
    ):
        if isinstance(error, kind):
            return AttncalcError(f"{repo}: {what}", tip)
    return _unanswered(repo, name, error)


def _unanswered(repo: str, name: str, error: BaseException) -> AttncalcError:
    """The same where the hub did not say why: its status where it answered, else what went wrong on the way."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status == 401:
        return AttncalcError(f"{repo}: {_hub()} does not take this token", "renew HF_TOKEN, or 'hf auth login'")
    if status == 403:
        return AttncalcError(f"{repo}: {_hub()} gives no access to it", _terms(name))
    if status is not None:
        return AttncalcError(f"{repo}: {_hub()} answered {status}", f"try again later, {_OR_PATH}")
    if isinstance(error, OSError) and error.strerror:
        return AttncalcError(
            f"{repo}: cannot be kept in {truncate(_cache(), 200)}: {error.strerror.lower()}",
            f"HF_HOME names another folder for the cache; {_OR_PATH}",
        )
    reason = truncate(str(error) or type(error).__name__, 80)
    return AttncalcError(
        f"{repo}: not in the local cache, and {_hub()} cannot be reached: {reason}",
        f"check the connection and HF_ENDPOINT, {_OR_PATH}",
    )


def _terms(name: str) -> str:
    return f"accept its terms on {_hub()}/{name}, and set HF_TOKEN to a token of that account"


def _is_offline() -> bool:
    """As the library reads it, which is not imported for it."""
    said = os.environ.get("HF_HUB_OFFLINE") or os.environ.get("TRANSFORMERS_OFFLINE") or ""
    return said.upper() in ("1", "ON", "YES", "TRUE")


def _hub() -> str:
    return truncate((os.environ.get("HF_ENDPOINT") or HUB).rstrip("/"), 80)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the library's warnings and log lines."""
    before = logging.root.manager.disable
    logging.disable()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
