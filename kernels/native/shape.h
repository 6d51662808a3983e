// Sizes of one model, and the paddings that follow from them. The same rules are in shape.py.
#pragma once

#include "api.h"
#include "sizes.h"

namespace swiftspec {

struct Shape : SwiftspecShape {
  Shape() : SwiftspecShape{} {}
  explicit Shape(const SwiftspecShape& base) : SwiftspecShape(base) {}

  bool valid() const {
    return hidden > 0 && layers > 0 && heads > 0 && kv_heads > 0 && heads % kv_heads == 0 &&
           head_dim > 0 && head_dim % 8 == 0 && ff > 0 && vocab > 0 && head_rows > 0 && context > 0;
  }

  int group() const { return heads / kv_heads; }
  // Channels of a head in queries, keys, values and in the output projection's input.
  int head_width() const { return round_up(head_dim, kLanes); }
  // Channels of a head in the QKV projection's output: whole panels.
  int head_panels() const { return round_up(head_dim, kPanel) / kPanel; }
  int qkv_heads() const { return heads + 2 * kv_heads; }
  // Inputs of linear layers are padded to whole groups.
  int hidden_width() const { return round_up(hidden, kGroup); }
  int attention_width() const { return round_up(heads * head_width(), kGroup); }
  int ff_width() const { return round_up(ff, kGroup); }
  int hidden_panels() const { return round_up(hidden, kPanel) / kPanel; }
  // A gate-and-up panel holds 16 channels of each.
  int ff_panels() const { return round_up(ff, kLanes) / kLanes; }
  int logit_panels() const { return round_up(head_rows, kPanel) / kPanel; }
};

}  // namespace swiftspec
