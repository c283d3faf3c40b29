/* SPDX-License-Identifier: Apache-2.0 */
/* Device profiles: what a step costs, the file that they are written to and read from, and how the
 * work of a kernel is counted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "codegen/kernel/profile.h"
#include "ir/kernel_build.h"

/* A device on which sums are easy: 1 operation and 10 or 2 bytes a nanosecond, 5 ns a step. */
static struct ul_profile plain_profile(void)
{
    struct ul_profile profile = {.name = "plain",
                                 .source = "a test",
                                 .overhead_ns = 5,
                                 .level_count = 2,
                                 .levels = {{1000, 10}, {UINT64_MAX, 2}}};
    for (uint32_t kind = 0; kind < UL_WORK_KINDS; kind++)
        profile.rates[kind] = 1;
    return profile;
}

static uint64_t cost_of(uint64_t vector, uint64_t scalar, struct ul_traffic traffic,
                        uint64_t rounds)
{
    struct ul_profile profile = plain_profile();
    struct ul_work work = {.flop_count = 0};
    work.counts[UL_WORK_VECTOR] = vector;
    work.counts[UL_WORK_SCALAR] = scalar;
    return ul_profile_cost(&profile, &work, &traffic, rounds);
}

static void cost_is_the_larger_of_work_and_bytes(void **state)
{
    (void)state;
    assert_int_equal(cost_of(0, 0, (struct ul_traffic){0, 0, 0}, 1), 5);
    assert_int_equal(cost_of(40, 60, (struct ul_traffic){0, 0, 0}, 1), 105);
    assert_int_equal(cost_of(40, 60, (struct ul_traffic){1000, 0, 0}, 1), 105);
    assert_int_equal(cost_of(40, 50, (struct ul_traffic){1000, 0, 0}, 1), 105);
    assert_int_equal(cost_of(0, 0, (struct ul_traffic){1001, 0, 0}, 1), 506); /* rounded up */
    assert_int_equal(cost_of(0, 0, (struct ul_traffic){1000, 0, 0}, 3), 315);
}

static void weights_are_where_all_of_them_fit(void **state)
{
    (void)state;
    assert_int_equal(cost_of(0, 0, (struct ul_traffic){1000, 500, 500}, 1), 105);
    assert_int_equal(cost_of(0, 0, (struct ul_traffic){1000, 500, 5000}, 1), 305);
}

/* Products wait for weights that come from memory itself, at a rate of their own where it is known.
 */
static void weights_of_memory_are_waited_for(void **state)
{
    (void)state;
    struct ul_profile profile = plain_profile();
    struct ul_work work = {.flop_count = 0};
    struct ul_traffic cold = {1000, 500, 5000}, held = {1000, 500, 500};
    work.counts[UL_WORK_VECTOR] = 400;
    assert_int_equal(ul_profile_cost(&profile, &work, &held, 1), 405);
    assert_int_equal(ul_profile_cost(&profile, &work, &cold, 1), 655);
    profile.weights_rate = 1;
    assert_int_equal(ul_profile_cost(&profile, &work, &held, 1), 405);
    assert_int_equal(ul_profile_cost(&profile, &work, &cold, 1), 905);
    profile.level_count = 1; /* a device without caches */
    profile.levels[0] = (struct ul_profile_level){UINT64_MAX, 10};
    assert_int_equal(ul_profile_cost(&profile, &work, &cold, 1), 405);
}

/* A cache would hold the weights within a run. The first round finds none of them in it, where the
 * profile says so; later rounds do. */
static void weights_are_forgotten_between_runs(void **state)
{
    (void)state;
    struct ul_profile profile = plain_profile();
    struct ul_work work = {.flop_count = 0};
    struct ul_traffic few = {1000, 500, 300}, some = {1000, 500, 700}, many = {1000, 500, 5000};
    work.counts[UL_WORK_VECTOR] = 400;
    profile.weights_rate = 1;
    assert_int_equal(ul_profile_cost(&profile, &work, &some, 3), 1215);
    profile.held_weight_bytes = 300;
    assert_int_equal(ul_profile_cost(&profile, &work, &few, 3), 1215);
    assert_int_equal(ul_profile_cost(&profile, &work, &some, 1), 905);
    assert_int_equal(ul_profile_cost(&profile, &work, &some, 3), 1715);
    assert_int_equal(ul_profile_cost(&profile, &work, &many, 3), 2715);
    profile.held_weight_bytes = 2000; /* more than the last cache */
    assert_int_equal(ul_profile_cost(&profile, &work, &some, 3), 1215);
}

/* One block runs on one of 4 multiprocessors and draws up to twice its share of memory. The device
 * waits for each launch. */
static void few_blocks_leave_a_device_idle(void **state)
{
    (void)state;
    struct ul_profile profile = plain_profile();
    struct ul_work work = {.launch_count = 2};
    struct ul_traffic none = {0, 0, 0}, traffic = {1000, 0, 0};
    profile.device.processors = 4;
    work.counts[UL_WORK_VECTOR] = 100;
    assert_int_equal(ul_profile_cost(&profile, &work, &none, 1), 110);
    work.block_count = 4;
    assert_int_equal(ul_profile_cost(&profile, &work, &none, 1), 110);
    work.block_count = 1;
    assert_int_equal(ul_profile_cost(&profile, &work, &none, 1), 410);
    work.counts[UL_WORK_VECTOR] = 1;
    assert_int_equal(ul_profile_cost(&profile, &work, &traffic, 1), 210);
}

static void costs_stay_in_range(void **state)
{
    (void)state;
    assert_int_equal(cost_of(UINT64_MAX, UINT64_MAX, (struct ul_traffic){0, 0, 0}, UINT64_MAX),
                     UL_PROFILE_MAX_NS);
    assert_int_equal(cost_of(1, 0, (struct ul_traffic){0, 0, 0}, 0), 1);
    assert_int_equal(cost_of(1, 0, (struct ul_traffic){UINT64_MAX, UINT64_MAX, UINT64_MAX}, 1),
                     UL_PROFILE_MAX_NS);
}

static enum ul_status read_back(struct ul_arena *arena, const char *json,
                                struct ul_profile *profile)
{
    struct ul_diag diag = {UL_OK, ""};
    return ul_profile_read_json(arena, json, strlen(json), profile, &diag);
}

/* Both forms of every built-in profile come back the same. */
static void files_come_back(void **state)
{
    (void)state;
    struct ul_arena arena;
    ul_arena_init(&arena);
    assert_true(ul_profile_count() > 10);
    for (uint32_t i = 0; i < 2 * ul_profile_count(); i++) {
        struct ul_text first, second;
        struct ul_profile profile;
        ul_text_init(&first, &arena);
        ul_text_init(&second, &arena);
        ul_profile_put_json(&first, ul_profile_at(i / 2), i % 2 != 0);
        assert_int_equal(read_back(&arena, first.data, &profile), UL_OK);
        ul_profile_put_json(&second, &profile, i % 2 != 0);
        assert_string_equal(first.data, second.data);
        assert_ptr_equal(ul_profile_find(profile.name), ul_profile_at(i / 2));
    }
    assert_null(ul_profile_find("abacus"));
    assert_non_null(ul_profile_find(UL_PROFILE_DEFAULT));
    ul_arena_done(&arena);
}

/* The default profile's file with one part replaced. */
static const char *with(struct ul_arena *arena, const char *part, const char *other)
{
    struct ul_text text;
    ul_text_init(&text, arena);
    ul_profile_put_json(&text, ul_profile_find(UL_PROFILE_DEFAULT), true);
    const char *at = strstr(text.data, part);
    assert_non_null(at);
    return ul_arena_printf(arena, "%.*s%s%s", (int)(at - text.data), text.data, other,
                           at + strlen(part));
}

/* A file says what a device is made of, or says nothing: then the device is like the default
 * one. */
static void devices_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *device;
        uint32_t processors; /* 0: refused */
    } cases[] = {
        {"", 132},
        {"\"device\": {\"processors\": 16, \"launch_cycles\": 9000}, ", 16},
        {"\"device\": {\"processors\": 16, \"launch_cycles\": 9000, \"context_bytes\": 300}, ", 16},
        {"\"device\": {\"processors\": 16, \"launch_cycles\": 9000, \"cudnn_bytes\": -1}, ", 0},
        {"\"device\": {\"processors\": 16}, ", 0},
        {"\"device\": {\"processors\": 0, \"launch_cycles\": 9000}, ", 0},
        {"\"device\": {\"processors\": 1.5, \"launch_cycles\": 9000}, ", 0},
        {"\"device\": 16, ", 0},
    };
    struct ul_arena arena;
    ul_arena_init(&arena);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ul_profile profile;
        const char *json = with(&arena, "\"memory_bytes\"",
                                ul_arena_printf(&arena, "%s\"memory_bytes\"", cases[i].device));
        enum ul_status wanted = cases[i].processors > 0 ? UL_OK : UL_INVALID;
        assert_int_equal(read_back(&arena, json, &profile), wanted);
        if (wanted == UL_OK)
            assert_int_equal(ul_profile_device(&profile).processors, cases[i].processors);
    }
    assert_int_equal(ul_profile_device(ul_profile_find("a100-80gb-sxm")).processors, 108);
    ul_arena_done(&arena);
}

static void bad_files_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *part, *other;
        enum ul_status status;
    } cases[] = {
        {"\"version\": 1", "\"version\": 1 ", UL_OK},
        {"{", "[", UL_INVALID},
        {"ullage-profile", "ullage-plan", UL_INVALID},
        {"\"version\": 1", "\"version\": 2", UL_UNSUPPORTED},
        {"\"name\": \"generic-core\"", "\"name\": \"\\u001b[2J\"", UL_INVALID},
        {"\"name\": \"generic-core\"", "\"name\": \"\"", UL_INVALID},
        {"\"name\"", "\"nam\"", UL_INVALID},
        {"\"vector\": 20", "\"vector\": 0", UL_INVALID},
        {"\"vector\": 20", "\"vector\": -1", UL_INVALID},
        {"\"vector\": 20", "\"vector\": 1e300", UL_INVALID},
        {"\"vector\": 20", "\"vector\": \"20\"", UL_INVALID},
        {"\"overhead_nanoseconds\": 5", "\"overhead_nanoseconds\": -5", UL_INVALID},
        {"\"up_to_bytes\": 65536", "\"up_to_bytes\": null", UL_INVALID},
        {"\"up_to_bytes\": 65536", "\"up_to_bytes\": 0", UL_INVALID},
        {"\"up_to_bytes\": 65536", "\"up_to_bytes\": 65536000", UL_INVALID},
        {"\"up_to_bytes\": null", "\"up_to_bytes\": 65536000000", UL_INVALID},
        {"\"memory_levels\": [", "\"memory_levels\": [], \"x\": [", UL_INVALID},
        {"\"memory_bytes\"", "\"weights_gigabytes_per_second\": 9, \"memory_bytes\"", UL_OK},
        {"\"memory_bytes\"", "\"weights_gigabytes_per_second\": 0, \"memory_bytes\"", UL_INVALID},
        {"\"memory_bytes\"", "\"held_weight_bytes\": 9, \"memory_bytes\"", UL_OK},
        {"\"memory_bytes\"", "\"held_weight_bytes\": 0, \"memory_bytes\"", UL_INVALID},
        {"\"file_gigabytes_per_second\": 1", "\"file_gigabytes_per_second\": 2", UL_OK},
        {"\"file_gigabytes_per_second\": 1", "\"file_gigabytes_per_second\": 0", UL_INVALID},
        {"\"host_gigabytes_per_second\": 6,", "", UL_OK},
    };
    struct ul_arena arena;
    ul_arena_init(&arena);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ul_profile profile;
        const char *json = with(&arena, cases[i].part, cases[i].other);
        assert_int_equal(read_back(&arena, json, &profile), cases[i].status);
    }
    ul_arena_done(&arena);
}

/* ---- work ---- */

struct counted {
    struct ul_arena arena;
    struct ul_kernel kernel;
    uint32_t x, y;
    struct ul_work work;
    uint64_t accesses[2];
    bool on_device;
};

static void begin(struct counted *counted)
{
    memset(counted, 0, sizeof *counted);
    ul_arena_init(&counted->arena);
    ul_kernel_init(&counted->kernel, &counted->arena);
    counted->x = ul_kernel_add_buffer(&counted->kernel, UL_BUFFER_INPUT, UL_F32, 7000);
    counted->y = ul_kernel_add_buffer(&counted->kernel, UL_BUFFER_OUTPUT, UL_F32, 700);
}

static void end(struct counted *counted)
{
    ul_kernel_count_work(&counted->kernel, NULL, counted->on_device, &counted->arena,
                         &counted->work, counted->accesses);
    ul_arena_done(&counted->arena);
}

/* y[i] = exp(x[i]) + 1 */
static void lanes_are_filled(void **state)
{
    (void)state;
    struct counted c;
    begin(&c);
    struct ul_kernel *k = &c.kernel;
    ul_kx i = ul_ks_for(k, 100, UL_FOR_PARALLEL);
    ul_kx e = ul_kx_unary(k, UL_KX_EXP, ul_kx_load(k, c.x, i));
    ul_ks_store(k, c.y, i, ul_kx_binary(k, UL_KX_ADD, e, ul_kx_float(k, UL_F32, 1)));
    ul_ks_end(k);
    end(&c);
    assert_int_equal(c.work.flop_count, 200);
    assert_int_equal(c.work.counts[UL_WORK_VECTOR], 300);
    assert_int_equal(c.work.counts[UL_WORK_SPECIAL], 100);
    assert_int_equal(c.work.counts[UL_WORK_SCALAR], 0);
    assert_int_equal(c.accesses[c.x], 100);
    assert_int_equal(c.accesses[c.y], 100);
}

/* y[i] = x[stride * i], and with a function around it. */
static void count_strided(struct counted *c, int64_t stride, bool calls)
{
    begin(c);
    struct ul_kernel *k = &c->kernel;
    ul_kx i = ul_ks_for(k, 7, UL_FOR_PARALLEL);
    ul_kx value = ul_kx_load(k, c->x, ul_kx_muli(k, i, stride));
    ul_ks_store(k, c->y, i, calls ? ul_kx_unary(k, UL_KX_EXP, value) : value);
    ul_ks_end(k);
    end(c);
}

static void strides_empty_lanes(void **state)
{
    (void)state;
    struct counted c;
    count_strided(&c, 2, false);
    assert_int_equal(c.work.counts[UL_WORK_VECTOR], 14);
    count_strided(&c, 99, false);
    assert_int_equal(c.work.counts[UL_WORK_VECTOR], 0);
    assert_int_equal(c.work.counts[UL_WORK_SCALAR], 14);
    count_strided(&c, 2, true);
    assert_int_equal(c.work.counts[UL_WORK_VECTOR], 0);
    assert_true(c.work.counts[UL_WORK_SCALAR] > 14);
}

/* s = s + x[i], one after the other; a long loop is no lanes for the loop around it. */
static void sums_wait_for_themselves(void **state)
{
    (void)state;
    struct counted c;
    begin(&c);
    struct ul_kernel *k = &c.kernel;
    ul_kx row = ul_ks_for(k, 7, UL_FOR_PARALLEL);
    uint32_t sum = ul_ks_var(k, UL_F32, ul_kx_float(k, UL_F32, 0));
    ul_kx i = ul_ks_for(k, 100, UL_FOR_REDUCE);
    ul_kx element = ul_kx_load(k, c.x, ul_kx_add(k, ul_kx_muli(k, row, 100), i));
    ul_ks_set(k, sum, ul_kx_binary(k, UL_KX_ADD, ul_kx_var(k, sum), element));
    ul_ks_end(k);
    ul_ks_store(k, c.y, row, ul_kx_var(k, sum));
    ul_ks_end(k);
    end(&c);
    assert_int_equal(c.work.flop_count, 700);
    assert_int_equal(c.work.counts[UL_WORK_VECTOR], 0);
    assert_true(c.work.counts[UL_WORK_SCALAR] > 3 * 700);
    assert_int_equal(c.accesses[c.x], 700);
    assert_int_equal(c.accesses[c.y], 7);
}

/* y[i] = max(x[i * stride], 1): in lanes a few instructions, elsewhere a branch of processors. */
static uint64_t count_larger(enum ul_work_kind kind, int64_t stride, bool on_device)
{
    struct counted c;
    begin(&c);
    c.on_device = on_device;
    struct ul_kernel *k = &c.kernel;
    ul_kx i = ul_ks_for(k, 7, UL_FOR_PARALLEL);
    ul_kx value = ul_kx_load(k, c.x, ul_kx_muli(k, i, stride));
    ul_ks_store(k, c.y, i, ul_kx_binary(k, UL_KX_MAX, value, ul_kx_float(k, UL_F32, 1)));
    ul_ks_end(k);
    end(&c);
    return c.work.counts[kind];
}

static void data_decide_branches(void **state)
{
    (void)state;
    assert_int_equal(count_larger(UL_WORK_VECTOR, 1, false), 7 * (2 + 3));
    assert_true(count_larger(UL_WORK_SCALAR, 99, false) >= (uint64_t)7 * (2 + 20));
    assert_int_equal(count_larger(UL_WORK_SCALAR, 99, true), 7 * (2 + 3));
}

/* y[i] = x[i], i in two blocks of 64 of which the second has 36. */
static void blocks_are_counted_as_long_as_they_are(void **state)
{
    (void)state;
    struct counted c;
    begin(&c);
    struct ul_kernel *k = &c.kernel;
    ul_kx block = ul_ks_for(k, 2, UL_FOR_PARALLEL);
    ul_kx first = ul_kx_muli(k, block, 64);
    ul_kx left = ul_kx_sub(k, ul_kx_index_const(k, 100), first);
    ul_kx count = ul_kx_binary(k, UL_KX_MIN, left, ul_kx_index_const(k, 64));
    ul_kx i = ul_kx_add(k, first, ul_ks_for_expr(k, count, 64, UL_FOR_PARALLEL));
    ul_ks_store(k, c.y, i, ul_kx_load(k, c.x, i));
    ul_ks_end(k);
    ul_ks_end(k);
    end(&c);
    assert_int_equal(c.accesses[c.x], 100);
    assert_int_equal(c.work.counts[UL_WORK_VECTOR], 200);
}

enum { SIZE = 48, ROUND = 256 };

/* Counts operations outside lanes of y = a x, which is square; rows of a are `a_row` apart and its
 * columns `a_column`, those of y `y_row` and `y_column`. */
static uint64_t count_product(int64_t a_row, int64_t a_column, int64_t y_row, int64_t y_column,
                              bool on_device)
{
    static const int64_t size = SIZE;
    struct counted c;
    begin(&c);
    c.on_device = on_device;
    struct ul_kernel *k = &c.kernel;
    struct ul_contraction product = ul_contraction_blank();
    ul_contraction_init(k, &product, UL_F32, &size, 1, &size, 1, &size, 1);
    ul_kx zero = ul_kx_index_const(k, 0);
    product.a.buffer = product.b.buffer = c.x;
    product.a.transform = product.b.transform = UL_NONE;
    product.a.at = (struct ul_affine){zero, {a_row, 0, a_column}};
    product.b.at = (struct ul_affine){zero, {0, 1, SIZE}};
    ul_ks_contract(k, &product);
    ul_kx row = ul_kx_muli(k, ul_kx_var(k, product.vars[0]), y_row);
    ul_kx column = ul_kx_muli(k, ul_kx_var(k, product.vars[1]), y_column);
    ul_ks_store(k, c.y, ul_kx_add(k, row, column), ul_kx_var(k, product.acc));
    ul_ks_end(k);
    end(&c);
    return c.work.counts[UL_WORK_SCALAR];
}

/* Results that lie side by side are stored in lanes, others one by one, and where they lie a round
 * number of bytes apart each to a line that the others push out of the cache; a matrix of
 * which neither rows nor columns do is read by lines, one for four rows that are 4 apart. */
static void far_elements_are_counted(void **state)
{
    (void)state;
    uint64_t near = count_product(SIZE, 1, SIZE, 1, false);
    assert_int_equal(near, 0);
    assert_int_equal(count_product(SIZE, 1, 1, SIZE, false), SIZE * SIZE);
    assert_true(count_product(SIZE, 1, 1, ROUND, false) >= (uint64_t)40 * SIZE * SIZE);
    assert_true(count_product(4, 4 * (int64_t)SIZE, SIZE, 1, false) >=
                (uint64_t)20 * SIZE * SIZE / 4);
    /* a device has a lane for each, and none outside of lanes */
    assert_int_equal(count_product(SIZE, 1, 1, ROUND, true), 0);
    assert_int_equal(count_product(4, 4 * (int64_t)SIZE, SIZE, 1, true), 0);
}

/* Work of y = a b, b of `rows` by `columns` at each k and read as 0.5 x, or as it is. */
static struct ul_work count_operand(int64_t rows, int64_t columns, bool transforms)
{
    static const int64_t size = SIZE;
    const int64_t sizes[2] = {rows, columns};
    struct counted c;
    begin(&c);
    struct ul_kernel *k = &c.kernel;
    struct ul_contraction product = ul_contraction_blank();
    ul_contraction_init(k, &product, UL_F32, &size, 1, sizes, 2, &size, 1);
    ul_kx zero = ul_kx_index_const(k, 0);
    product.a.buffer = product.b.buffer = c.x;
    product.a.transform = product.b.transform = UL_NONE;
    product.a.at = (struct ul_affine){zero, {SIZE, 0, 0, 1}};
    product.b.at = (struct ul_affine){zero, {0, 2 * columns, 1, rows * columns}};
    if (transforms) {
        ul_kx half = ul_kx_float(k, UL_F32, 0.5);
        product.b.loaded = ul_kernel_add_var(k, UL_F32);
        ul_kx x = ul_kx_var(k, product.b.loaded);
        product.b.transform = ul_kx_binary(k, UL_KX_MUL, x, half);
    }
    ul_ks_contract(k, &product);
    ul_ks_store(k, c.y, zero, ul_kx_var(k, product.acc));
    ul_ks_end(k);
    end(&c);
    return c.work;
}

/* What is computed from an operand counts for each element that is packed, in lanes along long
 * runs; where the sums of so few rows are kept, each is packed once. */
static void transforms_are_counted(void **state)
{
    (void)state;
    for (uint32_t is_long = 0; is_long < 2; is_long++) {
        int64_t rows = is_long ? 3 : 32, columns = is_long ? 32 : 3;
        uint64_t packed = (uint64_t)SIZE * 32 * 3;
        struct ul_work plain = count_operand(rows, columns, false);
        struct ul_work more = count_operand(rows, columns, true);
        enum ul_work_kind kind = is_long ? UL_WORK_VECTOR : UL_WORK_SCALAR;
        enum ul_work_kind other = is_long ? UL_WORK_SCALAR : UL_WORK_VECTOR;
        assert_int_equal(more.counts[kind], plain.counts[kind] + packed);
        assert_int_equal(more.counts[other], plain.counts[other]);
        assert_int_equal(more.flop_count, plain.flop_count + packed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cost_is_the_larger_of_work_and_bytes),
        cmocka_unit_test(weights_are_where_all_of_them_fit),
        cmocka_unit_test(weights_of_memory_are_waited_for),
        cmocka_unit_test(weights_are_forgotten_between_runs),
        cmocka_unit_test(few_blocks_leave_a_device_idle),
        cmocka_unit_test(costs_stay_in_range),
        cmocka_unit_test(files_come_back),
        cmocka_unit_test(devices_are_read),
        cmocka_unit_test(bad_files_are_refused),
        cmocka_unit_test(lanes_are_filled),
        cmocka_unit_test(strides_empty_lanes),
        cmocka_unit_test(sums_wait_for_themselves),
        cmocka_unit_test(data_decide_branches),
        cmocka_unit_test(far_elements_are_counted),
        cmocka_unit_test(transforms_are_counted),
        cmocka_unit_test(blocks_are_counted_as_long_as_they_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
