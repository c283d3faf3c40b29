/* SPDX-License-Identifier: Apache-2.0 */
/* oneDNN as the library of a target, for one machine. The instruction set and the number of threads
 * are settings of the whole process in oneDNN 2 and OpenMP. */
#include "codegen/cpu/dnnl.h"
#include "codegen/cpu/dnnl_internal.h"

#include <string.h>

/* With the closest level of the x86-64 psABI that C compilers know, or a little less. The last row
 * is for any machine that oneDNN has no name for: other processors, very old ones. */
static const struct {
    const char *name;
    dnnl_cpu_isa_t isa;
    const char *march;
} isas[] = {{"sse41", dnnl_cpu_isa_sse41, "x86-64 -msse4.1"},
            {"avx", dnnl_cpu_isa_avx, "x86-64-v2 -mavx"},
            {"avx2", dnnl_cpu_isa_avx2, "x86-64-v3"},
            {"avx2_vnni", dnnl_cpu_isa_avx2_vnni, "x86-64-v3"},
            {"avx512_core", dnnl_cpu_isa_avx512_core, "x86-64-v4"},
            {"avx512_core_vnni", dnnl_cpu_isa_avx512_core_vnni, "x86-64-v4 -mavx512vnni"},
            {"avx512_core_bf16", dnnl_cpu_isa_avx512_core_bf16, "x86-64-v4 -mavx512vnni"},
            {"avx512_core_amx", dnnl_cpu_isa_avx512_core_amx, "x86-64-v4 -mavx512vnni"},
            {"any", dnnl_cpu_isa_all, "native"}};
enum { ISA_COUNT = sizeof isas / sizeof *isas };

/* The row of an instruction set. */
static uint32_t isa_row(dnnl_cpu_isa_t isa)
{
    uint32_t i = 0;
    while (i + 1 < ISA_COUNT && isas[i].isa != isa)
        i++;
    return i;
}

/* The row of a name, or ISA_COUNT. */
static uint32_t isa_find(const char *name)
{
    uint32_t i = 0;
    while (i < ISA_COUNT && strcmp(isas[i].name, name) != 0)
        i++;
    return i;
}

const char *ul_dnnl_isa_name(uint32_t index)
{
    return index < ISA_COUNT ? isas[index].name : NULL;
}

enum ul_status ul_dnnl_check_isa(struct ul_arena *arena, const char *name, struct ul_diag *diag)
{
    struct ul_text names;
    if (isa_find(name) < ISA_COUNT)
        return UL_OK;
    ul_text_init(&names, arena);
    for (uint32_t i = 0; i < ISA_COUNT; i++)
        ul_text_printf(&names, "%s%s", i == 0 ? "" : ", ", isas[i].name);
    return ul_diag_set(diag, UL_USAGE, "--isa %s: expected one of %s", ul_quote(arena, name),
                       names.data);
}

static enum ul_status set_isa(struct ul_arena *arena, const char *name, struct ul_diag *diag)
{
    UL_TRY(ul_dnnl_check_isa(arena, name, diag));
    uint32_t wanted = isa_find(name);
    /* It can be set once in a process, before the first use. */
    (void)dnnl_set_max_cpu_isa(isas[wanted].isa);
    uint32_t effective = isa_row(dnnl_get_effective_cpu_isa());
    if (effective == wanted)
        return UL_OK;
    return ul_diag_set(diag, UL_UNSUPPORTED,
                       "--isa %s: this machine serves oneDNN's instruction sets up to %s", name,
                       isas[effective].name);
}

void ul_dnnl_close(struct ul_dnnl *dnnl)
{
    (void)dnnl_engine_destroy(dnnl->engine);
}

static bool is_same_isa(const char *a, const char *b)
{
    return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

enum ul_status ul_dnnl_open(struct ul_arena *arena, const char *isa, uint32_t thread_count,
                            struct ul_dnnl **dnnl, struct ul_diag *diag)
{
    if (isa != NULL)
        UL_TRY(set_isa(arena, isa, diag));
    omp_set_num_threads((int)thread_count);
    struct ul_dnnl *opened = UL_NEW(arena, struct ul_dnnl);
    opened->arena = arena;
    opened->asked_isa = isa;
    opened->thread_count = thread_count;
    const uint32_t row = isa_row(dnnl_get_effective_cpu_isa());
    opened->isa = isas[row].name;
    opened->march = isas[row].march;
    if (dnnl_engine_create(&opened->engine, dnnl_cpu, 0) != dnnl_success)
        return ul_diag_set(diag, UL_INTERNAL, "oneDNN has no engine for this machine's processor");
    *dnnl = opened;
    return UL_OK;
}

/* ---- the row ---- */

static enum ul_status open(struct ul_arena *arena, const struct ul_program_options *options,
                           struct ul_target_library *library, struct ul_diag *diag)
{
    struct ul_dnnl *dnnl;
    UL_TRY(ul_dnnl_open(arena, options->isa, options->thread_count, &dnnl, diag));
    library->context = dnnl;
    library->isa = dnnl->isa;
    library->march = dnnl->march;
    return UL_OK;
}

static bool reopen(void *context, const struct ul_program_options *options)
{
    struct ul_dnnl *dnnl = context;
    if (options->thread_count != dnnl->thread_count || !is_same_isa(options->isa, dnnl->asked_isa))
        return false;
    omp_set_num_threads((int)dnnl->thread_count);
    ul_pieces_restart(dnnl);
    return true;
}

static void close_context(void *context)
{
    ul_dnnl_close(context);
}

/* Others have sums of integers in f32 in between. */
static bool is_exact(const struct ul_call *call)
{
    return strncmp(call->implementation, "brg", 3) == 0;
}

static bool has_tail(const struct ul_call *call)
{
    return call->tail_count > 0;
}

static const struct ul_library_file files[] = {
    {.name = "ul_dnnl.c"},
    {.name = "ul_posts.c", .is_native = true, .is_wanted = has_tail},
    {.name = NULL}};

const struct ul_target_library ul_dnnl_library = {.name = "oneDNN",
                                                  .plan_name = "onednn",
                                                  .state_bytes = 8, /* a pointer */
                                                  .skips_padding = true,
                                                  .max_dim = INT32_MAX,
                                                  .symbol = "ul_library",
                                                  .links = " -ldnnl -fopenmp",
                                                  .files = files,
                                                  .open = open,
                                                  .reopen = reopen,
                                                  .close = close_context,
                                                  .answer = ul_dnnl_answer,
                                                  .answer_piece = ul_piece_answer,
                                                  .is_exact = is_exact,
                                                  .kept_bytes = ul_dnnl_kept_bytes,
                                                  .code_bytes = ul_dnnl_code_bytes,
                                                  .runtime_bytes = ul_dnnl_runtime_bytes};
