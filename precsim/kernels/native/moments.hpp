// Sums of rounding distances by binade: precsim/kernels/engine.py says what they are.
#pragma once

#include "count.hpp"

namespace precsim {

// Precisions −1 … 10: fraction bits that are kept of a significand in [1, 2).
constexpr int precisions = 12, most_groups = 64;

// Where within its binade a significand lies, by its first 11 fraction bits.
struct Groups {
    int count;
    const uint8_t* of;  // [2048]
};

// Integers of up to 123 bits in two limbs, the lower one of 60 bits.
struct Moments {
    Counts counts;
    std::vector<int64_t> distances;  // [2][used rows][precisions][absolute, squared][limbs]
    std::vector<int64_t> sums;       // [2][used rows][groups][number, significands, their squares][limbs]
    int64_t rounded;                 // numbers whose significand had more than 24 bits
};

Moments moments(const Source& source, size_t n, const Bins& bins, const Groups& groups, const double* values,
                size_t value_count, int threads);

}  // namespace precsim
