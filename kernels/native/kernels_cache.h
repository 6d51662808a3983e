// Moving keys between slots and positions of a cache. Included by isa_*.cpp after simd.h; the
// instruction set adds
//   U16 permute(U16 v, U16 lanes)   v[lanes[i]]

// One target block of 16 rows: its lanes [first, last) come from rows from[0 .. last - first).
SWIFTSPEC_INLINE void gather_block(const bf16* plane, int64_t stride, const int32_t* from, bf16* to,
                                   int first, int last, int width) {
  for (int i = first; i < last;) {
    const int which = from[i - first] / kLanes;
    U16 lanes = {}, chosen = {};
    for (; i < last && from[i - first] / kLanes == which; i++) {
      lanes[i] = static_cast<uint16_t>(from[i - first] % kLanes);
      chosen[i] = 0xffff;
    }
    const bf16* source = plane + which * stride;
    for (int d = 0; d < width * kLanes; d += kLanes) {
      const U16 moved = permute(load_u16(source + d), lanes);
      store_u16(to + d, (moved & chosen) | (load_u16(to + d) & ~chosen));
    }
  }
}

// Sources of a block lie in it or behind it, and those of a later block behind it: so blocks, and
// within a block its sources in order, can be written one after another in place. Lanes that a
// block still needs from itself come first, and are moved in one step.
static void gather_keys(const bf16* plane, int64_t stride, const int32_t* from, int rows,
                        bf16* to_plane, int64_t to_stride, int to, int width) {
  for (int done = 0; done < rows;) {
    const int first = (to + done) % kLanes;
    const int last = first + rows - done < kLanes ? first + rows - done : kLanes;
    gather_block(plane, stride, from + done, to_plane + (to + done) / kLanes * to_stride, first,
                 last, width);
    done += last - first;
  }
}
