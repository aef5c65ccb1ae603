// Causal attention for head dim 256 on Hopper's tensor cores, the output gate applied in the epilogue.
//
// One launch; attention.cuh has the algorithm. Bound: 4 x 256 FLOPs a query head, key and token of the causal half, at
// the tensor cores' rate; a block moves its K and V through L2 once for all query heads of the group.
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
//@ kernel: attention_gated
//@ grid: cdiv(T, 128 // heads_per_kv) * kv_heads
//@ block: 384
//@ smem: 197632
//@ args: q_map, k_map, v_map, qkv, out, T
#include "attention.cuh"

extern "C" __global__ void __launch_bounds__(384, 1)
attention_gated(const __grid_constant__ TensorMap q_map, const __grid_constant__ TensorMap k_map,
                const __grid_constant__ TensorMap v_map, const bf16* __restrict__ qkv, bf16* __restrict__ out,
                int tokens) {
  attend<true>(q_map, k_map, v_map, qkv, out, tokens);
}
