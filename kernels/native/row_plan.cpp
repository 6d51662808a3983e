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

bool RowPlan::set_tree(const int32_t* nodes, const int32_t* parents, int count, int length,
                       const int32_t* pending_parents, int pending) {
  tokens = nodes;
  rows = count;
  to_tail = true;
  first_slot = pending;
  longest = 0;
  for (int i = 0; i < count; i++) {
    RowPath& path = paths[i];
    path.prefix = length;
    if (!set_path(path, pending + i, parents[i], pending_parents)) return false;
    positions[i] = path.positions() - 1;
    longest = std::max(longest, path.positions());
  }
  return true;
}

bool RowPlan::set_path(RowPath& path, int slot, int parent, const int32_t* pending_parents) const {
  if (parent >= first_slot) {
    path.depth = paths[parent - first_slot].depth;
    std::copy_n(paths[parent - first_slot].slots, path.depth, path.slots);
  } else {
    path.depth = 0;
    for (int at = parent; at >= 0; at = pending_parents[at]) path.depth++;
    int place = path.depth;
    for (int at = parent; at >= 0; at = pending_parents[at]) {
      path.slots[--place] = static_cast<uint8_t>(at);
    }
  }
  if (path.depth >= kMaxDepth) return false;
  path.slots[path.depth++] = static_cast<uint8_t>(slot);
  return true;
}

}  // namespace swiftspec
