/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of model.c; with seeded bugs by macros, for --guard. */
#include "model.h"

#include "ul_cuda.h"
#include "ul_kernel.cuh"

static __global__ void k0(const float *x, const float *w, const float *b, float *h,
                          struct ul_where run)
{
    UL_ENTER(run);
    for (int64_t i = ul_item_first(); i < 4; i += ul_item_stride())
        h[i] = x[i] * w[i] + b[i];
}

static __global__ void k1(const float *h, const int64_t *pick, float *y, struct ul_where run)
{
    UL_ENTER(run);
    for (int64_t i = ul_item_first(); i < 2; i += ul_item_stride())
        y[i] = h[ul_index(run, pick[i], 4)];
#ifdef DEVICE_BUG_READ
    if (ul_item_first() == 0)
        y[0] += h[4]; /* a place where nothing lives */
#endif
#ifdef DEVICE_BUG_LIVE
    if (ul_item_first() == 0)
        y[0] += h[(AT_W - AT_H) / 4]; /* a live value of somebody else */
#endif
}

static __global__ void k2(float *h, struct ul_where run)
{
    UL_ENTER(run);
    for (int64_t i = ul_item_first(); i < 4; i += ul_item_stride())
        h[i] = -h[i];
}

static __global__ void k3(const float *h, const int64_t *round, float *row, struct ul_where run)
{
    UL_ENTER(run);
    for (int64_t i = ul_item_first(); i < 4; i += ul_item_stride())
        row[i] = h[i] + (float)*round;
#ifdef DEVICE_BUG_WRITE
    if (ul_item_first() == 0)
        row[-8] = 1.0f; /* a live value of somebody else, or what is free */
#endif
}

static __global__ void k4(const uint32_t *big, const int64_t *round, int64_t *check,
                          struct ul_where run)
{
    UL_ENTER(run);
    int64_t sum = *round;
    for (int64_t i = 0; i < BIG_COUNT; i++)
        sum += big[i];
    *check = sum;
#ifdef DEVICE_BUG_BEYOND
    ((unsigned char *)big)[BIG_BYTES + 20] = 1; /* after the end of the arena */
#endif
}

/* A step asks for its buffer of the caller where it is launched. */
#ifdef DEVICE_CALLER
#define X ul_cuda_input(run, 0)
#define Y ul_cuda_output(run, 0)
#define ROWS ul_cuda_output(run, 1)
#else
#define X (a + AT_X)
#define Y (a + AT_X)
#define ROWS (a + AT_ROWS)
#endif

static void run_steps(struct ul_cuda_run *run)
{
    unsigned char *a = run->arena;
    float *h = (float *)(void *)(a + AT_H);
    int64_t *counter = (int64_t *)(void *)(a + AT_COUNTER);
    struct ul_cuda_step at;
    at = ul_cuda_at(run, 0, UL_CUDA_ALWAYS);
    UL_LAUNCH(k0, 1, 32, &at, ul_place{X}, (const float *)(void *)(a + AT_W),
              (const float *)(void *)(a + AT_B), h);
    at = ul_cuda_at(run, 1, UL_CUDA_ALWAYS);
    UL_LAUNCH(k1, 1, 32, &at, (const float *)h, (const int64_t *)(void *)(a + AT_PICK),
              ul_place{Y});
    at = ul_cuda_at(run, 2, UL_CUDA_ALWAYS);
    ul_cuda_enter_region(&at, 0, UL_CUDA_ALWAYS, a + AT_FLAG, 0);
    at = ul_cuda_at(run, 3, 0);
    UL_LAUNCH(k2, 1, 32, &at, h);
    for (int64_t round = 0; round < 3; round++) {
        at = ul_cuda_at(run, 4, UL_CUDA_ALWAYS);
        ul_cuda_put_counter(&at, counter, round);
        at = ul_cuda_at(run, 5, UL_CUDA_ALWAYS);
        UL_LAUNCH(k3, 1, 32, &at, (const float *)h, (const int64_t *)counter,
                  ul_place{ROWS + round * 16});
    }
#ifdef DEVICE_LONG
    for (int i = 0; i < 70000; i++) /* more than a graph may have */
        ul_cuda_put_counter(&at, counter, 2);
#endif
    at = ul_cuda_at(run, 6, UL_CUDA_ALWAYS);
    UL_LAUNCH(k4, 1, 1, &at, (const uint32_t *)(void *)(a + AT_BIG), (const int64_t *)counter,
              (int64_t *)(void *)(a + AT_CHECK));
}

static void (*const entries[])(struct ul_cuda_run *) = {NULL, run_steps};

UL_PROBE

extern "C" {
extern const struct ul_cuda_code model_code;
const struct ul_cuda_code model_code = {entries, (const void *)ul_probe, NULL};
}
