// Rows of BF16 in pieces of eight (16 bytes): load, unpack, pack, store; sums over lanes and blocks; SiLU.
#pragma once

#include "convert.cuh"

struct Eight {
  float x[8];
};

__device__ __forceinline__ Eight unpack(uint4 piece) {
  return {low_float(piece.x), high_float(piece.x), low_float(piece.y), high_float(piece.y),
          low_float(piece.z), high_float(piece.z), low_float(piece.w), high_float(piece.w)};
}
__device__ __forceinline__ uint4 pack(const Eight& e) {
  return make_uint4(to_bf16x2(e.x[0], e.x[1]), to_bf16x2(e.x[2], e.x[3]), to_bf16x2(e.x[4], e.x[5]),
                    to_bf16x2(e.x[6], e.x[7]));
}
// Piece `index` (eight values) of a row; rows start at multiples of 16 bytes.
__device__ __forceinline__ uint4 load_piece(const bf16* row, int index) {
  return reinterpret_cast<const uint4*>(row)[index];
}
__device__ __forceinline__ Eight load_eight(const bf16* row, int index) { return unpack(load_piece(row, index)); }
__device__ __forceinline__ void store_eight(bf16* row, int index, const Eight& e) {
  reinterpret_cast<uint4*>(row)[index] = pack(e);
}
// The sum of eight squares, always in this order, so that variants which load differently agree bit for bit.
__device__ __forceinline__ float sum_of_squares(const Eight& e) {
  float sum = 0.f;
#pragma unroll
  for (int i = 0; i < 8; ++i) sum = fmaf(e.x[i], e.x[i], sum);
  return sum;
}

// Sum over groups of LANES neighbouring lanes (a power of two); every lane gets it.
template <int LANES>
__device__ __forceinline__ float sum_over_lanes(float x) {
#pragma unroll
  for (int step = LANES / 2; step > 0; step /= 2) x += __shfl_xor_sync(~0u, x, step);
  return x;
}

// Sum over a block of THREADS (a multiple of 32), in a fixed order; every thread gets it. Call it once a kernel.
template <int THREADS>
__device__ __forceinline__ float sum_over_block(float x) {
  __shared__ float warps[THREADS / 32];
  x = sum_over_lanes<32>(x);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = x;
  __syncthreads();
  float sum = 0.f;
#pragma unroll
  for (int i = 0; i < THREADS / 32; ++i) sum += warps[i];
  return sum;
}

// SiLU as PyTorch computes it: expf and a true division.
__device__ __forceinline__ float silu(float x) { return x / (1.f + expf(-x)); }
