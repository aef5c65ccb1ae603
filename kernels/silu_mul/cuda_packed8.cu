// SiLU of the gate half times the up half: eight values a thread in 16-byte accesses.
//
// Rounding as in `cuda_scalar` (SiLU in float32 with expf, rounded; the product rounded), so the bits are equal. Bound:
// memory, 6 bytes a value.
//
//@ require: intermediate % 8 == 0
//@ define: WIDTH = intermediate
//@ kernel: silu_mul
//@ grid: cdiv(intermediate // 8, 256), T
//@ block: 256
//@ args: gate_up, out
#include "rows.cuh"

extern "C" __global__ void __launch_bounds__(256) silu_mul(const bf16* __restrict__ gate_up, bf16* __restrict__ out) {
  int piece = blockIdx.x * 256 + threadIdx.x;
  long long row = blockIdx.y;
  if (piece < WIDTH / 8) {
    Eight gate = load_eight(gate_up + row * 2 * WIDTH, piece);
    Eight up = load_eight(gate_up + row * 2 * WIDTH + WIDTH, piece);
#pragma unroll
    for (int i = 0; i < 8; ++i) gate.x[i] = round_bf16(silu(gate.x[i])) * up.x[i];
    store_eight(out + row * WIDTH, piece, gate);
  }
}
