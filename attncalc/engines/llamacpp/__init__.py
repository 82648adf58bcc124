"""llama.cpp: a context of fixed size, allocated at start-up, and a buffer for the compute graph.

layout.py computes the cells of the cache, compute_buffer.py what the graph needs besides them.
"""

from .defaults import DEFAULTS as DEFAULTS
from .layout import NAME as NAME
from .layout import layers_per_gpu as layers_per_gpu
from .layout import layout as layout
from .versions import FORK as FORK
from .versions import VERSION as VERSION
