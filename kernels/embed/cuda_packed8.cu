// Embedding gather: eight values a thread; the residual stream starts at zero beside it.
//
// Nothing is rounded. Bound: memory, 3 x hidden x 2 bytes a token.
//
//@ require: hidden % 8 == 0
//@ define: HIDDEN = hidden
//@ kernel: embed
//@ grid: cdiv(hidden // 8, 128), T
//@ block: 128
//@ args: ids, weight, residual, delta
#include "rows.cuh"

extern "C" __global__ void __launch_bounds__(128)
embed(const long long* __restrict__ ids, const bf16* __restrict__ weight, bf16* __restrict__ residual,
      bf16* __restrict__ delta) {
  int piece = blockIdx.x * 128 + threadIdx.x;
  if (piece < HIDDEN / 8) {
    long long row = static_cast<long long>(blockIdx.y) * HIDDEN;
    reinterpret_cast<uint4*>(delta + row)[piece] = load_piece(weight + ids[blockIdx.y] * HIDDEN, piece);
    reinterpret_cast<uint4*>(residual + row)[piece] = make_uint4(0, 0, 0, 0);
  }
}
