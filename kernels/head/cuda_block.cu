// Final norm of the last token and the decision head: one block, one row.
//
// Rounding: the residual sum to BF16; the norm in float32, rounded to BF16; its product with the head's float32 row is
// summed in float64, in a fixed order. Bound: latency, one row of 5,120 values and one launch.
//
//@ require: hidden % 8 == 0 and hidden <= 8192
//@ define: HIDDEN = hidden
//@ define: EPS = eps
//@ kernel: head
//@ grid: 1
//@ block: cdiv(hidden // 8, 32) * 32
//@ args: residual, delta, norm_weight, head_weight, head_bias, hidden, score, T
#include "rows.cuh"

constexpr int THREADS = (HIDDEN / 8 + 31) / 32 * 32;

extern "C" __global__ void __launch_bounds__(THREADS)
head(const bf16* __restrict__ residual, const bf16* __restrict__ delta, const bf16* __restrict__ norm_weight,
     const float* __restrict__ head_weight, const float* __restrict__ head_bias, bf16* __restrict__ hidden,
     double* __restrict__ score, int tokens) {
  __shared__ double warps[THREADS / 32];
  long long row = static_cast<long long>(tokens - 1) * HIDDEN;
  bool mine = threadIdx.x < HIDDEN / 8;
  Eight x = {}, w = {};
  if (mine) {
    x = load_eight(residual + row, threadIdx.x);
    Eight d = load_eight(delta + row, threadIdx.x);
    w = load_eight(norm_weight, threadIdx.x);
#pragma unroll
    for (int i = 0; i < 8; ++i) x.x[i] = round_bf16(x.x[i] + d.x[i]);
  }
  float scale = rsqrtf(sum_over_block<THREADS>(sum_of_squares(x)) / HIDDEN + static_cast<float>(EPS));
  double sum = 0;
  if (mine) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      x.x[i] = round_bf16(x.x[i] * scale * (1.f + w.x[i]));
      sum += static_cast<double>(x.x[i]) * head_weight[threadIdx.x * 8 + i];
    }
    store_eight(hidden, threadIdx.x, x);
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    double total = head_bias[0];
    for (int i = 0; i < THREADS / 32; ++i) total += warps[i];
    score[0] = total;
  }
}
