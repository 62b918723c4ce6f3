// Casts of whole arrays.
#pragma once

#include <cstddef>
#include <cstdint>

#include "source.hpp"

namespace precsim {

struct Random {
    uint64_t seed, first;
    const uint32_t* given;  // R itself, or null
};

// Codes of `plan.storage_bits` into `out`.
void encode(const Source& source, size_t n, const Plan& plan, void* out, const Random& random, int threads);

// Values of the codes, by `table` (of Value), divided by `divisor`; out may be the source's own memory.
template <class Value>
void quantize(const Source& source, size_t n, const Plan& plan, const Value* table, Value* out, double divisor,
              const Random& random, int threads);

// Values of codes of 8 or 16 bits.
template <class Value>
void decode(const void* codes, int storage_bits, size_t n, const Value* table, Value* out, int threads);

}  // namespace precsim
