// NVIDIA's own conversions as they run on the host, in loops that ctypes can call. The headers come with the packages
// nvidia-cuda-runtime, nvidia-cuda-crt and nvidia-cuda-cccl; see test_nvidia_host.py.
#include <cstddef>
#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp4.h>
#include <cuda_fp6.h>
#include <cuda_fp8.h>

namespace {

enum Target { e4m3, e5m2, e2m3, e3m2, e2m1, e8m0 };

std::uint8_t small(float x, int target, __nv_saturation_t saturate, cudaRoundMode mode) {
    switch (target) {
        case e4m3: return __nv_cvt_float_to_fp8(x, saturate, __NV_E4M3);
        case e5m2: return __nv_cvt_float_to_fp8(x, saturate, __NV_E5M2);
        case e2m3: return __nv_cvt_float_to_fp6(x, __NV_E2M3, mode);
        case e3m2: return __nv_cvt_float_to_fp6(x, __NV_E3M2, mode);
        case e2m1: return __nv_cvt_float_to_fp4(x, __NV_E2M1, mode);
        default: return __nv_cvt_float_to_e8m0(x, saturate, mode);
    }
}

std::uint8_t small(double x, int target, __nv_saturation_t saturate, cudaRoundMode mode) {
    switch (target) {
        case e4m3: return __nv_cvt_double_to_fp8(x, saturate, __NV_E4M3);
        case e5m2: return __nv_cvt_double_to_fp8(x, saturate, __NV_E5M2);
        case e2m3: return __nv_cvt_double_to_fp6(x, __NV_E2M3, mode);
        case e3m2: return __nv_cvt_double_to_fp6(x, __NV_E3M2, mode);
        case e2m1: return __nv_cvt_double_to_fp4(x, __NV_E2M1, mode);
        default: return __nv_cvt_double_to_e8m0(x, saturate, mode);
    }
}

template <class Source>
void all_small(const Source *x, std::uint8_t *out, std::size_t n, int target, int saturate, int mode) {
    for (std::size_t i = 0; i < n; ++i)
        out[i] = small(x[i], target, saturate ? __NV_SATFINITE : __NV_NOSAT, static_cast<cudaRoundMode>(mode));
}

std::uint16_t bits(__half x) { return static_cast<__half_raw>(x).x; }
std::uint16_t bits(__nv_bfloat16 x) { return static_cast<__nv_bfloat16_raw>(x).x; }

}  // namespace

extern "C" {

void small_from_float(const float *x, std::uint8_t *out, std::size_t n, int target, int saturate, int mode) {
    all_small(x, out, n, target, saturate, mode);
}

void small_from_double(const double *x, std::uint8_t *out, std::size_t n, int target, int saturate, int mode) {
    all_small(x, out, n, target, saturate, mode);
}

void half_from_float(const float *x, std::uint16_t *out, std::size_t n, int mode) {
    for (std::size_t i = 0; i < n; ++i)
        out[i] = bits(mode == cudaRoundNearest  ? __float2half_rn(x[i])
                      : mode == cudaRoundZero   ? __float2half_rz(x[i])
                      : mode == cudaRoundPosInf ? __float2half_ru(x[i])
                                                : __float2half_rd(x[i]));
}

void bfloat16_from_float(const float *x, std::uint16_t *out, std::size_t n, int mode) {
    for (std::size_t i = 0; i < n; ++i)
        out[i] = bits(mode == cudaRoundNearest  ? __float2bfloat16_rn(x[i])
                      : mode == cudaRoundZero   ? __float2bfloat16_rz(x[i])
                      : mode == cudaRoundPosInf ? __float2bfloat16_ru(x[i])
                                                : __float2bfloat16_rd(x[i]));
}

void half_from_double(const double *x, std::uint16_t *out, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) out[i] = bits(__double2half(x[i]));
}

void bfloat16_from_double(const double *x, std::uint16_t *out, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) out[i] = bits(__double2bfloat16(x[i]));
}
}
