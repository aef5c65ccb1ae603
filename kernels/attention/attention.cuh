// Causal attention with grouped queries for head dim 256, on Hopper; the two variants differ in GATED alone.
//
// A block takes 128 rows: TOKENS consecutive tokens x GROUP query heads of one key/value head, token by token, so one
// tile of keys serves the whole group and the causal edge wastes few products. Two warpgroups hold 64 rows each: their
// output (64 x 256 float32) stays in registers, scores come from wgmma on shared Q and K, go through an online softmax
// (base 2, running maximum and sum) and return to wgmma as BF16 registers against V. While the weights of one tile
// meet V, the next tile's scores are already being computed. A third warpgroup's first thread feeds rings of K and V.
//
// Rounding: scores and their sum in float32, weights BF16 before they are normalised, as FlashAttention has it; the
// attention is rounded to BF16, the gate's sigmoid is, and their product is.
#pragma once

#include "hopper.cuh"

constexpr int GROUP = HEADS / KV_HEADS;
constexpr int TOKENS = 128 / GROUP;  // tokens a block
constexpr int DIM = 256;
constexpr int KEYS = 64;  // keys a tile
constexpr int STAGES = 2;
constexpr int Q_BYTES = 128 * DIM * 2, TILE_BYTES = KEYS * DIM * 2;
constexpr int Q_GROUP = 128 * 128, TILE_GROUP = KEYS * 128;  // bytes between column groups of 64
constexpr float SCALE_LOG2 = 0.0625f * LOG2_E;              // 1 / sqrt(DIM), for powers of two

// 8 attention values times the sigmoid of 8 gates.
__device__ __forceinline__ uint4 apply_gate(uint4 values, uint4 gates) {
  const unsigned* x = &values.x;
  const unsigned* z = &gates.x;
  unsigned out[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    out[i] = to_bf16x2(low_float(x[i]) * round_bf16(sigmoid_fast(low_float(z[i]))),
                       high_float(x[i]) * round_bf16(sigmoid_fast(high_float(z[i]))));
  }
  return make_uint4(out[0], out[1], out[2], out[3]);
}

// Where the gates of (token, head) start in the packed row [q gate per head | k | v].
__device__ __forceinline__ const bf16* gate_row(const bf16* qkv, int token, int head) {
  return qkv + static_cast<long long>(token) * QKV_OUT + head * (2 * DIM) + DIM;
}

__device__ __forceinline__ float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
  return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}
__device__ __forceinline__ float quad_sum(float x) {
  x += __shfl_xor_sync(~0u, x, 1);
  return x + __shfl_xor_sync(~0u, x, 2);
}

#define MINUS_INFINITY __int_as_float(0xff800000)

struct Softmax {
  float max_low, max_high, sum_low, sum_high;  // of rows g and g + 8; the sums are this thread's share

  // Scores become weights; also by how much what was summed before has to shrink.
  __device__ __forceinline__ void step(float (&s)[32], float& shrink_low, float& shrink_high) {
    float new_low = max_low, new_high = max_high;
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      new_low = fmaxf(new_low, fmaxf(s[4 * n], s[4 * n + 1]));
      new_high = fmaxf(new_high, fmaxf(s[4 * n + 2], s[4 * n + 3]));
    }
    new_low = quad_max(new_low);
    new_high = quad_max(new_high);
    // A row that has met no key yet keeps a maximum of -inf; 0 in its place makes every weight 2^-inf = 0.
    float base_low = new_low == MINUS_INFINITY ? 0.f : new_low * SCALE_LOG2;
    float base_high = new_high == MINUS_INFINITY ? 0.f : new_high * SCALE_LOG2;
    shrink_low = exp2_fast(max_low * SCALE_LOG2 - base_low);
    shrink_high = exp2_fast(max_high * SCALE_LOG2 - base_high);
    max_low = new_low;
    max_high = new_high;
    float total_low = 0.f, total_high = 0.f;
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      s[4 * n] = exp2_fast(fmaf(s[4 * n], SCALE_LOG2, -base_low));
      s[4 * n + 1] = exp2_fast(fmaf(s[4 * n + 1], SCALE_LOG2, -base_low));
      s[4 * n + 2] = exp2_fast(fmaf(s[4 * n + 2], SCALE_LOG2, -base_high));
      s[4 * n + 3] = exp2_fast(fmaf(s[4 * n + 3], SCALE_LOG2, -base_high));
      total_low += s[4 * n] + s[4 * n + 1];
      total_high += s[4 * n + 2] + s[4 * n + 3];
    }
    sum_low = sum_low * shrink_low + total_low;
    sum_high = sum_high * shrink_high + total_high;
  }
};

__device__ __forceinline__ void pack(unsigned (&weights)[16], const float (&s)[32]) {
#pragma unroll
  for (int e = 0; e < 16; ++e) weights[e] = to_bf16x2(s[2 * e], s[2 * e + 1]);
}

__device__ __forceinline__ void start_scores(float (&s)[32], unsigned q_rows, unsigned k_tile) {
  wgmma_fence();
#pragma unroll
  for (int step = 0; step < DIM / 16; ++step) {
    wgmma_64x64_shared(s, descriptor_k_major(q_rows + (step / 4) * Q_GROUP + (step % 4) * 32),
                       descriptor_k_major(k_tile + (step / 4) * TILE_GROUP + (step % 4) * 32), step > 0);
  }
  wgmma_commit();
}

__device__ __forceinline__ void start_values(float (&o)[128], const unsigned (&weights)[16], unsigned v_tile,
                                             bool accumulate) {
  wgmma_fence();
#pragma unroll
  for (int step = 0; step < KEYS / 16; ++step) {
    wgmma_64x256(o, weights + 4 * step, descriptor_n_major(v_tile + step * 2048, TILE_GROUP), accumulate || step > 0);
  }
  wgmma_commit();
}

// Scores of keys after the row's token become -inf; `first_key` is the tile's first.
__device__ __forceinline__ void mask_future(float (&s)[32], int first_key, int token_low, int token_high, int in_quad) {
#pragma unroll
  for (int n = 0; n < 8; ++n) {
    int key = first_key + 8 * n + 2 * in_quad;
    if (key > token_low) s[4 * n] = MINUS_INFINITY;
    if (key + 1 > token_low) s[4 * n + 1] = MINUS_INFINITY;
    if (key > token_high) s[4 * n + 2] = MINUS_INFINITY;
    if (key + 1 > token_high) s[4 * n + 3] = MINUS_INFINITY;
  }
}

// Rows of V past the last token hold what we must not multiply, not even by 0: they become zeros.
__device__ __forceinline__ void clear_rows(unsigned v_tile, int first_row, int thread, int barrier) {
  for (int piece = thread; piece < (KEYS - first_row) * 32; piece += 128) {
    int row = first_row + piece / 32, column = piece % 32;
    asm volatile("st.shared.v4.u32 [%0], {%1, %1, %1, %1};" ::"r"(v_tile + (column / 8) * TILE_GROUP +
                                                                  swizzled(row, column % 8)),
                 "r"(0)
                 : "memory");
  }
  fence_shared_for_engines();
  barrier_wait<128>(barrier);
}

// A tile of keys or values of a head, in four column groups.
__device__ __forceinline__ void load_tile(unsigned tile, const TensorMap* map, int kv_head, int first_key,
                                          unsigned barrier) {
  barrier_expect(barrier, TILE_BYTES);
  for (int group = 0; group < 4; ++group) {
    copy_box(tile + group * TILE_GROUP, map, group * 64, kv_head, first_key, barrier);
  }
}

// This lane's 8 gates of each of eight rows of the block.
__device__ __forceinline__ void load_gates(uint4 (&gates)[8], const bf16* qkv, int first_row, int first_token,
                                           int kv_head, int tokens, int lane) {
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    int row = first_row + i, token = min(first_token + row / GROUP, tokens - 1);
    gates[i] = reinterpret_cast<const uint4*>(gate_row(qkv, token, kv_head * GROUP + row % GROUP))[lane];
  }
}

template <bool GATED>
__device__ __forceinline__ void attend(const TensorMap& q_map, const TensorMap& k_map, const TensorMap& v_map,
                                       const bf16* __restrict__ qkv, bf16* __restrict__ out, int tokens) {
  extern __shared__ char unaligned[];
  __shared__ __align__(8) unsigned long long barriers[1 + 4 * STAGES];
  unsigned q_at = (shared_address(unaligned) + 1023) & ~1023u;
  unsigned k_at = q_at + Q_BYTES, v_at = k_at + STAGES * TILE_BYTES;
  unsigned q_full = shared_address(barriers);
  unsigned k_full = q_full + 8, k_empty = k_full + 8 * STAGES;
  unsigned v_full = k_empty + 8 * STAGES, v_empty = v_full + 8 * STAGES;

  // Later tokens have more keys: they start first, so that the short ones fill the gaps at the end.
  int tile_count = (tokens + TOKENS - 1) / TOKENS;
  int kv_head = blockIdx.x % KV_HEADS, first_token = (tile_count - 1 - blockIdx.x / KV_HEADS) * TOKENS;
  int last_token = min(first_token + TOKENS, tokens) - 1;
  int key_tiles = last_token / KEYS + 1;
  int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);

  if (threadIdx.x == 256) {
    prefetch_map(&q_map);
    prefetch_map(&k_map);
    prefetch_map(&v_map);
    barrier_init(q_full, 1);
    for (int stage = 0; stage < STAGES; ++stage) {
      barrier_init(k_full + 8 * stage, 1);
      barrier_init(v_full + 8 * stage, 1);
      barrier_init(k_empty + 8 * stage, 2);  // one arrival a warpgroup
      barrier_init(v_empty + 8 * stage, 2);
    }
    barrier_init_fence();
  }
  __syncthreads();

  if (warpgroup == 2) {
    give_registers<24>();
    if (threadIdx.x == 256) {
      barrier_expect(q_full, 4 * TOKENS * GROUP * 128);
      for (int group = 0; group < 4; ++group) {
        copy_box(q_at + group * Q_GROUP, &q_map, group * 64, kv_head * GROUP, first_token, q_full);
      }
      for (int i = 0; i < key_tiles; ++i) {
        int stage = i % STAGES, first_key = (key_tiles - 1 - i) * KEYS;
        unsigned parity = (i / STAGES - 1) & 1;
        if (i >= STAGES) barrier_wait_parity(k_empty + 8 * stage, parity);
        load_tile(k_at + stage * TILE_BYTES, &k_map, kv_head, first_key, k_full + 8 * stage);
        if (i >= STAGES) barrier_wait_parity(v_empty + 8 * stage, parity);
        load_tile(v_at + stage * TILE_BYTES, &v_map, kv_head, first_key, v_full + 8 * stage);
      }
    }
    return;
  }

  take_registers<240>();
  int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32, quad = lane / 4, in_quad = lane % 4;
  int row_low = warpgroup * 64 + warp * 16 + quad;
  int token_low = first_token + row_low / GROUP, token_high = first_token + (row_low + 8) / GROUP;
  unsigned q_rows = q_at + warpgroup * 64 * 128;
  float o[128], s[32];
  unsigned weights[16];
  Softmax softmax = {MINUS_INFINITY, MINUS_INFINITY, 0.f, 0.f};
  float shrink_low, shrink_high;

  barrier_wait_parity(q_full, 0);
  barrier_wait_parity(k_full, 0);
  start_scores(s, q_rows, k_at);
  wgmma_wait<0>();
  pin(s);
  if (thread == 0) barrier_arrive(k_empty);
  int first_key = (key_tiles - 1) * KEYS;
  mask_future(s, first_key, token_low, token_high, in_quad);
  softmax.step(s, shrink_low, shrink_high);
  pack(weights, s);
  barrier_wait_parity(v_full, 0);
  if (first_key + KEYS > tokens) clear_rows(v_at, tokens - first_key, thread, 1 + warpgroup);

  for (int i = 1; i < key_tiles; ++i) {
    int stage = i % STAGES, before = (i - 1) % STAGES;
    first_key -= KEYS;
    barrier_wait_parity(k_full + 8 * stage, (i / STAGES) & 1);
    start_scores(s, q_rows, k_at + stage * TILE_BYTES);
    barrier_wait_parity(v_full + 8 * before, ((i - 1) / STAGES) & 1);
    start_values(o, weights, v_at + before * TILE_BYTES, i > 1);
    wgmma_wait<1>();
    pin(s);
    if (thread == 0) barrier_arrive(k_empty + 8 * stage);
    if (first_key + KEYS > first_token) mask_future(s, first_key, token_low, token_high, in_quad);
    softmax.step(s, shrink_low, shrink_high);
    wgmma_wait<0>();
    pin(o);
    if (thread == 0) barrier_arrive(v_empty + 8 * before);
#pragma unroll
    for (int n = 0; n < 32; ++n) {
      o[4 * n] *= shrink_low;
      o[4 * n + 1] *= shrink_low;
      o[4 * n + 2] *= shrink_high;
      o[4 * n + 3] *= shrink_high;
    }
    pack(weights, s);
  }
  int last = (key_tiles - 1) % STAGES;
  barrier_wait_parity(v_full + 8 * last, ((key_tiles - 1) / STAGES) & 1);
  start_values(o, weights, v_at + last * TILE_BYTES, key_tiles > 1);
  uint4 gates[8];
  if (GATED) load_gates(gates, qkv, warpgroup * 64 + warp * 16, first_token, kv_head, tokens, lane);
  wgmma_wait<0>();
  pin(o);

  // Through this warp's own rows of Q, which nobody reads any more, to whole rows of 512 bytes, eight at a time; the
  // gates of eight rows are on their way while the rows before them are written.
  barrier_wait<128>(1 + warpgroup);
  float inverse_low = 1.f / quad_sum(softmax.sum_low), inverse_high = 1.f / quad_sum(softmax.sum_high);
  int first_row = warpgroup * 64 + warp * 16;
#pragma unroll
  for (int pair = 0; pair < 16; ++pair) {
    const float* x = o + 8 * pair;
    unsigned column = pair * 2 + lane / 16;
    unsigned left_low = to_bf16x2(x[0] * inverse_low, x[1] * inverse_low);
    unsigned left_high = to_bf16x2(x[2] * inverse_high, x[3] * inverse_high);
    unsigned right_low = to_bf16x2(x[4] * inverse_low, x[5] * inverse_low);
    unsigned right_high = to_bf16x2(x[6] * inverse_high, x[7] * inverse_high);
    store_matrix_x4(q_at + (column / 8) * Q_GROUP + swizzled(first_row + lane % 16, column % 8), left_low, left_high,
                    right_low, right_high);
  }
  __syncwarp();
#pragma unroll
  for (int batch = 0; batch < 16; batch += 8) {
    if (GATED && batch > 0) load_gates(gates, qkv, first_row + batch, first_token, kv_head, tokens, lane);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      int row = first_row + batch + i, token = first_token + row / GROUP, head = kv_head * GROUP + row % GROUP;
      if (row < TOKENS * GROUP && token < tokens) {
        uint4 values = load_shared_16(q_at + (lane / 8) * Q_GROUP + swizzled(row, lane % 8));
        if (GATED) values = apply_gate(values, gates[i]);
        reinterpret_cast<uint4*>(out + (static_cast<long long>(token) * HEADS + head) * DIM)[lane] = values;
      }
    }
  }
}
