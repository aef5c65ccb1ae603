// Norm of every query and key head, then rotary embedding: eight values a lane, as many lanes as a head needs.
//
// Dimension i turns with i + ROTARY_HALF, which a lane ROTARY_HALF / 8 away holds. Rounding: the norm in float32,
// rounded to BF16; each of the two products rounded, and their sum. Bound: memory, 4 bytes a value of q and k.
//
//@ require: head_dim in (8, 16, 32, 64, 128, 256) and rotary_half in (8, 16, 32, 64, 128) and qkv_out % 8 == 0
//@ define: HEADS = heads
//@ define: KV_HEADS = kv_heads
//@ define: DIM = head_dim
//@ define: ROTARY_HALF = rotary_half
//@ define: ROW = qkv_out
//@ define: K_OFFSET = k_offset
//@ define: EPS = eps
//@ kernel: qk_norm_rope
//@ grid: cdiv(T * (heads + kv_heads) * (head_dim // 8), 256)
//@ block: 256
//@ args: qkv, q_weight, k_weight, cos, sin, q, k, T
#include "rows.cuh"

constexpr int LANES = DIM / 8, PARTNER = ROTARY_HALF / 8, ALL_HEADS = HEADS + KV_HEADS;

extern "C" __global__ void __launch_bounds__(256)
qk_norm_rope(const bf16* __restrict__ qkv, const bf16* __restrict__ q_weight, const bf16* __restrict__ k_weight,
             const bf16* __restrict__ cos, const bf16* __restrict__ sin, bf16* __restrict__ q, bf16* __restrict__ k,
             int tokens) {
  int piece = blockIdx.x * 256 + threadIdx.x;
  int token = piece / (ALL_HEADS * LANES), head = piece / LANES % ALL_HEADS, lane = piece % LANES;
  bool mine = token < tokens, query = head < HEADS;  // lanes past the end still take part in their warp's sums
  Eight x = {};
  if (mine) {
    const bf16* row = qkv + static_cast<long long>(token) * ROW;
    x = load_eight(query ? row + head * 2 * DIM : row + K_OFFSET + (head - HEADS) * DIM, lane);
  }
  Eight w = load_eight(query ? q_weight : k_weight, lane);
  float scale = rsqrtf(sum_over_lanes<LANES>(sum_of_squares(x)) / DIM + static_cast<float>(EPS));
  Eight turned;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    x.x[i] = round_bf16(x.x[i] * scale * (1.f + w.x[i]));
    turned.x[i] = __shfl_xor_sync(~0u, x.x[i], PARTNER);
  }
  if (!mine) return;
  if (lane < 2 * PARTNER) {
    Eight c = load_eight(cos + static_cast<long long>(token) * ROTARY_HALF, lane % PARTNER);
    Eight s = load_eight(sin + static_cast<long long>(token) * ROTARY_HALF, lane % PARTNER);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      float other = lane < PARTNER ? -turned.x[i] : turned.x[i];
      x.x[i] = round_bf16(x.x[i] * c.x[i]) + round_bf16(other * s.x[i]);
    }
  }
  if (query) {
    store_eight(q + (static_cast<long long>(token) * HEADS + head) * DIM, lane, x);
  } else {
    store_eight(k + (static_cast<long long>(token) * KV_HEADS + head - HEADS) * DIM, lane, x);
  }
}
