#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "cast.hpp"
#include "count.hpp"
#include "moments.hpp"
#include "process.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using Array = nb::ndarray<nb::ro, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Output = nb::ndarray<nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Table = nb::ndarray<const T, nb::c_contig, nb::device::cpu>;
using Noise = nb::ndarray<const uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

void require(bool holds, const char* what) {
    if (!holds) throw std::invalid_argument(what);
}

precsim::Source make_source(int kind, const Array& data, const std::optional<Table<float>>& table, double flush_below,
                            double multiplier) {
    const precsim::Kind known = precsim::Kind(kind);
    const size_t width = known == precsim::Kind::codes8    ? 1
                         : known == precsim::Kind::codes16 ? 2
                         : known == precsim::Kind::float32 ? 4
                                                           : 8;
    require(data.itemsize() == width, "the source's elements are not of its kind's width");
    const bool codes = known == precsim::Kind::codes8 || known == precsim::Kind::codes16;
    require(!codes || (table && table->size() == size_t(1) << (8 * width)), "codes need a table of all their values");
    return {known, data.data(), table ? table->data() : nullptr, flush_below, multiplier};
}

precsim::Random make_random(uint64_t seed, uint64_t first, const std::optional<Noise>& given, size_t n) {
    require(!given || given->size() == n, "there is not one random number for each element");
    return {seed, first, given ? given->data() : nullptr};
}

void encode(int kind, const Array& data, const std::optional<Table<float>>& table, double flush_below,
            double multiplier, const precsim::Plan& plan, const Output& out, uint64_t seed, uint64_t first,
            const std::optional<Noise>& given, int threads) {
    const size_t n = data.size();
    require(out.size() == n && out.itemsize() * 8 == size_t(plan.storage_bits), "the output does not fit the plan");
    const auto source = make_source(kind, data, table, flush_below, multiplier);
    const auto random = make_random(seed, first, given, n);
    nb::gil_scoped_release release;
    precsim::encode(source, n, plan, out.data(), random, threads);
}

template <class Value>
void quantize(int kind, const Array& data, const std::optional<Table<float>>& table, double flush_below,
              double multiplier, const precsim::Plan& plan, const Table<Value>& values, const Output& out,
              double divisor, uint64_t seed, uint64_t first, const std::optional<Noise>& given, int threads) {
    const size_t n = data.size();
    require(plan.storage_bits <= 16, "values are looked up by codes of at most 16 bits");
    require(out.size() == n && out.itemsize() == sizeof(Value), "the output does not fit the source");
    require(values.size() == size_t(1) << plan.storage_bits, "codes need a table of all their values");
    const auto source = make_source(kind, data, table, flush_below, multiplier);
    const auto random = make_random(seed, first, given, n);
    nb::gil_scoped_release release;
    precsim::quantize<Value>(source, n, plan, values.data(), static_cast<Value*>(out.data()), divisor, random, threads);
}

template <class Value>
void decode(const Array& codes, const Table<Value>& values, const Output& out, int threads) {
    const size_t n = codes.size(), width = codes.itemsize();
    require(width <= 2 && values.size() == size_t(1) << (8 * width), "codes need a table of all their values");
    require(out.size() == n && out.itemsize() == sizeof(Value), "the output does not fit the codes");
    nb::gil_scoped_release release;
    precsim::decode<Value>(codes.data(), int(8 * width), n, values.data(), static_cast<Value*>(out.data()), threads);
}

nb::ndarray<nb::numpy, int64_t> as_array(std::vector<int64_t>& numbers, std::initializer_list<size_t> shape) {
    auto* kept = new std::vector<int64_t>(std::move(numbers));
    nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<int64_t>*>(p); });
    return {kept->data(), shape, owner};
}

nb::tuple as_tuple(precsim::Counts& counts, int bin_count) {
    const auto table = as_array(counts.table, {2, counts.used_rows, size_t(bin_count)});
    return nb::make_tuple(counts.first_exponent, table, counts.zeros, counts.positive_infinities,
                          counts.negative_infinities, counts.nans, counts.amax, counts.amin);
}

nb::tuple count(int kind, const Array& data, const std::optional<Table<double>>& values, int bin_count,
                const Table<uint8_t>& coarse, const Table<uint8_t>& fine, int threads) {
    require(coarse.size() == 256 && fine.size() == 92, "bins are looked up in tables of 128 × 2 and 46 × 2");
    const precsim::Source source{precsim::Kind(kind), data.data(), nullptr, 0.0, 1.0};
    const precsim::Bins bins{bin_count, coarse.data(), fine.data()};
    precsim::Counts counts;
    {
        nb::gil_scoped_release release;
        counts = precsim::count(source, data.size(), bins, values ? values->data() : nullptr,
                                values ? values->size() : 0, threads);
    }
    return as_tuple(counts, bin_count);
}

nb::tuple moments(int kind, const Array& data, const std::optional<Table<double>>& values, int bin_count,
                  const Table<uint8_t>& coarse, const Table<uint8_t>& fine, int group_count, const Table<uint8_t>& groups,
                  int threads) {
    require(coarse.size() == 256 && fine.size() == 92, "bins are looked up in tables of 128 × 2 and 46 × 2");
    require(groups.size() == 2048 && group_count <= precsim::most_groups, "groups are looked up by 11 fraction bits");
    for (size_t i = 0; i < groups.size(); ++i) require(groups.data()[i] < group_count, "a group is none of the groups");
    const precsim::Source source{precsim::Kind(kind), data.data(), nullptr, 0.0, 1.0};
    const precsim::Bins bins{bin_count, coarse.data(), fine.data()};
    precsim::Moments result;
    {
        nb::gil_scoped_release release;
        result = precsim::moments(source, data.size(), bins, {group_count, groups.data()},
                                  values ? values->data() : nullptr, values ? values->size() : 0, threads);
    }
    const size_t used = result.counts.used_rows;
    auto distances = as_array(result.distances, {2, used, size_t(precsim::precisions), 2, 2});
    auto sums = as_array(result.sums, {2, used, size_t(group_count), 3, 2});
    return nb::make_tuple(as_tuple(result.counts, bin_count), distances, sums, result.rounded);
}

std::string instruction_set() {
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 12
    __builtin_cpu_init();
    if (__builtin_cpu_supports("x86-64-v4")) return "x86-64-v4 (AVX-512)";
    if (__builtin_cpu_supports("x86-64-v3")) return "x86-64-v3 (AVX2)";
    return "x86-64";
#else
    return "as compiled";
#endif
}

}  // namespace

NB_MODULE(_native, module) {
    module.doc() = "Casts and counts on arrays in CPU memory.";
    nb::class_<precsim::Plan>(module, "Plan").def(nb::init<const std::vector<int64_t>&>());
    module.def("encode", &encode, "kind"_a, "data"_a, "table"_a.none(), "flush_below"_a, "multiplier"_a, "plan"_a,
               "out"_a, "seed"_a, "first"_a, "given"_a.none(), "threads"_a);
    module.def("quantize32", &quantize<float>, "kind"_a, "data"_a, "table"_a.none(), "flush_below"_a, "multiplier"_a,
               "plan"_a, "values"_a, "out"_a, "divisor"_a, "seed"_a, "first"_a, "given"_a.none(), "threads"_a);
    module.def("quantize64", &quantize<double>, "kind"_a, "data"_a, "table"_a.none(), "flush_below"_a, "multiplier"_a,
               "plan"_a, "values"_a, "out"_a, "divisor"_a, "seed"_a, "first"_a, "given"_a.none(), "threads"_a);
    module.def("decode32", &decode<float>, "codes"_a, "values"_a, "out"_a, "threads"_a);
    module.def("decode64", &decode<double>, "codes"_a, "values"_a, "out"_a, "threads"_a);
    module.def("count", &count, "kind"_a, "data"_a, "values"_a.none(), "bin_count"_a, "coarse"_a, "fine"_a,
               "threads"_a);
    module.def("moments", &moments, "kind"_a, "data"_a, "values"_a.none(), "bin_count"_a, "coarse"_a, "fine"_a,
               "group_count"_a, "groups"_a, "threads"_a);
    module.def("instruction_set", &instruction_set);
    module.def("flush_to_zero", &precsim::flushes_to_zero);
}
