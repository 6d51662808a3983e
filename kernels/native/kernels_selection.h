// The largest values of a row of logits, and the sum that turns them into probabilities.
// Included by isa_*.cpp after kernels_elementwise.h; the instruction set adds
//   bool any_above(const float* x, F32 bound)   any of 64 values > bound, or NaN

constexpr int kLook = 64;  // values that are compared with the bound at once

// Puts a value behind all that are as large; the last of k falls out.
SWIFTSPEC_INLINE void insert(float value, int32_t id, int filled, int k, float* values,
                             int32_t* ids) {
  int at = filled < k ? filled : k - 1;
  for (; at > 0 && values[at - 1] < value; at--) {
    values[at] = values[at - 1];
    ids[at] = ids[at - 1];
  }
  values[at] = value;
  ids[at] = id;
}

// One pass: few values exceed the k-th largest so far, so most are only compared with it.
static bool select_top(const float* x, int n, int k, float* values, int32_t* ids) {
  for (int i = 0; i < n;) {
    const bool full = i >= k;
    if (full && i + kLook <= n && !any_above(x + i, broadcast(values[k - 1]))) {
      i += kLook;
      continue;
    }
    const int end = !full ? k : i + kLook < n ? i + kLook : n;
    for (; i < end; i++) {
      if (full && x[i] <= values[k - 1]) continue;
      if (x[i] != x[i]) return false;
      insert(x[i], i, i, k, values, ids);
    }
  }
  return true;
}

// The sum of exp(x - top); top is the largest.
static float sum_exponentials(const float* x, int n, float top) {
  constexpr int kSums = 4;
  F32 sums[kSums];
  for (int s = 0; s < kSums; s++) sums[s] = broadcast(0.0f);
  int i = 0;
  for (; i + kSums * kLanes <= n; i += kSums * kLanes) {
    SWIFTSPEC_UNROLL
    for (int s = 0; s < kSums; s++) {
      sums[s] += exponential(load(x + i + s * kLanes) - broadcast(top));
    }
  }
  float rest[kLanes];
  for (; i < n; i += kLanes) {
    for (int j = 0; j < kLanes; j++) rest[j] = i + j < n ? x[i + j] - top : -1e30f;
    sums[0] += exponential(load(rest));
  }
  return sum_lanes((sums[0] + sums[1]) + (sums[2] + sums[3]));
}
