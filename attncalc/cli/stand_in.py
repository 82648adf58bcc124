"""Built-in models and types that stand for what cannot be loaded: a repository, another author's type."""

import os
import re
from collections.abc import Sequence
from typing import Any

from ..config import load
from ..config.presets import preset_at, preset_of, unquantized
from ..errors import AttncalcError, BadValueError
from ..ggml import FILE_TYPES
from ..serving.weight_format import released_dtype
from ..units import truncate
from .kinds import parts_of_name
from .reading import FOR_PROGRAMS, by_layer, own_context
from .words import Words


def with_built_in(args: Sequence[str], root: Any, error: AttncalcError) -> tuple[list[str], list[str]] | AttncalcError:
    """Return the arguments with the built-in model of the same name, if the hub cannot be reached or a folder is not
    here; or the error.

    A program gets the error: the other model may differ.
    """
    problem = truncate(error.message, 150)
    if (usual := with_usual_mixture(args)) and FOR_PROGRAMS.isdisjoint(args):
        return usual
    if isinstance(error, BadValueError):
        return error
    if own := _with_own_drafter(args, error.message.partition(":")[0]):
        return own, [f"note: {problem}; a draft model of one layer of the model is counted"]
    found = [*args]
    words = Words(root, args)
    for i, word in enumerate(args):
        name, _, tag = word.rstrip("/").partition(":")
        copy = unquantized(name) if "/" in name else None
        preset = copy[0] if copy else preset_of(name.rpartition("/")[2]) or preset_at(name) if "/" in name else None
        if preset is None or word.startswith("-") or not FOR_PROGRAMS.isdisjoint(args):
            continue
        release = parts_of_name(name.rpartition("/")[2])[0] if copy else preset
        is_same = preset_of(release) is None or own_context(release) == own_context(preset)
        found[i] = preset if is_same else release
        dtype = tag.lower() or (copy[1] if copy else "")
        given = {words.first_name(one) for one in (args[: args.index("--")] if "--" in args else args)}
        if dtype == "q4_k_m" and not tag and released_dtype(load(preset)) == "mxfp4":  # files of gpt-oss
            dtype, is_open = "", args[0] == "fit" and "--" not in args
            found[1:1] = [*["--engine", by_layer()] * is_open, "--served-model", word]
        if dtype and args[0] in ("fit", "train"):
            is_served = args[0] == "fit" and "mlx" not in name.lower() and not {"--served-model"} & given and bool(copy)
            is_typed = "--weights-dtype" in given
            found[1:1] = [*["--weights-dtype", dtype] * (not is_typed), *["--served-model", word] * is_served]
        of_mlx = f"; MLX runs it: mlx_lm.server --model {name}" if "mlx" in name.lower() else ""
        return found, [f"note: {problem}; the built-in {preset} has that name{of_mlx}"]
    return error


def with_usual_mixture(args: Sequence[str]) -> tuple[list[str], list[str]] | None:
    """Return the arguments with llama.cpp's own type for one of another author, as Q4_K_M for UD-Q4_K_XL, and a note;
    None without one.
    """
    for i, word in enumerate(args):
        for match in re.finditer(r"(?i)(?:UD-)?\b(I?Q\d_\w+?)(?:_(?:X?L|XXL))?(?=\.gguf$|$)", word):
            base, typed = match[1].lower(), match[0]
            usual = next((one for one in (base, f"{base}_m", f"{base.partition('_')[0]}_0") if one in FILE_TYPES), None)
            if usual and typed.lower() not in FILE_TYPES and not os.path.exists(word):
                found = [*args[:i], f"{word[: match.start()]}{usual.upper()}{word[match.end() :]}", *args[i + 1 :]]
                note = "UD-Q4_K_XL is 1 to 9 % larger, UD-Q6_K_XL 6 to 16 % than q6_k, and others differ by model too"
                return found, [f"note: {typed} is read as {usual}: {note}"]
    return None


def _with_own_drafter(args: Sequence[str], name: str) -> list[str] | None:
    """Return the arguments with a layer of the model itself for the draft model of that name; None without it."""
    for i, word in enumerate(args):
        if word == name and re.match("-.*(draft|spec|md$)", args[i - 1]):
            return [*args[: i - 1], "--speculative-layers", "1", *args[i + 1 :]]
        if name in word and "num_speculative_tokens" in word:
            key = rf"""["']model["']: ?["']{re.escape(name)}["']"""
            return [*args[:i], re.sub(f"{key}, ?|, ?{key}", "", word), *args[i + 1 :]]
    return None
