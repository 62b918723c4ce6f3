#include <nanobind/nanobind.h>

NB_MODULE(_native, module) { module.doc() = "Casts and counts on arrays in CPU memory."; }
