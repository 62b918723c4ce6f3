// What belongs to the process: threads, and the processor's floating-point state.
#pragma once

#include <algorithm>
#include <cstddef>
#include <exception>
#include <thread>
#include <vector>

#if defined(__SSE2__) || defined(_M_X64)
#include <immintrin.h>
#define PRECSIM_HAS_MXCSR 1
#endif

namespace precsim {

// Rounding to nearest, no flush-to-zero, no denormals-are-zero while it lives; the caller's state afterwards.
class DefaultFloatState {
#ifdef PRECSIM_HAS_MXCSR
    unsigned saved_ = _mm_getcsr();

public:
    DefaultFloatState() { _mm_setcsr(0x1F80); }
    ~DefaultFloatState() { _mm_setcsr(saved_); }
#else
public:
    DefaultFloatState() {}
#endif
    DefaultFloatState(const DefaultFloatState&) = delete;
    DefaultFloatState& operator=(const DefaultFloatState&) = delete;
};

inline bool flushes_to_zero() {
#ifdef PRECSIM_HAS_MXCSR
    return (_mm_getcsr() & 0x8040) != 0;
#else
    return false;
#endif
}

constexpr size_t elements_per_thread = size_t(1) << 19;

// Calls work(part, first, last) for consecutive parts of 0 … n on up to `threads` threads, and waits for all of them.
// Threads live for one call, so that a fork between calls is safe. Parts begin at multiples of `grain`.
template <class Work>
void in_parts(size_t n, int threads, size_t grain, const Work& work) {
    const size_t wanted = std::max<size_t>(1, std::min<size_t>(size_t(std::max(threads, 1)), n / elements_per_thread));
    const size_t step = ((n + wanted - 1) / wanted + grain - 1) / grain * grain;
    std::vector<std::thread> helpers;
    const auto run = [&work](size_t part, size_t first, size_t last) {
        DefaultFloatState state;
        work(part, first, last);
    };
    for (size_t part = 1; part * step < n; ++part) {
        const size_t first = part * step, last = std::min(n, first + step);
        try {
            helpers.emplace_back(run, part, first, last);
        } catch (const std::exception&) {  // no thread to be had: this one does the part
            run(part, first, last);
        }
    }
    run(0, 0, std::min(n, step));
    for (auto& helper : helpers) helper.join();
}

}  // namespace precsim
