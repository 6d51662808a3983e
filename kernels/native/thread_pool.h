// A fixed team of threads, the caller among them, that runs one task at a time and meets at
// barriers. Threads are not pinned; while nothing runs they sleep.
#pragma once

#include <atomic>
#include <thread>
#include <vector>

#include "gate.h"

namespace swiftspec {

class ThreadPool {
 public:
  using Task = void (*)(void* context, int thread);

  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }
  // Calls task(context, i) on every thread and returns when all have done it.
  void run(Task task, void* context);
  // Called by every thread inside a task: returns once all have called it.
  void barrier();

 private:
  void work(int thread);

  Task task_ = nullptr;
  void* context_ = nullptr;
  bool stop_ = false;
  Gate started_, arrived_;
  alignas(64) std::atomic<int> waiting_{0};
  std::vector<std::thread> workers_;
};

}  // namespace swiftspec
