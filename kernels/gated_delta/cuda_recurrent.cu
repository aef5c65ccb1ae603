// Gated delta rule as it is written down: token by token in float32, the state in registers.
//
// A column of a head's state (key dim values) lies over four lanes; columns are independent, so a block takes 16 of
// them and walks all tokens. k, q, v, g and beta of 16 tokens at a time are staged in shared memory while the 16
// before them are worked on. Rounding: nothing but o. Bound: issue and latency of a step, about 4 x key dim / 4
// instructions a lane and two sums over four lanes, T steps one after the other.
//
//@ require: linear_k_dim % 16 == 0 and linear_k_dim <= 256 and linear_v_dim % 16 == 0
//@ define: KEY_HEADS = linear_k_heads
//@ define: VALUE_HEADS = linear_v_heads
//@ define: KEY_DIM = linear_k_dim
//@ define: VALUE_DIM = linear_v_dim
//@ kernel: gdn_recurrent
//@ grid: linear_v_heads, linear_v_dim // 16
//@ block: 64
//@ args: q, k, v, beta, g, o, T
#include "rows.cuh"

constexpr int BATCH = 16, COLUMNS = 16, THREADS = 64;
constexpr int FOURS = KEY_DIM / 16;        // float4 pieces of k, q and the state a lane
constexpr int PIECES = BATCH * KEY_DIM / 8;  // 16-byte pieces of k or q a batch
constexpr int ROUNDS = (PIECES + THREADS - 1) / THREADS;

struct Batch {
  float k[BATCH][KEY_DIM], q[BATCH][KEY_DIM];
  float v[BATCH][COLUMNS];
  float decay[BATCH], beta[BATCH];
};

// A thread's share of a batch on its way from memory to shared memory.
struct Loading {
  uint4 k[ROUNDS], q[ROUNDS];
  bf16 v[BATCH * COLUMNS / THREADS];
  float decay, beta;
};

__device__ __forceinline__ float sum_of_four(float x) {
  x += __shfl_xor_sync(~0u, x, 1);
  return x + __shfl_xor_sync(~0u, x, 2);
}

extern "C" __global__ void __launch_bounds__(THREADS)
gdn_recurrent(const bf16* __restrict__ q, const bf16* __restrict__ k, const bf16* __restrict__ v,
              const float* __restrict__ beta, const float* __restrict__ g, bf16* __restrict__ o, int tokens) {
  __shared__ __align__(16) Batch batch;
  int head = blockIdx.x, key_head = head / (VALUE_HEADS / KEY_HEADS), first_column = blockIdx.y * COLUMNS;
  int column = threadIdx.x / 4, part = threadIdx.x % 4;
  Loading next;

  auto start_loading = [&](int first) {
#pragma unroll
    for (int round = 0; round < ROUNDS; ++round) {
      int piece = round * THREADS + threadIdx.x, token = first + piece / (KEY_DIM / 8);
      if (piece < PIECES && token < tokens) {
        long long row = (static_cast<long long>(token) * KEY_HEADS + key_head) * KEY_DIM;
        next.k[round] = load_piece(k + row, piece % (KEY_DIM / 8));
        next.q[round] = load_piece(q + row, piece % (KEY_DIM / 8));
      }
    }
#pragma unroll
    for (int round = 0; round < BATCH * COLUMNS / THREADS; ++round) {
      int item = round * THREADS + threadIdx.x, token = first + item / COLUMNS;
      if (token < tokens) {
        long long row = (static_cast<long long>(token) * VALUE_HEADS + head) * VALUE_DIM;
        next.v[round] = v[row + first_column + item % COLUMNS];
      }
    }
    if (threadIdx.x < BATCH && first + threadIdx.x < tokens) {
      long long at = static_cast<long long>(first + threadIdx.x) * VALUE_HEADS + head;
      next.decay = expf(g[at]);
      next.beta = beta[at];
    }
  };
  auto finish_loading = [&]() {
#pragma unroll
    for (int round = 0; round < ROUNDS; ++round) {
      int piece = round * THREADS + threadIdx.x;
      if (piece < PIECES) {
        Eight key = unpack(next.k[round]), query = unpack(next.q[round]);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          (&batch.k[0][0])[piece * 8 + i] = key.x[i];
          (&batch.q[0][0])[piece * 8 + i] = query.x[i];
        }
      }
    }
#pragma unroll
    for (int round = 0; round < BATCH * COLUMNS / THREADS; ++round) {
      (&batch.v[0][0])[round * THREADS + threadIdx.x] = to_float(next.v[round]);
    }
    if (threadIdx.x < BATCH) {
      batch.decay[threadIdx.x] = next.decay;
      batch.beta[threadIdx.x] = next.beta;
    }
  };

  float4 state[FOURS];
#pragma unroll
  for (int i = 0; i < FOURS; ++i) state[i] = make_float4(0.f, 0.f, 0.f, 0.f);
  start_loading(0);
  for (int first = 0; first < tokens; first += BATCH) {
    __syncthreads();
    finish_loading();
    __syncthreads();
    start_loading(first + BATCH);
    int count = min(BATCH, tokens - first);
    for (int t = 0; t < count; ++t) {
      const float4* key = reinterpret_cast<const float4*>(batch.k[t]) + part;
      const float4* query = reinterpret_cast<const float4*>(batch.q[t]) + part;
      float decay = batch.decay[t], recalled = 0.f, out = 0.f;
#pragma unroll
      for (int i = 0; i < FOURS; ++i) {
        float4 x = key[i * 4];
        state[i].x *= decay, state[i].y *= decay, state[i].z *= decay, state[i].w *= decay;
        recalled += state[i].x * x.x + state[i].y * x.y + (state[i].z * x.z + state[i].w * x.w);
      }
      float delta = batch.beta[t] * (batch.v[t][column] - sum_of_four(recalled));
#pragma unroll
      for (int i = 0; i < FOURS; ++i) {
        float4 x = key[i * 4], y = query[i * 4];
        state[i].x += x.x * delta, state[i].y += x.y * delta, state[i].z += x.z * delta, state[i].w += x.w * delta;
        out += state[i].x * y.x + state[i].y * y.y + (state[i].z * y.z + state[i].w * y.w);
      }
      out = sum_of_four(out) * rsqrtf(static_cast<float>(KEY_DIM));
      if (part == 0) {
        o[(static_cast<long long>(first + t) * VALUE_HEADS + head) * VALUE_DIM + first_column + column] = to_bf16(out);
      }
    }
  }
}
