// Residual add and RMSNorm: a block a row, eight values a thread, kept in registers from the sum to the norm.
//
// Rounding: the sum to BF16, kept and normalised as such; sum of squares, norm and weight in float32; one rounding at
// the end. Bound: memory, 4 x hidden x 2 bytes a row (reads residual and delta, writes residual and out); the weight
// comes from cache.
//
//@ require: hidden % 8 == 0 and hidden <= 8192
//@ define: HIDDEN = hidden
//@ define: EPS = eps
//@ kernel: add_rmsnorm
//@ grid: T
//@ block: cdiv(hidden // 8, 32) * 32
//@ args: residual, delta, weight, out
#include "rows.cuh"

constexpr int THREADS = (HIDDEN / 8 + 31) / 32 * 32;

extern "C" __global__ void __launch_bounds__(THREADS)
add_rmsnorm(bf16* __restrict__ residual, const bf16* __restrict__ delta, const bf16* __restrict__ weight,
            bf16* __restrict__ out) {
  long long row = static_cast<long long>(blockIdx.x) * HIDDEN;
  bool mine = threadIdx.x < HIDDEN / 8;
  Eight x = {}, w = {};
  if (mine) {
    x = load_eight(residual + row, threadIdx.x);
    Eight d = load_eight(delta + row, threadIdx.x);
    w = load_eight(weight, threadIdx.x);
#pragma unroll
    for (int i = 0; i < 8; ++i) x.x[i] = round_bf16(x.x[i] + d.x[i]);
    store_eight(residual + row, threadIdx.x, x);
  }
  float scale = rsqrtf(sum_over_block<THREADS>(sum_of_squares(x)) / HIDDEN + static_cast<float>(EPS));
  if (mine) {
#pragma unroll
    for (int i = 0; i < 8; ++i) x.x[i] = x.x[i] * scale * (1.f + w.x[i]);
    store_eight(out + row, threadIdx.x, x);
  }
}
