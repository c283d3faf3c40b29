/* SPDX-License-Identifier: Apache-2.0 */
/* Golden tests of kernels as text. run/<case>.kernel is read, printed again and interpreted:
 * run/<case>.want has what its outputs hold then. Lines "# b0 = 1 2 3" of it are inputs, elements
 * that are not given being 0. bad/<case>.kernel is refused as bad/<case>.err says. What run/ holds
 * is read once more with every byte changed in a few ways: it parses, or is refused with a line.
 *
 * usage: test_kernel_text [--update] DIR
 * exit: 0 all as wanted, 1 not */
#include "golden_files.h"
#include "ir/kernel_build.h"
#include "ir/kernel_text.h"

#include <stdlib.h>
#include <string.h>

/* The numbers after "# b0 =", as elements of the buffer. */
static void read_elements(const char *text, uint32_t id, const struct ul_buffer *buffer,
                          unsigned char *place)
{
    char mark[24];
    uint64_t size_bytes = ul_dtype_get(buffer->dtype)->size_bytes;
    snprintf(mark, sizeof mark, "# b%u =", (unsigned)id);
    const char *at = strstr(text, mark);
    if (at == NULL)
        return;
    at += strlen(mark);
    for (uint64_t i = 0; i < buffer->element_count && *at == ' '; i++) {
        char *end;
        double value = strtod(at, &end);
        if (ul_dtype_get(buffer->dtype)->is_float)
            ul_element_put_float(place + i * size_bytes, buffer->dtype, value);
        else
            ul_element_put_int(place + i * size_bytes, buffer->dtype, (int64_t)value);
        at = end;
    }
}

static void put_elements(struct ul_text *out, uint32_t id, const struct ul_buffer *buffer,
                         const unsigned char *place)
{
    const struct ul_dtype_info *info = ul_dtype_get(buffer->dtype);
    ul_text_printf(out, "b%u =", (unsigned)id);
    for (uint64_t i = 0; i < buffer->element_count; i++) {
        const unsigned char *element = place + i * info->size_bytes;
        ul_text_put(out, " ");
        if (info->is_float)
            ul_text_put_float(out, ul_element_get_float(element, buffer->dtype), true);
        else
            ul_text_printf(out, "%lld", (long long)ul_element_get_int(element, buffer->dtype));
    }
    ul_text_put(out, "\n");
}

static void run_kernel(struct ul_text *out, const struct ul_kernel *kernel, const char *text,
                       struct ul_arena *arena)
{
    bool reported = false;
    unsigned char **places = UL_NEW_ARRAY(arena, unsigned char *, kernel->buffer_count);
    for (uint32_t i = 0; i < kernel->buffer_count; i++) {
        const struct ul_buffer *buffer = &kernel->buffers[i];
        places[i] =
            ul_arena_alloc(arena, ul_size_mul_or_die(buffer->element_count,
                                                     ul_dtype_get(buffer->dtype)->size_bytes));
        if (buffer->role == UL_BUFFER_INPUT)
            read_elements(text, i, buffer, places[i]);
    }
    struct ul_kernel run = *kernel;
    run.rounds_products = strstr(text, "# rounds products\n") != NULL;
    uint64_t work = 1 << 20;
    if (!ul_kernel_eval(&run, places, &work, arena, &reported))
        ul_text_put(out, "too much work\n");
    ul_text_put(out, reported ? "an index was out of range\n" : "");
    for (uint32_t i = 0; i < kernel->buffer_count; i++) {
        if (kernel->buffers[i].role == UL_BUFFER_OUTPUT)
            put_elements(out, i, &kernel->buffers[i], places[i]);
    }
}

static void check_run(struct golden *golden, const char *base, const char *text)
{
    struct ul_kernel kernel;
    struct ul_diag diag = {0};
    struct ul_text out;
    ul_text_init(&out, &golden->arena);
    if (ul_kernel_parse(&kernel, &golden->arena, text, &diag) == UL_OK &&
        ul_kernel_check_text(&kernel, &golden->arena, &diag) == UL_OK) {
        ul_kernel_print(&out, &kernel);
        run_kernel(&out, &kernel, text, &golden->arena);
    } else {
        ul_text_printf(&out, "%s\n", diag.text);
    }
    golden_compare(golden, ul_arena_printf(&golden->arena, "%s.want", base), out.data);
}

static void check_bad(struct golden *golden, const char *base, const char *text)
{
    struct ul_kernel kernel;
    struct ul_diag diag = {0};
    enum ul_status status = ul_kernel_parse(&kernel, &golden->arena, text, &diag);
    golden_compare(golden, ul_arena_printf(&golden->arena, "%s.err", base),
                   ul_arena_printf(&golden->arena, "%d: %s\n", (int)status, diag.text));
}

static void mutate(struct golden *golden, const char *base, const char *text)
{
    static const char bytes[] = "\0\n v(9<-";
    size_t length = strlen(text);
    char *changed = ul_arena_copy_string(&golden->arena, text);
    for (size_t i = 0; i < length; i++) {
        for (size_t b = 0; b < sizeof bytes - 1; b++) {
            struct ul_arena arena;
            struct ul_kernel kernel;
            struct ul_diag diag = {0};
            ul_arena_init(&arena);
            changed[i] = bytes[b];
            enum ul_status status = ul_kernel_parse(&kernel, &arena, changed, &diag);
            if (status != UL_OK && (status != UL_INVALID || diag.text[0] == '\0')) {
                golden->failed++;
                printf("%s with byte %zu as 0x%02x: status %d\n", base, i, (unsigned)bytes[b],
                       (int)status);
            }
            ul_arena_done(&arena);
        }
        changed[i] = text[i];
    }
}

static void check_folder(struct golden *golden, const char *name,
                         void (*check)(struct golden *golden, const char *base, const char *text))
{
    const char **files;
    const char *folder = ul_arena_printf(&golden->arena, "%s/%s", golden->root, name);
    uint32_t count = golden_list(golden, folder, ".kernel", &files);
    for (uint32_t f = 0; f < count; f++) {
        int stem = (int)(strlen(files[f]) - strlen(".kernel"));
        const char *base = ul_arena_printf(&golden->arena, "%s/%.*s", folder, stem, files[f]);
        check(golden, base,
              golden_read(golden, ul_arena_printf(&golden->arena, "%s.kernel", base)));
    }
}

int main(int argc, char **argv)
{
    struct golden golden;
    if (!golden_init(&golden, argc, argv))
        return 1;
    check_folder(&golden, "run", check_run);
    check_folder(&golden, "bad", check_bad);
    check_folder(&golden, "run", mutate);
    return golden_done(&golden);
}
