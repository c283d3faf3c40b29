/* SPDX-License-Identifier: Apache-2.0 */
/* Which range of numbers the integers of an activation cover, by each method. */
#include "compile/quantize/quantize_graph.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition);                \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

enum { COUNT = 200000 };

static bool add(struct ul_counts *counts, const float *values, uint64_t count)
{
    return ul_counts_add(counts, (const unsigned char *)values, count);
}

static bool is_near(double a, double b)
{
    return fabs(a - b) <= 1e-6 * fabs(b);
}

static struct ul_counts *fresh(void)
{
    struct ul_counts *counts = calloc(1, sizeof *counts);
    CHECK(counts != NULL);
    return counts;
}

static void test_all_values(void)
{
    static const float values[] = {-1, 0, 3, 0.25f};
    struct ul_counts *counts = fresh();
    CHECK(add(counts, values, 4));
    struct ul_quantize_step steps = ul_counts_choose(counts, UL_CALIBRATION_MINMAX);
    CHECK(is_near((double)steps.scale, 4.0 / 255) && steps.zero == 64);
    CHECK(counts->element_count == 4 && counts->zero_count == 1);
    free(counts);
}

/* 0 is in every range, and nothing but zeros has one too. */
static void test_zero(void)
{
    static const float positive[] = {5, 10}, negative[] = {-10, -5}, zeros[] = {0, -0.0f};
    const float *const all[] = {positive, negative, zeros};
    static const struct ul_quantize_step want[] = {{10.0f / 255, 0}, {10.0f / 255, 255}, {1, 0}};
    for (int i = 0; i < 3; i++) {
        for (int method = UL_CALIBRATION_MINMAX; method <= UL_CALIBRATION_ENTROPY; method++) {
            struct ul_counts *counts = fresh();
            CHECK(add(counts, all[i], 2));
            struct ul_quantize_step steps = ul_counts_choose(counts, (enum ul_calibration)method);
            CHECK(is_near((double)steps.scale, (double)want[i].scale));
            CHECK(steps.zero == want[i].zero);
            free(counts);
        }
    }
}

static void test_not_finite(void)
{
    static const float values[] = {1, INFINITY}, other[] = {NAN};
    struct ul_counts *counts = fresh();
    CHECK(!add(counts, values, 2));
    CHECK(!add(counts, other, 1));
    free(counts);
}

/* About normal, of a fixed generator; and one far away. */
static float *make_values(void)
{
    float *values = calloc(COUNT, sizeof *values);
    CHECK(values != NULL);
    uint64_t state = 1;
    for (uint32_t i = 0; i < COUNT; i++) {
        double sum = -6;
        for (int k = 0; k < 12; k++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            sum += (double)(state >> 11) / (double)((uint64_t)1 << 53);
        }
        values[i] = (float)sum;
    }
    values[COUNT / 2] = 60;
    return values;
}

/* The order in which values come, and how many at a time, is nothing. */
static void test_widening(const float *values)
{
    struct ul_counts *whole = fresh(), *parts = fresh();
    CHECK(add(whole, values, COUNT));
    CHECK(add(parts, values + COUNT / 2, COUNT / 2));
    CHECK(add(parts, values, COUNT / 2));
    CHECK(whole->limit == 64 && parts->limit == 64);
    for (int method = UL_CALIBRATION_MINMAX; method <= UL_CALIBRATION_ENTROPY; method++) {
        double a = (double)ul_counts_choose(whole, (enum ul_calibration)method).scale;
        double b = (double)ul_counts_choose(parts, (enum ul_calibration)method).scale;
        CHECK(fabs(a - b) < 0.02 * a);
    }
    free(whole);
    free(parts);
}

/* One value of 200,000 that is far away does not cost all others their steps. */
static void test_outlier(const float *values)
{
    struct ul_counts *counts = fresh();
    CHECK(add(counts, values, COUNT));
    struct ul_quantize_step all = ul_counts_choose(counts, UL_CALIBRATION_MINMAX);
    struct ul_quantize_step most = ul_counts_choose(counts, UL_CALIBRATION_PERCENTILE);
    struct ul_quantize_step near = ul_counts_choose(counts, UL_CALIBRATION_ENTROPY);
    CHECK((double)all.scale > 0.25);
    CHECK((double)most.scale > 8.0 / 255 && (double)most.scale < 11.0 / 255);
    CHECK((double)near.scale > 5.0 / 255 && (double)near.scale < 11.0 / 255);
    free(counts);
}

int main(void)
{
    float *values = make_values();
    test_all_values();
    test_zero();
    test_not_finite();
    test_widening(values);
    test_outlier(values);
    free(values);
    return 0;
}
