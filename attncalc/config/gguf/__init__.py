"""GGUF files: their headers, read by ranges of bytes, become a model with its weights.

source.py reads bytes, header.py the format, model.py and block.py the model; architectures.py is what llama.cpp decides
by an architecture's name.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .files import local_gguf as local_gguf
from .files import local_sources as local_sources
from .files import model_name as model_name
from .files import shard_names as shard_names
from .header import GgufHeader as GgufHeader
from .header import is_gguf as is_gguf
from .header import read_header as read_header
from .source import ByteSource as ByteSource
from .source import LocalFile as LocalFile

if TYPE_CHECKING:
    from ...model import ModelSpec


def gguf_model(sources: Sequence[ByteSource], name: str) -> ModelSpec:
    """Return the model in those files, all of its shards in order, with the weights that they have.

    Raises AttncalcError if a file is not valid, its architecture is not supported, or its keys and tensors contradict.
    """
    from ..build import build_model
    from ..schema import check
    from .model import gguf_document

    document, weights = gguf_document([read_header(source) for source in sources], name)
    check(document)
    return dataclasses.replace(build_model(document, name), stored=weights)
