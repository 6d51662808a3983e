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
  bool to_tail = false;  // keys and values go to the tail, else to the row's position
  int first_slot = 0;    // of the tail, for row 0
  int first_logits = 0;  // rows from here on get logits
  int longest = 0;       // positions of the row that has most

  // Consecutive tokens after a prefix of `length` positions.
  void set_chain(const int32_t* chain, int count, int length);
  // Rows that a tree on the prefix grows by. The tree has `pending` rows so far, whose parents are
  // `pending_parents`; parents[i] < pending + i, -1 for the prefix's end. False if a path gets too
  // deep.
  bool set_tree(const int32_t* nodes, const int32_t* parents, int count, int length,
                const int32_t* pending_parents, int pending);

 private:
  bool set_path(RowPath& path, int slot, int parent, const int32_t* pending_parents) const;
};

}  // namespace swiftspec
