// BF16 <-> float32 and packed pairs, without the toolkit's headers. A BF16 travels as its 16 bits; a pair as 32 bits
// with the lower index in the low half. Every rounding to BF16 is to nearest, ties to even, as in PyTorch.
#pragma once

typedef unsigned short bf16;
typedef unsigned int bf16x2;

__device__ __forceinline__ float to_float(bf16 x) { return __uint_as_float(static_cast<unsigned>(x) << 16); }
__device__ __forceinline__ float low_float(bf16x2 pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float high_float(bf16x2 pair) { return __uint_as_float(pair & 0xffff0000u); }

__device__ __forceinline__ bf16x2 to_bf16x2(float low, float high) {
  bf16x2 pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

__device__ __forceinline__ bf16 to_bf16(float x) {
  bf16 bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
}

// x rounded to BF16 and back: the value that the model's dtype would hold.
__device__ __forceinline__ float round_bf16(float x) { return to_float(to_bf16(x)); }

// 2^x, within 2 units in the last place of float32 (the hardware's approximation; subnormals flushed to zero).
__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

constexpr float LOG2_E = 1.4426950408889634f;

// sigmoid(x) and x sigmoid(x) from the hardware's approximations of 2^x and 1/x: within a few units in the last place
// of float32, far below a rounding to BF16, in a fifth of the instructions of expf and a division.
__device__ __forceinline__ float sigmoid_fast(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(1.f + exp2_fast(-LOG2_E * x)));
  return y;
}
__device__ __forceinline__ float silu_fast(float x) { return x * sigmoid_fast(x); }
