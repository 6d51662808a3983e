#include "isa.h"

#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#endif

namespace swiftspec {
namespace {

struct Candidate {
  const KernelTable* table;
  bool (*supported)();
};

bool always() { return true; }

#if defined(__x86_64__)

// XCR0 tells which registers the operating system saves; a processor flag alone is not enough.
uint64_t saved_registers() {
  uint32_t low, high;
  __asm__ __volatile__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return static_cast<uint64_t>(high) << 32 | low;
}

bool has_avx512_vnni() {
  constexpr uint32_t kOsxsave = 1u << 27, kFma = 1u << 12;
  constexpr uint32_t kF = 1u << 16, kDq = 1u << 17, kBw = 1u << 30, kVl = 1u << 31;
  constexpr uint32_t kVnni = 1u << 11;
  constexpr uint64_t kSseAvxZmm = 0xe6;
  uint32_t a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d) || (c & kOsxsave) == 0 || (c & kFma) == 0) return false;
  if ((saved_registers() & kSseAvxZmm) != kSseAvxZmm) return false;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
  constexpr uint32_t kNeeded = kF | kDq | kBw | kVl;
  return (b & kNeeded) == kNeeded && (c & kVnni) != 0;
}

// Linux saves tiles only for processes that have asked for it.
bool request_tiles() {
#if defined(__linux__)
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // arch_prctl(2)
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

bool has_amx_int8() {
  constexpr uint32_t kTile = 1u << 24, kInt8 = 1u << 25;
  constexpr uint64_t kTileState = 0x60000;
  uint32_t a, b, c, d;
  if (!has_avx512_vnni() || (saved_registers() & kTileState) != kTileState) return false;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
  return (d & kTile) != 0 && (d & kInt8) != 0 && request_tiles();
}

#endif

// Fastest first.
const Candidate kCandidates[] = {
#if defined(__x86_64__)
    {&kAmxInt8Kernels, has_amx_int8},
    {&kAvx512VnniKernels, has_avx512_vnni},
#endif
    {&kPortableKernels, always},
};

}  // namespace

const KernelTable* find_kernels(const char* name) {
  for (const Candidate& candidate : kCandidates) {
    if (std::strcmp(candidate.table->name, name) == 0) {
      return candidate.supported() ? candidate.table : nullptr;
    }
  }
  return nullptr;
}

const KernelTable& best_kernels() {
  for (const Candidate& candidate : kCandidates) {
    if (candidate.supported()) return *candidate.table;
  }
  return kPortableKernels;
}

}  // namespace swiftspec
