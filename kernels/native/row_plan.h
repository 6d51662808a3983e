// What each row of one forward pass is: its token, its position, what it attends to and where its
// key and value go.
#pragma once

#include <cstdint>
#include <vector>

#include "kernel_table.h"

namespace swiftspec {

struct RowPlan {
  std::vector<int32_t> tokens;
  std::vector<int32_t> positions;  // absolute
  std::vector<RowPath> paths;
  bool to_tail = false;  // keys and values go to tail slot i, else to the row's position
  int first_logits = 0;  // rows from here on get logits
  int longest = 0;       // positions of the row that has most

  int rows() const { return static_cast<int>(tokens.size()); }

  // Consecutive tokens after a prefix of `length` positions.
  static RowPlan chain(const int32_t* tokens, int rows, int length);
  // Rows of a tree that hangs on the prefix; parents[i] < i, -1 for the prefix's end.
  static RowPlan tree(const int32_t* tokens, const int32_t* parents, int rows, int length);
};

}  // namespace swiftspec
