// Row-wise kernels: normalisation, quantisation, rotary embedding, the gate of the feed-forward
// network, and the exponential that it shares with attention. Included by isa_*.cpp after simd.h.

// e^x with a relative error of about 1e-7; x is clamped to where the result is a normal number.
// The polynomial is Cephes' expf (S. Moshier, Cephes Mathematical Library, 1989).
SWIFTSPEC_INLINE F32 exponential(F32 x) {
  x = maximum(x, broadcast(-87.0f));
  x = x > broadcast(88.0f) ? broadcast(88.0f) : x;
  const F32 n = nearest(x * broadcast(1.44269504f));
  F32 r = multiply_add(n, broadcast(-0.693359375f), x);
  r = multiply_add(n, broadcast(2.12194440e-4f), r);
  F32 p = broadcast(1.9875691500e-4f);
  p = multiply_add(p, r, broadcast(1.3981999507e-3f));
  p = multiply_add(p, r, broadcast(8.3334519073e-3f));
  p = multiply_add(p, r, broadcast(4.1665795894e-2f));
  p = multiply_add(p, r, broadcast(1.6666665459e-1f));
  p = multiply_add(p, r, broadcast(5.0000001201e-1f));
  p = multiply_add(p, r * r, r + broadcast(1.0f));
  return p * (F32)((to_int(n) + broadcast_int(127)) << 23);
}

// `step` bytes lie between fours of one row.
SWIFTSPEC_INLINE void quantise_to(const float* x, int width, const QuantisedRow& to, int8_t* out,
                                  int step, int group_step) {
  for (int group = 0; group < width / kGroup; group++, x += kGroup) {
    F32 largest = broadcast(0.0f);
    for (int i = 0; i < kGroup; i += kLanes) largest = maximum(largest, magnitude(load(x + i)));
    const float top = max_lanes(largest);
    // Below this the inverse would overflow; such values are zero for all that matters.
    const F32 inverse = broadcast(top > 1e-30f ? 127.0f / top : 0.0f);
    I32 sum = broadcast_int(0);
    for (int i = 0; i < kGroup; i += kLanes) {
      const I32 q = to_int(nearest(load(x + i) * inverse));
      sum += q;
      const I8 bytes = __builtin_convertvector(q, I8);
      int32_t fours[4];
      __builtin_memcpy(fours, &bytes, sizeof fours);
      for (int j = 0; j < 4; j++, out += step) __builtin_memcpy(out, &fours[j], 4);
    }
    out += group_step - step * (kGroup / 4);
    to.scales[group * to.rows + to.index] = top / 127.0f;
    to.corrections[group * to.rows + to.index] = -128 * sum_lanes_int(sum);
  }
}

static void quantise_row(const float* x, int width, const QuantisedRow& to) {
  quantise_to(x, width, to, to.values + 4 * to.index, 4 * to.rows, kGroup * to.rows);
}

static void normalise_row(const float* x, const float* gain, int width, float eps, float* y) {
  F32 squares = broadcast(0.0f);
  int i = 0;
  for (; i + kLanes <= width; i += kLanes) squares = multiply_add(load(x + i), load(x + i), squares);
  float rest = 0.0f;
  for (int j = i; j < width; j++) rest += x[j] * x[j];
  const float mean = (sum_lanes(squares) + rest) / static_cast<float>(width);
  const float factor = 1.0f / __builtin_sqrtf(mean + eps);
  const F32 factors = broadcast(factor);
  for (i = 0; i + kLanes <= width; i += kLanes) store(y + i, load(x + i) * factors * load(gain + i));
  for (; i < width; i++) y[i] = x[i] * factor * gain[i];
  for (; i % kLanes != 0; i++) y[i] = 0.0f;
}

static void rotate_head(float* x, const float* cosines, const float* sines, int half) {
  for (int i = 0; i < half; i++) {
    const float a = x[i], b = x[i + half];
    x[i] = a * cosines[i] - b * sines[i];
    x[i + half] = b * cosines[i] + a * sines[i];
  }
}

static void gate_panel(const float* panel, float* out) {
  const F32 gate = load(panel), up = load(panel + kLanes);
  store(out, gate * up / (broadcast(1.0f) + exponential(-gate)));
}
