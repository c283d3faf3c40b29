/* SPDX-License-Identifier: Apache-2.0 */
/* Cases of operators in text, cases/<family>.txt, a line each; blank lines and lines that begin
 * with
 * '#' count for nothing. What stands before the result is one node and its inputs (case.h):
 *
 *   OP (INPUTS) {ATTRIBUTES}: TYPES            its shape rule gives outputs of these types
 *   OP (INPUTS) {ATTRIBUTES} to N = NUMBERS    it folds to outputs of these elements
 *   OP (INPUTS) {ATTRIBUTES} to N: invalid, PART OF THE MESSAGE     or unsupported; N outputs, or 1
 *   OP (INPUTS) {ATTRIBUTES} to N: not folded
 *
 * usage: ops_unit_cases FILE...
 * exit: 0 all hold, 1 not */
#include "case.h"

#include "ir/infer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct op_case {
    struct ul_arena arena;
    const char *op, *inputs, *attributes; /* NULL: none */
    uint32_t outputs;
    const char *result; /* after the colon or the equals sign */
    bool is_folded;     /* it was an equals sign */
};

static const char *const *files;
static int file_count;
static uint32_t failed;

static char *slice(struct op_case *test, const char *from, const char *to)
{
    return ul_arena_printf(&test->arena, "%.*s", (int)(to - from), from);
}

/* From the brace at `at` to the one that closes it, past quoted strings. */
static const char *closing(const char *at)
{
    bool is_quoted = false;
    for (at++; *at != '\0' && (is_quoted || *at != '}'); at++) {
        if (is_quoted && *at == '\\' && at[1] != '\0')
            at++;
        else if (*at == '"')
            is_quoted = !is_quoted;
    }
    return *at == '}' ? at : NULL;
}

static bool read_case(struct op_case *test, const char *line)
{
    const char *open = strstr(line, " ("), *close = open == NULL ? NULL : strchr(open, ')');
    if (close == NULL)
        return false;
    test->op = slice(test, line, open);
    test->inputs = slice(test, open + 2, close);
    test->outputs = 1;
    const char *at = close + 1;
    if (strncmp(at, " {", 2) == 0) {
        const char *end = closing(at + 1);
        if (end == NULL)
            return false;
        test->attributes = slice(test, at + 2, end);
        at = end + 1;
    }
    if (strncmp(at, " to ", 4) == 0) {
        char *end;
        test->outputs = (uint32_t)strtoul(at + 4, &end, 10);
        at = end;
    }
    test->is_folded = strncmp(at, " = ", 3) == 0 || strcmp(at, " =") == 0;
    test->result = at + (test->is_folded ? 2 : 1);
    return test->is_folded || strncmp(at, ": ", 2) == 0;
}

/* Returns NULL where it gives what is wanted, otherwise what it gave. */
static const char *infer(struct op_case *test)
{
    static const struct {
        const char *word;
        enum ul_status status;
    } failures[] = {{" invalid, ", UL_INVALID}, {" unsupported, ", UL_UNSUPPORTED}};
    struct ul_graph graph;
    struct ul_diag diag = {.status = UL_OK};
    struct ul_text types;
    const char *part = NULL;
    enum ul_status wanted = UL_OK;
    for (size_t i = 0; i < sizeof failures / sizeof *failures; i++) {
        size_t length = strlen(failures[i].word);
        if (strncmp(test->result, failures[i].word, length) != 0)
            continue;
        wanted = failures[i].status;
        part = test->result + length;
    }
    for (const char *at = test->result + 1; wanted == UL_OK && *at != '\0'; at++)
        test->outputs += *at == ' ';
    case_parse(&graph, &test->arena, test->op, test->inputs, test->attributes, test->outputs);
    enum ul_status status = ul_node_infer(&graph, 0, &test->arena, &diag);
    ul_text_init(&types, &test->arena);
    for (uint32_t i = 0; status == UL_OK && i < test->outputs; i++) {
        ul_text_put(&types, " ");
        ul_type_print(&types, &graph.values[graph.nodes[0].outputs[i]].type);
    }
    if (status != wanted)
        return status == UL_OK ? types.data : ul_arena_copy_string(&test->arena, diag.text);
    if (status == UL_OK)
        return strcmp(types.data, test->result) == 0 ? NULL : types.data;
    return strstr(diag.text, part) != NULL ? NULL : ul_arena_copy_string(&test->arena, diag.text);
}

static const char *fold(struct op_case *test)
{
    struct ul_graph graph;
    bool is_wanted = test->is_folded, is_same = true;
    case_graph(&graph, &test->arena, test->op, test->inputs, test->attributes, test->outputs);
    if (ul_node_fold(&graph, 0, &test->arena) != is_wanted)
        return is_wanted ? "that it is not folded" : "that it is folded";
    if (!is_wanted)
        return NULL;
    struct ul_text got;
    ul_text_init(&got, &test->arena);
    const char *at = test->result;
    for (uint32_t o = 0; o < test->outputs; o++) {
        const struct ul_tensor *tensor = graph.values[graph.nodes[0].outputs[o]].tensor;
        for (uint64_t i = 0; i < ul_type_elements(&tensor->type); i++) {
            char *end;
            double element = ul_tensor_get_float(tensor, i), wanted = strtod(at, &end);
            is_same = is_same && end != at &&
                      (isnan(wanted) ? isnan(element) : element >= wanted && element <= wanted);
            ul_text_put(&got, " ");
            ul_text_put_float(&got, element, false);
            at = end;
        }
    }
    return is_same && *at == '\0' ? NULL : got.data;
}

static void check_line(const char *path, uint32_t number, const char *line)
{
    struct op_case test = {.op = NULL};
    ul_arena_init(&test.arena);
    const char *got = "no case";
    if (read_case(&test, line))
        got =
            test.is_folded || strcmp(test.result, " not folded") == 0 ? fold(&test) : infer(&test);
    if (got != NULL) {
        print_error("%s:%u: %s\ngave %s\n", path, (unsigned)number, line, got);
        failed++;
    }
    ul_arena_done(&test.arena);
}

static void check_file(const char *path)
{
    struct ul_arena arena;
    struct ul_file file;
    struct ul_diag diag = {.status = UL_OK};
    uint32_t number = 0;
    ul_arena_init(&arena);
    if (ul_file_map(&file, &arena, path, &diag) != UL_OK)
        fail_msg("%s", diag.text);
    const char *at = (const char *)file.data, *end = at + file.size_bytes;
    while (at < end) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        stop = stop == NULL ? end : stop;
        number++;
        if (stop > at && *at != '#')
            check_line(path, number, ul_arena_printf(&arena, "%.*s", (int)(stop - at), at));
        at = stop + 1;
    }
    ul_file_unmap(&file);
    ul_arena_done(&arena);
}

static void all(void **state)
{
    (void)state;
    for (int i = 0; i < file_count; i++)
        check_file(files[i]);
    assert_int_equal(failed, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(all)};
    files = (const char *const *)argv + 1;
    file_count = argc - 1;
    return file_count > 0 ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
}
