/* SPDX-License-Identifier: Apache-2.0 */
/* Golden tests of passes: <pass>/<case>.ir in, <case>.want or <case>.err out; "pipeline" is all of
 * them. The files are compared as a whole. Lines of an .ir are options:
 * "# --split TEXT", "# --inside NODE", "# --row-major NODE", "# --steps-cost",
 * "# --channels-last", "# --filters-last", "# --biases-alike", "# --tensor-cores",
 * "# --signed-products 32", "# --products-joined", "# --sums-joined", "# --panels-of-codes",
 * "# --precision NAME", "# --loss-scale 64", "# --train" (by cross-entropy, with SGD),
 * "# --clip-mode twice" (to norm 1), "# --stop-gradient TEXT", "# --padding-idx PATTERN" (row 1),
 * "# --lora PATTERN" (rank 2), "# --quantize TEXT", "# --calls" (the target has a library, which
 * takes nothing) and "# --calls-alike" (which takes what reads and makes 16 bits alone).
 *
 * usage: test_passes [--update] DIR
 * exit: 0 all as wanted, 1 not */
#include "golden_files.h"
#include "ir/text.h"
#include "ir/view.h"
#include "passes/passes.h"

#include <string.h>

/* The rest of every line that begins with `mark`. */
static const char *const *read_lines(struct golden *golden, const char *text, const char *mark,
                                     uint32_t *count)
{
    const char **found = NULL;
    uint32_t capacity = 0;
    for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, mark, strlen(mark)) != 0)
            continue;
        line += strlen(mark);
        UL_GROW(&golden->arena, found, *count, capacity);
        found[(*count)++] = ul_arena_printf(&golden->arena, "%.*s", (int)strcspn(line, "\n"), line);
    }
    return found;
}

static bool takes_nothing(const void *library, const struct ul_graph *graph,
                          const ul_node_id *nodes, uint32_t count, const bool *escapes,
                          uint64_t *scratch_bytes)
{
    (void)library, (void)graph, (void)nodes, (void)count, (void)escapes, (void)scratch_bytes;
    return false;
}

/* Takes what reads and makes 16 bits alone. */
static bool takes_alike(const void *library, const struct ul_graph *graph, const ul_node_id *nodes,
                        uint32_t count, const bool *escapes, uint64_t *scratch_bytes)
{
    (void)library, (void)escapes, (void)scratch_bytes;
    for (uint32_t i = 0; i < count; i++) {
        const struct ul_node *node = &graph->nodes[nodes[i]];
        for (uint32_t k = 0; k < node->input_count; k++)
            if (!ul_dtype_is_half(ul_value_storage(graph, node->inputs[k])))
                return false;
        if (!ul_dtype_is_half(ul_value_storage(graph, node->outputs[0])))
            return false;
    }
    return true;
}

static enum ul_status run_case(struct golden *golden, const char *pass, const char *text,
                               const char **out)
{
    struct ul_graph graph;
    struct ul_arena scratch;
    struct ul_diag diag = {0};
    struct ul_target_traits traits = {.tile_count = 4, .tile_bytes = 512 * 1024};
    struct ul_passes_options options = {.traits = &traits};
    struct ul_training training = {.class_axis = UL_TRAINING_AXIS_OPEN};
    struct ul_text printed;
    ul_text_init(&printed, &golden->arena);
    ul_arena_init(&scratch);
    if (strcmp(pass, "pipeline") != 0)
        options.only = pass;
    traits.tensor_side = strstr(text, "# --tensor-cores\n") != NULL ? 8 : 0;
    traits.biases_alike = strstr(text, "# --biases-alike\n") != NULL;
    traits.products_joined = strstr(text, "# --products-joined\n") != NULL;
    traits.sums_joined = strstr(text, "# --sums-joined\n") != NULL;
    traits.codes_scratch_bytes = strstr(text, "# --panels-of-codes\n") != NULL ? 1 : 0;
    traits.panels_of_codes = strstr(text, "# --panels-of-codes\n") != NULL;
    traits.filters_last = strstr(text, "# --filters-last\n") != NULL;
    traits.signed_products = strstr(text, "# --signed-products 32\n") != NULL ? 32 : 0;
    traits.steps_cost = strstr(text, "# --steps-cost\n") != NULL;
    traits.channels_last = strstr(text, "# --channels-last\n") != NULL;
    if (strstr(text, "# --calls\n") != NULL)
        options.is_call = takes_nothing;
    if (strstr(text, "# --calls-alike\n") != NULL)
        options.is_call = takes_alike;
    if (strstr(text, "# --precision fp16\n") != NULL)
        options.precision = UL_F16;
    if (strstr(text, "# --precision bf16\n") != NULL)
        options.precision = UL_BF16;
    if (strstr(text, "# --train\n") != NULL)
        options.training = &training;
    if (strstr(text, "# --clip-mode twice\n") != NULL) {
        training.clip_norm = 1;
        training.clip_mode = UL_CLIP_TWICE;
    }
    if (strstr(text, "# --loss-scale 64\n") != NULL) {
        training.loss_scale = 64;
        training.growth_interval = 100;
    }
    training.stop_gradients =
        read_lines(golden, text, "# --stop-gradient ", &training.stop_gradient_count);
    uint32_t padding_count = 0;
    const char *const *tables = read_lines(golden, text, "# --padding-idx ", &padding_count);
    struct ul_padding *paddings = UL_NEW_ARRAY(&golden->arena, struct ul_padding, padding_count);
    for (uint32_t i = 0; i < padding_count; i++)
        paddings[i] = (struct ul_padding){tables[i], 1};
    training.paddings = paddings;
    training.padding_count = padding_count;
    uint32_t lora_count = 0;
    const char *const *patterns = read_lines(golden, text, "# --lora ", &lora_count);
    struct ul_lora *lora = UL_NEW_ARRAY(&golden->arena, struct ul_lora, lora_count);
    for (uint32_t i = 0; i < lora_count; i++)
        lora[i] = (struct ul_lora){.pattern = patterns[i], .rank = 2};
    training.lora = lora;
    training.lora_count = lora_count;
    training.lora_alpha = 8;
    options.quantize = read_lines(golden, text, "# --quantize ", &options.quantize_count);
    options.splits = read_lines(golden, text, "# --split ", &options.split_count);
    options.inside = read_lines(golden, text, "# --inside ", &options.inside_count);
    options.row_major = read_lines(golden, text, "# --row-major ", &options.row_major_count);
    enum ul_status status = ul_graph_parse(&graph, &golden->arena, text, NULL, &diag);
    graph.check_text = true;
    if (status == UL_OK)
        status = ul_passes_run(&graph, &scratch, &options, &diag);
    if (status == UL_OK)
        ul_graph_print(&printed, &graph);
    else
        ul_text_printf(&printed, "%d: %s\n", (int)status, diag.text);
    ul_arena_done(&scratch);
    *out = printed.data;
    return status;
}

static void check_case(struct golden *golden, const char *pass, const char *file)
{
    size_t stem = strlen(file) - strlen(".ir");
    const char *base =
        ul_arena_printf(&golden->arena, "%s/%s/%.*s", golden->root, pass, (int)stem, file);
    const char *text = golden_read(golden, ul_arena_printf(&golden->arena, "%s.ir", base));
    const char *got;
    enum ul_status status = run_case(golden, pass, text == NULL ? "" : text, &got);
    golden_compare(golden,
                   ul_arena_printf(&golden->arena, "%s.%s", base, status == UL_OK ? "want" : "err"),
                   got);
}

int main(int argc, char **argv)
{
    struct golden golden;
    if (!golden_init(&golden, argc, argv))
        return 1;
    const char **passes;
    uint32_t pass_count = golden_list(&golden, golden.root, "", &passes);
    for (uint32_t p = 0; p < pass_count; p++) {
        const char **files;
        const char *folder = ul_arena_printf(&golden.arena, "%s/%s", golden.root, passes[p]);
        uint32_t file_count = golden_list(&golden, folder, ".ir", &files);
        for (uint32_t f = 0; f < file_count; f++)
            check_case(&golden, passes[p], files[f]);
    }
    return golden_done(&golden);
}
