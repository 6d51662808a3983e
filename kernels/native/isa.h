// Which instruction sets this build has and this machine supports.
#pragma once

#include "kernel_table.h"

namespace swiftspec {

// The table called `name`, or null if this build or this machine lacks it.
const KernelTable* find_kernels(const char* name);
const KernelTable& best_kernels();

extern const KernelTable kPortableKernels;
#if defined(__x86_64__)
extern const KernelTable kAmxInt8Kernels;
extern const KernelTable kAvx512VnniKernels;
#endif

}  // namespace swiftspec
