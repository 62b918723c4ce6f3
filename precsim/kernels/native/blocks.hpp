// Loops over one block that lies in the first-level cache. Each exists once for every instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "plan.hpp"

namespace precsim {

constexpr size_t block_elements = 2048;

// Casts n floats, given by their bits, to codes of Code's width; `random` is read by stochastic plans alone.
template <class Code>
void cast_block32(const int32_t* bits, Code* out, size_t n, const Plan& plan, const uint32_t* random);
template <class Code>
void cast_block64(const int64_t* bits, Code* out, size_t n, const Plan& plan, const uint32_t* random);
// The same for plans that are `usual`.
template <class Code>
void cast_usual_block(const int32_t* bits, Code* out, size_t n, const Plan& plan, const uint32_t* random);

// float32 bits as float64 bits; right in any flush-to-zero state.
void widen_block(const int32_t* bits, int64_t* out, size_t n);

// Sets floats of a magnitude below that of `least` (bits) to zero, sign kept.
void flush_block32(const int32_t* bits, int32_t* out, size_t n, int32_t least);
void flush_block64(const int64_t* bits, int64_t* out, size_t n, int64_t least);

void multiply_block32(const float* x, float* out, size_t n, float factor);
void multiply_block64(const double* x, double* out, size_t n, double factor);
void divide_block32(float* x, size_t n, float divisor);
void divide_block64(double* x, size_t n, double divisor);

// Integers as float64, those of more than 53 bits rounded to odd.
void signed_block(const int64_t* x, double* out, size_t n);
void unsigned_block(const uint64_t* x, double* out, size_t n);

// out[i] = table[codes[i]].
template <class Code, class Value>
void lookup_block(const Code* codes, const Value* table, Value* out, size_t n);

// The words of Philox4x32-10 for elements first … first + n − 1, each shifted right so that `random_bits` are left.
void philox_block(uint64_t seed, uint64_t first, uint32_t* out, size_t n, int random_bits);

// The group of the top 7 fraction bits of a float32 number, 0 … 21: groups grow finer towards 127, where the significands
// lie at which formats' outcomes change. 127 is a group of its own.
constexpr int fraction_groups = 32;  // rounded up
constexpr int fraction_group(int top) {
    return (top >> 4) + ((top >> 2) > 24 ? (top >> 2) - 24 : 0) + (top > 120 ? top - 120 : 0);
}

// Places by which float32 numbers are counted. Those with a one among the low 16 bits: sign, exponent field and group of
// the fraction. The others: exact_flag and the high 16 bits. And fine_flag where the top 7 fraction bits are all ones.
constexpr uint32_t fine_flag = 1u << 16, exact_flag = 1u << 17, place_count = 1u << 18;

// And the extreme magnitudes: the greatest of all, infinities and NaNs included, and the least nonzero one, less 1.
struct BlockFacts {
    uint32_t greatest, least_less_one;
};
BlockFacts place_block(const int32_t* bits, uint32_t* places, size_t n);

// Places by sign, exponent field and the first 11 fraction bits; 2^20 more where the 12 bits below are 0.
BlockFacts fraction_block(const int32_t* bits, uint32_t* places, size_t n);

// The greatest finite magnitude; 0 where there is none.
uint32_t greatest_finite(const int32_t* bits, size_t n);

}  // namespace precsim
