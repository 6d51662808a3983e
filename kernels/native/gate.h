// A counter that threads wait on: they spin for a moment, then sleep in the kernel.
// Futex on Linux, a mutex and a condition variable of the C++ library elsewhere.
#pragma once

#include <atomic>
#include <cstdint>

#if !defined(__linux__)
#include <condition_variable>
#include <mutex>
#endif

namespace swiftspec {

class Gate {
 public:
  uint32_t now() const { return count_.load(std::memory_order_acquire); }
  // Returns once the counter is no longer `seen`.
  void wait(uint32_t seen);
  // Adds one and wakes all that wait.
  void advance();

 private:
  void sleep(uint32_t seen);
  void wake();

  alignas(64) std::atomic<uint32_t> count_{0};
  alignas(64) std::atomic<int> sleepers_{0};
#if !defined(__linux__)
  std::mutex mutex_;
  std::condition_variable changed_;
#endif
};

}  // namespace swiftspec
