// Head-wise RMSNorm times SiLU of z: eight values a lane, as many lanes as a head needs, everything in registers.
//
// Rounding: the norm in float32, rounded to BF16; its products with the float32 weight and with SiLU(z) are float32,
// rounded once at the end. Bound: memory, 6 bytes a value.
//
//@ require: linear_v_dim in (8, 16, 32, 64, 128, 256) and qkvzba_out % 8 == 0 and z_offset % 8 == 0
//@ define: HEADS = linear_v_heads
//@ define: DIM = linear_v_dim
//@ define: ROW = qkvzba_out
//@ define: Z_OFFSET = z_offset
//@ define: EPS = eps
//@ kernel: gated_norm
//@ grid: cdiv(T * linear_v_heads * (linear_v_dim // 8), 256)
//@ block: 256
//@ args: o, qkvzba, weight, out, T
#include "rows.cuh"

constexpr int LANES = DIM / 8;

extern "C" __global__ void __launch_bounds__(256)
gated_norm(const bf16* __restrict__ o, const bf16* __restrict__ qkvzba, const float* __restrict__ weight,
           bf16* __restrict__ out, int tokens) {
  int piece = blockIdx.x * 256 + threadIdx.x;
  int token = piece / (HEADS * LANES), in_row = piece % (HEADS * LANES);
  bool mine = token < tokens;  // the others still take part in their warp's sums
  Eight x = {}, z = {};
  if (mine) {
    x = load_eight(o, piece);
    z = load_eight(qkvzba + static_cast<long long>(token) * ROW + Z_OFFSET, in_row);
  }
  const float4* w = reinterpret_cast<const float4*>(weight) + in_row % LANES * 2;
  float4 low = w[0], high = w[1];
  float weights[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
  float scale = rsqrtf(sum_over_lanes<LANES>(sum_of_squares(x)) / DIM + static_cast<float>(EPS));
#pragma unroll
  for (int i = 0; i < 8; ++i) x.x[i] = round_bf16(x.x[i] * scale) * weights[i] * silu_fast(z.x[i]);
  if (mine) store_eight(out, piece, x);
}
