/* SPDX-License-Identifier: Apache-2.0 */
/* Finds sizes of dimensions by shape inference: dimensions that must be equal become one.
 *
 * Problem: a file gives its inputs more names than it has sizes ("seq" of the tokens, "mask_len" of
 * their mask), and only an operator far after them needs two to be equal. Method: the operators'
 * own shape rules decide, with trial sizes. Each open dimension gets a number of its own, and the
 * model is inferred. At a node that refuses the numbers, each is exchanged for another number of
 * the node's inputs, or two or three are exchanged at once. What the node then accepts is the size
 * of the dimension, and the model is inferred again. A dimension counts as found where small and
 * large numbers give the same result, so that neither a table's end nor a factor of the size is
 * mistaken for it. Sizes that contradict each other are explained in the same way: each in turn is
 * treated as open. Left undone: open dimensions without a name, and a size that only a computed one
 * (2*seq) shows. */
#include "compile/compile_internal.h"
#include "ir/infer.h"
#include "passes/passes.h"

#include <string.h>

enum { MAX_OPEN = 12, MAX_NUMBERS = 24, MAX_CHANGES = 3, SMALL_TENSOR = 32 };

/* The first place of a size. */
struct place {
    /* the dimension's name; NULL: it has none, and an input's shape gives its size */
    const char *name;
    const char *input;
    uint32_t axis;
};

/* A choice of sizes for the open dimensions. */
struct trial_sizes {
    /* the number for the dimension; it keeps it where nothing merged it */
    int64_t number[MAX_OPEN];
    int64_t size[MAX_OPEN];
    bool is_merged[MAX_OPEN];
    const char *node[MAX_OPEN]; /* the node that merged it */
};

struct settle {
    struct ul_compile *compile;
    const char *path;
    const struct ul_frontend_options *said;
    bool takes_any_size; /* an expression's size may differ from that of its parts */
    uint32_t open_count;
    struct place open[MAX_OPEN];
    struct ul_arena arena; /* for one attempt */
    struct ul_arena scratch;
    struct ul_graph graph;
};

/* ---- One attempt ---- */

static bool is_known(const struct ul_graph *graph, ul_value_id value)
{
    return value == UL_NONE || ul_type_known(&graph->values[value].type);
}

/* The first node of a block, in execution order, whose inputs are known and whose outputs are not:
 * inference ended there. */
static ul_node_id find_refusal(const struct ul_graph *graph, ul_block_id block)
{
    for (uint32_t at = 0; at < graph->blocks[block].node_count; at++) {
        ul_node_id id = graph->blocks[block].nodes[at];
        const struct ul_node *node = &graph->nodes[id];
        bool needs = false, has = true;
        for (uint32_t i = 0; i < node->input_count; i++)
            has = has && is_known(graph, node->inputs[i]);
        for (uint32_t i = 0; i < node->output_count; i++)
            needs = needs || !is_known(graph, node->outputs[i]);
        if (node->op == UL_OP_NONE || !has || !needs)
            continue;
        for (uint32_t b = 0; b < node->block_count; b++) {
            ul_node_id inner = find_refusal(graph, node->blocks[b]);
            if (inner != UL_NONE)
                return inner;
        }
        return node->block_count == 0 ? id : UL_NONE;
    }
    return UL_NONE;
}

/* Infers the model with these sizes; UL_OK, or *node is the node that refuses them (UL_NONE:
 * another failure). The graph stays until the next attempt. */
static enum ul_status attempt(struct settle *settle, const struct trial_sizes *sizes,
                              ul_node_id *node)
{
    const struct ul_frontend_options *said = settle->said;
    struct ul_frontend_options options = *said;
    struct ul_passes_options passes = {.stop_after = "infer"};
    struct ul_diag diag = {.status = UL_OK};
    struct ul_onnx_model model;
    *node = UL_NONE;
    ul_arena_reset(&settle->arena);
    ul_arena_reset(&settle->scratch);
    struct ul_frontend_dim *dims = UL_NEW_ARRAY(&settle->arena, struct ul_frontend_dim,
                                                (uint64_t)said->dim_count + settle->open_count);
    struct ul_frontend_shape *shapes =
        UL_NEW_ARRAY(&settle->arena, struct ul_frontend_shape, said->shape_count);
    options.dim_count = 0;
    options.dims = dims;
    options.shapes = shapes;
    for (uint32_t i = 0; i < said->shape_count; i++)
        shapes[i] = said->shapes[i];
    for (uint32_t i = 0; i < said->dim_count; i++)
        dims[options.dim_count++] = said->dims[i];
    for (uint32_t i = 0; i < settle->open_count; i++) {
        const struct place *open = &settle->open[i];
        for (uint32_t k = 0; open->name == NULL && k < said->shape_count; k++)
            if (strcmp(shapes[k].input, open->input) == 0)
                shapes[k].dims[open->axis] = sizes->size[i];
        if (open->name != NULL)
            dims[options.dim_count++] =
                (struct ul_frontend_dim){.name = open->name, .size = sizes->size[i]};
    }
    options.is_trial = true;
    options.takes_any_size = settle->takes_any_size;
    enum ul_status status =
        ul_frontend_load(&settle->graph, &settle->arena, settle->path, &options, &model, &diag);
    if (status == UL_OK) {
        status = ul_passes_run(&settle->graph, &settle->scratch, &passes, &diag);
        if (status == UL_INVALID)
            *node = find_refusal(&settle->graph, 0);
    }
    ul_model_done(&model);
    return status;
}

/* ---- What a node accepts ---- */

struct change {
    int64_t from, to;
};

static int64_t changed(int64_t size, const struct change *changes, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (changes[i].from == size)
            return changes[i].to;
    return size;
}

/* The tensor with numbers exchanged; itself where it is too large to be a shape, or of another
 * type. */
static const struct ul_tensor *change_tensor(struct ul_arena *arena, const struct ul_tensor *tensor,
                                             const struct change *changes, uint32_t count)
{
    int64_t values[SMALL_TENSOR];
    uint64_t elements = tensor == NULL ? 0 : ul_type_elements(&tensor->type);
    if (elements == 0 || elements > SMALL_TENSOR || tensor->type.dtype != UL_I64)
        return tensor;
    for (uint64_t i = 0; i < elements; i++)
        values[i] = changed(ul_tensor_get_int(tensor, i), changes, count);
    return ul_tensor_new(arena, &tensor->type, values);
}

static bool stands_before(const struct ul_node *node, uint32_t input)
{
    for (uint32_t i = 0; i < input; i++)
        if (node->inputs[i] == node->inputs[input])
            return true;
    return false;
}

/* Whether the node's rule accepts its inputs with numbers exchanged. The inputs are restored. */
static bool takes(struct settle *settle, ul_node_id id, const struct change *changes,
                  uint32_t count)
{
    struct ul_graph *graph = &settle->graph;
    const struct ul_node *node = &graph->nodes[id];
    struct ul_diag diag = {.status = UL_OK};
    struct ul_value *saved =
        UL_NEW_ARRAY(&settle->arena, struct ul_value, (uint64_t)node->input_count + 1);
    for (uint32_t i = 0; i < node->input_count; i++) {
        if (node->inputs[i] == UL_NONE)
            continue;
        struct ul_value *value = &graph->values[node->inputs[i]];
        saved[i] = *value;
        if (stands_before(node, i)) /* already changed */
            continue;
        for (uint32_t d = 0; d < value->type.rank; d++)
            value->type.dims[d] = changed(value->type.dims[d], changes, count);
        value->tensor = change_tensor(&settle->arena, value->tensor, changes, count);
    }
    bool is_taken = ul_node_infer(graph, id, &settle->scratch, &diag) == UL_OK;
    for (uint32_t i = node->input_count; i-- > 0;)
        if (node->inputs[i] != UL_NONE)
            graph->values[node->inputs[i]] = saved[i];
    return is_taken;
}

/* The numbers in a node's inputs: dimensions, and elements of shapes. */
struct numbers {
    uint32_t count;
    int64_t items[MAX_NUMBERS];
};

static void add_number(struct numbers *numbers, int64_t number)
{
    for (uint32_t i = 0; i < numbers->count; i++)
        if (numbers->items[i] == number)
            return;
    if (number >= 0 && numbers->count < MAX_NUMBERS)
        numbers->items[numbers->count++] = number;
}

static struct numbers list_numbers(const struct ul_graph *graph, const struct ul_node *node)
{
    struct numbers numbers = {.count = 0};
    for (uint32_t i = 0; i < node->input_count; i++) {
        if (node->inputs[i] == UL_NONE)
            continue;
        const struct ul_value *value = &graph->values[node->inputs[i]];
        const struct ul_tensor *tensor = ul_graph_get_constant(graph, node->inputs[i]);
        for (uint32_t d = 0; d < value->type.rank; d++)
            add_number(&numbers, value->type.dims[d]);
        uint64_t elements = tensor == NULL ? 0 : ul_type_elements(&tensor->type);
        if (elements > SMALL_TENSOR || tensor == NULL || tensor->type.dtype != UL_I64)
            continue;
        for (uint64_t e = 0; e < elements; e++)
            add_number(&numbers, ul_tensor_get_int(tensor, e));
    }
    return numbers;
}

/* ---- Which dimension becomes which ---- */

struct choice {
    uint32_t count;
    uint32_t open[MAX_CHANGES]; /* open dimensions, in descending order */
    struct change changes[MAX_CHANGES];
};

struct search {
    struct settle *settle;
    const struct trial_sizes *sizes;
    ul_node_id node;
    struct numbers numbers;
    struct choice choice, found;
    uint32_t found_count; /* accepted choices */
    bool with_one;        /* whether a size may become 1 */
};

static bool has_number(const struct numbers *numbers, int64_t number)
{
    for (uint32_t i = 0; i < numbers->count; i++)
        if (numbers->items[i] == number)
            return true;
    return false;
}

/* A dimension becomes one that is named before it, or a size that belongs to none of them. Any size
 * can be broadcast with 1, so that a node accepts 1 says little. */
static bool may_become(const struct search *search, uint32_t open, int64_t to)
{
    for (uint32_t i = open; i < search->settle->open_count; i++)
        if (search->sizes->number[i] == to)
            return false;
    return to != 1 || search->with_one;
}

static void try_choices(struct search *search, uint32_t below, uint32_t left)
{
    struct choice *choice = &search->choice;
    if (left == 0) {
        if (!takes(search->settle, search->node, choice->changes, choice->count))
            return;
        search->found = *choice;
        search->found_count++;
        return;
    }
    for (uint32_t open = below; open-- > 0;) {
        int64_t from = search->sizes->number[open];
        if (search->sizes->is_merged[open] || !has_number(&search->numbers, from))
            continue;
        for (uint32_t i = 0; i < search->numbers.count; i++) {
            int64_t to = search->numbers.items[i];
            if (to == from || !may_become(search, open, to))
                continue;
            choice->open[choice->count] = open;
            choice->changes[choice->count++] = (struct change){from, to};
            try_choices(search, open, left - 1);
            choice->count--;
        }
    }
}

/* Merges what the refusing node shows; false where that is nothing, or not unique. */
static bool merge(struct settle *settle, struct trial_sizes *sizes, ul_node_id node)
{
    struct search search = {.settle = settle, .sizes = sizes, .node = node};
    search.numbers = list_numbers(&settle->graph, &settle->graph.nodes[node]);
    for (uint32_t step = 0; step < 2 * MAX_CHANGES && search.found_count == 0; step++) {
        search.with_one = step % 2 == 1;
        try_choices(&search, settle->open_count, 1 + step / 2);
    }
    if (search.found_count != 1)
        return false;
    const char *described = ul_node_describe(&settle->graph, node, &settle->compile->keep);
    for (uint32_t i = 0; i < search.found.count; i++) {
        uint32_t open = search.found.open[i];
        sizes->is_merged[open] = true;
        sizes->node[open] = described;
        for (uint32_t k = 0; k < settle->open_count; k++) /* and those that were merged with it */
            if (sizes->size[k] == search.found.changes[i].from)
                sizes->size[k] = search.found.changes[i].to;
    }
    return true;
}

/* Merges until the model accepts the sizes, or shows nothing more. */
static enum ul_status run_trial(struct settle *settle, struct trial_sizes *sizes)
{
    for (;;) {
        ul_node_id node;
        enum ul_status status = attempt(settle, sizes, &node);
        if (status == UL_OK || node == UL_NONE || !merge(settle, sizes, node))
            return status;
    }
}

/* Makes small numbers with small factors, or large ones: numbers that no dimension of a model has
 * by chance. */
static struct trial_sizes make_sizes(uint32_t open_count, bool large)
{
    static const int64_t primes[MAX_OPEN] = {11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53};
    struct trial_sizes sizes = {.number = {0}};
    for (uint32_t i = 0; i < open_count; i++)
        sizes.number[i] = sizes.size[i] = (large ? 192 : 6) * primes[i];
    return sizes;
}

static void init(struct settle *settle, struct ul_compile *compile, const char *path,
                 const struct ul_frontend_options *said)
{
    *settle = (struct settle){.compile = compile, .path = path, .said = said};
    ul_arena_init(&settle->arena);
    ul_arena_init(&settle->scratch);
}

static void done(struct settle *settle)
{
    ul_arena_done(&settle->arena);
    ul_arena_done(&settle->scratch);
}

/* ---- Open dimensions ---- */

static struct place find_place(const struct ul_onnx_model *model, const char *name)
{
    struct place place = {.name = name};
    for (uint32_t i = 0; i < model->input_count; i++) {
        const struct ul_model_port *port = &model->inputs[i];
        for (uint32_t d = 0; port->rank != UL_RANK_UNKNOWN && d < port->rank; d++) {
            if (place.input == NULL && port->dims[d].symbol != NULL &&
                strcmp(port->dims[d].symbol, name) == 0) {
                place.input = port->name;
                place.axis = d;
            }
        }
    }
    return place;
}

/* Lists names that have no size; false where something else has none, or there are too many. */
static bool list_open(struct settle *settle)
{
    const struct ul_onnx_model *model = &settle->compile->model;
    for (uint32_t i = 0; i < model->dimension_count; i++) {
        const struct ul_model_dimension *dimension = &model->dimensions[i];
        if (dimension->size >= 0 || dimension->name_count > 0)
            continue;
        if (settle->open_count == MAX_OPEN)
            return false;
        settle->open[settle->open_count++] = find_place(model, dimension->name);
    }
    return settle->open_count > 0 && !model->has_unnamed_dims;
}

/* An open dimension that has the same size in both trials and must be given, or was found before;
 * UL_NONE: there is none. */
static uint32_t find_same(const struct settle *settle, const struct trial_sizes *small,
                          const struct trial_sizes *large, uint32_t open)
{
    for (uint32_t i = 0; i < settle->open_count; i++) {
        bool is_before = i < open || (!small->is_merged[i] && !large->is_merged[i]);
        if (i != open && is_before && small->size[i] == small->size[open] &&
            large->size[i] == large->size[open])
            return i;
    }
    return UL_NONE;
}

static void add_size(struct ul_compile *compile, const char *name, int64_t size)
{
    struct ul_named_size dim = {.name = name, .rank = 1, .dims = {size}};
    ul_named_sizes_add(&compile->keep, &compile->options.dims, &dim);
    if (compile->asked.base.arena != NULL) /* for further compiles of the model */
        ul_named_sizes_add(&compile->keep, &compile->asked.dims, &dim);
}

/* Records what both trials show of dimensions: a size, that of another dimension, or that it
 * follows from some; that is not known if a node refused the sizes in the end. */
static void tell(struct settle *settle, const struct trial_sizes *small,
                 const struct trial_sizes *large, bool is_refused, struct ul_text *told)
{
    struct ul_arena *arena = &settle->compile->keep;
    for (uint32_t i = 0; i < settle->open_count; i++) {
        uint32_t same = find_same(settle, small, large, i);
        bool is_fixed = small->size[i] == large->size[i] || same != UL_NONE;
        if (!small->is_merged[i] || !large->is_merged[i] || (is_refused && !is_fixed))
            continue;
        const char *name = ul_arena_copy_string(arena, settle->open[i].name);
        ul_text_printf(told, "%sdimension %s ", told->length == 0 ? "" : "; ",
                       ul_quote(arena, name));
        if (small->size[i] == large->size[i]) {
            add_size(settle->compile, name, small->size[i]);
            ul_text_printf(told, "is %lld", (long long)small->size[i]);
        } else if (same != UL_NONE) {
            ul_text_printf(told, "is that of %s", ul_quote(arena, settle->open[same].name));
        } else {
            ul_text_put(told, "follows from others");
        }
        ul_text_printf(told, ", as %s needs it", small->node[i]);
    }
}

const char *ul_compile_settle(struct ul_compile *compile, const char *path)
{
    struct settle settle;
    struct ul_text told;
    ul_text_init(&told, &compile->keep);
    if (strcmp(path, "-") == 0)
        return "";
    init(&settle, compile, path, &compile->given);
    if (list_open(&settle)) {
        struct trial_sizes small = make_sizes(settle.open_count, false);
        struct trial_sizes large = make_sizes(settle.open_count, true);
        bool is_refused = run_trial(&settle, &small) == UL_INVALID;
        is_refused = run_trial(&settle, &large) == UL_INVALID || is_refused;
        tell(&settle, &small, &large, is_refused, &told);
    }
    done(&settle);
    return told.data;
}

/* ---- Sizes that contradict each other ---- */

static const struct ul_model_port *find_port(const struct ul_onnx_model *model, const char *name)
{
    for (uint32_t i = 0; i < model->input_count; i++)
        if (strcmp(model->inputs[i].name, name) == 0)
            return &model->inputs[i];
    return NULL;
}

static bool has_names(const struct ul_model_port *port)
{
    bool has = port != NULL && port->rank != UL_RANK_UNKNOWN;
    for (uint32_t d = 0; has && d < port->rank; d++)
        has = port->dims[d].size >= 0 || port->dims[d].symbol != NULL;
    return has;
}

/* The options with sizes of dimensions in place of shapes, where dimensions have names. */
static struct ul_frontend_options by_name(struct ul_arena *arena, const struct ul_onnx_model *model,
                                          const struct ul_frontend_options *said)
{
    struct ul_frontend_options options = *said;
    uint64_t most = (uint64_t)said->dim_count + (uint64_t)said->shape_count * UL_LIMIT_RANK;
    struct ul_frontend_dim *dims = UL_NEW_ARRAY(arena, struct ul_frontend_dim, most);
    struct ul_frontend_shape *shapes =
        UL_NEW_ARRAY(arena, struct ul_frontend_shape, said->shape_count);
    options.dims = dims;
    options.shapes = shapes;
    options.shape_count = 0;
    for (uint32_t i = 0; i < said->dim_count; i++)
        dims[i] = said->dims[i];
    for (uint32_t i = 0; i < said->shape_count; i++) {
        const struct ul_model_port *port = find_port(model, said->shapes[i].input);
        if (!has_names(port)) {
            shapes[options.shape_count++] = said->shapes[i];
            continue;
        }
        for (uint32_t d = 0; d < port->rank; d++)
            if (port->dims[d].size < 0)
                dims[options.dim_count++] = (struct ul_frontend_dim){
                    .name = port->dims[d].symbol, .size = said->shapes[i].dims[d]};
    }
    return options;
}

/* The options without the sizes that give this dimension. */
static struct ul_frontend_options without(struct ul_arena *arena,
                                          const struct ul_frontend_options *said, const char *name)
{
    struct ul_frontend_options options = *said;
    struct ul_frontend_dim *dims = UL_NEW_ARRAY(arena, struct ul_frontend_dim, said->dim_count);
    options.dims = dims;
    options.dim_count = 0;
    for (uint32_t i = 0; i < said->dim_count; i++)
        if (strcmp(said->dims[i].name, name) != 0)
            dims[options.dim_count++] = said->dims[i];
    return options;
}

/* The size that the model accepts here in place of the one that is given or follows from others,
 * with all others unchanged; -1: none is found. */
static int64_t find_other(struct ul_compile *compile, const char *path,
                          const struct ul_frontend_options *said, const struct place *place,
                          const char **node)
{
    struct settle settle;
    struct ul_frontend_options options =
        place->name == NULL ? *said : without(&compile->keep, said, place->name);
    struct trial_sizes sizes = make_sizes(1, false);
    int64_t size = -1;
    init(&settle, compile, path, &options);
    settle.takes_any_size = place->name != NULL && options.dim_count == said->dim_count;
    settle.open_count = 1;
    settle.open[0] = *place;
    if (run_trial(&settle, &sizes) == UL_OK && sizes.is_merged[0]) {
        size = sizes.size[0];
        *node = sizes.node[0];
    }
    done(&settle);
    return size;
}

/* Writes a line where the model would accept another size there. */
static void put_other(struct ul_compile *compile, const char *path,
                      const struct ul_frontend_options *said, const struct place *place,
                      int64_t size, struct ul_text *text)
{
    const char *node = NULL;
    int64_t other = find_other(compile, path, said, place, &node);
    if (other < 0 || other == size)
        return;
    const char *input = ul_quote(text->arena, place->input);
    if (place->name == NULL)
        ul_text_printf(text, "\n  axis %u of input %s", (unsigned)place->axis, input);
    else
        ul_text_printf(text, "\n  dimension %s (axis %u of input %s)",
                       ul_quote(text->arena, place->name), (unsigned)place->axis, input);
    ul_text_printf(text, " is %lld: %s would take %lld", (long long)size, node, (long long)other);
}

/* Writes lines for dimensions without a name, whose sizes come from shapes of inputs. */
static void put_unnamed(struct ul_compile *compile, const char *path,
                        const struct ul_frontend_options *said, struct ul_text *text)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < said->shape_count; i++) {
        const struct ul_frontend_shape *shape = &said->shapes[i];
        const struct ul_model_port *port = find_port(&compile->model, shape->input);
        for (uint32_t d = 0; port != NULL && d < shape->rank; d++) {
            bool is_open = port->rank == UL_RANK_UNKNOWN ||
                           (port->dims[d].size < 0 && port->dims[d].symbol == NULL);
            struct place place = {.input = shape->input, .axis = d};
            if (is_open && count++ < MAX_OPEN)
                put_other(compile, path, said, &place, shape->dims[d], text);
        }
    }
}

void ul_compile_explain_sizes(struct ul_compile *compile, const char *path, struct ul_diag *diag)
{
    const struct ul_onnx_model *model = &compile->model;
    struct ul_arena *arena = &compile->keep;
    const struct ul_frontend_options said = by_name(arena, model, &compile->given);
    struct ul_text text;
    ul_text_init(&text, arena);
    if (strcmp(path, "-") == 0 || model->dimension_count > MAX_OPEN)
        return;
    for (uint32_t i = 0; i < model->dimension_count; i++) {
        const struct ul_model_dimension *dimension = &model->dimensions[i];
        struct place place = find_place(model, dimension->name);
        if (dimension->size >= 0 && place.input != NULL)
            put_other(compile, path, &said, &place, dimension->size, &text);
    }
    put_unnamed(compile, path, &said, &text);
    if (text.length == 0)
        return;
    const char *was = ul_arena_copy_string(arena, diag->text);
    *diag = (struct ul_diag){.status = UL_OK};
    (void)!ul_diag_set(diag, UL_USAGE, "sizes contradict each other; change one:%s\n%s", text.data,
                       was);
}
