"""GGUF files: their headers, read by ranges of bytes, become a model with its weights.

source.py reads bytes, header.py the format, model.py and block.py the model; architectures.py is what llama.cpp decides
by an architecture's name.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..folder import ByteSource
from .files import local_gguf as local_gguf
from .files import local_sources as local_sources
from .files import model_name as model_name
from .files import shard_names as shard_names
from .header import GgufHeader as GgufHeader
from .header import is_gguf as is_gguf
from .header import read_header as read_header
from .header import read_headers as read_headers

if TYPE_CHECKING:
    from ...checkpoint import CheckpointWeights
    from ...model import ModelSpec
    from ..document import Document


def read_document(sources: Sequence[ByteSource], name: str) -> tuple[Document, CheckpointWeights]:
    """Return the model in those files, all of its shards in order, as a model file, and the weights that they have.

    Raises AttncalcError if a file is not valid, its architecture is not supported, or its keys and tensors contradict.
    """
    from .model import gguf_document

    return gguf_document(read_headers(sources), name)


def gguf_model(sources: Sequence[ByteSource], name: str) -> ModelSpec:
    """Return the model in those files, all of its shards in order, with the weights that they have.

    Raises AttncalcError as `read_document` does.
    """
    from ..build import build_model
    from ..schema import check

    document, weights = read_document(sources, name)
    check(document)
    return dataclasses.replace(build_model(document, name), stored=weights)
