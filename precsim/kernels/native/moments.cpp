#include "moments.hpp"

#include <array>
#include <cstdlib>
#include <memory>
#include <new>

#include "process.hpp"
#include "tally.hpp"

namespace precsim {
namespace {

#ifndef __SIZEOF_INT128__
#error "the native engine sums in 128-bit integers: without them the array engine serves"
#endif
__extension__ typedef unsigned __int128 Wide;

constexpr int fraction_bits = 11, low_bits = 23 - fraction_bits;
constexpr size_t fractions = size_t(1) << fraction_bits;
constexpr uint64_t low_mask = (uint64_t(1) << low_bits) - 1;

// Of the numbers of one binade, x = M·2^(e−23) with M in [2^23, 2^24).
struct BinadeSums {
    struct Distances {  // of M to the nearest multiple of 2^(23−p)
        Wide absolute[precisions] = {}, squared[precisions] = {};
    };
    struct PerGroup {
        uint64_t number = 0;
        Wide significands = 0, squares = 0;
    };
    Distances distances[2];  // by sign, both
    PerGroup groups[2][most_groups];

    void add(const BinadeSums& other, int group_count) {
        for (int sign : {0, 1}) {
            for (int p = 0; p < precisions; ++p) {
                distances[sign].absolute[p] += other.distances[sign].absolute[p];
                distances[sign].squared[p] += other.distances[sign].squared[p];
            }
            for (int g = 0; g < group_count; ++g) {
                PerGroup& mine = groups[sign][g];
                const PerGroup& theirs = other.groups[sign][g];
                mine.number += theirs.number;
                mine.significands += theirs.significands;
                mine.squares += theirs.squares;
            }
        }
    }
};

// The sums of all binades, by row as a Tally counts them.
class AllSums {
    const Groups& groups_;
    std::vector<std::unique_ptr<BinadeSums>> rows_ = std::vector<std::unique_ptr<BinadeSums>>(rows);

public:
    int64_t rounded = 0;

    explicit AllSums(const Groups& groups) : groups_(groups) {}
    const Groups& groups() const { return groups_; }

    BinadeSums& row(int index) {
        auto& place = rows_[size_t(index)];
        if (!place) place = std::make_unique<BinadeSums>();
        return *place;
    }

    // One number, by its float64 bits, with its weight; what is not finite or is zero has no sums.
    void add(int64_t bits, int64_t weight) {
        const uint64_t magnitude = uint64_t(bits) & uint64_t(std::numeric_limits<int64_t>::max());
        if (magnitude == 0 || magnitude >= uint64_t(infinity64)) return;
        const int index = Tally::row_of(int64_t(magnitude));
        uint64_t significand = magnitude & ((uint64_t(1) << 52) - 1);
        significand = magnitude >> 52 ? significand | uint64_t(1) << 52 : significand << (52 - index);
        const bool below = (significand & ((uint64_t(1) << 29) - 1)) != 0;
        if (below) rounded += weight;
        const uint64_t m = significand >> 29 | uint64_t(below);  // to odd
        const auto n = Wide(uint64_t(weight));
        BinadeSums& sums = row(index);
        auto& distances = sums.distances[bits < 0];
        for (int p = 0; p < precisions; ++p) {
            const uint64_t spacing = uint64_t(1) << (24 - p), rest = m & (spacing - 1);
            const uint64_t distance = std::min(rest, spacing - rest);
            distances.absolute[p] += n * distance;
            distances.squared[p] += n * (distance * distance);
        }
        auto& group = sums.groups[bits < 0][groups_.of[(m >> low_bits) & (fractions - 1)]];
        group.number += uint64_t(weight);
        group.significands += n * m;
        group.squares += n * (m * m);
    }

    void merge(const AllSums& other) {
        rounded += other.rounded;
        for (size_t i = 0; i < rows_.size(); ++i)
            if (other.rows_[i]) row(int(i)).add(*other.rows_[i], groups_.count);
    }

    void write(int first_row, size_t used_rows, Moments& out) const {
        const auto count = size_t(groups_.count);
        out.distances.assign(2 * used_rows * precisions * 4, 0);
        out.sums.assign(2 * used_rows * count * 6, 0);
        for (size_t r = 0; r < used_rows; ++r) {
            const auto& sums = rows_[size_t(first_row) + r];
            if (!sums) continue;
            for (size_t sign : {0, 1}) {
                for (size_t p = 0; p < precisions; ++p) {
                    int64_t* place = &out.distances[((sign * used_rows + r) * precisions + p) * 4];
                    put(sums->distances[sign].absolute[p], place);
                    put(sums->distances[sign].squared[p], place + 2);
                }
                for (size_t g = 0; g < count; ++g) {
                    const auto& group = sums->groups[sign][g];
                    int64_t* place = &out.sums[((sign * used_rows + r) * count + g) * 6];
                    put(group.number, place);
                    put(group.significands, place + 2);
                    put(group.squares, place + 4);
                }
            }
        }
    }

private:
    static void put(Wide value, int64_t* limbs) {
        limbs[0] = int64_t(value & ((uint64_t(1) << 60) - 1));
        limbs[1] = int64_t(value >> 60);
    }
};

// float32 numbers by sign, exponent field and the first 11 fraction bits: how many, and the sum of the 12 low bits (as an
// integer), in one word; those whose low bits are 0 apart, since they alone may lie at a threshold. The squares of the low
// bits by group. From these all sums follow: see `sum_row`.
class Float32Fractions {
    static constexpr uint32_t heads = 512, exact_part = heads << fraction_bits;
    static constexpr size_t at_once = 256;
    static constexpr int number_shift = 40;

    std::unique_ptr<uint64_t, decltype(&std::free)> words_{allocated(size_t(2) * exact_part), &std::free};
    std::unique_ptr<uint64_t, decltype(&std::free)> squares_{allocated(size_t(heads) * most_groups), &std::free};
    uint32_t greatest_ = 0, least_less_one_ = 0xFFFFFFFF;

public:
    static constexpr size_t limit = (size_t(1) << (64 - number_shift)) - 1;  // numbers that may be added

    void add(const int32_t* bits, size_t n, Tally& tally, AllSums& sums) {
        alignas(64) uint32_t places[at_once];
        uint64_t *words = words_.get(), *squares = squares_.get();
        const uint8_t* group_of = sums.groups().of;
        for (size_t done = 0; done < n; done += at_once) {
            const size_t length = std::min(at_once, n - done);
            const int32_t* block = bits + done;
            const BlockFacts facts = fraction_block(block, places, length);
            for (size_t i = 0; i < length; ++i) {
                const uint32_t place = places[i], fraction = place & (fractions - 1);
                const uint64_t low = uint32_t(block[i]) & low_mask;
                words[place] += (uint64_t(1) << number_shift) | low;
                squares[(uint32_t(block[i]) >> 23) * most_groups + group_of[fraction]] += low * low;
                // Their bins depend on more bits: one number in 2048 or so.
                if (__builtin_expect(fraction == fractions - 1, 0)) count_apart(block[i], tally);
            }
            constexpr uint32_t infinity = 0x7F800000;
            greatest_ = std::max(greatest_, facts.greatest < infinity ? facts.greatest : greatest_finite(block, length));
            least_less_one_ = std::min(least_less_one_, facts.least_less_one);
            if (facts.least_less_one < 0x7FFFFF) add_subnormals(block, length, tally, sums);
        }
    }

    void move_to(Tally& tally, AllSums& sums) const {
        for (uint32_t sign : {0u, 1u}) {
            tally.zeros += number(words_.get()[exact_part + (sign << 8 << fraction_bits)]);
            move_infinite(sign, tally);
        }
        if (!greatest_) return;
        const uint32_t least = least_less_one_ + 1;
        tally.extend(widened(int32_t(least)), widened(int32_t(greatest_)));
        for (uint32_t field = std::max(least >> 23, 1u); field <= greatest_ >> 23; ++field) {
            const int row = int(field) - 127 - least_exponent;
            count_row(field, row, tally);
            sum_row(field, sums.row(row), sums.groups());
        }
    }

private:
    static uint64_t* allocated(size_t size) {
        void* memory = std::calloc(size, sizeof(uint64_t));
        if (!memory) throw std::bad_alloc();
        return static_cast<uint64_t*>(memory);
    }

    static int64_t number(uint64_t word) { return int64_t(word >> number_shift); }
    static uint64_t low_sum(uint64_t word) { return word & ((uint64_t(1) << number_shift) - 1); }

    static void count_apart(int32_t bits, Tally& tally) {
        const uint32_t field = uint32_t(bits) >> 23 & 255;
        if (field > 0 && field < 255) tally.add(widened(bits), 1);
    }

    static void add_subnormals(const int32_t* bits, size_t n, Tally& tally, AllSums& sums) {
        for (size_t i = 0; i < n; ++i) {
            const int32_t magnitude = bits[i] & 0x7FFFFFFF;
            if (magnitude == 0 || magnitude >= 0x800000) continue;
            tally.add(widened(bits[i]), 1);
            sums.add(widened(bits[i]), 1);
        }
    }

    void move_infinite(uint32_t sign, Tally& tally) const {
        const uint32_t first = (sign << 8 | 255) << fraction_bits;
        tally.infinities[sign] += number(words_.get()[exact_part + first]);
        for (uint32_t t = 0; t < fractions; ++t) {
            tally.nans += number(words_.get()[first + t]);
            if (t) tally.nans += number(words_.get()[exact_part + first + t]);
        }
    }

    void count_row(uint32_t field, int row, Tally& tally) const {
        const Bins& bins = tally.bins();
        for (uint32_t sign : {0u, 1u}) {
            const uint64_t* inside = words_.get() + ((sign << 8 | field) << fraction_bits);
            const uint64_t* exact = inside + exact_part;
            for (uint32_t t = 0; t + 1 < fractions; ++t) {
                const uint32_t top = t >> (fraction_bits - 7), rest = t & 15;
                int bin = bins.coarse[2 * top], exact_bin = bins.coarse[2 * top + (rest == 0)];
                if (top == 127) {
                    const uint32_t zeros = rest ^ 15;
                    const int length = bit_length(zeros);
                    bin = bins.fine[2 * (4 - length)];
                    exact_bin = bins.fine[2 * (4 - length) + (zeros == (uint32_t(1) << length) - 1)];
                }
                tally.add_to(int(sign), row, bin, number(inside[t]));
                tally.add_to(int(sign), row, exact_bin, number(exact[t]));
            }
        }
    }

    // All sums of a binade. With r the part of M below its bit of weight h = 2^(22−p), a number's distance to the nearest
    // multiple of 2h is r where that bit is 0 and h − r where it is 1: so the sums of r and of r² over all numbers, and the
    // number N and the sum R of r over those with the bit set, are enough. Numbers are folded bit by bit, from the last one.
    void sum_row(uint32_t field, BinadeSums& sums, const Groups& groups) const {
        for (uint32_t sign : {0u, 1u}) {
            const uint32_t head = sign << 8 | field;
            const uint64_t* inside = words_.get() + (head << fraction_bits);
            const uint64_t* exact = inside + exact_part;
            const uint64_t* low_squares = squares_.get() + size_t(head) * most_groups;
            alignas(64) uint64_t numbers[fractions], rests[fractions];
            uint64_t n[most_groups] = {}, low[most_groups] = {}, upper[most_groups] = {}, upper_squares[most_groups] = {},
                     mixed[most_groups] = {};
            for (uint32_t t = 0; t < fractions; ++t) {
                numbers[t] = uint64_t(number(inside[t]) + number(exact[t]));
                rests[t] = low_sum(inside[t]);
                const uint64_t upper_bits = fractions + t;  // of M, 12
                const uint8_t g = groups.of[t];
                n[g] += numbers[t];
                low[g] += rests[t];
                upper[g] += numbers[t] * upper_bits;
                upper_squares[g] += numbers[t] * upper_bits * upper_bits;
                mixed[g] += upper_bits * rests[t];
            }
            Wide squares = 0;
            for (int g = 0; g < groups.count; ++g) {
                auto& group = sums.groups[sign][g];
                group.number += n[g];
                group.significands += (Wide(upper[g]) << low_bits) + low[g];
                group.squares +=
                    (Wide(upper_squares[g]) << (2 * low_bits)) + (Wide(mixed[g]) << (low_bits + 1)) + low_squares[g];
                squares += low_squares[g];
            }
            fold(numbers, rests, squares, sums.distances[sign]);
        }
    }

    static void fold(uint64_t* numbers, uint64_t* rests, Wide squares, BinadeSums::Distances& out) {
        for (int p = 10; p >= 0; --p) {
            const int shift = 22 - p;
            uint64_t set = 0, rest_of_set = 0, rest_of_all = 0;
            for (size_t pair = 0; pair < size_t(1) << p; ++pair) {
                const uint64_t set_here = numbers[2 * pair + 1], rest_here = rests[2 * pair + 1];
                set += set_here;
                rest_of_set += rest_here;
                rest_of_all += rests[2 * pair] + rest_here;
                numbers[pair] = numbers[2 * pair] + set_here;
                rests[pair] = rests[2 * pair] + rest_here + (set_here << shift);
            }
            const Wide set_square = Wide(set) << (2 * shift), cross = Wide(rest_of_set) << (shift + 1);
            out.absolute[p + 1] += rest_of_all - 2 * Wide(rest_of_set) + (Wide(set) << shift);
            out.squared[p + 1] += squares - cross + set_square;
            squares += cross + set_square;
        }
        // What is left is M − 2^23; to the nearest multiple of 2^24 it is 2^24 − M.
        const Wide all = numbers[0], rest = rests[0];
        out.absolute[0] += (all << 23) - rest;
        out.squared[0] += (all << 46) - (rest << 24) + squares;
    }
};

constexpr size_t few = 30000;  // numbers for which reading the tables would cost more than they save

void add_float32(const int32_t* bits, size_t n, Tally& tally, AllSums& sums) {
    if (n <= few) {
        for (size_t i = 0; i < n; ++i) {
            const int64_t wide = widened(bits[i]);
            tally.add(wide, 1);
            sums.add(wide, 1);
        }
        return;
    }
    for (size_t done = 0; done < n; done += Float32Fractions::limit) {
        Float32Fractions table;
        table.add(bits + done, std::min(Float32Fractions::limit, n - done), tally, sums);
        table.move_to(tally, sums);
    }
}

template <class Code>
void add_codes(const Code* codes, size_t n, const double* values, size_t value_count, Tally& tally, AllSums& sums) {
    std::vector<int64_t> histogram(size_t(1) << (8 * sizeof(Code)));
    for (size_t i = 0; i < n; ++i) ++histogram[codes[i]];
    for (size_t code = 0; code < value_count; ++code) {
        if (!histogram[code]) continue;
        int64_t bits;
        std::memcpy(&bits, values + code, sizeof bits);
        tally.add(bits, histogram[code]);
        sums.add(bits, histogram[code]);
    }
}

void add_part(const Source& source, size_t first, size_t last, const double* values, size_t value_count, Tally& tally,
              AllSums& sums) {
    const size_t n = last - first;
    switch (source.kind) {
        case Kind::float32:
            return add_float32(static_cast<const int32_t*>(source.data) + first, n, tally, sums);
        case Kind::codes8:
            return add_codes(static_cast<const uint8_t*>(source.data) + first, n, values, value_count, tally, sums);
        case Kind::codes16:
            return add_codes(static_cast<const uint16_t*>(source.data) + first, n, values, value_count, tally, sums);
        default: {
            BlockLoader loader(source);
            for (size_t at = first; at < last; at += block_elements) {
                const size_t length = std::min(block_elements, last - at);
                const int64_t* bits = loader.float64_bits(at, length);
                for (size_t i = 0; i < length; ++i) {
                    tally.add(bits[i], 1);
                    sums.add(bits[i], 1);
                }
            }
        }
    }
}

struct Part {
    Tally tally;
    AllSums sums;
    Part(const Bins& bins, const Groups& groups) : tally(bins), sums(groups) {}
};

}  // namespace

Moments moments(const Source& source, size_t n, const Bins& bins, const Groups& groups, const double* values,
                size_t value_count, int threads) {
    std::vector<std::unique_ptr<Part>> parts(size_t(std::max(threads, 1)) + 1);
    in_parts(n, threads, block_elements, [&](size_t part, size_t first, size_t last) {
        parts[part] = std::make_unique<Part>(bins, groups);
        add_part(source, first, last, values, value_count, parts[part]->tally, parts[part]->sums);
    });
    for (size_t part = 1; part < parts.size(); ++part) {
        if (!parts[part]) continue;
        parts[0]->tally.merge(parts[part]->tally);
        parts[0]->sums.merge(parts[part]->sums);
    }
    Moments result{parts[0]->tally.result(), {}, {}, parts[0]->sums.rounded};
    const int first_row = result.counts.used_rows ? result.counts.first_exponent - least_exponent : 0;
    parts[0]->sums.write(first_row, result.counts.used_rows, result);
    return result;
}

}  // namespace precsim
