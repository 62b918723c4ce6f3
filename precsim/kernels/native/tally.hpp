// Counts of float64 numbers, each as often as its weight says, by sign, binade and bin of the binade.
#pragma once

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "blocks.hpp"
#include "count.hpp"

namespace precsim {

constexpr int64_t infinity64 = int64_t(0x7FF) << 52;
inline int bit_length(uint64_t x) { return x ? 64 - __builtin_clzll(x) : 0; }

class Tally {
    const Bins& bins_;
    std::vector<int64_t> table_;

public:
    int64_t zeros = 0, infinities[2] = {0, 0}, nans = 0;
    int64_t greatest = 0, least = infinity64;

    explicit Tally(const Bins& bins) : bins_(bins), table_(size_t(2) * rows * bins.count) {}

    void add(int64_t bits, int64_t weight) {
        const int64_t magnitude = bits & std::numeric_limits<int64_t>::max();
        const int negative = bits < 0;
        if (magnitude == 0) {
            zeros += weight;
        } else if (magnitude >= infinity64) {
            (magnitude == infinity64 ? infinities[negative] : nans) += weight;
        } else {
            extend(magnitude, magnitude);
            add_finite(magnitude, negative, weight);
        }
    }

    void extend(int64_t least_magnitude, int64_t greatest_magnitude) {
        greatest = std::max(greatest, greatest_magnitude);
        least = std::min(least, least_magnitude);
    }

    // `row` counts binades from least_exponent on.
    void add_to(int negative, int row, int bin, int64_t weight) {
        table_[(size_t(negative) * rows + size_t(row)) * size_t(bins_.count) + size_t(bin)] += weight;
    }

    const Bins& bins() const { return bins_; }

    // The row of a nonzero finite magnitude: its binade, counted from least_exponent on.
    static int row_of(int64_t magnitude) {
        const int field = int(magnitude >> 52);
        return field ? field - 1 + 52 : bit_length(uint64_t(magnitude)) - 1;
    }

    void merge(const Tally& other) {
        for (size_t i = 0; i < table_.size(); ++i) table_[i] += other.table_[i];
        zeros += other.zeros;
        nans += other.nans;
        for (int sign : {0, 1}) infinities[sign] += other.infinities[sign];
        extend(other.least, other.greatest);
    }

    Counts result() const {
        // No finite number: no rows. Else those from the least to the greatest magnitude's.
        const bool any = greatest > 0;
        const int first = any ? row_of(least) : 0, last = any ? row_of(greatest) : -1;
        Counts counts{any ? least_exponent + first : 0, {}, size_t(last - first + 1), zeros,
                      infinities[0], infinities[1], nans, as_double(greatest), as_double(least)};
        const size_t width = size_t(bins_.count);
        for (size_t sign : {0, 1}) {
            const auto begin = table_.begin() + ptrdiff_t((sign * rows + size_t(first)) * width);
            counts.table.insert(counts.table.end(), begin, begin + ptrdiff_t(counts.used_rows * width));
        }
        return counts;
    }

private:
    static double as_double(int64_t bits) {
        double value;
        std::memcpy(&value, &bits, sizeof value);
        return value;
    }

    void add_finite(int64_t magnitude, int negative, int64_t weight) {
        const int field = int(magnitude >> 52), row = row_of(magnitude);
        uint64_t fraction = uint64_t(magnitude) & ((uint64_t(1) << 52) - 1);
        if (!field) fraction = (fraction << (52 - row)) & ((uint64_t(1) << 52) - 1);  // normalised
        const uint64_t rest = fraction & ((uint64_t(1) << 45) - 1);
        const int top = int(fraction >> 45);
        int bin;
        if (top == 127) {
            const uint64_t zeros_of_rest = rest ^ ((uint64_t(1) << 45) - 1);
            const int length = bit_length(zeros_of_rest);
            const bool nothing_below = zeros_of_rest == (uint64_t(1) << length) - 1;
            bin = bins_.fine[2 * (45 - length) + nothing_below];
        } else {
            bin = bins_.coarse[2 * top + (rest == 0)];
        }
        add_to(negative, row, bin, weight);
    }
};

// float32 bits as float64 bits.
inline int64_t widened(int32_t bits) {
    int64_t wide;
    widen_block(&bits, &wide, 1);
    return wide;
}

}  // namespace precsim
