/* SPDX-License-Identifier: Apache-2.0 */
/* Out of memory at every point of a compile: the n-th block of memory is refused, for every n until
 * the compile succeeds. Each try must end with the message and exit code 4, never by a signal.
 *
 * usage: alloc_fail TARGET MODEL.onnx [DIM=N] */
#define _POSIX_C_SOURCE 200809L
#include "codegen/program/program.h"
#include "codegen/target.h"
#include "frontend/frontend.h"
#include "passes/passes.h"
#include "report/report.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static enum ul_status compile(const struct ul_target *target, const char *path, const char *dim,
                              struct ul_diag *diag)
{
    struct ul_arena keep;
    struct ul_arena scratch;
    struct ul_graph graph;
    struct ul_onnx_model model;
    struct ul_program *program;
    struct ul_plan plan;
    char name[64] = "";
    const char *equals = dim != NULL ? strchr(dim, '=') : NULL;
    if (equals != NULL)
        snprintf(name, sizeof name, "%.*s", (int)(equals - dim), dim);
    struct ul_frontend_dim size = {.name = name, .size = equals != NULL ? atoll(equals + 1) : 0};
    struct ul_frontend_options frontend = {.dims = &size, .dim_count = equals != NULL ? 1 : 0};
    struct ul_passes_options passes = {.disabled_count = 0};
    struct ul_program_options options = {
        .target = target, .thread_count = 2, .profile = ul_profile_at(0)};
    struct ul_plan_options planning = {.seed = 0};
    ul_arena_init(&keep);
    ul_arena_init(&scratch);
    UL_TRY(ul_frontend_load(&graph, &keep, path, &frontend, &model, diag));
    UL_TRY(ul_passes_run(&graph, &scratch, &passes, diag));
    UL_TRY(ul_program_build(&keep, &graph, &options, &program, diag));
    UL_TRY(ul_plan_solve(&keep, program->problem, &planning, &plan, diag));
    ul_model_done(&model);
    ul_arena_done(&scratch);
    ul_arena_done(&keep);
    return UL_OK;
}

/* Exit code of a compile whose n-th block fails; 128 + signal when it crashed. */
static int attempt(const struct ul_target *target, const char *path, const char *dim,
                   uint64_t block)
{
    pid_t child = fork();
    if (child == 0) {
        struct ul_diag diag = {.status = UL_OK};
        int null = open("/dev/null", O_WRONLY);
        dup2(null, STDERR_FILENO);
        ul_arena_fail_after(block);
        _exit((int)compile(target, path, dim, &diag));
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) < 0)
        return -1;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

int main(int argc, char **argv)
{
    const struct ul_target *target = argc > 2 ? ul_target_find(argv[1]) : NULL;
    if (target == NULL)
        return 1;
    for (uint64_t block = 1;; block++) {
        int code = attempt(target, argv[2], argc > 3 ? argv[3] : NULL, block);
        if (code == UL_OK) {
            printf("%llu blocks, each refused once\n", (unsigned long long)block - 1);
            return block > 1 ? 0 : 1;
        }
        if (code != UL_NO_FIT) {
            fprintf(stderr, "block %llu: exit code %d\n", (unsigned long long)block, code);
            return 1;
        }
    }
}
