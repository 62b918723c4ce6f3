// What a cast does, boiled down to integers: precsim/number/plan.py says what each one means.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <vector>

namespace precsim {

enum class Mode : int {
    nearest_even,
    nearest_away,
    nearest_zero,
    toward_zero,
    up,
    down,
    away,
    to_odd,
    stochastic,
};

struct Plan {
    int storage_bits, significand_bits, least_exponent, low_shift;
    Mode mode;
    int random_bits, parity_flip;
    int64_t flush_below, max_code, code_offset, negative_xor, negative_add;
    // Codes by sign: [0] for positive, [1] for negative sources.
    int64_t nan[2], infinity[2], zero[2], underflow[2], overflow[2];
    int64_t negative_code;  // -1 where negative numbers have codes of their own
    bool ignore_sign;
    bool narrow;       // computed in 32-bit lanes where the source fits
    bool usual;        // cast by usual.hpp where the source is narrow

    explicit Plan(const std::vector<int64_t>& values) {
        if (values.size() != 26) throw std::invalid_argument("a plan has 26 numbers");
        auto next = values.begin();
        auto take = [&next] { return *next++; };
        storage_bits = int(take());
        significand_bits = int(take());
        least_exponent = int(take());
        low_shift = int(take());
        mode = Mode(take());
        random_bits = int(take());
        parity_flip = int(take());
        flush_below = take();
        max_code = take();
        code_offset = take();
        negative_xor = take();
        negative_add = take();
        for (int64_t* pair : {nan, infinity, zero, underflow, overflow}) {
            pair[0] = take();
            pair[1] = take();
        }
        negative_code = take();
        ignore_sign = take() != 0;
        narrow = take() != 0;
        usual = take() != 0;
    }
};

}  // namespace precsim
