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
    float to_steps;
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
          infinity_overflows(overflow_step == 0 && infinity == overflow),
          to_steps(least_normal ? power_of_two(p.significand_bits - p.least_exponent) : 0.0f),
          noise_right(std::max(p.random_bits - dropped, 0)),
          noise_left(std::max(dropped - p.random_bits, 0)),
          noise_top((32 - p.random_bits) & 31),
          noise_range(power_of_two(p.random_bits)) {}

    static float power_of_two(int exponent) {
        const int32_t bits = (exponent + 127) << 23;
        float value;
        std::memcpy(&value, &bits, sizeof value);
        return value;
    }
};

// What to add before the dropped bits are cut off, so that the cut rounds.
template <Mode mode>
PRECSIM_INLINE int32_t addend(int32_t steps, int32_t negative, uint32_t random, const UsualPlan& plan) {
    const int32_t all = (int32_t(1) << plan.dropped) - 1, half = int32_t(1) << (plan.dropped - 1);
    const int32_t odd = (steps >> plan.dropped) & 1;
    if constexpr (mode == Mode::nearest_even) return half - 1 + odd;
    if constexpr (mode == Mode::nearest_away) return half;
    if constexpr (mode == Mode::nearest_zero) return half - 1;
    if constexpr (mode == Mode::away) return all;
    if constexpr (mode == Mode::up) return all & (negative - 1);
    if constexpr (mode == Mode::down) return all & -negative;
    if constexpr (mode == Mode::to_odd) return all & (odd - 1);
    // It carries into the kept bits iff ⌊f·2^r⌋ + R ≥ 2^r: bits below R's last one add nothing to the sum.
    if constexpr (mode == Mode::stochastic) return int32_t(random >> plan.noise_right) << plan.noise_left;
    return 0;  // toward zero
}

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

// Rounds t in 0 … 2^22, exact, to an integer.
template <Mode mode>
PRECSIM_INLINE int32_t round_steps(float t, int32_t negative, uint32_t random, const UsualPlan& plan) {
    if constexpr (mode == Mode::nearest_even)
        return bits_of(t + 0x1p23f) - 0x4B000000;  // the sum's spacing is 1: its own rounding is the one wanted
    const int32_t whole = int32_t(t);
    const int32_t rest = bits_of(t - float(whole));  // of a float of at least 0: ordered as the float is
    const int32_t inexact = int32_t(uint32_t(-rest) >> 31);
    if constexpr (mode == Mode::nearest_away) return whole + int32_t(uint32_t(0x3EFFFFFF - rest) >> 31);
    if constexpr (mode == Mode::nearest_zero) return whole + int32_t(uint32_t(0x3F000000 - rest) >> 31);
    if constexpr (mode == Mode::away) return whole + inexact;
    if constexpr (mode == Mode::up) return whole + (inexact & (negative - 1));
    if constexpr (mode == Mode::down) return whole + (inexact & -negative);
    if constexpr (mode == Mode::to_odd) return whole | inexact;
    if constexpr (mode == Mode::stochastic) {
        const uint32_t scaled = uint32_t((t - float(whole)) * plan.noise_range) << plan.noise_top;
        return whole + int32_t(scaled + (random << plan.noise_top) < scaled);  // wraps around iff it carries
    }
    return whole;
}

template <Mode mode, bool infinity_overflows>
PRECSIM_INLINE int32_t cast_usual(int32_t bits, uint32_t random, const UsualPlan& plan) {
    const int32_t magnitude = bits & 0x7FFFFFFF;
    const int32_t negative = int32_t(uint32_t(bits) >> 31);
    const int32_t steps = magnitude - plan.base;
    const int32_t normal = (steps + addend<mode>(steps, negative, random, plan)) >> plan.dropped;
    // A product with a power of two of at least 1 is exact. Numbers in the normal range, of which it would not fit an
    // integer, are taken as zero here.
    const int32_t low = -int32_t(magnitude < plan.least_normal);
    const float t = float_of(magnitude & low) * plan.to_steps;
    int32_t code = (round_steps<mode>(t, negative, random, plan) & low) | (normal & ~low);
    // Overflow's code is that of the greatest finite value, or the next one: the lesser code is the right one.
    if constexpr (infinity_overflows) {
        code = std::min(code, plan.overflow);
    } else {
        code = std::min(code, plan.overflow + (-negative & plan.overflow_step));
        code = choose<int32_t>(magnitude == 0x7F800000, plan.infinity, code);
    }
    code = choose<int32_t>(magnitude > 0x7F800000, plan.nan, code);
    return code | (negative * plan.negative_add);
}

}  // namespace precsim
