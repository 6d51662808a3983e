"""Sizes of one model and the paddings that the packed form needs. The same rules are in shape.h.

Knows nothing of files, weights or architectures by name.
"""

from __future__ import annotations

from dataclasses import dataclass

LANES = 16
"""fp32 values of one vector."""
PANEL = 32
"""Output channels of one weight panel."""
GROUP = 64
"""Inputs of a linear layer that share an activation scale; inputs are padded to whole groups."""
CHUNK = 128
"""Positions that one partial softmax covers; chunks are aligned to absolute positions."""
MAX_TREE_ROWS = 64
"""Rows that one call may add to a pending tree."""
MAX_PENDING = 256
"""Rows of a pending tree."""
MAX_DEPTH = 64
"""Rows of a root-to-node path in a pending tree."""


def round_up(value: int, multiple: int) -> int:
    """The smallest multiple of `multiple` that is not below `value`."""
    return -(-value // multiple) * multiple


@dataclass(frozen=True, slots=True)
class NativeShape:
    """A decoder-only transformer: RMSNorm, rotary positions, grouped queries, SwiGLU."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ff: int
    vocab: int
    """Rows of the embedding; token ids are below it."""
    norm_eps: float
    tied: bool = False
    qkv_bias: bool = False
    qk_norm: bool = False
    head_rows: int = 0
    """Rows of the LM head, which are the logits of a token; 0, the default, takes `vocab`. A draft
    may have fewer (FR-Spec, arXiv 2502.14856); which ids they stand for is the caller's matter."""

    def __post_init__(self) -> None:
        sizes = (self.hidden, self.layers, self.heads, self.kv_heads, self.head_dim, self.ff)
        if min(*sizes, self.vocab) < 1:
            raise ValueError(f"a size is not positive in {self}")
        if self.head_rows == 0:
            object.__setattr__(self, "head_rows", self.vocab)
        if not 0 < self.head_rows <= self.vocab or (self.tied and self.head_rows != self.vocab):
            raise ValueError(f"an LM head of {self.head_rows} rows does not go with {self}")
        if self.heads % self.kv_heads:
            raise ValueError(f"{self.heads} heads are not a multiple of {self.kv_heads} KV heads")
        if self.head_dim % 8:
            raise ValueError(f"head size {self.head_dim} is not a multiple of 8")

    @property
    def group(self) -> int:
        """Query heads that share a key/value head."""
        return self.heads // self.kv_heads

    @property
    def head_width(self) -> int:
        """Padded channels of a head in keys, values and the output projection's input."""
        return round_up(self.head_dim, LANES)

    @property
    def head_channels(self) -> int:
        """Padded channels of a head in the QKV projection's output."""
        return round_up(self.head_dim, PANEL)

    @property
    def qkv_heads(self) -> int:
        """Heads of the QKV projection's output: queries, then keys, then values."""
        return self.heads + 2 * self.kv_heads

    @property
    def hidden_width(self) -> int:
        """Padded inputs of the layers that read the residual stream."""
        return round_up(self.hidden, GROUP)

    @property
    def attention_width(self) -> int:
        """Padded inputs of the output projection."""
        return round_up(self.heads * self.head_width, GROUP)

    @property
    def ff_width(self) -> int:
        """Padded inputs of the down projection."""
        return round_up(self.ff, GROUP)
