#include "thread_pool.h"

namespace swiftspec {

bool ThreadPool::start(int threads) {
  for (int i = 0; i < threads - 1; i++) {
    Worker& worker = worker_[i];
    worker.pool = this;
    worker.thread = i + 1;
#if defined(_WIN32)
    worker.handle = std::thread(enter, &worker);
#else
    if (pthread_create(&worker.handle, nullptr, enter, &worker) != 0) return false;
#endif
    workers_++;
  }
  return true;
}

ThreadPool::~ThreadPool() {
  stop_ = true;
  started_.advance();
  for (int i = 0; i < workers_; i++) {
#if defined(_WIN32)
    worker_[i].handle.join();
#else
    pthread_join(worker_[i].handle, nullptr);
#endif
  }
}

void* ThreadPool::enter(void* worker) {
  const Worker& own = *static_cast<Worker*>(worker);
  own.pool->work(own.thread);
  return nullptr;
}

void ThreadPool::run(Task task, void* context) {
  task_ = task;
  context_ = context;
  if (workers_ > 0) started_.advance();
  task(context, 0);
  barrier();
}

void ThreadPool::barrier() {
  if (workers_ == 0) return;
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
