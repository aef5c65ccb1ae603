// Gated delta rule, chunk form (Yang, Kautz, Hatamizadeh, ICLR 2025), in two launches.
//
// Per value head, with chunks of 64 tokens, G the running sum of the log decay g inside a chunk, scale = 1/sqrt(dim):
//   A_ij = beta_i (k_i . k_j) exp(G_i - G_j), i > j        X' = (I + A)^-1 diag(beta)
//   P_ij = scale (q_i . k_j) exp(G_i - G_j), i >= j
//   R    = V - exp(G) K S          V' = X' R
//   O    = scale exp(G) Q S + P V'     S <- exp(G_63) S + K^T diag(exp(G_63 - G)) V'
// `gdn_prepare` computes X', P and the decays of every chunk at once, `gdn_chain` walks the chunks. Writing V' as X' R
// instead of U - W S keeps U and W out of memory: 16 KB a head and chunk instead of 72, for one product of 64 x 64
// more in the chain. |X_ij| <= 1, since it is an entry of a product of contractions.
//
// Rounding: k . k and q . k are exact products of BF16 summed in float32. A, the inverse's 16 x 16 diagonal blocks and
// the decays are float32; the inverse's other blocks are TF32 products. X', P, R, V' and the copy of S that enters a
// product are BF16, S itself float32.
//
// Bound: the chain. A link is 5 products, 1,024 tensor-core cycles for 64 value columns, and reads 57 KB of shared
// operands, the larger part of them once for both blocks of a cluster.
//
//@ arch: sm_90a
//@ dtype: bfloat16
//@ require: linear_k_dim == 128 and linear_v_dim == 128
//@ require: linear_v_heads % linear_k_heads == 0 and linear_v_heads // linear_k_heads <= 3
//@ define: KEY_HEADS = linear_k_heads
//@ define: VALUE_HEADS = linear_v_heads
//@ scratch: inverse = bfloat16, cdiv(rows(q), 64) * linear_v_heads * 4096
//@ scratch: pairs = bfloat16, cdiv(rows(q), 64) * linear_v_heads * 4096
//@ scratch: decays = float32, cdiv(rows(q), 64) * linear_v_heads * 128
//@ tensormap: k_map = k, (linear_k_heads, linear_k_dim), (64, 1, 64)
//@ tensormap: q_map = q, (linear_k_heads, linear_k_dim), (64, 1, 64)
//@ tensormap: v_map = v, (linear_v_heads, linear_v_dim), (64, 1, 64)
//@ kernel: gdn_prepare
//@ grid: linear_k_heads, cdiv(T, 64)
//@ block: 128 * (linear_v_heads // linear_k_heads)
//@ smem: 71680 + 11776 * (linear_v_heads // linear_k_heads)
//@ args: q, k, g, beta, inverse, pairs, decays, T
//@ kernel: gdn_chain
//@ grid: 2 * linear_v_heads
//@ block: 160
//@ smem: 3 * 57856 + 3 * 512 + 8192 + 1024
//@ args: k_map, q_map, v_map, inverse, pairs, decays, o, T
#include "hopper.cuh"

constexpr int RATIO = VALUE_HEADS / KEY_HEADS;
constexpr int CHUNK = 64;
constexpr int DIM = 128;
constexpr int TILE = CHUNK * CHUNK;
constexpr float SCALE = 0.08838834764831845f;  // 1 / sqrt(DIM)

// ---- every chunk at once: block (key head, chunk), a warpgroup a value head ----------------------------------------

constexpr int QK_ROW = 272;   // bytes a row of staged q or k: 16 more than 256, so that ldmatrix meets no bank twice
constexpr int DOT_ROW = 72;   // floats a row of k . k and q . k
constexpr int BLOCK_ROW = 24; // floats a row of an inverted diagonal block
constexpr int STAGED_BYTES = CHUNK * QK_ROW;

// Writes P for this value head straight to its swizzled tile in memory, 16 bytes a lane, 4 rows a round. Warps that
// have less of the inverse to do take more of the 16 rounds.
__device__ __forceinline__ void write_pairs(const float* q_dot_k, const float* decay_log2, bf16* tile, int thread) {
  int warp = thread / 32;
  int from = warp == 3 ? 8 : warp == 2 ? 2 : 0, to = warp == 3 ? 16 : warp == 2 ? 8 : warp == 1 ? 2 : 0;
  for (int round = from; round < to; ++round) {
    int i = round * 4 + thread % 32 / 8, column = thread % 8;
    unsigned packed[4] = {0, 0, 0, 0};
    if (column * 8 <= i) {
      float mine = decay_log2[i];
#pragma unroll
      for (int pair = 0; pair < 4; ++pair) {
        float value[2];
#pragma unroll
        for (int odd = 0; odd < 2; ++odd) {
          int j = column * 8 + pair * 2 + odd;
          value[odd] = j <= i ? SCALE * q_dot_k[i * DOT_ROW + j] * exp2_fast(mine - decay_log2[j]) : 0.f;
        }
        packed[pair] = to_bf16x2(value[0], value[1]);
      }
    }
    *reinterpret_cast<uint4*>(reinterpret_cast<char*>(tile) + swizzled(i, column)) =
        make_uint4(packed[0], packed[1], packed[2], packed[3]);
  }
}

// (I + A)^-1 of the 16 x 16 diagonal block `block` by substitution in float32, one column a lane (both half-warps
// do the same). `work` holds the block's A transposed; the inverse goes to `inverted`.
__device__ __forceinline__ void invert_diagonal(const float* k_dot_k, const float* decay_log2, const float* beta,
                                                int block, float* work, float* inverted, int lane) {
  int row = lane / 2, first = (lane % 2) * 8, i = block * 16 + row;
#pragma unroll
  for (int k = first; k < first + 8; ++k) {
    int j = block * 16 + k;
    work[k * 20 + row] = k < row ? beta[i] * k_dot_k[i * DOT_ROW + j] * exp2_fast(decay_log2[i] - decay_log2[j]) : 0.f;
  }
  __syncwarp();
  int column = lane % 16;
  float x[16];
#pragma unroll
  for (int r = 0; r < 16; ++r) x[r] = r == column ? 1.f : 0.f;
#pragma unroll
  for (int k = 0; k < 15; ++k) {
#pragma unroll
    for (int r = (k + 1) & ~3; r < 16; r += 4) {
      float4 a = *reinterpret_cast<const float4*>(work + k * 20 + r);
      if (r > k) x[r] -= a.x * x[k];
      if (r + 1 > k) x[r + 1] -= a.y * x[k];
      if (r + 2 > k) x[r + 2] -= a.z * x[k];
      x[r + 3] -= a.w * x[k];
    }
  }
  if (lane < 16) {
#pragma unroll
    for (int r = 0; r < 16; ++r) inverted[r * BLOCK_ROW + column] = x[r];
  }
}

extern "C" __global__ void __launch_bounds__(128 * RATIO, 2)
gdn_prepare(const bf16* __restrict__ q, const bf16* __restrict__ k, const float* __restrict__ g,
            const float* __restrict__ beta_in, bf16* __restrict__ inverse, bf16* __restrict__ pairs,
            float* __restrict__ decays, int tokens) {
  extern __shared__ __align__(16) char shared[];
  char* q_staged = shared;
  char* k_staged = shared + STAGED_BYTES;
  float* q_dot_k = reinterpret_cast<float*>(shared + 2 * STAGED_BYTES);
  float* k_dot_k = q_dot_k + CHUNK * DOT_ROW;
  int group = threadIdx.x / 128, thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32;
  float* own = k_dot_k + CHUNK * DOT_ROW + group * 2944;  // this value head's: 11,776 bytes
  float* inverted = own;                                  // 4 x 16 x BLOCK_ROW
  float* work = own + 1536;                               // 4 x 16 x 20
  float* decay_log2 = own + 2816;
  float* beta = own + 2880;
  char* staging = shared + group * (TILE * 2);  // over q and k, once their products are made

  int key_head = blockIdx.x, chunk = blockIdx.y, first = chunk * CHUNK;
  int value_head = key_head * RATIO + group;
  long long tile = static_cast<long long>(chunk) * VALUE_HEADS + value_head;

  for (int piece = threadIdx.x; piece < CHUNK * 16; piece += 128 * RATIO) {
    int row = piece / 16, column = piece % 16;
    bool keep = first + row < tokens;
    long long from = ((keep ? first + row : 0ll) * KEY_HEADS + key_head) * DIM + column * 8;
    copy_async_16(shared_address(q_staged + row * QK_ROW + column * 16), q + from, keep);
    copy_async_16(shared_address(k_staged + row * QK_ROW + column * 16), k + from, keep);
  }
  copy_async_commit();

  if (warp == 0) {
    int even = first + 2 * lane;
    long long at = static_cast<long long>(even) * VALUE_HEADS + value_head;
    float g_even = even < tokens ? g[at] : 0.f;
    float g_odd = even + 1 < tokens ? g[at + VALUE_HEADS] : 0.f;
    float sum = g_even + g_odd;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      float left = __shfl_up_sync(~0u, sum, step);
      if (lane >= step) sum += left;
    }
    float last = __shfl_sync(~0u, sum, 31) * LOG2_E;
    float odd_log2 = sum * LOG2_E, even_log2 = (sum - g_odd) * LOG2_E;
    *reinterpret_cast<float2*>(decay_log2 + 2 * lane) = make_float2(even_log2, odd_log2);
    float* out = decays + tile * 128 + 2 * lane;
    *reinterpret_cast<float2*>(out) = make_float2(exp2_fast(even_log2), exp2_fast(odd_log2));
    *reinterpret_cast<float2*>(out + 64) = make_float2(exp2_fast(last - even_log2), exp2_fast(last - odd_log2));
    beta[2 * lane] = even < tokens ? beta_in[at] : 0.f;
    beta[2 * lane + 1] = even + 1 < tokens ? beta_in[at + VALUE_HEADS] : 0.f;
  }
  copy_async_wait<0>();
  __syncthreads();

  // The 10 blocks of 16 x 16 on or under the diagonal, of k . k and of q . k, over all warps.
  int quad = lane / 4, in_quad = lane % 4;
  for (int job = threadIdx.x / 32; job < 20; job += 4 * RATIO) {
    int index = job % 10;
    int row_block = index < 1 ? 0 : index < 3 ? 1 : index < 6 ? 2 : 3;
    int column_block = index - row_block * (row_block + 1) / 2;
    const char* left = job < 10 ? k_staged : q_staged;
    unsigned a_row = shared_address(left + (row_block * 16 + lane % 16) * QK_ROW + (lane / 16) * 16);
    unsigned b_row = shared_address(k_staged + (column_block * 16 + lane % 8 + (lane / 16) * 8) * QK_ROW + (lane / 8 % 2) * 16);
    float dot[2][4] = {};
#pragma unroll
    for (int step = 0; step < DIM / 16; ++step) {
      unsigned a[4], b[4];
      load_matrix_x4(a, a_row + step * 32);
      load_matrix_x4(b, b_row + step * 32);
      mma_bf16(dot[0], a, b[0], b[1]);
      mma_bf16(dot[1], a, b[2], b[3]);
    }
    float* out = (job < 10 ? k_dot_k : q_dot_k) + (row_block * 16 + quad) * DOT_ROW + column_block * 16 + 2 * in_quad;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      *reinterpret_cast<float2*>(out + half * 8) = make_float2(dot[half][0], dot[half][1]);
      *reinterpret_cast<float2*>(out + half * 8 + 8 * DOT_ROW) = make_float2(dot[half][2], dot[half][3]);
    }
  }
  __syncthreads();

  invert_diagonal(k_dot_k, decay_log2, beta, warp, work + warp * 320, inverted + warp * 16 * BLOCK_ROW, lane);
  barrier_wait<128>(1 + group);
  write_pairs(q_dot_k, decay_log2, pairs + tile * TILE, thread);

  // Warp w holds Y = X^T of block column w: y[d] is block (w + d, w) of X, transposed, as accumulator fragments.
  // Block columns do not depend on each other: X_ij = -X_ii sum over k of A_ik X_kj.
  float y[4][2][4];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      y[0][half][e] = inverted[(warp * 16 + half * 8 + 2 * in_quad + e % 2) * BLOCK_ROW + quad + e / 2 * 8];
    }
  }
#pragma unroll
  for (int d = 1; d < 4; ++d) {
    if (warp + d < 4) {
      float sum[2][4] = {};
#pragma unroll
      for (int inner = 0; inner < d; ++inner) {
#pragma unroll
        for (int step = 0; step < 2; ++step) {
          int column = (warp + inner) * 16 + step * 8 + 2 * in_quad;
          float2 column_log2 = *reinterpret_cast<const float2*>(decay_log2 + column);
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            int row = (warp + d) * 16 + half * 8 + quad;
            float2 dot = *reinterpret_cast<const float2*>(k_dot_k + row * DOT_ROW + column);
            float a_even = beta[row] * dot.x * exp2_fast(decay_log2[row] - column_log2.x);
            float a_odd = beta[row] * dot.y * exp2_fast(decay_log2[row] - column_log2.y);
            mma_tf32(sum[half], y[inner][step], a_even, a_odd);
          }
        }
      }
      float block[2][4] = {};
#pragma unroll
      for (int step = 0; step < 2; ++step) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float2 x = *reinterpret_cast<const float2*>(inverted + ((warp + d) * 16 + half * 8 + quad) * BLOCK_ROW +
                                                      step * 8 + 2 * in_quad);
          mma_tf32(block[half], sum[step], x.x, x.y);
        }
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int e = 0; e < 4; ++e) y[d][half][e] = -block[half][e];
      }
    }
  }

  // X' = X diag(beta): row i of the tile, columns 16 w .. 16 w + 15, transposed back by stmatrix.
  float beta_low = beta[warp * 16 + quad], beta_high = beta[warp * 16 + quad + 8];
  unsigned tile_address = shared_address(staging);
#pragma unroll
  for (int d = 0; d < 4; ++d) {
    int row_block = (warp + d) % 4;
    unsigned m[4] = {0, 0, 0, 0};
    if (warp + d < 4) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        m[half * 2] = to_bf16x2(y[d][half][0] * beta_low, y[d][half][1] * beta_low);
        m[half * 2 + 1] = to_bf16x2(y[d][half][2] * beta_high, y[d][half][3] * beta_high);
      }
    }
    unsigned row = row_block * 16 + (lane / 16) * 8 + lane % 8;
    store_matrix_x4_transposed(tile_address + swizzled(row, warp * 2 + lane / 8 % 2), m[0], m[1], m[2], m[3]);
  }
  barrier_wait<128>(1 + group);
  uint4* out = reinterpret_cast<uint4*>(inverse + tile * TILE);
#pragma unroll
  for (int piece = 0; piece < 4; ++piece) out[piece * 128 + thread] = reinterpret_cast<uint4*>(staging)[piece * 128 + thread];
}

// ---- the chain: a cluster of two blocks a value head, 64 value columns each ----------------------------------------
//
// Everything is transposed: the warpgroup's 64 rows are value columns, so S^T (64 x 128), R^T, V'^T and O^T live in
// registers as accumulators and become the next product's register operand without a shuffle; K, Q, X' and P are the
// shared operands as they lie. One more warp feeds a ring of three stages.

constexpr int STAGES = 3;
constexpr int K_AT = 0, Q_AT = 16384, V_AT = 32768, X_AT = 40960, P_AT = 49152, DECAY_AT = 57344;
constexpr int STAGE_BYTES = 57856;             // what a block receives a chunk
constexpr int STAGE_PITCH = STAGE_BYTES + 512;  // stages start at multiples of 1,024

// Value columns of one chunk, out of the accumulator O^T through `staging` (2 KB of this warp's own).
__device__ __forceinline__ void store_output(const float (&o)[32], unsigned staging, bf16* out, int valid, int lane) {
#pragma unroll
  for (int pair = 0; pair < 4; ++pair) {
    const float* low = o + pair * 8;
    unsigned token = pair * 16 + (lane / 16) * 8 + lane % 8;
    store_matrix_x4_transposed(staging + token * 32 + (lane / 8 % 2) * 16, to_bf16x2(low[0], low[1]),
                               to_bf16x2(low[2], low[3]), to_bf16x2(low[4], low[5]), to_bf16x2(low[6], low[7]));
  }
  __syncwarp();
#pragma unroll
  for (int round = 0; round < 4; ++round) {
    int token = round * 16 + lane / 2;
    if (token < valid) {
      uint4 piece = load_shared_16(staging + token * 32 + (lane % 2) * 16);
      bf16* to = out + static_cast<long long>(token) * (VALUE_HEADS * DIM) + (lane % 2) * 8;
      asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(piece.x), "r"(piece.y), "r"(piece.z),
                   "r"(piece.w)
                   : "memory");
    }
  }
  __syncwarp();
}

__device__ __forceinline__ float2 load_float2(unsigned address) {
  float2 pair;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(pair.x), "=f"(pair.y) : "r"(address) : "memory");
  return pair;
}

// out = S^T M^T for the chunk's K or Q, M; started and committed, not awaited.
__device__ __forceinline__ void multiply_by_rows(float (&out)[32], const unsigned (&s_rounded)[32], unsigned rows) {
  wgmma_fence();
#pragma unroll
  for (int step = 0; step < 8; ++step) {
    wgmma_64x64<false>(out, s_rounded + 4 * step, descriptor_k_major(rows + (step / 4) * 8192 + (step % 4) * 32),
                       step > 0);
  }
  wgmma_commit();
}

// What the warps themselves need of a chunk: V^T and the decays.
__device__ __forceinline__ void load_chunk(unsigned (&v)[16], float2 (&decay)[8], float& state_decay, unsigned at,
                                           int warp, int lane) {
#pragma unroll
  for (int pair = 0; pair < 4; ++pair) {
    unsigned m[4];
    load_matrix_x4_transposed(m, at + V_AT + swizzled(pair * 16 + (lane / 16) * 8 + lane % 8, warp * 2 + lane / 8 % 2));
#pragma unroll
    for (int e = 0; e < 4; ++e) v[pair * 4 + e] = m[e];
  }
#pragma unroll
  for (int n = 0; n < 8; ++n) decay[n] = load_float2(at + DECAY_AT + (8 * n + 2 * (lane % 4)) * 4);
  state_decay = load_float2(at + DECAY_AT + 62 * 4).y;
}

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(160, 1)
gdn_chain(const __grid_constant__ TensorMap k_map, const __grid_constant__ TensorMap q_map,
          const __grid_constant__ TensorMap v_map, const bf16* __restrict__ inverse, const bf16* __restrict__ pairs,
          const float* __restrict__ decays, bf16* __restrict__ o_out, int tokens) {
  extern __shared__ char unaligned[];
  __shared__ __align__(8) unsigned long long barriers[2 * STAGES];
  unsigned base = (shared_address(unaligned) + 1023) & ~1023u;
  unsigned full = shared_address(barriers), empty = full + 8 * STAGES;
  int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;  // the compiler must see it uniform
  unsigned rank = cluster_rank();
  int head = blockIdx.x / 2, key_head = head / RATIO;
  int chunks = (tokens + CHUNK - 1) / CHUNK;

  if (threadIdx.x == 0) {
    for (int stage = 0; stage < STAGES; ++stage) {
      barrier_init(full + 8 * stage, 1);
      barrier_init(empty + 8 * stage, 8);  // 4 warps of each of the two blocks
    }
    barrier_init_fence();
  }
  cluster_meet();

  if (warp == 4) {
    if (lane == 0) {
      for (int chunk = 0; chunk < chunks; ++chunk) {
        int stage = chunk % STAGES;
        unsigned at = base + stage * STAGE_PITCH, bar = full + 8 * stage;
        long long tile = static_cast<long long>(chunk) * VALUE_HEADS + head;
        if (chunk >= STAGES) barrier_wait_parity(empty + 8 * stage, (chunk / STAGES - 1) & 1);
        barrier_expect(bar, STAGE_BYTES);
        // Each block fetches half of what both need.
        copy_box_to(at + K_AT + rank * 8192, &k_map, rank * 64, key_head, chunk * CHUNK, bar, 3);
        copy_box(at + V_AT, &v_map, rank * 64, head, chunk * CHUNK, bar);
        copy_bytes(at + DECAY_AT, decays + tile * 128, 512, bar);
        if (rank == 0) {
          copy_bytes_to(at + X_AT, inverse + tile * TILE, 8192, bar, 3);
        } else {
          copy_bytes_to(at + P_AT, pairs + tile * TILE, 8192, bar, 3);
        }
        copy_box_to(at + Q_AT + rank * 8192, &q_map, rank * 64, key_head, chunk * CHUNK, bar, 3);
      }
    }
  } else {
    int in_quad = lane % 4;
    unsigned staging = base + STAGES * STAGE_PITCH + warp * 2048;
    bf16* out = o_out + head * DIM + rank * 64 + warp * 16;
    float s[64], o[32], product[32];
    unsigned s_rounded[32] = {};
    unsigned v[16];     // V^T of the chunk at hand, as the accumulators lie
    float2 decay[8];    // its exp(G), tokens 8 n + 2 t and the next
    float state_decay;  // its exp(G_63)
#pragma unroll
    for (int i = 0; i < 64; ++i) s[i] = 0.f;

    barrier_wait_parity(full, 0);
    multiply_by_rows(product, s_rounded, base + K_AT);
    load_chunk(v, decay, state_decay, base, warp, lane);
    wgmma_wait<0>();
    pin(product);

    // Between iterations no product is pending, which the compiler's view of a loop needs; within one, a product is
    // always in the tensor cores while the warps convert the result of the one before it.
    for (int chunk = 0; chunk < chunks; ++chunk) {
      int stage = chunk % STAGES, valid = tokens - chunk * CHUNK;
      unsigned at = base + stage * STAGE_PITCH;

      // R^T, zero past the last token: what lies there in memory is not ours.
      unsigned r[16];
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        bool even = 8 * n + 2 * in_quad < valid, odd = 8 * n + 2 * in_quad + 1 < valid;
        float low0 = low_float(v[2 * n]) - decay[n].x * product[4 * n];
        float low1 = high_float(v[2 * n]) - decay[n].y * product[4 * n + 1];
        float high0 = low_float(v[2 * n + 1]) - decay[n].x * product[4 * n + 2];
        float high1 = high_float(v[2 * n + 1]) - decay[n].y * product[4 * n + 3];
        r[2 * n] = to_bf16x2(even ? low0 : 0.f, odd ? low1 : 0.f);
        r[2 * n + 1] = to_bf16x2(even ? high0 : 0.f, odd ? high1 : 0.f);
      }

      // V'^T = R^T X'^T, and O^T = S^T Q^T behind it.
      float v_new[32];
      wgmma_fence();
#pragma unroll
      for (int step = 0; step < 4; ++step) {
        wgmma_64x64<false>(v_new, r + 4 * step, descriptor_k_major(at + X_AT + step * 32), step > 0);
      }
      wgmma_commit();
      multiply_by_rows(o, s_rounded, at + Q_AT);
      wgmma_wait<1>();
      pin(v_new);
      unsigned v_rounded[16], v_decayed[16];
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        float2 rest = load_float2(at + DECAY_AT + 256 + (8 * n + 2 * in_quad) * 4);  // exp(G_63 - G)
        v_rounded[2 * n] = to_bf16x2(v_new[4 * n], v_new[4 * n + 1]);
        v_rounded[2 * n + 1] = to_bf16x2(v_new[4 * n + 2], v_new[4 * n + 3]);
        v_decayed[2 * n] = to_bf16x2(v_new[4 * n] * rest.x, v_new[4 * n + 1] * rest.y);
        v_decayed[2 * n + 1] = to_bf16x2(v_new[4 * n + 2] * rest.x, v_new[4 * n + 3] * rest.y);
      }
#pragma unroll
      for (int i = 0; i < 64; ++i) s[i] *= state_decay;

      // S^T += (V' decayed)^T K. Past the last token K's rows are not ours, but then nobody reads S any more.
      pin(s);
      wgmma_fence();
#pragma unroll
      for (int step = 0; step < 4; ++step) {
        wgmma_64x128<true>(s, v_decayed + 4 * step, descriptor_n_major(at + K_AT + step * 2048, 8192));
      }
      wgmma_commit();
      wgmma_wait<1>();
      pin(o);
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        o[4 * n] *= SCALE * decay[n].x;
        o[4 * n + 1] *= SCALE * decay[n].y;
        o[4 * n + 2] *= SCALE * decay[n].x;
        o[4 * n + 3] *= SCALE * decay[n].y;
      }
      // O^T += V'^T P^T
      pin(o);
      wgmma_fence();
#pragma unroll
      for (int step = 0; step < 4; ++step) {
        wgmma_64x64<false>(o, v_rounded + 4 * step, descriptor_k_major(at + P_AT + step * 32), true);
      }
      wgmma_commit();
      wgmma_wait<1>();
      pin(s);
#pragma unroll
      for (int i = 0; i < 32; ++i) s_rounded[i] = to_bf16x2(s[2 * i], s[2 * i + 1]);

      // The next chunk's K S; after the last chunk it multiplies what the stage still holds, and nobody reads it.
      int next_stage = (chunk + 1) % STAGES;
      unsigned next = base + next_stage * STAGE_PITCH;
      if (chunk + 1 < chunks) barrier_wait_parity(full + 8 * next_stage, ((chunk + 1) / STAGES) & 1);
      multiply_by_rows(product, s_rounded, next + K_AT);
      wgmma_wait<1>();
      pin(o);
      if (lane == 0) {
        barrier_arrive(empty + 8 * stage);
        barrier_arrive_at(empty + 8 * stage, rank ^ 1);
      }
      store_output(o, staging, out + static_cast<long long>(chunk) * CHUNK * (VALUE_HEADS * DIM), valid, lane);
      load_chunk(v, decay, state_decay, next, warp, lane);
      wgmma_wait<0>();
      pin(product);
    }
  }
  cluster_meet();  // the other block may still be writing to our barriers
}
