// A fixed team of threads, the caller among them, that runs one task at a time and meets at
// barriers. Threads are not pinned; while nothing runs they sleep.
#pragma once

#include <atomic>

#include "gate.h"
#include "sizes.h"

#if defined(_WIN32)
#include <thread>
#else
#include <pthread.h>
#endif

namespace swiftspec {

class ThreadPool {
 public:
  using Task = void (*)(void* context, int thread);

  ThreadPool() = default;
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // False if the system refuses a thread.
  bool start(int threads);
  int threads() const { return workers_ + 1; }
  // Calls task(context, i) on every thread and returns when all have done it.
  void run(Task task, void* context);
  // Called by every thread inside a task: returns once all have called it.
  void barrier();

 private:
  struct Worker {
    ThreadPool* pool;
    int thread;
#if defined(_WIN32)
    std::thread handle;
#else
    pthread_t handle;
#endif
  };

  static void* enter(void* worker);
  void work(int thread);

  Task task_ = nullptr;
  void* context_ = nullptr;
  bool stop_ = false;
  Gate started_, arrived_;
  alignas(64) std::atomic<int> waiting_{0};
  int workers_ = 0;
  Worker worker_[kMaxThreads];
};

}  // namespace swiftspec
