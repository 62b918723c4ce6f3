// Counting by sign, binade and bin of the binade: precsim/kernels/engine.py says what a count is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "source.hpp"

namespace precsim {

constexpr int least_exponent = -1074, greatest_exponent = 1023, rows = greatest_exponent - least_exponent + 1;

struct Bins {
    int count;
    const uint8_t* coarse;  // [128][2]
    const uint8_t* fine;    // [46][2]
};

struct Counts {
    int first_exponent;
    std::vector<int64_t> table;  // [2][used rows][bins]
    size_t used_rows;
    int64_t zeros, positive_infinities, negative_infinities, nans;
    double amax, amin;
};

// `values` are those of the codes of a narrow source, as float64; unused for other sources.
Counts count(const Source& source, size_t n, const Bins& bins, const double* values, size_t value_count, int threads);

}  // namespace precsim
