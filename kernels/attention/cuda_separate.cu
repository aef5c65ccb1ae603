// Causal attention for head dim 256 on Hopper's tensor cores; the output gate multiplies in a second pass.
//
// Two launches; attention.cuh has the algorithm. The pass reads and writes the output once more, 6 bytes a value with
// the gate, which is what `cuda_epilogue` saves; the roundings, and so the bits, are the same.
//
//@ arch: sm_90a
//@ dtype: bfloat16
//@ require: head_dim == 256 and heads_per_kv <= 8
//@ define: HEADS = heads
//@ define: KV_HEADS = kv_heads
//@ define: QKV_OUT = qkv_out
//@ tensormap: q_map = q, (heads, head_dim), (64, heads_per_kv, 128 // heads_per_kv)
//@ tensormap: k_map = k, (kv_heads, head_dim), (64, 1, 64)
//@ tensormap: v_map = qkv, (kv_heads, head_dim), (64, 1, 64), v_offset
//@ kernel: attention
//@ grid: cdiv(T, 128 // heads_per_kv) * kv_heads
//@ block: 384
//@ smem: 197632
//@ args: q_map, k_map, v_map, qkv, out, T
//@ kernel: gate_pass
//@ grid: T
//@ block: 32 * heads
//@ args: qkv, out
#include "attention.cuh"

extern "C" __global__ void __launch_bounds__(384, 1)
attention(const __grid_constant__ TensorMap q_map, const __grid_constant__ TensorMap k_map,
          const __grid_constant__ TensorMap v_map, const bf16* __restrict__ qkv, bf16* __restrict__ out, int tokens) {
  attend<false>(q_map, k_map, v_map, qkv, out, tokens);
}

// A block a token, a warp a head, 8 values a lane.
extern "C" __global__ void __launch_bounds__(32 * HEADS)
gate_pass(const bf16* __restrict__ qkv, bf16* __restrict__ out) {
  int head = threadIdx.x / 32, lane = threadIdx.x % 32;
  uint4* values = reinterpret_cast<uint4*>(out + (static_cast<long long>(blockIdx.x) * HEADS + head) * DIM) + lane;
  *values = apply_gate(*values, reinterpret_cast<const uint4*>(gate_row(qkv, blockIdx.x, head))[lane]);
}
