"""The versions of llama.cpp: a build (b11258), the release of llama-cpp-python, or the fork
ik_llama.cpp.

The cells of the cache are computed as in `NEWEST` for every build. What differs is the compute
graph, and what is on the host.
"""

import re
from functools import cache

from ...errors import AttncalcError
from ...units import truncate
from ..switches import Version, between, by_version, since, until

# The newest build whose buffers were compared (tests/data/llamacpp-buffers), which is the default.
_NEWEST_BUILD = 11_739
NEWEST = f"b{_NEWEST_BUILD}"
# The values of --engine-version besides builds: the version of llama-cpp-python, or the fork
# ik_llama.cpp.
PYTHON = "0.3.36"
FORK = "ik"
# The build that llama-cpp-python 0.3.36 has: commit 0c1e57098 of llama.cpp.
_PYTHON_BUILD = 11_312
# The last build known to be before the changes of June 2026, and the first known to be after them
# (two lists of the merged pull requests, up to b9371 and from b9442 to b9500).
_OLD_GRAPH = 9371
_NEW_GRAPH = 9500


class LlamaCppVersion(Version):
    """What depends on the build. The fork has the number (0,), and releases such as v0.5.0 that of
    the newest build.
    """

    # Masks of flash attention are in f16 only; before, in f32 with a copy in f16.
    short_masks = since((_NEW_GRAPH,), "pull request 23764")
    # A server computes the logits of sampled tokens only; before, of every token.
    sampled_logits = since((_NEW_GRAPH,), "pull request 23861")
    # Flash attention on CUDA reserves an f16 copy of a quantized cache.
    f16_cache_copy = since((_NEW_GRAPH,), "pull request 23907")
    # The build is one of those that may have some of these three changes.
    between_graphs = between((_OLD_GRAPH + 1,), (_NEW_GRAPH,), "the lists of merged pull requests")
    # CUDA keeps the outputs of experts until their weighted sum, of which it makes one kernel.
    keeps_outputs = since(
        (10_830,), "pull request 25952, merged between 1 and 9 September 2026; b10830 is of the 7th"
    )
    # Every graph has an input for batches that mix tokens and embeddings, as large as the
    # embeddings of the tokens.
    mixes_inputs = since((11_400,), "pull request 29622, of 4 October 2026")
    # The compute buffer is one allocation; later it is cut where the driver allows no larger one.
    has_one_compute_buffer = until(
        (6700,), "pull request 15815, merged between 5 September and 9 October 2025"
    )
    # Cells are written at places that are inputs (GGML_OP_SET_ROWS).
    has_places = since((6073,), "pull request 14959, of 2 August 2025")
    # How often the token embeddings are in the buffer of the host.
    host_embeddings = by_version(
        {(): 1, (7600,): 2}, "measured: CUDA_Host in logs of 2025 and of 2026"
    )
    # The output layer is the first to go to a GPU; before, it was the last.
    output_first = since((7480,), "pull request 18148, of 18 December 2025")
    # Reads the file instead of mapping it. The older option went in September 2026.
    no_mmap = by_version(
        {(): "--no-mmap", (10_114,): "--load-mode none"}, "issue 26110 and pull request 20834"
    )
    # DeepSeek-V4 is supported.
    has_compressed_attention = since(
        (9842,), "pull request 24162, of 29 June 2026; b9842 is of the day after"
    )
    # MLA's latents are stored. Before, K and V of every head were.
    has_latents = since(
        (5000,), "pull request 12801, of April 2025; an Ollama of that month does not have it"
    )
    # V of MLA's latents is stored too: the latent without its rotary part.
    stores_v_of_latents = between((5000,), (7837,), "pull request 19067, merged on 25 January 2026")
    # CUDA has no kernel for the indexer (GGML_OP_LIGHTNING_INDEXER).
    scores_each_head = until(
        (10041,), "pull request 25545, merged between b9988 and b10041 in July 2026"
    )
    _flash_attention = since((6325,), "pull request 15434, of August 2025")

    @property
    def fact(self) -> str:
        """The version as a setting: 'build b11739', 'release v0.5.0'."""
        if self.name.startswith("b"):
            return f"build {self.name}"
        if self.name == PYTHON:
            return f"as in llama-cpp-python {PYTHON}"
        if self.fork:
            return "ik_llama.cpp"
        return f"release {self.name}"

    @property
    def fork(self) -> bool:
        """Whether it is ik_llama.cpp."""
        return self.name == FORK

    @property
    def flash_attention(self) -> bool:
        """Whether flash attention is on by default ('auto'). For the fork, -fa is assumed."""
        return self.fork or self._flash_attention


@cache
def llamacpp_version(text: str | None) -> LlamaCppVersion:
    """Return what that version does; None is NEWEST. Raises AttncalcError if the version is
    unknown.
    """
    name = NEWEST if text is None else text
    build = re.fullmatch(r"b([1-9]\d{0,4})", name)
    # since August 2026: newer than all switches
    is_release = re.fullmatch(r"v\d{1,3}(\.\d{1,3}){2}", name)
    numbers = {PYTHON: _PYTHON_BUILD, FORK: 0}
    if name not in numbers and not build and not is_release:
        raise AttncalcError(
            f"--engine-version {truncate(name)}: llama.cpp has no such version",
            f"known: builds as {NEWEST}, releases as v0.5.0, {PYTHON} (of llama-cpp-python), "
            f"{FORK} (ik_llama.cpp)",
        )
    number = numbers.get(name, _NEWEST_BUILD)
    if build:
        number = int(build[1])
    return LlamaCppVersion(name, (number,))
