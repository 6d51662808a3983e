// bfloat16 as it is stored: the upper half of an fp32, rounded to nearest, ties to even.
// Plain integer arithmetic, so that every instruction set stores the same bits.
#pragma once

#include <cstdint>
#include <cstring>

namespace swiftspec {

using bf16 = uint16_t;

inline bf16 to_bf16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<bf16>((bits >> 16) | 0x40u);  // NaN
  return static_cast<bf16>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

inline float from_bf16(bf16 value) {
  const uint32_t bits = static_cast<uint32_t>(value) << 16;
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

}  // namespace swiftspec
