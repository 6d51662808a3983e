// Attention of up to 16 rows and one key/value head, over fixed chunks of 128 positions.
//
// A query's scores, its softmax over a chunk and its weighted values are computed in the order of
// absolute positions, from the prefix or from the tail alike, one query never touching another:
// so the result has the same bits in whatever company the query comes.
// Included by isa_*.cpp after kernels_elementwise.h.

// Sums in registers: up to 6 queries with 4 vectors of positions or channels, more with 2, so that
// what is loaded and widened serves more of them.
constexpr int vectors_for(int queries) { return queries <= 6 ? 4 : 2; }

// scores[q][16 b + lane] = query q . key of position 16 b + lane.
template <int kCount, int kBlocks>
SWIFTSPEC_INLINE void score_blocks(const bf16* keys, const float* queries, int width,
                                   float* scores) {
  F32 sums[kCount][kBlocks];
  SWIFTSPEC_UNROLL
  for (int q = 0; q < kCount; q++) {
    SWIFTSPEC_UNROLL
    for (int b = 0; b < kBlocks; b++) sums[q][b] = broadcast(0.0f);
  }
  for (int d = 0; d < width; d++) {
    F32 key[kBlocks];
    SWIFTSPEC_UNROLL
    for (int b = 0; b < kBlocks; b++) key[b] = load_bf16(keys + (b * width + d) * kLanes);
    SWIFTSPEC_UNROLL
    for (int q = 0; q < kCount; q++) {
      const F32 x = broadcast(queries[q * width + d]);
      SWIFTSPEC_UNROLL
      for (int b = 0; b < kBlocks; b++) sums[q][b] = multiply_add(x, key[b], sums[q][b]);
    }
  }
  SWIFTSPEC_UNROLL
  for (int q = 0; q < kCount; q++) {
    SWIFTSPEC_UNROLL
    for (int b = 0; b < kBlocks; b++) store(scores + q * kChunk + b * kLanes, sums[q][b]);
  }
}

template <int kCount>
static void score_keys(const bf16* keys, int blocks, const float* queries, int width,
                       float* scores) {
  constexpr int kBlocks = vectors_for(kCount);
  int b = 0;
  for (; b + kBlocks <= blocks; b += kBlocks) {
    score_blocks<kCount, kBlocks>(keys + b * width * kLanes, queries, width, scores + b * kLanes);
  }
  for (; b < blocks; b++) {
    score_blocks<kCount, 1>(keys + b * width * kLanes, queries, width, scores + b * kLanes);
  }
}

// products[q][d] += sum over positions, in order, of weights[q][position] * values[position][d].
template <int kCount, int kVectors>
SWIFTSPEC_INLINE void add_value_vectors(const bf16* values, int positions, const float* weights,
                                        int width, float* products) {
  F32 sums[kCount][kVectors];
  SWIFTSPEC_UNROLL
  for (int q = 0; q < kCount; q++) {
    SWIFTSPEC_UNROLL
    for (int v = 0; v < kVectors; v++) sums[q][v] = load(products + q * width + v * kLanes);
  }
  for (int p = 0; p < positions; p++) {
    F32 value[kVectors];
    SWIFTSPEC_UNROLL
    for (int v = 0; v < kVectors; v++) value[v] = load_bf16(values + p * width + v * kLanes);
    SWIFTSPEC_UNROLL
    for (int q = 0; q < kCount; q++) {
      const F32 x = broadcast(weights[q * kChunk + p]);
      SWIFTSPEC_UNROLL
      for (int v = 0; v < kVectors; v++) sums[q][v] = multiply_add(x, value[v], sums[q][v]);
    }
  }
  SWIFTSPEC_UNROLL
  for (int q = 0; q < kCount; q++) {
    SWIFTSPEC_UNROLL
    for (int v = 0; v < kVectors; v++) store(products + q * width + v * kLanes, sums[q][v]);
  }
}

template <int kCount>
static void add_values(const bf16* values, int positions, const float* weights, int width,
                       float* products) {
  constexpr int kVectors = vectors_for(kCount);
  int d = 0;
  for (; d + kVectors * kLanes <= width; d += kVectors * kLanes) {
    add_value_vectors<kCount, kVectors>(values + d, positions, weights, width, products + d);
  }
  for (; d < width; d += kLanes) {
    add_value_vectors<kCount, 1>(values + d, positions, weights, width, products + d);
  }
}

// Both of the above for any number of queries, in passes of about equal size.
using AttentionPass = void (*)(const bf16*, int, const float*, int, float*);

template <int... kCounts>
static void score_all(const bf16* keys, int blocks, const float* queries, int count, int width,
                      float* scores, std::integer_sequence<int, kCounts...>) {
  static const AttentionPass kByCount[] = {score_keys<kCounts + 1>...};
  int passes = (count + kQueries - 1) / kQueries;
  for (int q = 0; q < count; passes--) {
    const int some = (count - q + passes - 1) / passes;
    kByCount[some - 1](keys, blocks, queries + q * width, width, scores + q * kChunk);
    q += some;
  }
}

template <int... kCounts>
static void add_all_values(const bf16* values, int positions, const float* weights, int count,
                           int width, float* products, std::integer_sequence<int, kCounts...>) {
  static const AttentionPass kByCount[] = {add_values<kCounts + 1>...};
  if (positions <= 0) return;
  int passes = (count + kQueries - 1) / kQueries;
  for (int q = 0; q < count; passes--) {
    const int some = (count - q + passes - 1) / passes;
    kByCount[some - 1](values, positions, weights + q * kChunk, width, products + q * width);
    q += some;
  }
}

using QueryCounts = std::make_integer_sequence<int, kQueries>;

// Scores to softmax weights, in place, over the first `positions` values.
SWIFTSPEC_INLINE void soften(float* scores, int positions, float* maximum_out, float* sum_out) {
  const I32 lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const F32 nothing = broadcast(-3.0e38f);
  F32 top = nothing;
  for (int p = 0; p < positions; p += kLanes) {
    top = maximum(top, lane < broadcast_int(positions - p) ? load(scores + p) : nothing);
  }
  const float largest = max_lanes(top);
  F32 sum = broadcast(0.0f);
  for (int p = 0; p < positions; p += kLanes) {
    const F32 weight = exponential(load(scores + p) - broadcast(largest));
    const F32 masked = lane < broadcast_int(positions - p) ? weight : broadcast(0.0f);
    store(scores + p, masked);
    sum += masked;
  }
  *maximum_out = largest;
  *sum_out = sum_lanes(sum);
}

// Positions of the prefix, and of the row's tail path, that fall into the chunk at `start`.
struct ChunkShare {
  int prefix, tail, first_tail;
};

SWIFTSPEC_INLINE int clamp(int value, int low, int high) {
  return value < low ? low : value > high ? high : value;
}

SWIFTSPEC_INLINE ChunkShare share_of(const RowPath& path, int start) {
  const int prefix = clamp(path.prefix - start, 0, kChunk);
  const int first = path.prefix < start ? start - path.prefix : 0;
  const int tail = clamp(clamp(path.positions() - start, 0, kChunk) - prefix, 0, kChunk);
  return {prefix, tail, first};
}

// Scores of the tail slots that lie in the block at `first_slot`, put behind the prefix's in the
// order of the row's path.
static void score_slots(const AttentionBlock& block, int row, const ChunkShare& share,
                        int first_slot, float* scores) {
  float by_lane[kQueries * kChunk];
  const int width = block.width;
  const uint8_t* slots = block.paths[row].slots + share.first_tail;
  for (int q = 0; q < block.group; q += kQueries) {
    const int count = block.group - q < kQueries ? block.group - q : kQueries;
    score_all(block.tail_keys + first_slot / kLanes * block.tail_stride, 1,
              block.queries + (row * block.group + q) * width, count, width, by_lane, QueryCounts());
    float* to = scores + (row * block.group + q) * kChunk + share.prefix;
    for (int t = 0; t < share.tail; t++) {
      const int lane = slots[t] - first_slot;
      if (lane < 0 || lane >= kLanes) continue;
      for (int i = 0; i < count; i++) to[i * kChunk + t] = by_lane[i * kChunk + lane];
    }
  }
}

// The same for all blocks of slots that the row's path goes through; it may leave others out.
static void score_tail(const AttentionBlock& block, int row, const ChunkShare& share,
                       float* scores) {
  const uint8_t* slots = block.paths[row].slots + share.first_tail;
  uint32_t done = 0;
  static_assert(kMaxPending <= 32 * kLanes, "one bit for each block");
  for (int t = 0; t < share.tail; t++) {
    const int which = slots[t] / kLanes;
    if (done >> which & 1u) continue;
    done |= 1u << which;
    score_slots(block, row, share, which * kLanes, scores);
  }
}

// Weighted values of one row beyond the positions that all rows of the block share.
static void add_own_values(const AttentionBlock& block, int row, int chunk, int common,
                           const ChunkShare& share, const float* scores, float* products) {
  const int first = row * block.group, width = block.width;
  const float* weights = scores + first * kChunk;
  float* to = products + first * width;
  add_all_values(block.values + (chunk * kChunk + common) * width, share.prefix - common,
                 weights + common, block.group, width, to, QueryCounts());
  const uint8_t* slots = block.paths[row].slots + share.first_tail;
  for (int t = 0; t < share.tail; t++) {
    const bf16* block_values = block.tail_values + slots[t] / kLanes * block.tail_stride;
    add_all_values(block_values + slots[t] % kLanes * width, 1, weights + share.prefix + t,
                   block.group, width, to, QueryCounts());
  }
}

static void attend_chunk(const AttentionBlock& block, int chunk, const AttentionPartial& partial,
                         float* scores) {
  const int start = chunk * kChunk, width = block.width, count = block.rows * block.group;
  ChunkShare shares[kBlockRows];
  int longest = 0, common = kChunk;
  for (int r = 0; r < block.rows; r++) {
    shares[r] = share_of(block.paths[r], start);
    if (shares[r].prefix > longest) longest = shares[r].prefix;
    if (shares[r].prefix < common) common = shares[r].prefix;
  }
  if (longest > 0) {
    score_all(block.keys + start * width, (longest + kLanes - 1) / kLanes, block.queries, count,
              width, scores, QueryCounts());
  }
  for (int r = 0; r < block.rows; r++) {
    if (shares[r].tail > 0) score_tail(block, r, shares[r], scores);
    const int positions = shares[r].prefix + shares[r].tail;
    for (int q = r * block.group; positions > 0 && q < (r + 1) * block.group; q++) {
      soften(scores + q * kChunk, positions, partial.maxima + q, partial.sums + q);
    }
  }
  for (int i = 0; i < count * width; i += kLanes) store(partial.products + i, broadcast(0.0f));
  add_all_values(block.values + start * width, common, scores, count, width, partial.products,
                 QueryCounts());
  for (int r = 0; r < block.rows; r++) {
    add_own_values(block, r, chunk, common, shares[r], scores, partial.products);
  }
}

static void combine_chunks(const AttentionPartial& first, int chunks, int stride, int width,
                           float* out) {
  float largest = first.maxima[0];
  for (int c = 1; c < chunks; c++) {
    const float other = first.maxima[c * stride];
    if (other > largest) largest = other;
  }
  for (int d = 0; d < width; d += kLanes) store(out + d, broadcast(0.0f));
  float sum = 0.0f;
  for (int c = 0; c < chunks; c++) {
    const F32 weight = exponential(broadcast(first.maxima[c * stride] - largest));
    sum += first.sums[c * stride] * weight[0];
    const float* products = first.products + static_cast<int64_t>(c) * stride * width;
    for (int d = 0; d < width; d += kLanes) {
      store(out + d, multiply_add(weight, load(products + d), load(out + d)));
    }
  }
  const F32 inverse = broadcast(1.0f / sum);
  for (int d = 0; d < width; d += kLanes) store(out + d, load(out + d) * inverse);
}
