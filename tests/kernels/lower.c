/* SPDX-License-Identifier: Apache-2.0 */
/* Golden tests of lowering: lower/<case>.ir goes through the passes of each target and becomes a
 * program without libraries; lower/<case>.want has its kernels and their schedules, once for
 * targets that make the same of it. A line "# --emit" asks for the functions that are emitted, too.
 * Every kernel is read back from its text, and what the target makes of that must be the same.
 *
 * usage: test_lower [--update] DIR
 * exit: 0 all as wanted, 1 not */
#include "codegen/kernel/threads.h"
#include "codegen/program/program.h"
#include "codegen/program/target.h"
#include "codegen/target.h"
#include "golden_files.h"
#include "ir/kernel_build.h"
#include "ir/kernel_text.h"
#include "ir/text.h"
#include "passes/passes.h"

#include <string.h>

static const struct variant {
    const char *target;
    uint32_t thread_count;
} variants[] = {{"c", 1}, {"cpu", 1}, {"cpu", 4}, {"cuda", 1}};

static enum ul_status build(struct golden *golden, const char *text, const struct variant *variant,
                            struct ul_program **program, struct ul_diag *diag)
{
    struct ul_arena *arena = &golden->arena;
    struct ul_graph *graph = UL_NEW(arena, struct ul_graph);
    struct ul_arena scratch;
    const struct ul_target *target = ul_target_find(variant->target);
    const struct ul_passes_options passes = {.traits = &target->traits};
    const struct ul_program_options options = {.target = target,
                                               .thread_count = variant->thread_count,
                                               .profile = ul_profile_find(target->traits.profile)};
    UL_TRY(ul_graph_parse(graph, arena, text, NULL, diag));
    graph->check_text = true;
    ul_arena_init(&scratch);
    enum ul_status status = ul_passes_run(graph, &scratch, &passes, diag);
    ul_arena_done(&scratch);
    UL_TRY(status);
    return ul_program_build(arena, graph, &options, program, diag);
}

/* A kernel that is read from its text is emitted as the kernel itself is. */
static enum ul_status check_read(struct golden *golden, const struct ul_program *program,
                                 const struct ul_program_kernel *kernel, struct ul_diag *diag)
{
    struct ul_arena *arena = &golden->arena;
    struct ul_kernel again;
    struct ul_text text, emitted;
    struct ul_threads threads;
    struct ul_kernel_printed printed;
    ul_text_init(&text, arena);
    ul_text_init(&emitted, arena);
    ul_kernel_print(&text, kernel->ir);
    UL_TRY(ul_kernel_parse(&again, arena, text.data, diag));
    while (again.var_count < kernel->ir->var_count) /* what nothing uses is not in the text */
        ul_kernel_add_var(&again, UL_DTYPE_NONE);
    ul_threads_init(&threads, &again, program->options.thread_count, arena);
    UL_TRY(program->options.target->print(&emitted, &again, &threads, program->options.profile,
                                          &printed, diag));
    if (strcmp(emitted.data, kernel->text) == 0)
        return UL_OK;
    return ul_diag_set(diag, UL_INTERNAL, "%s reads back as another kernel:\n%s", kernel->name,
                       emitted.data);
}

static enum ul_status put_variant(struct golden *golden, const char *source,
                                  const struct variant *variant, struct ul_text *out,
                                  struct ul_diag *diag)
{
    struct ul_program *program = NULL;
    UL_TRY(build(golden, source, variant, &program, diag));
    ul_program_print_kernels(out, program);
    for (uint32_t k = 0; k < program->kernel_count; k++) {
        UL_TRY(check_read(golden, program, &program->kernels[k], diag));
        if (strstr(source, "# --emit\n") != NULL)
            ul_text_printf(out, "%s %s\n", program->kernels[k].name, program->kernels[k].text);
    }
    return UL_OK;
}

/* The text without the name of the target, so that what targets make can be compared. */
static const char *without_target(struct golden *golden, const char *text, const char *target)
{
    struct ul_text out;
    const char *mark = ul_arena_printf(&golden->arena, "schedule of target %s,", target);
    ul_text_init(&out, &golden->arena);
    for (const char *at = text;;) {
        const char *found = strstr(at, mark);
        ul_text_put_bytes(&out, at, found == NULL ? strlen(at) : (size_t)(found - at));
        if (found == NULL)
            return out.data;
        ul_text_put(&out, "schedule,");
        at = found + strlen(mark);
    }
}

static void check_case(struct golden *golden, const char *base, const char *source)
{
    enum { COUNT = sizeof variants / sizeof *variants };
    struct ul_text out;
    const char *before = "";
    ul_text_init(&out, &golden->arena);
    for (uint32_t i = 0; i < COUNT; i++) {
        struct ul_text text;
        struct ul_diag diag = {0};
        ul_text_init(&text, &golden->arena);
        if (put_variant(golden, source, &variants[i], &text, &diag) != UL_OK)
            ul_text_printf(&text, "%s\n", diag.text);
        const char *now = without_target(golden, text.data, variants[i].target);
        ul_text_printf(&out, "== %s, %u thread%s%s\n", variants[i].target,
                       (unsigned)variants[i].thread_count, variants[i].thread_count == 1 ? "" : "s",
                       strcmp(now, before) == 0 ? ": the same" : "");
        if (strcmp(now, before) != 0)
            ul_text_put(&out, now);
        before = now;
    }
    golden_compare(golden, ul_arena_printf(&golden->arena, "%s.want", base), out.data);
}

int main(int argc, char **argv)
{
    struct golden golden;
    const char **files;
    if (!golden_init(&golden, argc, argv))
        return 1;
    const char *folder = ul_arena_printf(&golden.arena, "%s/lower", golden.root);
    uint32_t count = golden_list(&golden, folder, ".ir", &files);
    for (uint32_t f = 0; f < count; f++) {
        int stem = (int)(strlen(files[f]) - strlen(".ir"));
        const char *base = ul_arena_printf(&golden.arena, "%s/%.*s", folder, stem, files[f]);
        check_case(&golden, base,
                   golden_read(&golden, ul_arena_printf(&golden.arena, "%s.ir", base)));
    }
    return golden_done(&golden);
}
