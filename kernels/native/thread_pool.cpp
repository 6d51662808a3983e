#include "thread_pool.h"

namespace swiftspec {

ThreadPool::ThreadPool(int threads) {
  workers_.reserve(threads - 1);
  for (int i = 1; i < threads; i++) workers_.emplace_back(&ThreadPool::work, this, i);
}

ThreadPool::~ThreadPool() {
  stop_ = true;
  started_.advance();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run(Task task, void* context) {
  task_ = task;
  context_ = context;
  if (!workers_.empty()) started_.advance();
  task(context, 0);
  barrier();
}

void ThreadPool::barrier() {
  if (workers_.empty()) return;
  const uint32_t seen = arrived_.now();
  if (waiting_.fetch_add(1, std::memory_order_acq_rel) == threads() - 1) {
    waiting_.store(0, std::memory_order_relaxed);
    arrived_.advance();
  } else {
    arrived_.wait(seen);
  }
}

void ThreadPool::work(int thread) {
  // The first task may start before this thread runs, so the count begins at 0, not at now().
  for (uint32_t seen = 0;; seen++) {
    started_.wait(seen);
    if (stop_) return;
    task_(context_, thread);
    barrier();
  }
}

}  // namespace swiftspec
