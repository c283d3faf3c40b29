/* SPDX-License-Identifier: Apache-2.0 */
/* What a search remembers changes no plan: with a memo of orders (planner/order/order_memo.c), and
 * on what an earlier compile has found, it is the same to the byte.
 *
 *     search_test MODEL.onnx */
#include "compile/compile.h"

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

static void must(struct ul_compile *compile, enum ul_status status)
{
    if (status != UL_OK) {
        fprintf(stderr, "%s\n", compile->diag.text);
        exit(1);
    }
}

struct memory {
    bool has_orders;
    const struct ul_compile *earlier;
};

/* A plan under the options; the caller ends the compile. */
static void plan(struct ul_compile *compile, const char *model, const char *const (*options)[2],
                 const struct memory *memory)
{
    ul_compile_init(compile);
    for (; (*options)[0] != NULL; options++)
        must(compile, ul_compile_set(compile, (*options)[0], (*options)[1]));
    if (!memory->has_orders)
        compile->orders = NULL;
    else if (memory->earlier != NULL)
        compile->orders = memory->earlier->orders;
    compile->earlier = memory->earlier;
    compile->keeps_read = true;
    compile->wants_ladder = true;
    must(compile, ul_compile_build(compile, model));
    must(compile, ul_compile_plan(compile));
}

static void check(const char *model, const char *const (*options)[2])
{
    struct ul_compile alone, with, again;
    plan(&alone, model, options, &(struct memory){.has_orders = false});
    plan(&with, model, options, &(struct memory){.has_orders = true});
    plan(&again, model, options, &(struct memory){.has_orders = true, .earlier = &with});
    CHECK(alone.ladder.count > 1 && alone.ladder.count == with.ladder.count);
    CHECK(strcmp(alone.json.data, with.json.data) == 0);
    CHECK(strcmp(alone.json.data, again.json.data) == 0);
    ul_compile_done(&again);
    ul_compile_done(&with);
    ul_compile_done(&alone);
}

int main(int argc, char **argv)
{
    static const char *const largest[][2] = {{"target", "c"}, {"dim", "N=8"}, {NULL, NULL}};
    static const char *const split[][2] = {{"target", "c"},     {"dim", "N=4"},
                                           {"weights", "rom"},  {"budget-of", "arena"},
                                           {"budget", "66000"}, {NULL, NULL}};
    CHECK(argc == 2);
    check(argv[1], largest);
    check(argv[1], split);
    return 0;
}
