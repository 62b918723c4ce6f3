#include "count.hpp"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <memory>
#include <new>
#include <stdexcept>

#include "process.hpp"
#include "tally.hpp"

namespace precsim {
namespace {

constexpr size_t fine_places = size_t(2 * 17) << 9;

// A group of fractions is counted as one: no bin may begin inside it.
void check_groups(const Bins& bins) {
    for (int top = 1; top < 127; ++top) {
        const bool begins_group = fraction_group(top) != fraction_group(top - 1);
        const int before = bins.coarse[2 * (top - 1)];
        if (!begins_group && (bins.coarse[2 * top] != before || bins.coarse[2 * top + 1] != before))
            throw std::invalid_argument("the bins cut a binade where the native count does not: use the array engine");
    }
}

// A histogram of float32 numbers by `place_block`'s places, 32-bit counters: for fewer than 2^32 numbers at a time. Few
// places are in use at once, so that they stay in the first-level cache. Numbers whose top 7 fraction bits are all ones
// are counted a second time, by the ones that follow.
class Float32Histogram {
    static constexpr size_t places_at_once = 256, counter_count = place_count + fine_places;
    // Zeroed by the system page by page, where they are touched.
    std::unique_ptr<uint32_t, decltype(&std::free)> counters_{allocated(), &std::free};
    uint32_t greatest_ = 0, least_less_one_ = 0xFFFFFFFF;

public:
    void add(const int32_t* bits, size_t n, Tally& tally) {
        alignas(64) uint32_t places[places_at_once];
        for (size_t done = 0; done < n; done += places_at_once) {
            const size_t length = std::min(places_at_once, n - done);
            const BlockFacts facts = place_block(bits + done, places, length);
            count_places(bits + done, places, length);
            constexpr uint32_t infinity = 0x7F800000;
            const bool all_finite = facts.greatest < infinity;
            greatest_ = std::max(greatest_, all_finite ? facts.greatest : greatest_finite(bits + done, length));
            least_less_one_ = std::min(least_less_one_, facts.least_less_one);
            if (facts.least_less_one < 0x7FFFFF) add_subnormals(bits + done, length, tally);
        }
    }

    void move_to(Tally& tally) const {
        for (uint32_t sign : {0u, 1u}) {
            tally.zeros += counter(exact_flag + (sign << 15));
            move_infinite(sign, tally);
        }
        if (!greatest_) return;
        const uint32_t least = least_less_one_ + 1;
        tally.extend(widened(int32_t(least)), widened(int32_t(greatest_)));
        for (uint32_t sign : {0u, 1u})  // subnormals were added one by one
            for (uint32_t field = std::max(least >> 23, 1u); field <= greatest_ >> 23; ++field) move_binade(sign, field, tally);
    }

private:
    static uint32_t* allocated() {
        void* memory = std::calloc(counter_count, sizeof(uint32_t));
        if (!memory) throw std::bad_alloc();
        return static_cast<uint32_t*>(memory);
    }

    uint32_t counter(uint32_t place) const { return counters_.get()[place]; }

    void count_places(const int32_t* bits, const uint32_t* places, size_t n) {
        uint32_t* counters = counters_.get();
        size_t i = 0;
        for (; i + 3 < n; i += 4) {  // two places in one load, one look at four flags
            uint64_t first, second;
            std::memcpy(&first, places + i, sizeof first);
            std::memcpy(&second, places + i + 2, sizeof second);
            ++counters[uint32_t(first)];
            ++counters[first >> 32];
            ++counters[uint32_t(second)];
            ++counters[second >> 32];
            constexpr uint64_t flags = uint64_t(fine_flag) << 32 | fine_flag;
            if (__builtin_expect(((first | second) & flags) != 0, 0)) count_fine(bits + i, places + i, 4);
        }
        for (size_t rest = i; rest < n; ++rest) ++counters[places[rest]];
        count_fine(bits + i, places + i, n - i);
    }

    void count_fine(const int32_t* bits, const uint32_t* places, size_t n) {
        for (size_t i = 0; i < n; ++i)
            if (places[i] & fine_flag) ++counters_.get()[fine_place(bits[i])];
    }

    // By the ones that lead the low 16 bits, whether no other one is set below them, sign and exponent field.
    static uint32_t fine_place(int32_t bits) {
        const uint32_t zeros = ~uint32_t(bits) & 0xFFFF;
        const int length = bit_length(zeros);
        const uint32_t nothing_below = zeros == (uint32_t(1) << length) - 1;
        const uint32_t bin = 2 * uint32_t(16 - length) + nothing_below;
        return place_count + (bin << 9) + (uint32_t(bits) >> 23);
    }

    void move_binade(uint32_t sign, uint32_t field, Tally& tally) const {
        const Bins& bins = tally.bins();
        const uint32_t head = sign << 8 | field;
        const int row = int(field) - 127 - least_exponent;
        for (uint32_t top = 0; top < 127; ++top) {
            // All of a group's tops have one inner bin: Bins are made so, and `check_groups` looks.
            const bool begins_group = top == 0 || fraction_group(int(top)) != fraction_group(int(top) - 1);
            if (begins_group) {
                const uint32_t place = head * fraction_groups + uint32_t(fraction_group(int(top)));
                tally.add_to(int(sign), row, bins.coarse[2 * top], counter(place));
            }
            tally.add_to(int(sign), row, bins.coarse[2 * top + 1], counter(exact_flag + (head << 7) + top));
        }
        for (uint32_t bin = 0; bin < 2 * 17; ++bin)
            tally.add_to(int(sign), row, bins.fine[bin], counter(place_count + (bin << 9) + head));
    }

    void move_infinite(uint32_t sign, Tally& tally) const {
        const uint32_t head = sign << 8 | 255, first = exact_flag + (head << 7);
        tally.infinities[sign] += counter(first);
        for (uint32_t top = 1; top < 127; ++top) tally.nans += counter(first + top);
        tally.nans += counter(first + 127 + fine_flag);
        const uint32_t groups = head * fraction_groups, last = uint32_t(fraction_group(127));
        for (uint32_t group = 0; group < last; ++group) tally.nans += counter(groups + group);
        tally.nans += counter(groups + last + fine_flag);
    }

    static void add_subnormals(const int32_t* bits, size_t n, Tally& tally) {
        for (size_t i = 0; i < n; ++i) {
            const int32_t magnitude = bits[i] & 0x7FFFFFFF;
            if (magnitude > 0 && magnitude < 0x800000) {
                int64_t wide;
                widen_block(bits + i, &wide, 1);
                tally.add(wide, 1);
            }
        }
    }
};

constexpr size_t few = 8192;  // numbers for which clearing and reading a histogram would cost more than it saves
constexpr size_t histogram_limit = size_t(1) << 31;

void count_float32(const int32_t* bits, size_t n, Tally& tally) {
    if (n <= few) {
        for (size_t i = 0; i < n; ++i) tally.add(widened(bits[i]), 1);
        return;
    }
    for (size_t done = 0; done < n; done += histogram_limit) {
        Float32Histogram histogram;
        histogram.add(bits + done, std::min(histogram_limit, n - done), tally);
        histogram.move_to(tally);
    }
}

template <class Code>
void count_codes(const Code* codes, size_t n, const double* values, size_t value_count, Tally& tally) {
    std::vector<int64_t> histogram(size_t(1) << (8 * sizeof(Code)));
    for (size_t i = 0; i < n; ++i) ++histogram[codes[i]];
    for (size_t code = 0; code < value_count; ++code) {
        if (!histogram[code]) continue;
        int64_t bits;
        std::memcpy(&bits, values + code, sizeof bits);
        tally.add(bits, histogram[code]);
    }
}

void count_part(const Source& source, size_t first, size_t last, const double* values, size_t value_count, Tally& tally) {
    const size_t n = last - first;
    switch (source.kind) {
        case Kind::float32:
            return count_float32(static_cast<const int32_t*>(source.data) + first, n, tally);
        case Kind::codes8:
            return count_codes(static_cast<const uint8_t*>(source.data) + first, n, values, value_count, tally);
        case Kind::codes16:
            return count_codes(static_cast<const uint16_t*>(source.data) + first, n, values, value_count, tally);
        default: {
            BlockLoader loader(source);
            for (size_t at = first; at < last; at += block_elements) {
                const size_t length = std::min(block_elements, last - at);
                const int64_t* bits = loader.float64_bits(at, length);
                for (size_t i = 0; i < length; ++i) tally.add(bits[i], 1);
            }
        }
    }
}

}  // namespace

Counts count(const Source& source, size_t n, const Bins& bins, const double* values, size_t value_count, int threads) {
    check_groups(bins);
    std::vector<std::unique_ptr<Tally>> tallies(size_t(std::max(threads, 1)) + 1);
    in_parts(n, threads, block_elements, [&](size_t part, size_t first, size_t last) {
        tallies[part] = std::make_unique<Tally>(bins);
        count_part(source, first, last, values, value_count, *tallies[part]);
    });
    for (size_t part = 1; part < tallies.size(); ++part)
        if (tallies[part]) tallies[0]->merge(*tallies[part]);
    return tallies[0]->result();
}

}  // namespace precsim
