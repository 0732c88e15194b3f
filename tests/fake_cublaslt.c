/* A CUDA driver and a cuBLASLt that are not there: memory on the host, and a GEMM whose result says
 * which operand, layout, scale and flag it was given. Wrong sizes or orders of arguments fail. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* --- driver */
int cuInit(unsigned flags) { return flags == 0 ? 0 : 1; }
int cuDeviceGet(int* device, int ordinal) { return (*device = ordinal) == 0 ? 0 : 101; }
int cuDevicePrimaryCtxRetain(void** context, int device) {
  *context = (void*)0x1234;
  return device;
}
int cuCtxSetCurrent(void* context) { return context == (void*)0x1234 ? 0 : 201; }
int cuDeviceGetName(char* name, int size, int device) {
  if (size < 32 || device != 0) return 1;
  strcpy(name, "NVIDIA H100 PCIe");
  return 0;
}
int cuDeviceGetAttribute(int* value, int attribute, int device) {
  *value = attribute == 16 ? 114 : attribute == 75 ? 9 : attribute == 76 ? 0 : -1;
  return device != 0 || *value < 0;
}
int cuDriverGetVersion(int* version) { return (*version = 12080), 0; }
static int live = 0;
int fake_live_allocations(void) { return live; }
int cuMemAlloc_v2(uint64_t* address, size_t size) {
  *address = (uint64_t)(uintptr_t)malloc(size);
  ++live;
  return size == 0;
}
int cuMemFree_v2(uint64_t address) {
  free((void*)(uintptr_t)address);
  --live;
  return 0;
}
int cuMemcpyHtoD_v2(uint64_t to, const void* from, size_t size) {
  memcpy((void*)(uintptr_t)to, from, size);
  return 0;
}
int cuMemcpyDtoH_v2(void* to, uint64_t from, size_t size) {
  memcpy(to, (const void*)(uintptr_t)from, size);
  return 0;
}
int cuCtxSynchronize(void) { return 0; }

/* --- cuBLASLt */
typedef struct {
  int type;
  uint64_t rows, columns;
  int64_t ld;
} Layout;
typedef struct {
  int transa, transb, epilogue, bias_type;
  const float *a_scale, *b_scale, *d_scale;
  const uint16_t* bias;
  int8_t fast;
} Desc;
typedef struct {
  uint64_t data[8];
} Algo;
typedef struct {
  Algo algo;
  size_t workspace_size;
  int state;
  float waves;
  int reserved[4];
} Result;

size_t cublasLtGetVersion(void) { return 120803; }
int cublasLtCreate(void** handle) { return (*handle = (void*)0x77), 0; }
int cublasLtDestroy(void* handle) { return handle == (void*)0x77 ? 0 : 1; }

int cublasLtMatmulDescCreate(Desc** desc, int compute, int scale) {
  *desc = calloc(1, sizeof(Desc));
  ++live;
  (*desc)->epilogue = 1;
  return compute == 68 && scale == 0 ? 0 : 7;
}
int cublasLtMatmulDescDestroy(Desc* desc) { return free(desc), --live, 0; }
int cublasLtMatmulDescSetAttribute(Desc* d, int attribute, const void* value, size_t size) {
  const size_t expected = attribute == 25 ? 1 : attribute == 8 || attribute >= 17 && attribute <= 20 ? 8 : 4;
  if (size != expected) return 7;
  void* targets[27] = {0};
  targets[3] = &d->transa, targets[4] = &d->transb, targets[7] = &d->epilogue;
  targets[8] = &d->bias, targets[17] = &d->a_scale, targets[18] = &d->b_scale;
  targets[20] = &d->d_scale, targets[25] = &d->fast, targets[26] = &d->bias_type;
  if (attribute > 26 || !targets[attribute]) return 7;
  memcpy(targets[attribute], value, size);
  return 0;
}
int cublasLtMatrixLayoutCreate(Layout** layout, int type, uint64_t rows, uint64_t columns,
                               int64_t ld) {
  *layout = malloc(sizeof(Layout));
  ++live;
  **layout = (Layout){type, rows, columns, ld};
  return ld == (int64_t)rows ? 0 : 7;
}
int cublasLtMatrixLayoutDestroy(Layout* layout) { return free(layout), --live, 0; }
int cublasLtMatmulPreferenceCreate(uint64_t** preference) {
  *preference = calloc(1, 8);
  ++live;
  return 0;
}
int cublasLtMatmulPreferenceDestroy(uint64_t* preference) { return free(preference), --live, 0; }
int cublasLtMatmulPreferenceSetAttribute(uint64_t* preference, int attribute, const void* value,
                                         size_t size) {
  if (attribute != 1 || size != 8) return 7;
  memcpy(preference, value, 8);
  return 0;
}

static int queries = 0;
int fake_queries(void) { return queries; }

int cublasLtMatmulAlgoGetHeuristic(void* handle, Desc* desc, Layout* a, Layout* b, Layout* c,
                                   Layout* d, uint64_t* preference, int wanted, Result* result,
                                   int* found) {
  ++queries;
  *found = 0;
  const int tn = desc->transa == 1 && desc->transb == 0 && a->rows == b->rows;
  if (handle != (void*)0x77 || !tn || wanted != 1 || sizeof(Result) != 96) return 7;
  if (d->rows != a->columns || d->columns != b->columns || c->rows != d->rows) return 7;
  if (c->type != (d->type >= 28 ? 2 : d->type)) return 7;
  if (!desc->a_scale || !desc->b_scale) return 7;
  if (a->type == 28 && b->type == 28 && d->type == 29) return 15;
  const int splits = *preference > 0 && a->rows >= 8192 ? (desc->fast ? 4 : 2) : 1;
  memset(result, 0, sizeof(*result));
  result->algo.data[0] = (uint64_t)splits;
  result->workspace_size = splits > 1 ? 4 * d->rows * d->columns : 0;
  *found = 1;
  return 0;
}
int cublasLtMatmulAlgoConfigGetAttribute(const Algo* algo, int attribute, void* value, size_t size,
                                         size_t* written) {
  const uint32_t fields[7] = {66, 20, (uint32_t)algo->data[0], 2, 0, 3, 5};
  if (attribute < 0 || attribute > 6 || size != 4) return 7;
  memcpy(value, &fields[attribute], 4);
  *written = 4;
  return 0;
}

/* D[n, m] = (first code of column n of A + 2 * first code of column m of B + 1000 if fast)
 *           * a_scale * b_scale + bias code + C, in fp32 alone; other outputs get their type. */
int cublasLtMatmul(void* handle, Desc* desc, const float* alpha, const uint8_t* A, Layout* a,
                   const uint8_t* B, Layout* b, const float* beta, const void* C, Layout* c,
                   void* D, Layout* d, const Algo* algo, void* workspace, size_t size,
                   void* stream) {
  if (handle != (void*)0x77 || *alpha != 1.0f || !workspace || stream) return 7;
  if (algo->data[0] > 1 && size < 4 * d->rows * d->columns) return 7;
  (void)c;
  for (uint64_t m = 0; m < d->columns; ++m) {
    for (uint64_t n = 0; n < d->rows; ++n) {
      const uint64_t at = m * d->rows + n;
      float x = (float)A[n * a->rows] + 2.0f * (float)B[m * b->rows] + (desc->fast ? 1000.0f : 0);
      x = x * *desc->a_scale * *desc->b_scale;
      if (desc->epilogue == 4) x += desc->bias_type == 14 ? (float)desc->bias[n] : -1.0f;
      if (d->type == 0) {
        if (*beta != 0) x += ((const float*)C)[at];
        ((float*)D)[at] = x;
      } else if (d->type >= 28) {
        ((uint8_t*)D)[at] = (uint8_t)(d->type + (desc->d_scale ? (int)*desc->d_scale : 0));
      } else {
        ((uint16_t*)D)[at] = (uint16_t)d->type;
      }
    }
  }
  return 0;
}
