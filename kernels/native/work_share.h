// How the items of one phase are split between threads: most of them in contiguous stretches, one
// for each thread, so that weights stream; the rest one by one to whoever is free.
#pragma once

#include <atomic>

namespace swiftspec {

struct alignas(64) Counter {
  std::atomic<int> taken{0};
};

class WorkShare {
 public:
  WorkShare(Counter& counter, int items, int thread, int threads)
      : counter_(counter), items_(items) {
    const int own = threads == 1 ? items : static_cast<int>(static_cast<long>(items) * 5 / (8 * threads));
    next_ = own * thread;
    end_ = next_ + own;
    shared_ = own * threads;
  }

  // The next item, or -1.
  int next() {
    if (next_ < end_) return next_++;
    const int item = shared_ + counter_.taken.fetch_add(1, std::memory_order_relaxed);
    return item < items_ ? item : -1;
  }

  // The item that this thread most likely takes after `item`, or -1.
  int likely_after(int item) const {
    if (next_ < end_) return next_;
    const int likely = item < shared_ ? shared_ : item + 1;
    return likely < items_ ? likely : -1;
  }

 private:
  Counter& counter_;
  int items_, next_, end_, shared_;
};

}  // namespace swiftspec
