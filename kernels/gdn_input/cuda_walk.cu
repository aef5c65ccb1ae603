// Everything between a Gated DeltaNet layer's projection and its delta rule, in one launch: a block walks time.
//
// A thread owns eight channels and keeps the convolution's window of the last rows in registers, so each row of the
// projection is loaded once, but for the CONV - 1 rows before a block's first. A head's sum of squares runs over the
// lanes that hold it. Each block also makes beta and g of its rows, for some of the heads.
//
// Rounding: convolution in float32, rounded to BF16; SiLU, rounded; q and k times 1/norm in float32, rounded; beta
// rounded to BF16 and kept as float32; g float32. Bound: memory, 4 bytes a channel and token.
//
//@ require: linear_k_dim in (8, 16, 32, 64, 128, 256) and value_dim % 8 == 0
//@ require: qkvzba_out % 8 == 0
//@ require: conv_width == 4
//@ define: KEY_DIM = key_dim
//@ define: VALUE_DIM = value_dim
//@ define: HEAD_DIM = linear_k_dim
//@ define: VALUE_HEADS = linear_v_heads
//@ define: ROW = qkvzba_out
//@ define: B_OFFSET = b_offset
//@ define: A_OFFSET = a_offset
//@ kernel: gdn_input
//@ grid: cdiv(conv_dim // 8, 128), cdiv(T, 6 * cdiv(T * cdiv(conv_dim // 8, 128), 6 * 500))
//@ block: 128
//@ args: qkvzba, conv_weight, dt_bias, a_log, q, k, v, beta, g, T
#include "rows.cuh"

constexpr int CONV = 4, CHANNELS = 2 * KEY_DIM + VALUE_DIM, LANES = HEAD_DIM / 8;
constexpr int AHEAD = 6;  // rows on their way; a multiple of 3, so that the window turns without a copy
constexpr int GROUPS = (CHANNELS / 8 + 127) / 128, BLOCK_HEADS = (VALUE_HEADS + GROUPS - 1) / GROUPS;

__device__ __forceinline__ void beta_and_decay(const bf16* __restrict__ row, const float* __restrict__ dt_bias,
                                               const float* __restrict__ a_log, float* __restrict__ beta,
                                               float* __restrict__ g, int head) {
  beta[head] = round_bf16(sigmoid_fast(to_float(row[B_OFFSET + head])));
  float x = to_float(row[A_OFFSET + head]) + dt_bias[head];
  float softplus = x > 20.f ? x : log1pf(expf(x));  // PyTorch's threshold
  g[head] = -expf(a_log[head]) * softplus;
}

extern "C" __global__ void __launch_bounds__(128)
gdn_input(const bf16* __restrict__ qkvzba, const bf16* __restrict__ conv_weight, const float* __restrict__ dt_bias,
          const float* __restrict__ a_log, bf16* __restrict__ q, bf16* __restrict__ k, bf16* __restrict__ v,
          float* __restrict__ beta, float* __restrict__ g, int tokens) {
  // As many rows a block as make all blocks resident at once (4 a multiprocessor, 132 of them), in steps of AHEAD.
  int segment = AHEAD * ((tokens * gridDim.x + AHEAD * 500 - 1) / (AHEAD * 500));
  int first = blockIdx.y * segment, last = min(first + segment, tokens);
  int piece = blockIdx.x * 128 + threadIdx.x, channel = piece * 8;
  bool mine = channel < CHANNELS;
  bool key = channel < 2 * KEY_DIM;
  bool warp_has_keys = __any_sync(~0u, key);
  if (!mine) piece = 0;
  bf16* out = channel < KEY_DIM ? q + channel : key ? k + channel - KEY_DIM : v + channel - 2 * KEY_DIM;
  int out_row = key ? KEY_DIM : VALUE_DIM;

  float w[8][CONV];
#pragma unroll
  for (int pair = 0; pair < 4; ++pair) {
    Eight two = load_eight(conv_weight, piece * 4 + pair);
#pragma unroll
    for (int i = 0; i < 8; ++i) w[pair * 2 + i / 4][i % 4] = two.x[i];
  }
  Eight window[CONV - 1];  // the rows before the one at hand
#pragma unroll
  for (int i = 0; i < CONV - 1; ++i) {
    int token = first - (CONV - 1) + i;
    window[i] = {};
    if (token >= 0) window[i] = load_eight(qkvzba + token * ROW, piece);
  }
  uint4 ahead[AHEAD];
  auto load_row = [&](int token) {
    return load_piece(qkvzba + min(token, last - 1) * ROW, piece);  // below 2^31 up to 130,000 tokens
  };
#pragma unroll
  for (int i = 0; i < AHEAD; ++i) ahead[i] = load_row(first + i);
  // While the first rows are on their way.
#pragma unroll 1
  for (int i = threadIdx.x; i < (last - first) * BLOCK_HEADS; i += 128) {
    long long token = first + i / BLOCK_HEADS;
    int head = blockIdx.x * BLOCK_HEADS + i % BLOCK_HEADS;
    if (head < VALUE_HEADS) {
      beta_and_decay(qkvzba + token * ROW, dt_bias, a_log, beta + token * VALUE_HEADS, g + token * VALUE_HEADS, head);
    }
  }
  for (int start = first; start < last; start += AHEAD) {
#pragma unroll
    for (int i = 0; i < AHEAD; ++i) {
      Eight x = unpack(ahead[i]), sum;
      ahead[i] = load_row(start + AHEAD + i);
#pragma unroll
      for (int c = 0; c < 8; ++c) {
        float mixed = window[0].x[c] * w[c][0];
        mixed = fmaf(window[1].x[c], w[c][1], mixed);
        mixed = fmaf(window[2].x[c], w[c][2], mixed);
        mixed = fmaf(x.x[c], w[c][3], mixed);
        sum.x[c] = round_bf16(silu_fast(round_bf16(mixed)));
      }
      window[0] = window[1], window[1] = window[2], window[2] = x;
      if (warp_has_keys) {
        float squares = sum_over_lanes<LANES>(sum_of_squares(sum)), norm = key ? rsqrtf(squares + 1e-6f) : 1.f;
#pragma unroll
        for (int c = 0; c < 8; ++c) sum.x[c] *= norm;
      }
      if (mine && start + i < last) store_eight(out + (start + i) * out_row, 0, sum);
    }
  }
}
