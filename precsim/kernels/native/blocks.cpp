#include "blocks.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "cast_bits.hpp"

// One copy of a loop for each of these instruction sets; the loader picks by processor. Elsewhere one copy, as compiled.
#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 12
#define PRECSIM_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define PRECSIM_CLONES
#endif

namespace precsim {
namespace {

template <class Lane, Mode mode, class Code, bool signs_apart>
PRECSIM_INLINE void cast_loop(const typename Lane::Int* bits, Code* out, size_t n, const Plan& plan,
                              const uint32_t* random) {
    const LanePlan<Lane> lane_plan(plan);
    for (size_t i = 0; i < n; ++i) {
        const uint32_t noise = mode == Mode::stochastic ? random[i] : 0;
        out[i] = Code(cast_bits<Lane, mode, signs_apart>(bits[i], noise, lane_plan));
    }
}

// target_clones does not go on templates: each combination is a function of its own.
#define PRECSIM_CAST(MODE, LANE, INT, CODE)                                                                       \
    PRECSIM_CLONES void cast_##MODE##_##LANE##_##CODE(const INT* bits, CODE* out, size_t n, const Plan& plan,      \
                                                      const uint32_t* random) {                                    \
        if (plan.signs_apart)                                                                                      \
            cast_loop<LANE, Mode::MODE, CODE, true>(bits, out, n, plan, random);                                   \
        else                                                                                                       \
            cast_loop<LANE, Mode::MODE, CODE, false>(bits, out, n, plan, random);                                  \
    }
#define PRECSIM_CAST_CODES(MODE, LANE, INT)  \
    PRECSIM_CAST(MODE, LANE, INT, uint8_t)   \
    PRECSIM_CAST(MODE, LANE, INT, uint16_t)  \
    PRECSIM_CAST(MODE, LANE, INT, uint32_t)
#define PRECSIM_CAST_LANES(MODE)                    \
    PRECSIM_CAST_CODES(MODE, Float32Lane, int32_t)  \
    PRECSIM_CAST_CODES(MODE, Float64Lane, int64_t)
#define PRECSIM_MODES(DO) \
    DO(nearest_even) DO(nearest_away) DO(nearest_zero) DO(toward_zero) DO(up) DO(down) DO(away) DO(to_odd) DO(stochastic)

PRECSIM_MODES(PRECSIM_CAST_LANES)

}  // namespace

#define PRECSIM_DISPATCH(LANE, CODE, MODE) \
    case Mode::MODE:                       \
        return cast_##MODE##_##LANE##_##CODE(bits, out, n, plan, random);
#define PRECSIM_DISPATCHER(NAME, LANE, INT, CODE)                                                                 \
    template <>                                                                                                    \
    void NAME<CODE>(const INT* bits, CODE* out, size_t n, const Plan& plan, const uint32_t* random) {              \
        switch (plan.mode) {                                                                                       \
            PRECSIM_DISPATCH(LANE, CODE, nearest_even)                                                             \
            PRECSIM_DISPATCH(LANE, CODE, nearest_away)                                                             \
            PRECSIM_DISPATCH(LANE, CODE, nearest_zero)                                                             \
            PRECSIM_DISPATCH(LANE, CODE, toward_zero)                                                              \
            PRECSIM_DISPATCH(LANE, CODE, up)                                                                       \
            PRECSIM_DISPATCH(LANE, CODE, down)                                                                     \
            PRECSIM_DISPATCH(LANE, CODE, away)                                                                     \
            PRECSIM_DISPATCH(LANE, CODE, to_odd)                                                                   \
            PRECSIM_DISPATCH(LANE, CODE, stochastic)                                                               \
        }                                                                                                          \
    }
#define PRECSIM_DISPATCHERS(CODE)                              \
    PRECSIM_DISPATCHER(cast_block32, Float32Lane, int32_t, CODE)  \
    PRECSIM_DISPATCHER(cast_block64, Float64Lane, int64_t, CODE)
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

PRECSIM_CLONES void signed_block(const int64_t* x, double* out, size_t n) {
    constexpr int64_t limit = int64_t(1) << 53;
    for (size_t i = 0; i < n; ++i) {
        // ⌊x/2^11⌋ has at most 53 bits; its last bit set where bits are lost, it is the odd one of the two neighbours.
        const int64_t to_odd = (x[i] >> 11) | int64_t((x[i] & 2047) != 0);
        const bool wide = x[i] >= limit || x[i] <= -limit;
        out[i] = wide ? double(to_odd) * 2048.0 : double(x[i]);
    }
}

PRECSIM_CLONES void unsigned_block(const uint64_t* x, double* out, size_t n) {
    constexpr uint64_t limit = uint64_t(1) << 53;
    for (size_t i = 0; i < n; ++i) {
        const int64_t to_odd = int64_t((x[i] >> 11) | uint64_t((x[i] & 2047) != 0));
        out[i] = x[i] >= limit ? double(to_odd) * 2048.0 : double(int64_t(x[i]));
    }
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

namespace {

constexpr size_t philox_width = 16;

// Four words for each of `philox_width` blocks of four elements, in the elements' order.
PRECSIM_CLONES void philox_group(uint64_t seed, uint64_t block, uint32_t* out, int shift) {
    uint32_t c0[philox_width], c1[philox_width], c2[philox_width], c3[philox_width];
    for (size_t i = 0; i < philox_width; ++i) {
        c0[i] = uint32_t(block + i);
        c1[i] = uint32_t((block + i) >> 32);
        c2[i] = c3[i] = 0;
    }
    uint32_t k0 = uint32_t(seed), k1 = uint32_t(seed >> 32);
    for (int round = 0; round < 10; ++round) {
        for (size_t i = 0; i < philox_width; ++i) {
            const uint64_t p0 = uint64_t(0xD2511F53u) * c0[i], p1 = uint64_t(0xCD9E8D57u) * c2[i];
            const uint32_t next0 = uint32_t(p1 >> 32) ^ c1[i] ^ k0, next2 = uint32_t(p0 >> 32) ^ c3[i] ^ k1;
            c1[i] = uint32_t(p1);
            c3[i] = uint32_t(p0);
            c0[i] = next0;
            c2[i] = next2;
        }
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    for (size_t i = 0; i < philox_width; ++i) {
        out[4 * i] = c0[i] >> shift;
        out[4 * i + 1] = c1[i] >> shift;
        out[4 * i + 2] = c2[i] >> shift;
        out[4 * i + 3] = c3[i] >> shift;
    }
}

}  // namespace

void philox_block(uint64_t seed, uint64_t first, uint32_t* out, size_t n, int random_bits) {
    constexpr size_t group = 4 * philox_width;
    uint32_t words[group];
    const int shift = 32 - random_bits;
    size_t done = 0;
    size_t skip = size_t(first % 4);
    uint64_t block = first / 4;
    while (done < n) {
        const bool direct = skip == 0 && n - done >= group;
        philox_group(seed, block, direct ? out + done : words, shift);
        const size_t taken = std::min(group - skip, n - done);
        if (!direct) std::memcpy(out + done, words + skip, taken * sizeof(uint32_t));
        done += taken;
        block += philox_width;
        skip = 0;
    }
}

PRECSIM_CLONES BlockFacts place_block(const int32_t* bits, uint32_t* places, size_t n) {
    int32_t greatest = 0, least = 0x7F800000, subnormals = 0;
    for (size_t i = 0; i < n; ++i) {
        const uint32_t u = uint32_t(bits[i]);
        const int32_t magnitude = bits[i] & 0x7FFFFFFF;
        const uint32_t low = u & 0xFFFF;
        const uint32_t coarse = ((u >> 16) << 1) | uint32_t(low == 0);
        // Ones that lead the low 16 bits, by the length of their complement, which float32 holds exactly.
        const int32_t zeros = int32_t(low ^ 0xFFFF);
        const float as_float = float(zeros);
        int32_t float_bits;
        std::memcpy(&float_bits, &as_float, sizeof as_float);
        const int32_t length = zeros > 0 ? (float_bits >> 23) - 126 : 0;
        const uint32_t nothing_below = uint32_t(zeros == (int32_t(1) << length) - 1);
        const uint32_t fine = (1u << 17) + ((u >> 23) << 6) + (uint32_t(16 - length) << 1) + nothing_below;
        places[i] = (u & 0x7F0000) == 0x7F0000 ? fine : coarse;
        const bool finite = magnitude < 0x7F800000;
        greatest = std::max(greatest, finite ? magnitude : 0);
        least = std::min(least, finite && magnitude > 0 ? magnitude : 0x7F800000);
        subnormals |= int32_t(magnitude > 0 && magnitude < 0x800000);
    }
    return {greatest, least, subnormals != 0};
}

}  // namespace precsim
