/* SPDX-License-Identifier: Apache-2.0 */
/* How long blocks of threads take on the multiprocessors of a device; an H100 has 132 of these. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "codegen/kernel/waves.h"

static const struct ul_profile *h100(void)
{
    const struct ul_profile *profile = ul_profile_find("h100-sxm");
    assert_non_null(profile);
    assert_int_equal(profile->device.processors, 132);
    return profile;
}

/* Nanoseconds of a product in 16 bits, without its bytes. */
static double product_ns(uint64_t m, uint64_t n, uint64_t k, uint64_t max_parts)
{
    struct ul_work_product product = {.kind = UL_WORK_MATMUL_F16,
                                      .batch = 1,
                                      .m = m,
                                      .n = n,
                                      .k = k,
                                      .element_bytes = 2,
                                      .max_parts = max_parts};
    return ul_waves_product_ns(h100(), &product, 0);
}

static void assert_about(double ns, double wanted)
{
    assert_true(ns > wanted * 0.999 && ns < wanted * 1.001);
}

/* 12 x 11 tiles of 256 x 128 are one wave at the peak; with one row more there are three waves of
 * 128 x 128, at 77 % of it. */
static void one_more_tile_is_one_more_wave(void **state)
{
    (void)state;
    enum { M = 12 * 256, N = 11 * 128, K = 1024 };
    double peak_ns = 2.0 * M * N * K / 989500;
    assert_about(product_ns(M, N, K, 0), peak_ns);
    assert_about(product_ns(M + 1, N, K, 0), 3 * (2.0 * 128 * 128 * K / 5803));
    assert_true(product_ns(M + 1, N, K, 0) > 1.9 * peak_ns);
}

/* Small results take small tiles, which are slower. */
static void small_tiles_fill_a_device(void **state)
{
    (void)state;
    double peak_ns = 2.0 * 512 * 768 * 768 / 989500;
    double ns = product_ns(512, 768, 768, 0); /* 96 tiles of 64 x 64 */
    assert_about(ns, 2.0 * 64 * 64 * 768 / 2901.3);
    assert_true(ns > 2 * peak_ns && ns < 4 * peak_ns);
    ns = product_ns(1, 1, 8, 0);
    assert_true(ns > 0 && ns < 50);
}

/* One tile with a million terms keeps one multiprocessor busy; parts of them keep many busy, and
 * are one more launch. */
static void parts_of_long_sums_are_spread(void **state)
{
    (void)state;
    double whole = product_ns(128, 128, 1 << 20, 0), cut = product_ns(128, 128, 1 << 20, 64);
    assert_about(whole, product_ns(128, 128, 1 << 20, 1));
    assert_true(cut < whole / 10 && cut > h100()->overhead_ns);
    assert_about(product_ns(128, 128, 256, 64), product_ns(128, 128, 256, 0)); /* not worth it */
}

static void more_is_never_faster(void **state)
{
    (void)state;
    for (uint64_t m = 1; m < 700; m++) {
        assert_true(product_ns(m, 300, 100, 0) <= product_ns(m + 1, 300, 100, 0));
        assert_true(product_ns(300, 300, m, 0) <= product_ns(300, 300, m + 1, 0));
        assert_true(product_ns(m, 2000, 768, 0) >= 2.0 * (double)m * 2000 * 768 / 989500);
    }
}

/* Four tiles of 64 x 16 draw a part of the rate of memory. */
static void few_tiles_wait_for_memory(void **state)
{
    (void)state;
    struct ul_work_product product = {
        .kind = UL_WORK_MATMUL_F16, .batch = 1, .m = 16, .n = 64, .k = 64, .element_bytes = 2};
    assert_about(ul_waves_product_ns(h100(), &product, 1000), 1000.0 * 132 / 2 / 4);
    product.batch = 132;
    assert_about(ul_waves_product_ns(h100(), &product, 1000), 1000);
}

static void blocks_run_in_waves(void **state)
{
    (void)state;
    assert_true(ul_waves_of_blocks(h100(), 0, 1).work == 1);
    assert_true(ul_waves_of_blocks(h100(), 132, 1).work == 1);
    assert_true(ul_waves_of_blocks(h100(), 66, 0).work == 2);
    assert_true(ul_waves_of_blocks(h100(), 66, 1).memory == 1);
    assert_true(ul_waves_of_blocks(h100(), 33, 1).memory == 2);
    /* Small blocks share a multiprocessor, others are waited for, as is the longest of all. */
    assert_true(ul_waves_of_blocks(h100(), 165, 0).work == 1);
    assert_about(ul_waves_of_blocks(h100(), 165, 1).work, 2 / 1.25);
    assert_about(ul_waves_of_blocks(h100(), 132, 2).work, 2);
    assert_about(ul_waves_of_blocks(h100(), 264, 2).work, 1);
}

/* Units that are no tensor cores have enough operands in 32 bits by any tile. */
static void tiles_reach_a_share_of_the_peak(void **state)
{
    (void)state;
    struct ul_work_tile none = {0, 0, 0}, tile = {64, 64, 2}, wide = {64, 64, 4};
    assert_true(ul_waves_share(h100(), UL_WORK_MATMUL_F16, &none) == 1);
    assert_about(ul_waves_share(h100(), UL_WORK_MATMUL_F16, &tile), 68.0 * 32 * 132 / 989500);
    assert_true(ul_waves_share(h100(), UL_WORK_MATMUL_F32, &wide) == 1);
    assert_true(ul_waves_share(h100(), UL_WORK_VECTOR, &tile) == 1);
    assert_true(ul_waves_share(ul_profile_find(UL_PROFILE_DEFAULT), UL_WORK_MATMUL_F16, &tile) ==
                1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_more_tile_is_one_more_wave),
        cmocka_unit_test(small_tiles_fill_a_device),
        cmocka_unit_test(parts_of_long_sums_are_spread),
        cmocka_unit_test(more_is_never_faster),
        cmocka_unit_test(few_tiles_wait_for_memory),
        cmocka_unit_test(blocks_run_in_waves),
        cmocka_unit_test(tiles_reach_a_share_of_the_peak),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
