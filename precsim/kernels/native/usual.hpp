// The usual casts, in half the operations: float32 to a signed format with zero and subnormals, FP16, BF16, E4M3 and E5M2
// among them. NativeEngine says which plans are usual (`_is_usual`).
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "cast_bits.hpp"

namespace precsim {

struct UsualPlan {
    int32_t dropped, base, least_normal, nan, infinity, negative_add;
    int32_t overflow, overflow_step;  // the sign left out; for negative numbers the step is added
    bool infinity_overflows;          // infinities and all overflows become one code
    float to_codes, to_steps;         // powers of two: units of a code's step, and of a float's last place at least_normal
    int32_t noise_right, noise_left, noise_top;  // shifts of R to where the dropped bits are, and to the top of 32 bits
    float noise_range;                           // 2^random_bits

    explicit UsualPlan(const Plan& p)
        : dropped(23 - p.significand_bits),
          base((p.least_exponent + 126) << 23),
          // Where float32's subnormals have the target's spacing they need no path of their own.
          least_normal(p.least_exponent == -126 ? 0 : (p.least_exponent + 127) << 23),
          nan(int32_t(p.nan[0])),
          infinity(int32_t(p.infinity[0])),
          negative_add(int32_t(p.negative_add)),
          overflow(int32_t(p.overflow[0])),
          overflow_step(int32_t(p.overflow[1] - p.negative_add) - overflow),
          // Not with a range beyond float32's, scaled or not: there infinity's bits, taken for a number, are in range.
          infinity_overflows(overflow_step == 0 && infinity == overflow &&
                             (0x7F800000 - base) >> dropped >= overflow),
          to_codes(least_normal ? power_of_two(p.significand_bits - p.least_exponent) : 0.0f),
          to_steps(least_normal ? power_of_two(23 - p.least_exponent) : 0.0f),
          noise_right(std::max(p.random_bits - dropped, 0)),
          noise_left(std::max(dropped - p.random_bits, 0)),
          noise_top((32 - p.random_bits) & 31),
          noise_range(power_of_two(p.random_bits)) {}

    // Of an infinity's bits taken as a number. A target that reaches further than float32 has finite codes beyond it.
    static int64_t infinity_as_number(const Plan& p) { return int64_t(129 - p.least_exponent) << p.significand_bits; }

    static float power_of_two(int exponent) {
        const int32_t bits = (exponent + 127) << 23;
        float value;
        std::memcpy(&value, &bits, sizeof value);
        return value;
    }
};

PRECSIM_INLINE int32_t bits_of(float value) {
    int32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

PRECSIM_INLINE float float_of(int32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

// Cuts off the dropped bits so that the cut rounds. Unsigned, since for a NaN the sum may pass 2^31; what becomes of it is
// not used.
template <Mode mode>
PRECSIM_INLINE int32_t round_steps(int32_t steps, int32_t sign_mask, uint32_t random, const UsualPlan& plan) {
    const uint32_t all = (uint32_t(1) << plan.dropped) - 1, half = uint32_t(1) << (plan.dropped - 1);
    // The sum carries into the last kept bit where a dropped one is set.
    if constexpr (mode == Mode::to_odd) return int32_t(uint32_t(steps) | ((uint32_t(steps) & all) + all)) >> plan.dropped;
    uint32_t addend = 0;  // toward zero
    if constexpr (mode == Mode::nearest_even) addend = half - 1 + (uint32_t(steps >> plan.dropped) & 1);
    if constexpr (mode == Mode::nearest_away) addend = half;
    if constexpr (mode == Mode::nearest_zero) addend = half - 1;
    if constexpr (mode == Mode::away) addend = all;
    if constexpr (mode == Mode::up) addend = all & ~uint32_t(sign_mask);
    if constexpr (mode == Mode::down) addend = all & uint32_t(sign_mask);
    // It carries into the kept bits iff ⌊f·2^r⌋ + R ≥ 2^r: bits below R's last one add nothing to the sum.
    if constexpr (mode == Mode::stochastic) addend = (random >> plan.noise_right) << plan.noise_left;
    return int32_t(uint32_t(steps) + addend) >> plan.dropped;
}

// The code of a magnitude below least_normal. A product with a power of two of at least 1 is exact.
template <Mode mode>
PRECSIM_INLINE int32_t round_low(float magnitude, uint32_t random, const UsualPlan& plan) {
    const float code = magnitude * plan.to_codes;
    // From 2^23 to 2^24 floats are 1 apart: the sum's own rounding is the one wanted.
    if constexpr (mode == Mode::nearest_even) return bits_of(code + 0x1p23f) - 0x4B000000;
    const int32_t lower = int32_t(code);
    const uint32_t scaled = uint32_t((code - float(lower)) * plan.noise_range) << plan.noise_top;
    return lower + int32_t(scaled + (random << plan.noise_top) < scaled);  // wraps around iff it carries
}

// The same magnitude in the units that those above are in. What lies below them sets the last bit, which counts for less
// than half a code since two bits or more are dropped.
template <Mode mode>
PRECSIM_INLINE int32_t low_steps(float magnitude, const UsualPlan& plan) {
    const float exact = magnitude * plan.to_steps;
    const int32_t steps = int32_t(exact);
    return mode == Mode::toward_zero ? steps : steps | int32_t(float(steps) != exact);
}

template <Mode mode, bool infinity_overflows>
PRECSIM_INLINE int32_t cast_usual(int32_t bits, uint32_t random, const UsualPlan& plan) {
    const int32_t magnitude = bits & 0x7FFFFFFF;
    const int32_t sign_mask = bits >> 31;
    const bool is_low = magnitude < plan.least_normal;
    // Magnitudes that are not low count as zero there: no integer could hold their products.
    const float low = float_of(magnitude & -int32_t(is_low));
    const int32_t steps = magnitude - plan.base;
    int32_t code;
    if constexpr (mode == Mode::nearest_even || mode == Mode::stochastic)
        code = choose(is_low, round_low<mode>(low, random, plan), round_steps<mode>(steps, sign_mask, random, plan));
    else
        code = round_steps<mode>(choose(is_low, low_steps<mode>(low, plan), steps), sign_mask, random, plan);
    // Overflow's code is that of the greatest finite value, or the next one: the lesser code is the right one.
    if constexpr (infinity_overflows) {
        code = std::min(code, plan.overflow);
    } else {
        code = std::min(code, plan.overflow + (sign_mask & plan.overflow_step));
        code = choose<int32_t>(magnitude == 0x7F800000, plan.infinity, code);
    }
    code = choose<int32_t>(magnitude > 0x7F800000, plan.nan, code);
    return code | (sign_mask & plan.negative_add);
}

}  // namespace precsim
