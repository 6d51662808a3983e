// Sizes that all parts of the library agree on.
#pragma once

namespace swiftspec {

constexpr int kLanes = 16;         // fp32 values of one vector
constexpr int kPanel = 32;         // output channels of one weight panel
constexpr int kGroup = 64;         // inputs of a linear layer that share an activation scale
constexpr int kBlockRows = 16;     // rows that one pass over a panel serves
constexpr int kMaxTreeRows = 64;   // rows that one call may add to a pending tree
constexpr int kMaxPending = 256;   // rows of a pending tree; a slot fits into 8 bits
constexpr int kMaxDepth = 64;      // rows of a path in a pending tree
constexpr int kMaxRows = 128;      // rows of one pass over all layers
constexpr int kChunk = 128;        // positions that one partial softmax covers
constexpr int kMaxThreads = 256;

constexpr int round_up(int value, int multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace swiftspec
