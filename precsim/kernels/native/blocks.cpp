#include "blocks.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "usual.hpp"

// One copy of a loop for each of these instruction sets; the loader picks by processor. Elsewhere one copy, as compiled.
#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 12
#define PRECSIM_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define PRECSIM_CLONES
#endif

namespace precsim {
namespace {

template <class Lane, Mode mode, class Code>
PRECSIM_INLINE void cast_loop(const typename Lane::Int* __restrict bits, Code* __restrict out, size_t n,
                              const Plan& plan, const uint32_t* __restrict random) {
    const LanePlan<Lane> lane_plan(plan);
    for (size_t i = 0; i < n; ++i) {
        const uint32_t noise = mode == Mode::stochastic ? random[i] : 0;
        out[i] = Code(cast_bits<Lane, mode>(bits[i], noise, lane_plan));
    }
}

template <Mode mode, bool infinity_overflows, class Code>
PRECSIM_INLINE void usual_loop(const int32_t* __restrict bits, Code* __restrict out, size_t n, const UsualPlan& plan,
                               const uint32_t* __restrict random) {
    for (size_t i = 0; i < n; ++i) {
        const uint32_t noise = mode == Mode::stochastic ? random[i] : 0;
        out[i] = Code(cast_usual<mode, infinity_overflows>(bits[i], noise, plan));
    }
}

// target_clones does not go on templates: each combination is a function of its own.
#define PRECSIM_CAST(MODE, LANE, INT, CODE)                                                                       \
    PRECSIM_CLONES void cast_##MODE##_##LANE##_##CODE(const INT* bits, CODE* out, size_t n, const Plan& plan,      \
                                                      const uint32_t* random) {                                    \
        cast_loop<LANE, Mode::MODE, CODE>(bits, out, n, plan, random);                                             \
    }
#define PRECSIM_USUAL(MODE, CODE)                                                                                 \
    PRECSIM_CLONES void usual_##MODE##_##CODE(const int32_t* bits, CODE* out, size_t n, const Plan& plan,          \
                                              const uint32_t* random) {                                            \
        const UsualPlan usual_plan(plan);                                                                          \
        if (usual_plan.infinity_overflows)                                                                         \
            usual_loop<Mode::MODE, true>(bits, out, n, usual_plan, random);                                        \
        else                                                                                                       \
            usual_loop<Mode::MODE, false>(bits, out, n, usual_plan, random);                                       \
    }
#define PRECSIM_CAST_CODES(MODE, LANE, INT)  \
    PRECSIM_CAST(MODE, LANE, INT, uint8_t)   \
    PRECSIM_CAST(MODE, LANE, INT, uint16_t)  \
    PRECSIM_CAST(MODE, LANE, INT, uint32_t)
#define PRECSIM_CAST_LANES(MODE)                    \
    PRECSIM_CAST_CODES(MODE, Float32Lane, int32_t)  \
    PRECSIM_CAST_CODES(MODE, Float64Lane, int64_t)
#define PRECSIM_USUAL_CODES(MODE) \
    PRECSIM_USUAL(MODE, uint8_t) PRECSIM_USUAL(MODE, uint16_t) PRECSIM_USUAL(MODE, uint32_t)
#define PRECSIM_MODES(DO)                                                                                    \
    DO(nearest_even) DO(nearest_away) DO(nearest_zero) DO(toward_zero) DO(up) DO(down) DO(away) DO(to_odd)    \
    DO(stochastic)

PRECSIM_MODES(PRECSIM_CAST_LANES)
PRECSIM_MODES(PRECSIM_USUAL_CODES)

}  // namespace

// Calls the function of the plan's mode.
#define PRECSIM_BY_MODE(PREFIX, SUFFIX)                                      \
    switch (plan.mode) {                                                     \
        case Mode::nearest_even:                                             \
            return PREFIX##nearest_even##SUFFIX(bits, out, n, plan, random); \
        case Mode::nearest_away:                                             \
            return PREFIX##nearest_away##SUFFIX(bits, out, n, plan, random); \
        case Mode::nearest_zero:                                             \
            return PREFIX##nearest_zero##SUFFIX(bits, out, n, plan, random); \
        case Mode::toward_zero:                                              \
            return PREFIX##toward_zero##SUFFIX(bits, out, n, plan, random);  \
        case Mode::up:                                                       \
            return PREFIX##up##SUFFIX(bits, out, n, plan, random);           \
        case Mode::down:                                                     \
            return PREFIX##down##SUFFIX(bits, out, n, plan, random);         \
        case Mode::away:                                                     \
            return PREFIX##away##SUFFIX(bits, out, n, plan, random);         \
        case Mode::to_odd:                                                   \
            return PREFIX##to_odd##SUFFIX(bits, out, n, plan, random);       \
        case Mode::stochastic:                                               \
            return PREFIX##stochastic##SUFFIX(bits, out, n, plan, random);   \
    }

#define PRECSIM_DISPATCHERS(CODE)                                                                                    \
    template <>                                                                                                      \
    void cast_block32<CODE>(const int32_t* bits, CODE* out, size_t n, const Plan& plan, const uint32_t* random) {    \
        PRECSIM_BY_MODE(cast_, _Float32Lane_##CODE)                                                                  \
    }                                                                                                                \
    template <>                                                                                                      \
    void cast_block64<CODE>(const int64_t* bits, CODE* out, size_t n, const Plan& plan, const uint32_t* random) {    \
        PRECSIM_BY_MODE(cast_, _Float64Lane_##CODE)                                                                  \
    }                                                                                                                \
    template <>                                                                                                      \
    void cast_usual_block<CODE>(const int32_t* bits, CODE* out, size_t n, const Plan& plan, const uint32_t* random) {\
        PRECSIM_BY_MODE(usual_, _##CODE)                                                                             \
    }
PRECSIM_DISPATCHERS(uint8_t)
PRECSIM_DISPATCHERS(uint16_t)
PRECSIM_DISPATCHERS(uint32_t)

PRECSIM_CLONES void widen_block(const int32_t* bits, int64_t* out, size_t n) {
    constexpr int64_t rebias = int64_t(1023 - 127) << 52;
    for (size_t i = 0; i < n; ++i) {
        const int64_t magnitude = bits[i] & 0x7FFFFFFF;
        const int64_t sign = int64_t(uint64_t(uint32_t(bits[i]) & 0x80000000u) << 32);
        // A subnormal is its integer times 2^-149: a normal float64 number, so no flush-to-zero state touches it.
        const double small = double(int32_t(magnitude)) * 0x1p-149;
        int64_t small_bits;
        std::memcpy(&small_bits, &small, sizeof small);
        int64_t result = (magnitude << 29) + rebias + (magnitude >= 0x7F800000 ? rebias : 0);
        result = magnitude < 0x800000 ? small_bits : result;
        out[i] = result | sign;
    }
}

PRECSIM_CLONES void flush_block32(const int32_t* bits, int32_t* out, size_t n, int32_t least) {
    for (size_t i = 0; i < n; ++i)
        out[i] = (bits[i] & 0x7FFFFFFF) < least ? bits[i] & std::numeric_limits<int32_t>::min() : bits[i];
}

PRECSIM_CLONES void flush_block64(const int64_t* bits, int64_t* out, size_t n, int64_t least) {
    constexpr int64_t mask = std::numeric_limits<int64_t>::max();
    for (size_t i = 0; i < n; ++i) out[i] = (bits[i] & mask) < least ? bits[i] & ~mask : bits[i];
}

PRECSIM_CLONES void multiply_block32(const float* x, float* out, size_t n, float factor) {
    for (size_t i = 0; i < n; ++i) out[i] = x[i] * factor;
}

PRECSIM_CLONES void multiply_block64(const double* x, double* out, size_t n, double factor) {
    for (size_t i = 0; i < n; ++i) out[i] = x[i] * factor;
}

PRECSIM_CLONES void divide_block32(float* x, size_t n, float divisor) {
    for (size_t i = 0; i < n; ++i) x[i] /= divisor;
}

PRECSIM_CLONES void divide_block64(double* x, size_t n, double divisor) {
    for (size_t i = 0; i < n; ++i) x[i] /= divisor;
}

// A magnitude of 64 bits as float64, to odd beyond 53 bits: just so many low bits are cut off that 53 are left, and the
// last of these is set where a lost bit was. The length is read off the bits from the eleventh on, which a double holds.
static inline double magnitude_to_odd(uint64_t magnitude) {
    const double upper = double(int64_t(magnitude >> 11));
    uint64_t bits;
    std::memcpy(&bits, &upper, sizeof bits);
    const int64_t length_above = int64_t(bits >> 52) - (1023 + 52 - 11);
    const int cut = length_above > 0 ? int(length_above) : 0;
    const uint64_t kept = magnitude >> cut;
    const double rounded = double(int64_t(kept | uint64_t(kept << cut != magnitude)));
    std::memcpy(&bits, &rounded, sizeof bits);
    bits += uint64_t(cut) << 52;
    double result;
    std::memcpy(&result, &bits, sizeof bits);
    return result;
}

PRECSIM_CLONES void signed_block(const int64_t* x, double* out, size_t n) {
    for (size_t i = 0; i < n; ++i) {
        const double magnitude = magnitude_to_odd(x[i] < 0 ? 0 - uint64_t(x[i]) : uint64_t(x[i]));
        out[i] = x[i] < 0 ? -magnitude : magnitude;
    }
}

PRECSIM_CLONES void unsigned_block(const uint64_t* x, double* out, size_t n) {
    for (size_t i = 0; i < n; ++i) out[i] = magnitude_to_odd(x[i]);
}

#define PRECSIM_LOOKUP(CODE, VALUE)                                                                    \
    template <>                                                                                        \
    void lookup_block<CODE, VALUE>(const CODE* codes, const VALUE* table, VALUE* out, size_t n) {      \
        for (size_t i = 0; i < n; ++i) out[i] = table[codes[i]];                                       \
    }
PRECSIM_LOOKUP(uint8_t, float)
PRECSIM_LOOKUP(uint16_t, float)
PRECSIM_LOOKUP(uint8_t, double)
PRECSIM_LOOKUP(uint16_t, double)

PRECSIM_CLONES BlockFacts place_block(const int32_t* __restrict bits, uint32_t* __restrict places, size_t n) {
    uint32_t greatest = 0, least_less_one = 0xFFFFFFFF;
    for (size_t i = 0; i < n; ++i) {
        const int32_t magnitude = bits[i] & 0x7FFFFFFF, low = bits[i] & 0xFFFF;
        const int32_t head = int32_t(uint32_t(bits[i]) >> 16);
        const int32_t top = head & 127, group = (head >> 7) * fraction_groups + fraction_group(top);
        places[i] = uint32_t((low == 0 ? int32_t(exact_flag) + head : group) + (top == 127 ? int32_t(fine_flag) : 0));
        greatest = std::max(greatest, uint32_t(magnitude));
        least_less_one = std::min(least_less_one, uint32_t(magnitude) - 1);  // a zero wraps around: it is no least
    }
    return {greatest, least_less_one};
}

PRECSIM_CLONES BlockFacts fraction_block(const int32_t* __restrict bits, uint32_t* __restrict places, size_t n) {
    uint32_t greatest = 0, least_less_one = 0xFFFFFFFF;
    for (size_t i = 0; i < n; ++i) {
        const uint32_t magnitude = uint32_t(bits[i]) & 0x7FFFFFFF;
        places[i] = uint32_t(bits[i]) >> 12 | ((bits[i] & 0xFFF) == 0 ? 1u << 20 : 0);
        greatest = std::max(greatest, magnitude);
        least_less_one = std::min(least_less_one, magnitude - 1);
    }
    return {greatest, least_less_one};
}

PRECSIM_CLONES uint32_t greatest_finite(const int32_t* bits, size_t n) {
    uint32_t greatest = 0;
    for (size_t i = 0; i < n; ++i) {
        const uint32_t magnitude = uint32_t(bits[i]) & 0x7FFFFFFF;
        greatest = std::max(greatest, magnitude < 0x7F800000 ? magnitude : 0);
    }
    return greatest;
}

}  // namespace precsim
