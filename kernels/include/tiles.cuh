// Warp-level tile instructions (sm_80; stmatrix sm_90): shared-memory matrices in and out of registers, products.
//
// Fragment notation: g = lane / 4, t = lane % 4. A 16 x 8 float32 accumulator holds rows g and g + 8, columns 2t and
// 2t + 1, as {(g, 2t), (g, 2t+1), (g+8, 2t), (g+8, 2t+1)}.
#pragma once

#include "convert.cuh"

__device__ __forceinline__ unsigned shared_address(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

// Copies 16 bytes global -> shared in the background; `keep` false writes zeros and reads nothing.
__device__ __forceinline__ void copy_async_16(unsigned target, const void* source, bool keep) {
  int bytes = keep ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(target), "l"(source), "r"(bytes) : "memory");
}
__device__ __forceinline__ void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int PENDING>
__device__ __forceinline__ void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

__device__ __forceinline__ uint4 load_shared_16(unsigned address) {
  uint4 piece;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(piece.x), "=r"(piece.y), "=r"(piece.z), "=r"(piece.w)
               : "r"(address)
               : "memory");
  return piece;
}

// Four 8 x 8 BF16 matrices; lane 8m + r gives the address of row r of matrix m, register m receives it.
__device__ __forceinline__ void load_matrix_x4(unsigned (&m)[4], unsigned row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(row)
               : "memory");
}
__device__ __forceinline__ void load_matrix_x4_transposed(unsigned (&m)[4], unsigned row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(row)
               : "memory");
}
#if __CUDA_ARCH__ >= 900
__device__ __forceinline__ void store_matrix_x4(unsigned row, unsigned m0, unsigned m1, unsigned m2, unsigned m3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row), "r"(m0), "r"(m1),
               "r"(m2), "r"(m3)
               : "memory");
}
__device__ __forceinline__ void store_matrix_x4_transposed(unsigned row, unsigned m0, unsigned m1, unsigned m2,
                                                           unsigned m3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row), "r"(m0), "r"(m1),
               "r"(m2), "r"(m3)
               : "memory");
}
#endif

// c += a b, a 16 x 16 (row major fragment), b 16 x 8, BF16 in, float32 accumulated.
__device__ __forceinline__ void mma_bf16(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  asm(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ unsigned to_tf32(float x) {
  unsigned bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return bits;
}

// c += a b, a 16 x 8, b 8 x 8, TF32 operands. The contraction index may be numbered at will as long as a and b agree:
// slot t is column 2t and slot t + 4 column 2t + 1 here, so that an accumulator is an `a` operand as it stands.
__device__ __forceinline__ void mma_tf32(float (&c)[4], const float (&a)[4], float b_even, float b_odd) {
  asm(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(to_tf32(a[0])), "r"(to_tf32(a[2])), "r"(to_tf32(a[1])), "r"(to_tf32(a[3])), "r"(to_tf32(b_even)),
        "r"(to_tf32(b_odd)));
}

// Waits for the `THREADS` threads that name barrier `id` (1 to 15; 0 is __syncthreads').
template <int THREADS>
__device__ __forceinline__ void barrier_wait(int id) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "n"(THREADS) : "memory");
}
