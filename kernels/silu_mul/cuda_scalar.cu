// SiLU of the gate half times the up half: one value a thread.
//
// Rounding: SiLU in float32 with expf, rounded to BF16; the product rounded. Bound: memory, 6 bytes a value.
//
//@ define: WIDTH = intermediate
//@ kernel: silu_mul
//@ grid: cdiv(intermediate, 256), T
//@ block: 256
//@ args: gate_up, out
#include "rows.cuh"

extern "C" __global__ void __launch_bounds__(256) silu_mul(const bf16* __restrict__ gate_up, bf16* __restrict__ out) {
  int column = blockIdx.x * 256 + threadIdx.x;
  long long row = blockIdx.y;
  if (column < WIDTH) {
    float gate = to_float(gate_up[row * 2 * WIDTH + column]), up = to_float(gate_up[row * 2 * WIDTH + WIDTH + column]);
    out[row * WIDTH + column] = to_bf16(round_bf16(silu(gate)) * up);
  }
}
