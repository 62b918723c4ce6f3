// Philox4x32-10 (Salmon et al. 2011, Parallel Random Numbers: As Easy as 1, 2, 3).
#include <cstring>

#include "blocks.hpp"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#endif

namespace precsim {
namespace {

constexpr uint32_t multiplier0 = 0xD2511F53, multiplier1 = 0xCD9E8D57;
constexpr size_t counters_at_once = 8;

struct Keys {
    uint32_t k0[10], k1[10];
    explicit Keys(uint64_t seed) {
        for (uint32_t round = 0; round < 10; ++round) {
            k0[round] = uint32_t(seed) + round * 0x9E3779B9u;
            k1[round] = uint32_t(seed >> 32) + round * 0xBB67AE85u;
        }
    }
};

// Four words for each of n counters from `counter` on, n a multiple of counters_at_once, each shifted right.
using Words = void (*)(const Keys& keys, uint64_t counter, uint32_t* out, size_t n, int shift);

#if defined(__x86_64__) && defined(__GNUC__)

// A counter's words in the low halves of 64-bit lanes, where one instruction makes a 64-bit product. The compiler doesn't
// find it in a plain loop, which takes twice the time. High halves hold rubbish, which products don't read.
#define PRECSIM_PHILOX(NAME, TARGET, LANES, VECTOR, PRODUCT)                                                         \
    __attribute__((target(TARGET))) void NAME(const Keys& keys, uint64_t counter, uint32_t* __restrict out, size_t n,  \
                                              int shift) {                                                           \
        typedef uint64_t Lanes __attribute__((vector_size(8 * LANES)));                                              \
        constexpr uint64_t low = 0xFFFFFFFF;                                                                         \
        const uint64_t kept = (low >> shift) * 0x100000001u;                                                         \
        const Lanes zero = {};                                                                                       \
        Lanes index = zero;                                                                                          \
        for (int lane = 0; lane < LANES; ++lane) index[lane] = uint64_t(lane);                                       \
        const VECTOR m0 = (VECTOR)(zero + uint64_t(multiplier0)), m1 = (VECTOR)(zero + uint64_t(multiplier1));       \
        for (size_t i = 0; i < n; i += LANES) {                                                                      \
            Lanes c0 = index + (counter + i), c1 = c0 >> 32, c2 = zero, c3 = zero;                                   \
            _Pragma("GCC unroll 10") for (int round = 0; round < 10; ++round) {                                      \
                const Lanes p0 = (Lanes)PRODUCT((VECTOR)c0, m0), p1 = (Lanes)PRODUCT((VECTOR)c2, m1);                \
                c0 = (p1 >> 32) ^ c1 ^ uint64_t(keys.k0[round]);                                                     \
                c2 = (p0 >> 32) ^ c3 ^ uint64_t(keys.k1[round]);                                                     \
                c1 = p1;                                                                                             \
                c3 = p0;                                                                                             \
            }                                                                                                        \
            const Lanes first = (((c0 & low) | (c1 << 32)) >> uint64_t(shift)) & kept;                               \
            const Lanes second = (((c2 & low) | (c3 << 32)) >> uint64_t(shift)) & kept;                              \
            for (int lane = 0; lane < LANES; ++lane) {                                                               \
                const uint64_t words[2] = {first[lane], second[lane]};                                               \
                std::memcpy(out + 4 * (i + size_t(lane)), words, sizeof words);                                      \
            }                                                                                                        \
        }                                                                                                            \
    }
PRECSIM_PHILOX(words_avx512, "avx512f", 8, __m512i, _mm512_mul_epu32)
PRECSIM_PHILOX(words_avx2, "avx2", 4, __m256i, _mm256_mul_epu32)
PRECSIM_PHILOX(words_sse2, "sse2", 2, __m128i, _mm_mul_epu32)

Words fastest() {
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f")) return words_avx512;
    return __builtin_cpu_supports("avx2") ? words_avx2 : words_sse2;
}

#else

void words_plain(const Keys& keys, uint64_t counter, uint32_t* __restrict out, size_t n, int shift) {
    for (size_t i = 0; i < n; ++i) {
        uint32_t c0 = uint32_t(counter + i), c1 = uint32_t((counter + i) >> 32), c2 = 0, c3 = 0;
        for (int round = 0; round < 10; ++round) {
            const uint64_t p0 = uint64_t(multiplier0) * c0, p1 = uint64_t(multiplier1) * c2;
            c0 = uint32_t(p1 >> 32) ^ c1 ^ keys.k0[round];
            c2 = uint32_t(p0 >> 32) ^ c3 ^ keys.k1[round];
            c1 = uint32_t(p1);
            c3 = uint32_t(p0);
        }
        out[4 * i] = c0 >> shift;
        out[4 * i + 1] = c1 >> shift;
        out[4 * i + 2] = c2 >> shift;
        out[4 * i + 3] = c3 >> shift;
    }
}

Words fastest() { return words_plain; }

#endif

}  // namespace

void philox_block(uint64_t seed, uint64_t first, uint32_t* out, size_t n, int random_bits) {
    static const Words words = fastest();
    constexpr size_t group = 4 * counters_at_once;
    const Keys keys(seed);
    const size_t skip = size_t(first % 4);
    if (skip == 0 && n % group == 0) return words(keys, first / 4, out, n / 4, 32 - random_bits);
    uint32_t all[block_elements + 2 * group];
    words(keys, first / 4, all, (skip + n + group - 1) / group * counters_at_once, 32 - random_bits);
    std::memcpy(out, all + skip, n * sizeof(uint32_t));
}

}  // namespace precsim
