/* SPDX-License-Identifier: Apache-2.0 */
/* Which inputs an output may lie on (ir/in_place.c): found from what the loops of an operator load
 * and store, so operators serve as examples. */
#include "case.h"
#include "ir/kernel_build.h"
#include "ir/lower_group.h"

struct place_case {
    const char *op, *inputs, *attributes;
    uint32_t inputs_taken; /* bits: the inputs that output 0 may take the bytes of */
};

static const struct place_case cases[] = {
    {"Add", "f32[4,33];f32[4,33]", NULL, 3},
    {"Add", "f32[4,33];f32[33]", NULL, 1},
    {"Add", "f32[4,1];f32[4,33]", NULL, 2},
    {"Cast", "f32[4]", "to=6", 1},
    {"Cast", "f32[4]", "to=11", 0},
    /* Passes over a row, rows one after the other. */
    {"Softmax", "f32[4,5,33]", NULL, 1},
    {"Softmax", "f32[4,5,70]", NULL, 1},
    {"Softmax", "f32[4,5,7]", "axis=0, ul_flatten_axis=1", 1},
    {"LayerNormalization", "f32[4,5,70];f32[5,70]", "axis=1", 1},
    {"InstanceNormalization", "f32[2,3,5,70];f32[3];f32[3]", NULL, 1},
    {"GroupNormalization", "f32[2,6,5,7];f32[6];f32[6]", "num_groups=3", 1},
    /* Rows that interleave are not told apart. */
    {"Softmax", "f32[4,5,33]", "axis=1", 0},
    {"InstanceNormalization", "f32[1,1,5];f32[1];f32[1]", NULL, 1},
    /* Every element is loaded just before it is stored. */
    {"CumSum", "f32[4,33];i64[] = [0]", NULL, 1},
    {"CumSum", "f32[4,33];i64[] = [1]", "reverse=1, exclusive=1", 1},
    /* The copy comes first, and the updates are not under it. */
    {"ScatterND", "f32[9];i64[2,1];f32[2]", "reduction=\"add\"", 1},
    {"ScatterElements", "f32[2,3];i64[2,3];f32[2,3]", NULL, 1},
    {"TensorScatter", "f32[2,8,4];f32[2,3,4]", NULL, 1},
    /* Outputs of another size never take an input's bytes. */
    {"DFT", "f32[1,1,1]", NULL, 0},
    {"ReduceSum", "f32[4]", NULL, 0},
    {"TopK", "f32[70];i64[1] = [69]", NULL, 0},
    /* The whole line is read before the first result. */
    {"TopK", "f32[70];i64[1] = [70]", NULL, 1},
    /* All results are in an array before the first is stored; otherwise windows overlap. */
    {"MaxPool", "f32[1,1,9]", "kernel_shape=ints[3], pads=ints[1,1]", 1},
    {"MaxPool", "f32[2,3,99]", "kernel_shape=ints[3], pads=ints[1,1]", 0},
    {"MaxPool", "f32[2,3,9,9]", "kernel_shape=ints[3,3], pads=ints[1,1,1,1]", 0},
    {"LRN", "f32[1,8,4]", "size=3", 0},
    {"Transpose", "f32[4,4]", "perm=ints[1,0]", 0},
};

/* What a target's schedules read before they store. The interpreter runs loops as they are written,
 * so these facts are tried in tests/bench/contract. */
static enum ul_contract_reads reads_any(const struct ul_kernel *kernel,
                                        const struct ul_contraction *contraction)
{
    (void)kernel, (void)contraction;
    return UL_CONTRACT_READS_ANY;
}

static enum ul_contract_reads reads_column(const struct ul_kernel *kernel,
                                           const struct ul_contraction *contraction)
{
    (void)kernel, (void)contraction;
    return UL_CONTRACT_READS_COLUMN;
}

static enum ul_contract_reads reads_whole(const struct ul_kernel *kernel,
                                          const struct ul_contraction *contraction)
{
    (void)kernel, (void)contraction;
    return UL_CONTRACT_READS_WHOLE;
}

static const struct {
    struct place_case place;
    ul_contract_reads_fn *reads;
} ordered[] = {
    {{"Conv", "f32[2,3,5,4];f32[3,3,1,1]", NULL, 0}, reads_any},
    {{"Conv", "f32[2,3,5,4];f32[3,3,1,1]", NULL, 1}, reads_column},
    {{"Conv", "f32[2,6,9];f32[6,2,1]", "group=3", 1}, reads_column},
    {{"Conv", "f32[1,2,4];f32[4,2,1]", "strides=ints[2]", 0}, reads_column},
    {{"Conv", "f32[2,3,5,4];f32[3,3,3,3]", "pads=ints[1,1,1,1]", 0}, reads_column},
    {{"Conv", "f32[2,3,5,4];f32[3,3,3,3]", "pads=ints[1,1,1,1]", 1}, reads_whole},
    {{"Conv", "f32[2,3,5,4];f32[3,1,3,3]", "group=3, pads=ints[1,1,1,1]", 1}, reads_whole},
    {{"Conv", "f32[2,3,5,4];f32[3,1,3,3]", "group=3, pads=ints[1,1,1,1]", 0}, reads_any},
    {{"Conv", "f32[1,4,2];f32[2,2,2]", "group=2, pads=ints[2,1]", 1}, reads_whole},
    {{"MatMul", "f32[5,5];f32[5,7]", NULL, 2}, reads_column},
    {{"MatMul", "f32[3,5,5];f32[3,5,7]", NULL, 2}, reads_column},
    {{"Gemm", "f32[5,5];f32[7,5]", "transB=1", 0}, reads_column},
    {{"Gemm", "f32[5,5];f32[7,5]", "transB=1", 2}, reads_whole},
};

/* Small numbers, different from element to element; also valid as indexes. */
static unsigned char *make_bytes(struct ul_arena *arena, const struct ul_type *type, uint64_t max)
{
    uint64_t size_bytes = ul_dtype_get(type->dtype)->size_bytes;
    unsigned char *bytes = ul_arena_alloc(arena, ul_type_bytes(type) + 1);
    for (uint64_t i = 0; i < ul_type_elements(type); i++) {
        uint64_t number = (i * 7 + i / 5) % max;
        if (ul_dtype_get(type->dtype)->is_float)
            ul_element_put_float(bytes + i * size_bytes, type->dtype, (double)number);
        else
            ul_element_put_int(bytes + i * size_bytes, type->dtype, (int64_t)(number % 2));
    }
    return bytes;
}

/* Runs the kernel, with `output` lying on `input` unless that is UL_NONE; gives the output's bytes.
 */
static const unsigned char *run(struct ul_arena *arena, const struct ul_graph *graph,
                                const struct ul_kernel *kernel, ul_value_id output,
                                ul_value_id input)
{
    unsigned char **of_value = UL_NEW_ARRAY(arena, unsigned char *, graph->value_count);
    unsigned char **buffers = UL_NEW_ARRAY(arena, unsigned char *, kernel->buffer_count);
    for (uint32_t i = 0; i < graph->value_count; i++)
        of_value[i] = make_bytes(arena, &graph->values[i].type, 101);
    if (input != UL_NONE)
        of_value[output] = of_value[input];
    for (uint32_t i = 0; i < kernel->buffer_count; i++)
        buffers[i] =
            kernel->buffers[i].value == UL_NONE ? NULL : of_value[kernel->buffers[i].value];
    bool reported = false;
    uint64_t work = 1000000;
    assert_true(ul_kernel_eval(kernel, buffers, &work, arena, &reported));
    assert_false(reported);
    return of_value[output];
}

/* The results must not change when the output takes the input's bytes. */
static void check_fact(struct ul_arena *arena, const struct ul_graph *graph,
                       const struct ul_kernel *kernel, const struct ul_in_place *fact)
{
    const unsigned char *apart = run(arena, graph, kernel, fact->output, UL_NONE);
    const unsigned char *together = run(arena, graph, kernel, fact->output, fact->input);
    assert_memory_equal(apart, together, ul_type_bytes(&graph->values[fact->output].type));
}

/* `reads` NULL: whatever the order of a contraction. */
static void run_case(const struct place_case *test, ul_contract_reads_fn *reads)
{
    const struct ul_target_traits traits = {.name = "test", .contract_reads = reads};
    struct ul_arena arena;
    struct ul_graph graph;
    struct ul_lower_result result;
    ul_node_id node = 0;
    uint32_t taken = 0;
    ul_arena_init(&arena);
    case_graph(&graph, &arena, test->op, test->inputs, test->attributes, 1);
    ul_lower_group(&graph, &node, 1, NULL, &traits, &arena, &result);
    for (uint32_t i = 0; i < result.in_place_count; i++) {
        if (reads == NULL)
            check_fact(&arena, &graph, result.kernel, &result.in_place[i]);
        for (uint32_t k = 0; k < graph.nodes[0].input_count; k++) {
            if (result.in_place[i].input == graph.nodes[0].inputs[k])
                taken |= 1u << k;
        }
    }
    if (taken != test->inputs_taken)
        fail_msg("%s (%s) {%s}: inputs %x may be taken, wanted %x", test->op, test->inputs,
                 test->attributes == NULL ? "" : test->attributes, (unsigned)taken,
                 (unsigned)test->inputs_taken);
    ul_arena_done(&arena);
}

static void operators(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        run_case(&cases[i], NULL);
}

static void contractions(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof ordered / sizeof *ordered; i++)
        run_case(&ordered[i].place, ordered[i].reads);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operators),
        cmocka_unit_test(contractions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
