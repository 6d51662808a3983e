#include "gate.h"

#include <ctime>

#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#endif

namespace swiftspec {
namespace {

// Long enough to bridge the phases of one forward pass and the sampling between two, short enough
// that an idle engine costs nothing.
constexpr int64_t kSpinNanoseconds = 100'000;
constexpr int kPausesPerLook = 16;

inline void pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__) || defined(__arm__)
  __asm__ __volatile__("yield");
#endif
}

int64_t nanoseconds() {
  timespec now;
#if defined(_WIN32)
  timespec_get(&now, TIME_UTC);
#else
  clock_gettime(CLOCK_MONOTONIC, &now);
#endif
  return now.tv_sec * int64_t{1'000'000'000} + now.tv_nsec;
}

}  // namespace

void Gate::wait(uint32_t seen) {
  const int64_t start = nanoseconds();
  do {
    for (int i = 0; i < kPausesPerLook; i++) {
      if (now() != seen) return;
      pause();
    }
  } while (nanoseconds() - start < kSpinNanoseconds);
  // Sequentially consistent against advance(): either it sees the sleeper, or we see its count.
  sleepers_.fetch_add(1);
  while (count_.load() == seen) sleep(seen);
  sleepers_.fetch_sub(1);
}

void Gate::advance() {
  count_.fetch_add(1);
  if (sleepers_.load() > 0) wake();
}

#if defined(__linux__)

void Gate::sleep(uint32_t seen) {
  syscall(SYS_futex, &count_, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
}

void Gate::wake() { syscall(SYS_futex, &count_, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0); }

#else

void Gate::sleep(uint32_t seen) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return count_.load() != seen; });
}

void Gate::wake() {
  // Taking the lock makes sure that a sleeper between its test and its wait is not missed.
  { std::lock_guard<std::mutex> lock(mutex_); }
  changed_.notify_all();
}

#endif

}  // namespace swiftspec
