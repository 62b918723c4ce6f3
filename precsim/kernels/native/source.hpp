// A flat array to be cast, and its blocks as float bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "blocks.hpp"

namespace precsim {

enum class Kind : int { float32, float64, codes8, codes16, int64, uint64 };

struct Source {
    Kind kind;
    const void* data;
    const float* table;  // values of codes
    double flush_below, multiplier;

    bool is_wide() const { return kind == Kind::float64 || kind == Kind::int64 || kind == Kind::uint64; }
};

// Loads blocks of a source; what it returns is valid until the next call.
class BlockLoader {
    const Source& source_;
    alignas(64) int32_t narrow_[block_elements];
    alignas(64) int64_t wide_[block_elements];

public:
    explicit BlockLoader(const Source& source) : source_(source) {}

    // Bits of float32; not for wide sources.
    const int32_t* float32_bits(size_t first, size_t n) {
        const int32_t* bits = narrow_;
        if (source_.kind == Kind::float32)
            bits = static_cast<const int32_t*>(source_.data) + first;
        else if (source_.kind == Kind::codes8)
            lookup_block(static_cast<const uint8_t*>(source_.data) + first, source_.table, as_floats(narrow_), n);
        else
            lookup_block(static_cast<const uint16_t*>(source_.data) + first, source_.table, as_floats(narrow_), n);
        if (source_.flush_below > 0) {
            const float least = float(source_.flush_below);
            int32_t least_bits;
            std::memcpy(&least_bits, &least, sizeof least);
            flush_block32(bits, narrow_, n, least_bits);
            bits = narrow_;
        }
        if (source_.multiplier != 1.0) {
            multiply_block32(reinterpret_cast<const float*>(bits), as_floats(narrow_), n, float(source_.multiplier));
            bits = narrow_;
        }
        return bits;
    }

    // Bits of float64, narrower sources widened.
    const int64_t* float64_bits(size_t first, size_t n) {
        if (!source_.is_wide()) {
            widen_block(float32_bits(first, n), wide_, n);
            return wide_;
        }
        const int64_t* bits = wide_;
        auto* values = reinterpret_cast<double*>(wide_);
        if (source_.kind == Kind::float64)
            bits = static_cast<const int64_t*>(source_.data) + first;
        else if (source_.kind == Kind::int64)
            signed_block(static_cast<const int64_t*>(source_.data) + first, values, n);
        else
            unsigned_block(static_cast<const uint64_t*>(source_.data) + first, values, n);
        if (source_.flush_below > 0) {
            int64_t least_bits;
            std::memcpy(&least_bits, &source_.flush_below, sizeof least_bits);
            flush_block64(bits, wide_, n, least_bits);
            bits = wide_;
        }
        if (source_.multiplier != 1.0) {
            multiply_block64(reinterpret_cast<const double*>(bits), values, n, source_.multiplier);
            bits = wide_;
        }
        return bits;
    }

private:
    static float* as_floats(int32_t* bits) { return reinterpret_cast<float*>(bits); }
};

}  // namespace precsim
