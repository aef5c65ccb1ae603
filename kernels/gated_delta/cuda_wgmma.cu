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
// Bound: the chain. A link is 5 products, 1,024 tensor-core cycles for 64 value columns, and as long again goes into
// converting one product's result into the next one's operand (1,900 cycles measured); it reads 57 KB of operands, the
// larger part of them once for both blocks of a cluster.
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
//@ block: 192
//@ smem: 3 * 58368 + 2 * 8320 + 1024
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

// Four neighbouring values of row i of P, from column j on, where j is a multiple of 4.
__device__ __forceinline__ uint2 four_pairs(const float* q_dot_k, float row_log2, const float4& column_log2, int i,
                                            int j) {
  float4 dot = *reinterpret_cast<const float4*>(q_dot_k + i * DOT_ROW + j);
  float x = j <= i ? SCALE * dot.x * exp2_fast(row_log2 - column_log2.x) : 0.f;
  float y = j + 1 <= i ? SCALE * dot.y * exp2_fast(row_log2 - column_log2.y) : 0.f;
  float z = j + 2 <= i ? SCALE * dot.z * exp2_fast(row_log2 - column_log2.z) : 0.f;
  float w = j + 3 <= i ? SCALE * dot.w * exp2_fast(row_log2 - column_log2.w) : 0.f;
  return make_uint2(to_bf16x2(x, y), to_bf16x2(z, w));
}

// Writes every other four rows of P, from row 4 `first` on, straight to its swizzled tile in memory; a lane keeps its
// columns.
__device__ __forceinline__ void write_pairs(const float* q_dot_k, const float* decay_log2, bf16* tile, int first,
                                            int lane) {
  int j = lane % 8 * 4;
  float4 left_log2 = *reinterpret_cast<const float4*>(decay_log2 + j);
  float4 right_log2 = *reinterpret_cast<const float4*>(decay_log2 + j + 32);
  char* out = reinterpret_cast<char*>(tile) + lane % 2 * 8;
  for (int round = first; round < 16; round += 2) {
    int i = round * 4 + lane / 8;
    float row_log2 = decay_log2[i];
    *reinterpret_cast<uint2*>(out + swizzled(i, j / 8)) = four_pairs(q_dot_k, row_log2, left_log2, i, j);
    uint2 right = round < 8 ? make_uint2(0, 0) : four_pairs(q_dot_k, row_log2, right_log2, i, j + 32);
    *reinterpret_cast<uint2*>(out + swizzled(i, j / 8 + 4)) = right;
  }
}

// (I + A)^-1 of two 16 x 16 diagonal blocks by substitution in float32: a half-warp a block, a lane a column. `work`
// takes the block's A transposed, `inverted` the inverse.
__device__ __forceinline__ void invert_diagonal(const float* k_dot_k, const float* decay_log2, const float* beta,
                                                int block, float* work, float* inverted, int lane) {
  int column = lane % 16, i = block * 16 + column;
#pragma unroll
  for (int k = 0; k < 16; k += 4) {  // first this lane's row of A
    float4 dot = *reinterpret_cast<const float4*>(k_dot_k + i * DOT_ROW + block * 16 + k);
    float4 column_log2 = *reinterpret_cast<const float4*>(decay_log2 + block * 16 + k);
    float* out = work + k * 20 + column;
    out[0] = k < column ? beta[i] * dot.x * exp2_fast(decay_log2[i] - column_log2.x) : 0.f;
    out[20] = k + 1 < column ? beta[i] * dot.y * exp2_fast(decay_log2[i] - column_log2.y) : 0.f;
    out[40] = k + 2 < column ? beta[i] * dot.z * exp2_fast(decay_log2[i] - column_log2.z) : 0.f;
    out[60] = k + 3 < column ? beta[i] * dot.w * exp2_fast(decay_log2[i] - column_log2.w) : 0.f;
  }
  __syncwarp();
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
#pragma unroll
  for (int r = 0; r < 16; ++r) inverted[r * BLOCK_ROW + column] = x[r];
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

  // The 10 blocks of 16 x 16 on or under the diagonal, each of k . k and of q . k, over all warps.
  int quad = lane / 4, in_quad = lane % 4;
  for (int block = threadIdx.x / 32; block < 10; block += 4 * RATIO) {
    int row_block = block < 1 ? 0 : block < 3 ? 1 : block < 6 ? 2 : 3;
    int column_block = block - row_block * (row_block + 1) / 2;
    unsigned left = (row_block * 16 + lane % 16) * QK_ROW + (lane / 16) * 16;
    unsigned right = (column_block * 16 + lane % 8 + (lane / 16) * 8) * QK_ROW + (lane / 8 % 2) * 16;
    unsigned k_left = shared_address(k_staged) + left, q_left = shared_address(q_staged) + left;
    unsigned k_right = shared_address(k_staged) + right;
    float kk[2][4] = {}, qk[2][4] = {};
#pragma unroll
    for (int step = 0; step < DIM / 16; ++step) {
      unsigned a[4], b[4];
      load_matrix_x4(b, k_right + step * 32);
      load_matrix_x4(a, k_left + step * 32);
      mma_bf16(kk[0], a, b[0], b[1]);
      mma_bf16(kk[1], a, b[2], b[3]);
      load_matrix_x4(a, q_left + step * 32);
      mma_bf16(qk[0], a, b[0], b[1]);
      mma_bf16(qk[1], a, b[2], b[3]);
    }
    int at = (row_block * 16 + quad) * DOT_ROW + column_block * 16 + 2 * in_quad;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      *reinterpret_cast<float2*>(k_dot_k + at + half * 8) = make_float2(kk[half][0], kk[half][1]);
      *reinterpret_cast<float2*>(k_dot_k + at + half * 8 + 8 * DOT_ROW) = make_float2(kk[half][2], kk[half][3]);
      *reinterpret_cast<float2*>(q_dot_k + at + half * 8) = make_float2(qk[half][0], qk[half][1]);
      *reinterpret_cast<float2*>(q_dot_k + at + half * 8 + 8 * DOT_ROW) = make_float2(qk[half][2], qk[half][3]);
    }
  }
  __syncthreads();

  // Roles turn from head to head, or all heads' longest would share one of the multiprocessor's four schedulers.
  int role = (warp + group) % 4;
  if (role < 2) {
    int block = role * 2 + lane / 16;
    invert_diagonal(k_dot_k, decay_log2, beta, block, work + block * 320, inverted + block * 16 * BLOCK_ROW, lane);
  } else {
    write_pairs(q_dot_k, decay_log2, pairs + tile * TILE, role - 2, lane);
  }
  barrier_wait<128>(1 + group);

  // Role j holds Y = X^T of block column j: y[d] is block (j + d, j) of X, transposed, as accumulator fragments. Block
  // columns do not depend on each other: X_ij = -X_ii sum over k of A_ik X_kj.
  float y[4][2][4];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      y[0][half][e] = inverted[(role * 16 + half * 8 + 2 * in_quad + e % 2) * BLOCK_ROW + quad + e / 2 * 8];
    }
  }
#pragma unroll
  for (int d = 1; d < 4; ++d) {
    if (role + d < 4) {
      float sum[2][4] = {};
#pragma unroll
      for (int inner = 0; inner < d; ++inner) {
#pragma unroll
        for (int step = 0; step < 2; ++step) {
          int column = (role + inner) * 16 + step * 8 + 2 * in_quad;
          float2 column_log2 = *reinterpret_cast<const float2*>(decay_log2 + column);
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            int row = (role + d) * 16 + half * 8 + quad;
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
          float2 x = *reinterpret_cast<const float2*>(inverted + ((role + d) * 16 + half * 8 + quad) * BLOCK_ROW +
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

  // X' = X diag(beta): row i of the tile, columns 16 j .. 16 j + 15, transposed back by stmatrix.
  float beta_low = beta[role * 16 + quad], beta_high = beta[role * 16 + quad + 8];
  unsigned tile_address = shared_address(staging);
#pragma unroll
  for (int d = 0; d < 4; ++d) {
    int row_block = (role + d) % 4;
    unsigned m[4] = {0, 0, 0, 0};
    if (role + d < 4) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        m[half * 2] = to_bf16x2(y[d][half][0] * beta_low, y[d][half][1] * beta_low);
        m[half * 2 + 1] = to_bf16x2(y[d][half][2] * beta_high, y[d][half][3] * beta_high);
      }
    }
    unsigned row = row_block * 16 + (lane / 16) * 8 + lane % 8;
    store_matrix_x4_transposed(tile_address + swizzled(row, role * 2 + lane / 8 % 2), m[0], m[1], m[2], m[3]);
  }
  barrier_wait<128>(1 + group);
  const uint4* from = reinterpret_cast<const uint4*>(staging) + thread;
  uint4* out = reinterpret_cast<uint4*>(inverse + tile * TILE) + thread;
#pragma unroll
  for (int piece = 0; piece < 4; ++piece) out[piece * 128] = from[piece * 128];
}

// ---- the chain: a cluster of two blocks a value head, 64 value columns each ----------------------------------------
//
// Everything is transposed: the warpgroup's 64 rows are value columns, so S^T (64 x 128), R^T, V'^T and O^T live in
// registers as accumulators and become the next product's register operand without a shuffle; K, Q, X' and P are the
// shared operands as they lie. Warp 4 feeds a ring of three stages, warp 5 carries the output from shared memory to
// global memory: in the warpgroup that alone would take a quarter of a link.

constexpr int STAGES = 3;
constexpr int K_AT = 0, Q_AT = 16384, V_AT = 32768, X_AT = 40960, P_AT = 49152, DECAY_AT = 57344;
constexpr int STAGE_BYTES = 57856;             // what a block receives a chunk
constexpr int STAGE_PITCH = STAGE_BYTES + 512;  // stages start at multiples of 1,024

constexpr int STAGING_PITCH = 2080;  // 64 tokens x 16 columns of a warp, and 32 bytes so that warps differ in banks
constexpr int STAGING_BYTES = 4 * STAGING_PITCH;

// This warp's 16 value columns of a chunk, out of the accumulator O^T, into its part of a staging buffer.
__device__ __forceinline__ void stage_output(const float (&o)[32], unsigned staging, int lane) {
#pragma unroll
  for (int pair = 0; pair < 4; ++pair) {
    const float* low = o + pair * 8;
    unsigned token = pair * 16 + (lane / 16) * 8 + lane % 8;
    store_matrix_x4_transposed(staging + token * 32 + (lane / 8 % 2) * 16, to_bf16x2(low[0], low[1]),
                               to_bf16x2(low[2], low[3]), to_bf16x2(low[4], low[5]), to_bf16x2(low[6], low[7]));
  }
}

// Warp 5: a staged chunk of 64 columns to `out`, 128 bytes a token; tells when the buffer is free again.
__device__ __forceinline__ void write_output(unsigned staging, unsigned drained, bf16* out, int valid, int lane) {
  uint4 pieces[16];
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    pieces[i] = load_shared_16(staging + lane % 8 / 2 * STAGING_PITCH + (i * 4 + lane / 8) * 32 + lane % 2 * 16);
  }
  __syncwarp();
  if (lane == 0) barrier_arrive(drained);
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    int token = i * 4 + lane / 8;
    if (token < valid) {
      *reinterpret_cast<uint4*>(out + static_cast<long long>(token) * (VALUE_HEADS * DIM) + lane % 8 * 8) = pieces[i];
    }
  }
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

// state += (V' decayed)^T K for 64 of the key dimensions; started and committed, not awaited.
__device__ __forceinline__ void add_learned(float (&state)[32], const unsigned (&v_decayed)[16], unsigned k_half) {
  pin(state);
  wgmma_fence();
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    wgmma_64x64<true>(state, v_decayed + 4 * step, descriptor_n_major(k_half + step * 2048, 8192), true);
  }
  wgmma_commit();
}

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(192, 1)
gdn_chain(const __grid_constant__ TensorMap k_map, const __grid_constant__ TensorMap q_map,
          const __grid_constant__ TensorMap v_map, const bf16* __restrict__ inverse, const bf16* __restrict__ pairs,
          const float* __restrict__ decays, bf16* __restrict__ o_out, int tokens) {
  extern __shared__ char unaligned[];
  __shared__ __align__(8) unsigned long long barriers[2 * STAGES + 4];
  unsigned base = (shared_address(unaligned) + 1023) & ~1023u;
  unsigned full = shared_address(barriers), empty = full + 8 * STAGES;
  unsigned staged = empty + 8 * STAGES, drained = staged + 16;
  int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;  // the compiler must see it uniform
  unsigned rank = cluster_rank();
  int head = blockIdx.x / 2, key_head = head / RATIO;
  int chunks = (tokens + CHUNK - 1) / CHUNK;
  unsigned staging = base + STAGES * STAGE_PITCH;

  if (threadIdx.x == 0) {
    for (int stage = 0; stage < STAGES; ++stage) {
      barrier_init(full + 8 * stage, 1);
      barrier_init(empty + 8 * stage, 8);  // 4 warps of each of the two blocks
    }
    for (int buffer = 0; buffer < 2; ++buffer) {
      barrier_init(staged + 8 * buffer, 4);
      barrier_init(drained + 8 * buffer, 1);
    }
    barrier_init_fence();
  }
  __syncthreads();
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
        copy_bytes_to(at + (rank == 0 ? X_AT : P_AT), (rank == 0 ? inverse : pairs) + tile * TILE, 8192, bar, 3);
        copy_box_to(at + Q_AT + rank * 8192, &q_map, rank * 64, key_head, chunk * CHUNK, bar, 3);
      }
    }
  } else if (warp == 5) {
    bf16* out = o_out + head * DIM + rank * 64;
    for (int chunk = 0; chunk < chunks; ++chunk) {
      int buffer = chunk % 2, first = chunk * CHUNK;
      barrier_wait_parity(staged + 8 * buffer, (chunk / 2) & 1);
      write_output(staging + buffer * STAGING_BYTES, drained + 8 * buffer,
                   out + static_cast<long long>(first) * (VALUE_HEADS * DIM), tokens - first, lane);
    }
  } else {
    int in_quad = lane % 4;
    float s_left[32], s_right[32], o[32], product[32];  // S^T by halves of the key dim
    unsigned s_rounded[32] = {};
    unsigned v[16];     // V^T of the chunk at hand, as the accumulators lie
    float2 decay[8];    // its exp(G), tokens 8 n + 2 t and the next
    float state_decay;  // its exp(G_63)
#pragma unroll
    for (int i = 0; i < 32; ++i) s_left[i] = s_right[i] = 0.f;

    barrier_wait_parity(full, 0);
    multiply_by_rows(product, s_rounded, base + K_AT);
    load_chunk(v, decay, state_decay, base, warp, lane);
    wgmma_wait<0>();
    pin(product);

    // Between iterations no product is pending, which the compiler's view of a loop needs. S has its decay by the chunk
    // at hand already.
    for (int chunk = 0; chunk < chunks; ++chunk) {
      int stage = chunk % STAGES, next_stage = (chunk + 1) % STAGES, valid = tokens - chunk * CHUNK;
      unsigned at = base + stage * STAGE_PITCH, next = base + next_stage * STAGE_PITCH;

      // R^T. Past the last token memory holds what is not ours: there it is zero.
      unsigned r[16];
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        r[2 * n] = to_bf16x2(fmaf(-decay[n].x, product[4 * n], low_float(v[2 * n])),
                             fmaf(-decay[n].y, product[4 * n + 1], high_float(v[2 * n])));
        r[2 * n + 1] = to_bf16x2(fmaf(-decay[n].x, product[4 * n + 2], low_float(v[2 * n + 1])),
                                 fmaf(-decay[n].y, product[4 * n + 3], high_float(v[2 * n + 1])));
      }
      if (valid < CHUNK) {
#pragma unroll
        for (int n = 0; n < 8; ++n) {
          int token = 8 * n + 2 * in_quad;
          unsigned keep = (token < valid ? 0xffffu : 0) | (token + 1 < valid ? 0xffff0000u : 0);
          r[2 * n] &= keep;
          r[2 * n + 1] &= keep;
        }
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
      float2 rest[8];  // exp(G_63 - G)
#pragma unroll
      for (int n = 0; n < 8; ++n) rest[n] = load_float2(at + DECAY_AT + 256 + (8 * n + 2 * in_quad) * 4);
      wgmma_wait<1>();
      pin(v_new);
      unsigned v_rounded[16], v_decayed[16];
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        v_decayed[2 * n] = to_bf16x2(v_new[4 * n] * rest[n].x, v_new[4 * n + 1] * rest[n].y);
        v_decayed[2 * n + 1] = to_bf16x2(v_new[4 * n + 2] * rest[n].x, v_new[4 * n + 3] * rest[n].y);
        v_rounded[2 * n] = to_bf16x2(v_new[4 * n], v_new[4 * n + 1]);
        v_rounded[2 * n + 1] = to_bf16x2(v_new[4 * n + 2], v_new[4 * n + 3]);
      }

      // S^T += (V' decayed)^T K, the left half first. Past the last token K's rows are not ours, but then nobody reads
      // S any more.
      add_learned(s_left, v_decayed, at + K_AT);
      add_learned(s_right, v_decayed, at + K_AT + 8192);
      if (chunk + 1 < chunks) barrier_wait_parity(full + 8 * next_stage, ((chunk + 1) / STAGES) & 1);
      wgmma_wait<2>();
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
      wgmma_wait<2>();
      pin(s_left);
#pragma unroll
      for (int i = 0; i < 16; ++i) s_rounded[i] = to_bf16x2(s_left[2 * i], s_left[2 * i + 1]);
      wgmma_wait<1>();
      pin(s_right);
#pragma unroll
      for (int i = 0; i < 16; ++i) s_rounded[16 + i] = to_bf16x2(s_right[2 * i], s_right[2 * i + 1]);

      // The next chunk's K S; after the last chunk it multiplies what the stage still holds, and nobody reads it.
      multiply_by_rows(product, s_rounded, next + K_AT);
      load_chunk(v, decay, state_decay, next, warp, lane);
      wgmma_wait<1>();
      pin(o);
      __syncwarp();  // every lane has read its decays
      if (lane == 0) {
        barrier_arrive(empty + 8 * stage);
        barrier_arrive_at(empty + 8 * stage, rank ^ 1);
      }
      int buffer = chunk % 2;
      if (chunk >= 2) barrier_wait_parity(drained + 8 * buffer, (chunk / 2 - 1) & 1);
      stage_output(o, staging + buffer * STAGING_BYTES + warp * STAGING_PITCH, lane);
      __syncwarp();
      if (lane == 0) barrier_arrive(staged + 8 * buffer);
#pragma unroll
      for (int i = 0; i < 32; ++i) {
        s_left[i] *= state_decay;
        s_right[i] *= state_decay;
      }
      wgmma_wait<0>();
      pin(product);
    }
  }
  cluster_meet();  // the other block may still be writing to our barriers
}
