"""Causal attention in blocks on a CPU: what both gate variants share, so that they differ in the gate alone.

Takes flat float32 buffers; a block of queries goes through all its keys with an online softmax (Milakov and
Gimelshein, 2018; Dao et al., "FlashAttention", 2022) and leaves its rows in the output. Query rows lie side by side in
vector lanes: those of all query heads that share a key head, so keys and values are single values repeated in every
lane, nothing is summed across lanes, and both products are one routine, ``products``, with its sums in registers.
"""

from __future__ import annotations

import numpy as np
import torch

from openjev_lab.geometry import Geometry
from openjev_lab.ops.contract import Io, Step
from openjev_lab.ops.numba_cpu import jit, run_pieces
from openjev_lab.ops.numba_lanes import fma, larger, load8, load16, store, zero16
from openjev_lab.ops.numba_math import ONE, ZERO, exp, sigmoid

QUERIES, KEYS = 32, 64
"""Rows of a block: 32 queries a head, in two vectors; 64 keys, so that a block's scores stay in the first cache."""
MASKED = np.float32(-1e30)


@jit
def put(out, place, low, high, add):
    """Two vectors to ``out``, added to what is there if ``add``."""
    if add:
        low, high = low + load16(out, place), high + load16(out, place + 16)
    store(out, place, low)
    store(out, place + 16, high)


@jit
def products(weights, first, row_step, step, count, rows, row, lanes, out, out_start, add):
    """out[r, lanes] (+)= sum over i < count of weights[first + r row_step + i step] rows[i, lanes], for 8 r, 32 lanes.

    ``rows`` and ``out`` are (.., lanes); ``row`` and ``out_start`` are places of the first of the 32 lanes.
    """
    a0 = a1 = a2 = a3 = a4 = a5 = a6 = a7 = zero16()
    b0 = b1 = b2 = b3 = b4 = b5 = b6 = b7 = zero16()
    for i in range(count):
        low, high, w = load16(rows, row + i * lanes), load16(rows, row + i * lanes + 16), first + i * step
        a0, b0 = fma(low, weights[w], a0), fma(high, weights[w], b0)
        w += row_step
        a1, b1 = fma(low, weights[w], a1), fma(high, weights[w], b1)
        w += row_step
        a2, b2 = fma(low, weights[w], a2), fma(high, weights[w], b2)
        w += row_step
        a3, b3 = fma(low, weights[w], a3), fma(high, weights[w], b3)
        w += row_step
        a4, b4 = fma(low, weights[w], a4), fma(high, weights[w], b4)
        w += row_step
        a5, b5 = fma(low, weights[w], a5), fma(high, weights[w], b5)
        w += row_step
        a6, b6 = fma(low, weights[w], a6), fma(high, weights[w], b6)
        w += row_step
        a7, b7 = fma(low, weights[w], a7), fma(high, weights[w], b7)
    put(out, out_start, a0, b0, add)
    put(out, out_start + lanes, a1, b1, add)
    put(out, out_start + 2 * lanes, a2, b2, add)
    put(out, out_start + 3 * lanes, a3, b3, add)
    put(out, out_start + 4 * lanes, a4, b4, add)
    put(out, out_start + 5 * lanes, a5, b5, add)
    put(out, out_start + 6 * lanes, a6, b6, add)
    put(out, out_start + 7 * lanes, a7, b7, add)


@jit
def softmax_step(scores, count, lanes, top, sums, o_t, dim):
    """Scores of ``count`` keys become weights; what was summed under a smaller maximum shrinks."""
    for lane in range(0, lanes, 16):
        before = load16(top, lane)
        now = before
        for j in range(count):
            now = larger(now, load16(scores, j * lanes + lane))
        store(top, lane, now)
        shrink = exp(before - now)
        total = load16(sums, lane) * shrink
        for j in range(count):
            weight = exp(load16(scores, j * lanes + lane) - now)
            store(scores, j * lanes + lane, weight)
            total = total + weight
        store(sums, lane, total)
        for d in range(dim):
            store(o_t, d * lanes + lane, load16(o_t, d * lanes + lane) * shrink)


@jit
def queries_in_lanes(q, q_t, first, rows, group, shape):
    """q_t[d, member, row] = q / sqrt(dim) of the block's rows; lanes past the last row are 0."""
    _, heads, kv_heads, dim, _, _, _ = shape
    members = heads // kv_heads
    scale = ONE / np.sqrt(np.float32(dim))
    q_t[:] = ZERO
    for member in range(members):
        for row in range(rows):
            start = ((first + row) * heads + group * members + member) * dim
            for d in range(dim):
                q_t[(d * members + member) * QUERIES + row] = q[start + d] * scale


@jit
def gather_group(k, packed, keys, values, shape, first, last):
    """Keys and values of rows ``first`` to ``last``, key head by key head beside each other: (kv_heads, rows, dim)."""
    _, _, kv_heads, dim, width, v_offset, rows = shape
    for group in range(kv_heads):
        for t in range(first, last):
            place = (group * rows + t) * dim
            for d in range(0, dim, 8):
                store(keys, place + d, load8(k, (t * kv_heads + group) * dim + d))
                store(values, place + d, load8(packed, t * width + v_offset + group * dim + d))


@jit
def mask_later(scores, start, padded, first, lanes):
    """Scores of keys after their query become ``MASKED``."""
    for j in range(max(0, first + 1 - start), padded):
        hidden_rows = min(QUERIES, start + j - first)
        for lane in range(0, lanes, QUERIES):
            for row in range(hidden_rows):
                scores[j * lanes + lane + row] = MASKED


@jit
def gate_row(packed, out, t, head, heads, dim, width):
    """out[t, head] *= sigmoid(its gate)."""
    place, gate = (t * heads + head) * dim, t * width + (2 * head + 1) * dim
    for i in range(0, dim, 8):
        store(out, place + i, load8(out, place + i) * sigmoid(load8(packed, gate + i)))


@jit
def attend_block(q, keys, values, packed, out, shape, block, group, scratch, epilogue):
    """A block of queries of one key head's query heads, through all keys up to the last of them."""
    tokens, heads, kv_heads, dim, width, _, capacity = shape
    q_t, o_t, scores, top, sums = scratch
    members = heads // kv_heads
    lanes = members * QUERIES
    first = block * QUERIES
    rows = min(QUERIES, tokens - first)
    queries_in_lanes(q, q_t, first, rows, group, shape)
    o_t[:], top[:], sums[:] = ZERO, MASKED, ZERO
    for start in range(0, first + rows, KEYS):
        count = (min(KEYS, first + rows - start) + 7) // 8 * 8  # rows past the last are zeros
        place = (group * capacity + start) * dim
        for j in range(0, count, 8):
            for lane in range(0, lanes, 32):
                products(keys, place + j * dim, dim, 1, dim, q_t, lane, lanes, scores, j * lanes + lane, False)
        mask_later(scores, start, count, first, lanes)
        softmax_step(scores, count, lanes, top, sums, o_t, dim)
        for d in range(0, dim, 8):
            for lane in range(0, lanes, 32):
                products(values, place + d, 1, dim, count, scores, lane, lanes, o_t, d * lanes + lane, True)
    for lane in range(0, lanes, 16):
        store(sums, lane, ONE / load16(sums, lane))
    for member in range(members):
        head = group * members + member
        for row in range(rows):
            lane, place = member * QUERIES + row, ((first + row) * heads + head) * dim
            for d in range(dim):
                out[place + d] = o_t[d * lanes + lane] * sums[lane]
            if epilogue:
                gate_row(packed, out, first + row, head, heads, dim, width)


@jit
def attend(q, keys, values, packed, out, shape, epilogue, start, step):
    """Every ``step``-th block from ``start``, the longest of a key head first, so that threads finish together."""
    tokens, heads, kv_heads, dim, _, _, _ = shape
    lanes = heads // kv_heads * QUERIES
    scratch = (
        np.empty(dim * lanes, np.float32),
        np.empty(dim * lanes, np.float32),
        np.empty(KEYS * lanes, np.float32),
        np.empty(lanes, np.float32),
        np.empty(lanes, np.float32),
    )
    blocks = (tokens + QUERIES - 1) // QUERIES
    for place in range(start, blocks * kv_heads, step):
        group, block = place // blocks, blocks - 1 - place % blocks
        attend_block(q, keys, values, packed, out, shape, block, group, scratch, epilogue)


@jit
def gate_rows(packed, out, heads, dim, width, first, last):
    """The separate pass: every head of rows ``first`` to ``last`` times the sigmoid of its gate."""
    for t in range(first, last):
        for head in range(heads):
            gate_row(packed, out, t, head, heads, dim, width)


def attention_step(geometry: Geometry, io: Io, *, epilogue: bool) -> Step:
    """The step up to the separate gate, or with the gate in the block's epilogue; threads take turns at blocks."""
    g = geometry
    q, k, packed, out = (io[name].view(-1).numpy() for name in ("q", "k", "qkv", "out"))
    capacity = len(io["q"]) + 8
    keys, values = np.zeros((2, g.kv_heads * capacity * g.head_dim), np.float32)

    def step(tokens: int) -> None:
        shape = (tokens, g.heads, g.kv_heads, g.head_dim, g.qkv_out, g.v_offset, capacity)
        gather_group(k, packed, keys, values, shape, 0, tokens)
        for padded in (keys.reshape(g.kv_heads, capacity, -1), values.reshape(g.kv_heads, capacity, -1)):
            padded[:, tokens : tokens + 8] = 0
        pieces = torch.get_num_threads() if tokens >= 256 else 1
        fixed = (q, keys, values, packed, out, shape, epilogue)
        run_pieces(attend, [(*fixed, piece, pieces) for piece in range(pieces)])

    return step
