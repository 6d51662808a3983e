#include "row_plan.h"

#include <algorithm>

namespace swiftspec {

RowPlan RowPlan::chain(const int32_t* tokens, int rows, int length) {
  RowPlan plan;
  plan.tokens.assign(tokens, tokens + rows);
  plan.positions.resize(rows);
  plan.paths.resize(rows);
  for (int i = 0; i < rows; i++) {
    plan.positions[i] = length + i;
    plan.paths[i].prefix = length + i + 1;
    plan.paths[i].depth = 0;
  }
  plan.longest = length + rows;
  return plan;
}

RowPlan RowPlan::tree(const int32_t* tokens, const int32_t* parents, int rows, int length) {
  RowPlan plan;
  plan.to_tail = true;
  plan.tokens.assign(tokens, tokens + rows);
  plan.positions.resize(rows);
  plan.paths.resize(rows);
  for (int i = 0; i < rows; i++) {
    RowPath& path = plan.paths[i];
    path.depth = 0;
    if (parents[i] >= 0) path = plan.paths[parents[i]];
    path.prefix = length;
    path.slots[path.depth++] = static_cast<uint8_t>(i);
    plan.positions[i] = path.positions() - 1;
    plan.longest = std::max(plan.longest, path.positions());
  }
  return plan;
}

}  // namespace swiftspec
