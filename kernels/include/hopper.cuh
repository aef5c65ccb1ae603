// Hopper (sm_90a): barriers that count bytes, bulk tensor copies, warpgroup products.
//
// Shared tiles have rows of 128 bytes (64 BF16) and the 128-byte swizzle: 16-byte column c of row r lies at column
// c ^ (r & 7). Tiles start at multiples of 1,024 bytes. Both the copy engine and wgmma undo the swizzle themselves.
#pragma once

#include "tiles.cuh"

struct alignas(64) TensorMap {
  unsigned long long opaque[16];
};

// Byte offset of 16-byte column `column` of row `row` in a swizzled tile.
__device__ __forceinline__ unsigned swizzled(unsigned row, unsigned column) {
  return row * 128 + ((column ^ (row & 7)) << 4);
}

__device__ __forceinline__ void barrier_init(unsigned barrier, unsigned arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void barrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void barrier_arrive(unsigned barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Arrives at the same barrier of block `rank` of the cluster. Its readers of shared memory have to be done; ordinary
// writes are not published (a release at cluster scope waits for every store to global memory: a microsecond a time).
__device__ __forceinline__ void barrier_arrive_at(unsigned barrier, unsigned rank) {
  asm volatile(
      "{\n.reg .b32 remote;\nmapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote];\n}" ::"r"(barrier),
      "r"(rank)
      : "memory");
}
__device__ __forceinline__ void barrier_expect(unsigned barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
__device__ __forceinline__ void barrier_wait_parity(unsigned barrier, unsigned parity) {
  asm volatile(
      "{\n.reg .pred done;\nAGAIN:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra DONE;\nbra AGAIN;\nDONE:\n}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// One box of a (token, head, dim) tensor -> shared, completing on `barrier`; coordinates are those of the box's corner.
__device__ __forceinline__ void copy_box(unsigned target, const TensorMap* map, int dim, int head, int token,
                                         unsigned barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(
          target),
      "l"(map), "r"(dim), "r"(head), "r"(token), "r"(barrier)
      : "memory");
}
// The same into every block of the cluster whose bit is set, at the same offsets, each on its own barrier.
__device__ __forceinline__ void copy_box_to(unsigned target, const TensorMap* map, int dim, int head, int token,
                                            unsigned barrier, unsigned short blocks) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(target),
      "l"(map), "r"(dim), "r"(head), "r"(token), "r"(barrier), "h"(blocks)
      : "memory");
}
// `bytes` contiguous bytes (a multiple of 16) -> shared.
__device__ __forceinline__ void copy_bytes(unsigned target, const void* source, unsigned bytes, unsigned barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(target),
      "l"(source), "r"(bytes), "r"(barrier)
      : "memory");
}
__device__ __forceinline__ void copy_bytes_to(unsigned target, const void* source, unsigned bytes, unsigned barrier,
                                              unsigned short blocks) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], "
      "%4;" ::"r"(target),
      "l"(source), "r"(bytes), "r"(barrier), "h"(blocks)
      : "memory");
}
__device__ __forceinline__ void prefetch_map(const TensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

__device__ __forceinline__ unsigned cluster_rank() {
  unsigned rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
// All threads of the cluster's blocks meet. Relaxed: it orders no memory, which would cost a fence of the whole GPU.
__device__ __forceinline__ void cluster_meet() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

// Descriptors of a swizzled operand tile. Rows are the operand's n (or m) index and k runs along the row: KMajor.
// Rows are k and n runs along the row, in column groups of 64 that lie `group_bytes` apart: NMajor.
__device__ __forceinline__ unsigned long long descriptor_k_major(unsigned address) {
  return (1ull << 62) | (64ull << 32) | (1ull << 16) | ((address & 0x3ffff) >> 4);
}
__device__ __forceinline__ unsigned long long descriptor_n_major(unsigned address, unsigned group_bytes) {
  return (1ull << 62) | (64ull << 32) | (static_cast<unsigned long long>(group_bytes >> 4) << 16) |
         ((address & 0x3ffff) >> 4);
}

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int PENDING>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}
// Tells the compiler that an accumulator changes here, so that no use of it moves across a wait.
template <int N>
__device__ __forceinline__ void pin(float (&registers)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(registers[i])::"memory");
}

#define F4(r, i) "+f"(r[i]), "+f"(r[i + 1]), "+f"(r[i + 2]), "+f"(r[i + 3])
#define F16(r, i) F4(r, i), F4(r, i + 4), F4(r, i + 8), F4(r, i + 12)

// d (+)= a b: d 64 x 64 float32, a 64 x 16 BF16 in registers, b 16 x 64 in shared memory.
template <bool N_MAJOR>
__device__ __forceinline__ void wgmma_64x64(float (&d)[32], const unsigned* a, unsigned long long b, bool accumulate) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31}, {%32, %33, %34, %35}, %36, p, 1, 1, %38;\n}"
      : F16(d, 0), F16(d, 16)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(accumulate)), "n"(N_MAJOR));
}

// d (+)= a b: d 64 x 64 float32, a 64 x 16 and b 16 x 64 BF16, both in shared memory with k along the row.
__device__ __forceinline__ void wgmma_64x64_shared(float (&d)[32], unsigned long long a, unsigned long long b,
                                                   bool accumulate) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31}, %32, %33, p, 1, 1, 0, 0;\n}"
      : F16(d, 0), F16(d, 16)
      : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)));
}

// d (+)= a b: d 64 x 256 float32, a 64 x 16 BF16 in registers, b 16 x 256 in shared memory, n along the row.
__device__ __forceinline__ void wgmma_64x256(float (&d)[128], const unsigned* a, unsigned long long b,
                                             bool accumulate) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %133, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, "
      "%46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, "
      "%68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, "
      "%90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, "
      "%110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "
      "{%128, %129, %130, %131}, %132, p, 1, 1, 1;\n}"
      : F16(d, 0), F16(d, 16), F16(d, 32), F16(d, 48), F16(d, 64), F16(d, 80), F16(d, 96), F16(d, 112)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(accumulate)));
}

// Moves registers between warpgroups: every warp of one calls the same of these, once.
template <int COUNT>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <int COUNT>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}
// Makes this thread's ordinary writes to shared memory visible to wgmma and the copy engine.
__device__ __forceinline__ void fence_shared_for_engines() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
