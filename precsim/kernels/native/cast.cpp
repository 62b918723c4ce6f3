#include "cast.hpp"

#include <algorithm>

#include "process.hpp"

namespace precsim {
namespace {

// Codes of consecutive blocks of one part of an array.
class BlockCaster {
    BlockLoader loader_;
    const Source& source_;
    const Plan& plan_;
    const Random& random_;
    alignas(64) uint32_t noise_[block_elements];

public:
    BlockCaster(const Source& source, const Plan& plan, const Random& random)
        : loader_(source), source_(source), plan_(plan), random_(random) {}

    template <class Code>
    void cast(size_t first, size_t n, Code* out) {
        const uint32_t* noise = this->noise(first, n);
        if (plan_.usual && !source_.is_wide())
            cast_usual_block(loader_.float32_bits(first, n), out, n, plan_, noise);
        else if (plan_.narrow && !source_.is_wide())
            cast_block32(loader_.float32_bits(first, n), out, n, plan_, noise);
        else
            cast_block64(loader_.float64_bits(first, n), out, n, plan_, noise);
    }

private:
    const uint32_t* noise(size_t first, size_t n) {
        if (plan_.mode != Mode::stochastic) return nullptr;
        if (random_.given) return random_.given + first;
        philox_block(random_.seed, random_.first + first, noise_, n, plan_.random_bits);
        return noise_;
    }
};

template <class Work>
void for_blocks(size_t first, size_t last, const Work& work) {
    for (size_t at = first; at < last; at += block_elements) work(at, std::min(block_elements, last - at));
}

template <class Code>
void encode_as(const Source& source, size_t n, const Plan& plan, Code* out, const Random& random, int threads) {
    in_parts(n, threads, block_elements, [&](size_t, size_t first, size_t last) {
        BlockCaster caster(source, plan, random);
        for_blocks(first, last, [&](size_t at, size_t length) { caster.cast(at, length, out + at); });
    });
}

void divide(float* x, size_t n, double divisor) { divide_block32(x, n, float(divisor)); }
void divide(double* x, size_t n, double divisor) { divide_block64(x, n, divisor); }

template <class Code, class Value>
void quantize_as(const Source& source, size_t n, const Plan& plan, const Value* table, Value* out, double divisor,
                 const Random& random, int threads) {
    in_parts(n, threads, block_elements, [&](size_t, size_t first, size_t last) {
        BlockCaster caster(source, plan, random);
        alignas(64) Code codes[block_elements];
        for_blocks(first, last, [&](size_t at, size_t length) {
            caster.cast(at, length, codes);
            lookup_block(codes, table, out + at, length);
            if (divisor != 1.0) divide(out + at, length, divisor);
        });
    });
}

template <class Code, class Value>
void decode_as(const Code* codes, size_t n, const Value* table, Value* out, int threads) {
    in_parts(n, threads, block_elements, [&](size_t, size_t first, size_t last) {
        lookup_block(codes + first, table, out + first, last - first);
    });
}

}  // namespace

void encode(const Source& source, size_t n, const Plan& plan, void* out, const Random& random, int threads) {
    switch (plan.storage_bits) {
        case 8:
            return encode_as(source, n, plan, static_cast<uint8_t*>(out), random, threads);
        case 16:
            return encode_as(source, n, plan, static_cast<uint16_t*>(out), random, threads);
        default:
            return encode_as(source, n, plan, static_cast<uint32_t*>(out), random, threads);
    }
}

template <class Value>
void quantize(const Source& source, size_t n, const Plan& plan, const Value* table, Value* out, double divisor,
              const Random& random, int threads) {
    if (plan.storage_bits == 8)
        quantize_as<uint8_t>(source, n, plan, table, out, divisor, random, threads);
    else
        quantize_as<uint16_t>(source, n, plan, table, out, divisor, random, threads);
}

template <class Value>
void decode(const void* codes, int storage_bits, size_t n, const Value* table, Value* out, int threads) {
    if (storage_bits == 8)
        decode_as(static_cast<const uint8_t*>(codes), n, table, out, threads);
    else
        decode_as(static_cast<const uint16_t*>(codes), n, table, out, threads);
}

template void quantize<float>(const Source&, size_t, const Plan&, const float*, float*, double, const Random&, int);
template void quantize<double>(const Source&, size_t, const Plan&, const double*, double*, double, const Random&, int);
template void decode<float>(const void*, int, size_t, const float*, float*, int);
template void decode<double>(const void*, int, size_t, const double*, double*, int);

}  // namespace precsim
