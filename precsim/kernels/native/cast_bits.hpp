// Rounding on the bits of a float: the same steps as precsim/kernels/array/bits.py, one element at a time and without
// branches, so that the compiler can vectorise the loops around them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "plan.hpp"

namespace precsim {

#define PRECSIM_INLINE inline __attribute__((always_inline))

struct Float32Lane {
    using Int = int32_t;
    using Unsigned = uint32_t;
    static constexpr int bits = 32, fraction_bits = 23, bias = 127;
};

struct Float64Lane {
    using Int = int64_t;
    using Unsigned = uint64_t;
    static constexpr int bits = 64, fraction_bits = 52, bias = 1023;
};

// The plan in a lane's integers: loop-invariant, so it stays in registers.
template <class Lane>
struct LanePlan {
    using Int = typename Lane::Int;
    Int m, least_field, low_shift, random_bits, flip, flush_below, max_code, offset, negative_xor, negative_add;
    Int nan0, infinity0, zero0, underflow0, overflow0;
    Int nan_step, infinity_step, zero_step, underflow_step, overflow_step;  // what a negative sign adds
    Int negative_code, keep_sign;

    explicit LanePlan(const Plan& p)
        : m(Int(p.significand_bits)),
          least_field(Int(p.least_exponent + Lane::bias)),
          low_shift(Int(p.low_shift)),
          random_bits(Int(p.random_bits)),
          flip(Int(p.parity_flip)),
          flush_below(Int(p.flush_below)),
          max_code(Int(p.max_code)),
          offset(Int(p.code_offset)),
          negative_xor(Int(p.negative_xor)),
          negative_add(Int(p.negative_add)),
          nan0(Int(p.nan[0])),
          infinity0(Int(p.infinity[0])),
          zero0(Int(p.zero[0])),
          underflow0(Int(p.underflow[0])),
          overflow0(Int(p.overflow[0])),
          nan_step(Int(p.nan[1] - p.nan[0])),
          infinity_step(Int(p.infinity[1] - p.infinity[0])),
          zero_step(Int(p.zero[1] - p.zero[0])),
          underflow_step(Int(p.underflow[1] - p.underflow[0])),
          overflow_step(Int(p.overflow[1] - p.overflow[0])),
          negative_code(Int(p.negative_code)),
          keep_sign(p.ignore_sign ? 0 : 1) {}
};

// 1 where a magnitude goes to its upper neighbour. `remainder` is what `dropped` bits hold.
template <class Lane, Mode mode>
PRECSIM_INLINE typename Lane::Int rounds_up(typename Lane::Int remainder, typename Lane::Int dropped,
                                            typename Lane::Int lower, typename Lane::Int negative,
                                            const LanePlan<Lane>& plan) {
    using Int = typename Lane::Int;
    const Int odd = (lower + plan.flip) & 1;
    const Int unit = Int(1) << dropped;
    if constexpr (mode == Mode::nearest_even)
        return ((remainder << 1) + odd + (unit - 1)) >> (dropped + 1);  // 2·remainder + odd > unit
    if constexpr (mode == Mode::nearest_away) return (remainder << 1) >> dropped;
    if constexpr (mode == Mode::nearest_zero) return ((remainder << 1) + (unit - 1)) >> (dropped + 1);
    const Int inexact = Int(typename Lane::Unsigned(-remainder) >> (Lane::bits - 1));  // remainder > 0
    if constexpr (mode == Mode::up) return inexact & (1 - negative);
    if constexpr (mode == Mode::down) return inexact & negative;
    if constexpr (mode == Mode::away) return inexact;
    if constexpr (mode == Mode::to_odd) return inexact & (1 - odd);
    return 0;  // toward zero
}

// 1 where ⌊f·2^r⌋ + R ≥ 2^r; see _carries in precsim/kernels/array/bits.py for why shifted operands do. Both are moved
// to the top of the lane, where their sum wraps around exactly if it carries.
template <class Lane>
PRECSIM_INLINE typename Lane::Int carries(typename Lane::Int remainder, typename Lane::Int distance, uint32_t random,
                                          const LanePlan<Lane>& plan) {
    using Int = typename Lane::Int;
    using Unsigned = typename Lane::Unsigned;
    const Int surplus = std::max<Int>(distance - plan.random_bits, 0);
    const Int missing = std::max<Int>(plan.random_bits - distance, 0);
    const Int to_top = Lane::bits - std::min<Int>(distance, plan.random_bits);
    const Unsigned fraction = (Unsigned(remainder) >> surplus) << to_top;
    const Unsigned noise = (Unsigned(random) >> missing) << to_top;
    return Int(Unsigned(fraction + noise) < fraction);
}

// yes where the condition holds, else no; without a branch that would keep the loop from being vectorised.
template <class Int>
PRECSIM_INLINE Int choose(bool condition, Int yes, Int no) {
    const Int mask = -Int(condition);
    return (yes & mask) | (no & ~mask);
}

template <class Lane, Mode mode>
PRECSIM_INLINE typename Lane::Int cast_bits(typename Lane::Int bits, uint32_t random, const LanePlan<Lane>& plan) {
    using Int = typename Lane::Int;
    constexpr int fraction_bits = Lane::fraction_bits;
    constexpr Int magnitude_mask = std::numeric_limits<Int>::max();
    constexpr Int infinity = Int(2 * Lane::bias + 1) << fraction_bits;

    const Int magnitude = bits & magnitude_mask;
    const Int negative = Int(typename Lane::Unsigned(bits) >> (Lane::bits - 1)) & plan.keep_sign;

    // A subnormal's field counts as 1 and it has no hidden bit: both come out of one subtraction.
    const Int field = std::max<Int>(magnitude >> fraction_bits, 1);
    const Int significand = magnitude - ((field - 1) << fraction_bits);
    const Int below = std::max<Int>(plan.least_field - field, 0);
    const Int low_shift = -Int(below > 0) & plan.low_shift;
    const Int distance = below + (fraction_bits - plan.m) + low_shift;
    // With fraction_bits + 2 bits dropped, all that is left of a significand is less than a half.
    const Int dropped = std::min<Int>(distance, fraction_bits + 2);
    const Int kept = significand >> dropped;
    const Int remainder = significand - (kept << dropped);
    const Int lower = (kept << low_shift) + (std::max<Int>(field - plan.least_field, 0) << plan.m);
    Int up;
    if constexpr (mode == Mode::stochastic)
        up = carries<Lane>(remainder, std::min<Int>(distance, fraction_bits + 2 + plan.random_bits), random, plan);
    else
        up = rounds_up<Lane, mode>(remainder, dropped, lower, negative, plan);
    const Int code = lower + (up << low_shift);

    const Int sign_mask = -negative;
    Int result = ((code - plan.offset) ^ (sign_mask & plan.negative_xor)) + (sign_mask & plan.negative_add);
    result = choose<Int>(code > plan.max_code, plan.overflow0 + (sign_mask & plan.overflow_step), result);
    result = choose<Int>(code < plan.flush_below, plan.underflow0 + (sign_mask & plan.underflow_step), result);
    result = choose<Int>(magnitude == 0, plan.zero0 + (sign_mask & plan.zero_step), result);
    result = choose<Int>(magnitude == infinity, plan.infinity0 + (sign_mask & plan.infinity_step), result);
    const bool outside = (plan.negative_code >= 0) & (negative > 0) & (magnitude > 0);
    result = choose<Int>(outside, plan.negative_code, result);
    return choose<Int>(magnitude > infinity, plan.nan0 + (sign_mask & plan.nan_step), result);
}

}  // namespace precsim
