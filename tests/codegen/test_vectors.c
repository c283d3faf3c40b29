/* Which loops a device runs several rounds of at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "codegen/cuda/cuda.h"
#include "ir/kernel_build.h"

enum { COUNT = 1 << 20 };

/* for i: y[i] = y[i] + 1 and z[i] = y[i] * 2, in one of both orders. */
static bool has_packs(bool loads_first)
{
    struct ul_arena arena;
    struct ul_diag diag = {0};
    struct ul_kernel kernel;
    struct ul_text text;
    uint64_t scratch_bytes;
    ul_arena_init(&arena);
    ul_kernel_init(&kernel, &arena);
    uint32_t y = ul_kernel_add_buffer(&kernel, UL_BUFFER_OUTPUT, UL_F32, COUNT);
    uint32_t z = ul_kernel_add_buffer(&kernel, UL_BUFFER_OUTPUT, UL_F32, COUNT);
    kernel.buffers[y].value = 0;
    kernel.buffers[z].value = 1;
    ul_kx i = ul_ks_for(&kernel, COUNT, UL_FOR_PARALLEL), old = ul_kx_load(&kernel, y, i);
    ul_kx one = ul_kx_number(&kernel, UL_F32, 1), two = ul_kx_number(&kernel, UL_F32, 2);
    ul_kx sum = ul_kx_binary(&kernel, UL_KX_ADD, old, one);
    ul_kx product = ul_kx_binary(&kernel, UL_KX_MUL, old, two);
    ul_ks_store(&kernel, loads_first ? z : y, i, loads_first ? product : sum);
    ul_ks_store(&kernel, loads_first ? y : z, i, loads_first ? sum : product);
    ul_ks_end(&kernel);
    ul_text_init(&text, &arena);
    const struct ul_profile_device device =
        ul_profile_device(ul_profile_find(UL_PROFILE_DEFAULT_DEVICE));
    assert_int_equal(ul_kernel_print_cuda(&text, &kernel, &device, &scratch_bytes, &diag), UL_OK);
    bool has = strstr(text.data, "ul_pack_read") != NULL;
    ul_arena_done(&arena);
    return has;
}

/* Packs are loaded before any is stored: what a round stored it would not see. */
static void nothing_stored_is_loaded(void **state)
{
    (void)state;
    assert_true(has_packs(true));
    assert_false(has_packs(false));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(nothing_stored_is_loaded)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
