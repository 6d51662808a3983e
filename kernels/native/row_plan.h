// What each row of one forward pass is: its token, its position, what it attends to and where its
// key and value go.
#pragma once

#include <cstdint>

#include "kernel_table.h"

namespace swiftspec {

struct RowPlan {
  int rows = 0;
  const int32_t* tokens = nullptr;
  int32_t positions[kMaxRows];  // absolute
  RowPath paths[kMaxRows];
  bool to_tail = false;  // keys and values go to tail slot i, else to the row's position
  int first_logits = 0;  // rows from here on get logits
  int longest = 0;       // positions of the row that has most

  // Consecutive tokens after a prefix of `length` positions.
  void set_chain(const int32_t* chain, int count, int length);
  // Rows of a tree that hangs on the prefix; parents[i] < i, -1 for the prefix's end.
  void set_tree(const int32_t* nodes, const int32_t* parents, int count, int length);
};

}  // namespace swiftspec
