#include "row_plan.h"

#include <algorithm>

namespace swiftspec {

void RowPlan::set_chain(const int32_t* chain, int count, int length) {
  tokens = chain;
  rows = count;
  to_tail = false;
  longest = length + count;
  for (int i = 0; i < count; i++) {
    positions[i] = length + i;
    paths[i].prefix = length + i + 1;
    paths[i].depth = 0;
  }
}

void RowPlan::set_tree(const int32_t* nodes, const int32_t* parents, int count, int length) {
  tokens = nodes;
  rows = count;
  to_tail = true;
  longest = 0;
  for (int i = 0; i < count; i++) {
    RowPath& path = paths[i];
    path.depth = 0;
    if (parents[i] >= 0) path = paths[parents[i]];
    path.prefix = length;
    path.slots[path.depth++] = static_cast<uint8_t>(i);
    positions[i] = path.positions() - 1;
    longest = std::max(longest, path.positions());
  }
}

}  // namespace swiftspec
