// Residual add and RMSNorm: a block a row, one value at a time, the summed row read again after the reduction.
//
// Same threads, same values and same order of sums as `cuda_cached`, so the bits are equal; what differs is 2-byte
// accesses and a second pass over the row. Bound: memory, 5 x hidden x 2 bytes a row, the fifth from cache at best.
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
add_rmsnorm(bf16* residual, const bf16* delta, const bf16* weight, bf16* out) {
  long long row = static_cast<long long>(blockIdx.x) * HIDDEN;
  int first = threadIdx.x * 8;
  bool mine = first < HIDDEN;
  float sum = 0.f;
  if (mine) {
    for (int i = first; i < first + 8; ++i) {
      float x = round_bf16(to_float(residual[row + i]) + to_float(delta[row + i]));
      residual[row + i] = to_bf16(x);
      sum = fmaf(x, x, sum);
    }
  }
  float scale = rsqrtf(sum_over_block<THREADS>(sum) / HIDDEN + static_cast<float>(EPS));
  if (mine) {
    for (int i = first; i < first + 8; ++i) {
      out[row + i] = to_bf16(to_float(residual[row + i]) * scale * (1.f + to_float(weight[i])));
    }
  }
}
