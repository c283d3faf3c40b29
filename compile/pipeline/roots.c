/* SPDX-License-Identifier: Apache-2.0 */
/* Several models as the roots of one program.
 *
 *     A.onnx -> load -> passes up to own --+
 *                                          +-> join -> cse -> own -> layout -> ... -> program
 *     B.onnx -> load -> passes up to own --+
 *
 * Each file is read and simplified by a compile of its own, since those passes need one model: its
 * sizes, its types, its constants. After them the graphs become one, in which equal weights are one
 * value; the passes that choose layouts, views and kernels see all roots. Left undone: constants
 * that two models fold into different ones are stored twice. */
#include "compile/compile_internal.h"
#include "compile/options/size_list.h"

#include <ctype.h>
#include <string.h>

enum { MAX_ROOTS = 64 };

/* ---- options of one model ---- */

enum ul_status ul_compile_check_roots(struct ul_compile *compile)
{
    static const char *const of_one[] = {"stop-after", "output", "max-batch",
                                         "max-dim",    "device", "quantize-activations",
                                         "calibration"};
    const struct ul_options *options = &compile->options.base;
    if (compile->options.train)
        return ul_diag_set(
            &compile->diag, UL_UNSUPPORTED,
            "--shared is for models that are run: a trainer has an arena of its own; "
            "leave out --train or --shared");
    for (size_t i = 0; i < sizeof of_one / sizeof *of_one; i++) {
        const struct ul_option *row = ul_option_find(options->table, of_one[i]);
        UL_ASSERT(row != NULL);
        if (ul_option_is_given(options, row))
            return ul_diag_set(&compile->diag, UL_USAGE,
                               "--%s is of one model: leave out that, or --shared", row->name);
    }
    return UL_OK;
}

/* ---- names ---- */

static bool is_same_name(const char *a, const char *b)
{
    while (*a != '\0' && toupper((unsigned char)*a) == toupper((unsigned char)*b)) {
        a++;
        b++;
    }
    return *a == *b;
}

static bool is_of_runtime(const char *name)
{
    return toupper((unsigned char)name[0]) == 'U' && toupper((unsigned char)name[1]) == 'L' &&
           (name[2] == '_' || name[2] == '\0');
}

/* Macros of a header are in capitals, and files of the library have names too. */
static bool is_taken(const struct ul_compile *compile, uint32_t count, const char *name)
{
    static const char *const names[] = {
        UL_ROOTS_PREFIX, "library", "weights", "rom", "kernels",
        /* headers of C, which a caller with -I of the folder would find there */
        "assert", "complex", "ctype", "errno", "fenv", "float", "inttypes", "iso646", "limits",
        "locale", "math", "setjmp", "signal", "stdalign", "stdarg", "stdatomic", "stdbool",
        "stddef", "stdint", "stdio", "stdlib", "stdnoreturn", "string", "tgmath", "threads", "time",
        "uchar", "wchar", "wctype"};
    bool taken = is_of_runtime(name);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        taken = taken || is_same_name(name, names[i]);
    for (uint32_t i = 0; i < count; i++)
        taken = taken || is_same_name(name, compile->roots[i].name);
    return taken;
}

/* The file's name, without folders and ".onnx", as an identifier of C. */
static const char *name_of_file(struct ul_arena *arena, const char *path)
{
    enum { MAX_LETTERS = 40 };
    const char *file = ul_file_name(path);
    size_t length = strlen(file);
    if (length > 5 && strcmp(file + length - 5, ".onnx") == 0)
        length -= 5;
    length = length < MAX_LETTERS ? length : MAX_LETTERS;
    if (length == 0)
        return "model";
    char *name = ul_arena_printf(arena, "m%.*s", (int)length, file);
    for (char *at = name; *at != '\0'; at++)
        *at = isalnum((unsigned char)*at) && (unsigned char)*at < 128 ? *at : '_';
    bool needs_letter = isdigit((unsigned char)name[1]) || is_of_runtime(name + 1);
    return needs_letter ? name : name + 1;
}

static void choose_names(struct ul_compile *compile)
{
    for (uint32_t r = 0; r < compile->root_count; r++) {
        const char *wanted = name_of_file(&compile->keep, compile->roots[r].path);
        const char *name = wanted;
        for (uint32_t number = 2; is_taken(compile, r, name); number++)
            name = ul_arena_printf(&compile->keep, "%s_%u", wanted, number);
        compile->roots[r].name = name;
    }
}

/* --prefix A,B: a name for each model, in order. */
static enum ul_status read_names(struct ul_compile *compile)
{
    const char *at = compile->options.prefix;
    for (uint32_t r = 0; r < compile->root_count; r++) {
        size_t length = strcspn(at, ",");
        const char *name = ul_arena_printf(&compile->keep, "%.*s", (int)length, at);
        bool is_last = at[length] == '\0';
        if (!ul_compile_is_prefix(name) || is_taken(compile, r, name) ||
            is_last != (r + 1 == compile->root_count))
            return ul_diag_set(
                &compile->diag, UL_USAGE,
                "--prefix %s: expected %u identifiers of C with commas between, none "
                "of them twice, nor ul or " UL_ROOTS_PREFIX,
                ul_option_shown(&compile->keep, compile->options.prefix), compile->root_count);
        compile->roots[r].name = name;
        at += length + !is_last;
    }
    return UL_OK;
}

/* Takes the names of the plan, which its options and steps use. Older plans do not name their
 * models. */
static enum ul_status take_names(struct ul_compile *compile)
{
    const struct ul_saved *header = &compile->plan_header;
    struct ul_text names;
    ul_text_init(&names, &compile->keep);
    for (uint32_t m = 0; m < header->model_count; m++)
        ul_text_printf(&names, "%s%s", m == 0 ? "" : ", ", header->models[m].name);
    bool is_good = header->model_count == compile->root_count;
    for (uint32_t r = 0; is_good && r < compile->root_count; r++) {
        const char *name = header->models[r].name;
        is_good = ul_compile_is_prefix(name) && !is_taken(compile, r, name);
        compile->roots[r].name = name;
    }
    if (is_good)
        return UL_OK;
    return ul_diag_set(&compile->diag, UL_MISMATCH,
                       "%s: is of %u models, %s: give those, in that order", compile->options.plan,
                       header->model_count, ul_quote(&compile->keep, names.data));
}

/* ---- parts of a model ---- */

/* The names of its open dimensions, inputs or outputs. */
enum part { DIMENSIONS, INPUTS, OUTPUTS, PARTS };

struct parts {
    struct ul_texts names[PARTS];
};

static void list_parts(struct ul_arena *arena, const struct ul_onnx_model *model,
                       struct parts *parts)
{
    for (uint32_t i = 0; i < model->dimension_count; i++)
        ul_texts_add(arena, &parts->names[DIMENSIONS],
                     ul_arena_copy_string(arena, model->dimensions[i].name));
    for (uint32_t i = 0; i < model->input_count; i++)
        ul_texts_add(arena, &parts->names[INPUTS],
                     ul_arena_copy_string(arena, model->inputs[i].name));
    for (uint32_t i = 0; i < model->output_count; i++)
        ul_texts_add(arena, &parts->names[OUTPUTS],
                     ul_arena_copy_string(arena, model->outputs[i].name));
}

static enum ul_status read_parts(struct ul_compile *compile, uint32_t root, struct parts *parts)
{
    struct ul_compile probe;
    ul_compile_init(&probe);
    enum ul_status status = ul_compile_load_ports(&probe, compile->roots[root].path);
    if (status == UL_OK)
        list_parts(&compile->keep, &probe.model, parts);
    else
        compile->diag = probe.diag;
    ul_compile_done(&probe);
    return status;
}

/* ---- options by name ---- */

struct reader {
    struct ul_compile *compile;
    struct parts *parts; /* by root */
};

/* The part of a root that an option names: "seq" in any root that has it, "decode:seq" that of
 * decode, which comes before a name for all. NULL: none. */
static const char *name_in(const struct reader *reader, uint32_t root, enum part part,
                           const char *said, bool *is_own)
{
    const char *name = reader->compile->roots[root].name;
    const struct ul_texts *names = &reader->parts[root].names[part];
    size_t length = strlen(name);
    *is_own = strncmp(said, name, length) == 0 && said[length] == ':' &&
              ul_texts_have(names, said + length + 1);
    if (*is_own)
        return said + length + 1;
    return ul_texts_have(names, said) ? said : NULL;
}

static enum ul_status refuse_name(const struct reader *reader, enum part part, const char *option,
                                  const char *said)
{
    static const char *const what[] = {"a dimension", "an input", "an output"};
    struct ul_compile *compile = reader->compile;
    struct ul_arena *arena = &compile->keep;
    struct ul_text text;
    ul_text_init(&text, arena);
    for (uint32_t r = 0; r < compile->root_count; r++) {
        const struct ul_texts *names = &reader->parts[r].names[part];
        ul_text_printf(&text, "%s %s has", r == 0 ? "" : ";", compile->roots[r].name);
        for (uint32_t i = 0; i < names->count; i++)
            ul_text_printf(&text, "%s %s", i == 0 ? "" : ",", ul_quote(arena, names->items[i]));
        ul_text_put(&text, names->count == 0 ? " none" : "");
    }
    return ul_diag_set(&compile->diag, UL_USAGE, "--%s %s: none of the models has such %s:%s",
                       option, ul_option_shown(arena, said), what[part], text.data);
}

static struct ul_named_sizes *sizes_of(struct ul_compile *compile, uint32_t root, enum part part)
{
    struct ul_compile_options *options = &compile->roots[root].part->options;
    return part == DIMENSIONS ? &options->dims : &options->shapes;
}

/* Names for one root come first; where that root has any, the others do not count for it. */
static enum ul_status give_sizes(const struct reader *reader, enum part part, const char *option,
                                 const struct ul_named_sizes *list)
{
    struct ul_compile *compile = reader->compile;
    bool *used = UL_NEW_ARRAY(&compile->keep, bool, list->count);
    for (uint32_t turn = 0; turn < 2; turn++) {
        for (uint32_t i = 0; i < list->count; i++) {
            for (uint32_t r = 0; r < compile->root_count; r++) {
                bool is_own;
                struct ul_named_size size = list->items[i];
                struct ul_named_sizes *sizes = sizes_of(compile, r, part);
                size.name = name_in(reader, r, part, size.name, &is_own);
                if (size.name == NULL || is_own != (turn == 0))
                    continue;
                used[i] = true;
                if (is_own || ul_named_sizes_find(sizes, size.name) == NULL)
                    ul_named_sizes_add(&compile->keep, sizes, &size);
            }
        }
    }
    for (uint32_t i = 0; i < list->count; i++) {
        if (!used[i])
            return refuse_name(reader, part, option, list->items[i].name);
    }
    return UL_OK;
}

static enum ul_status give_pairs(const struct reader *reader, enum part part, const char *option,
                                 const struct ul_pairs *list)
{
    struct ul_compile *compile = reader->compile;
    for (uint32_t i = 0; i < list->count; i++) {
        bool is_used = false, is_own;
        for (uint32_t r = 0; r < compile->root_count; r++) {
            struct ul_compile_options *options = &compile->roots[r].part->options;
            const char *name = name_in(reader, r, part, list->items[i].name, &is_own);
            if (name == NULL)
                continue;
            is_used = true;
            ul_pairs_add(&compile->keep, part == INPUTS ? &options->consts : &options->donations,
                         name, list->items[i].value);
        }
        if (!is_used)
            return refuse_name(reader, part, option, list->items[i].name);
    }
    return UL_OK;
}

static enum ul_status give_options(struct ul_compile *compile)
{
    const struct ul_compile_options *options = &compile->options;
    const struct reader reader = {compile,
                                  UL_NEW_ARRAY(&compile->keep, struct parts, compile->root_count)};
    if (options->dims.count + options->shapes.count + options->consts.count +
            options->donations.count ==
        0)
        return UL_OK;
    for (uint32_t r = 0; r < compile->root_count; r++)
        UL_TRY(read_parts(compile, r, &reader.parts[r]));
    UL_TRY(give_sizes(&reader, DIMENSIONS, "dim", &options->dims));
    UL_TRY(give_sizes(&reader, INPUTS, "shape", &options->shapes));
    UL_TRY(give_pairs(&reader, INPUTS, "const", &options->consts));
    return give_pairs(&reader, OUTPUTS, "donate", &options->donations);
}

/* ---- each model, and all of them ---- */

static void tell(void *context, const char *what)
{
    ul_compile_progress(context, what);
}

/* A compile of one root's file, with all options except those that name parts of one. */
static struct ul_compile *new_part(struct ul_compile *compile)
{
    struct ul_compile *part = UL_NEW(&compile->keep, struct ul_compile);
    ul_compile_init(part);
    ul_options_copy(&part->options.base, &compile->options.base, sizeof part->options);
    part->options.dims = part->options.shapes = (struct ul_named_sizes){.count = 0};
    part->options.consts = part->options.donations = (struct ul_pairs){.count = 0};
    part->options.links = (struct ul_pairs){.count = 0};
    part->profile = compile->profile;
    part->libraries = compile->libraries;
    part->earlier = compile;
    part->is_root = true;
    part->is_trial = compile->is_trial;
    part->largest = ul_compile_is_sized(compile) ? &compile->graph : NULL;
    part->dump = compile->dump;
    part->progress = tell;
    part->progress_context = compile;
    return part;
}

/* One program can store f32 in only one kind of 16 bits. */
static enum ul_status check_storage(struct ul_compile *compile)
{
    uint32_t first = UL_NONE;
    for (uint32_t r = 0; r < compile->root_count; r++) {
        enum ul_dtype declared = ul_graph_declared(&compile->roots[r].part->graph);
        if (declared == UL_DTYPE_NONE)
            continue;
        first = first == UL_NONE ? r : first;
        enum ul_dtype before = ul_graph_declared(&compile->roots[first].part->graph);
        if (declared != before)
            return ul_diag_set(&compile->diag, UL_UNSUPPORTED,
                               "%s is a model of %s, and %s of %s: one program stores one of them; "
                               "compile these two apart",
                               compile->roots[first].path, ul_dtype_get(before)->name,
                               compile->roots[r].path, ul_dtype_get(declared)->name);
    }
    return UL_OK;
}

/* Describes all models together; pieces have one. */
static void describe_models(struct ul_compile *compile)
{
    struct ul_text paths, digests, notices;
    if (compile->pieces != NULL) {
        const struct ul_compile *part = compile->roots[compile->root_count - 1].part;
        compile->model = part->model;
        compile->notice = part->notice;
        compile->weight_elements = part->weight_elements;
        return;
    }
    ul_text_init(&paths, &compile->keep);
    ul_text_init(&digests, &compile->keep);
    ul_text_init(&notices, &compile->keep);
    for (uint32_t r = 0; r < compile->root_count; r++) {
        const struct ul_compile_root *root = &compile->roots[r];
        ul_text_printf(&paths, "%s%s", r == 0 ? "" : " ", ul_file_name(root->path));
        ul_text_put(&digests, root->part->model.sha256);
        if (root->part->notice != NULL)
            ul_text_printf(&notices, "%s%s: %s", notices.length == 0 ? "" : "; ", root->name,
                           root->part->notice);
    }
    compile->model =
        (struct ul_onnx_model){.path = paths.data,
                               .opset_count = compile->roots[0].part->model.opset_count,
                               .opsets = compile->roots[0].part->model.opsets};
    ul_hash_hex(digests.data, digests.length, compile->model.sha256);
    compile->notice = notices.length > 0 ? notices.data : NULL;
}

enum ul_status ul_compile_read_roots(struct ul_compile *compile, const struct ul_texts *paths)
{
    if (paths->count > MAX_ROOTS)
        return ul_diag_set(&compile->diag, UL_USAGE, "--shared is for 2 to %d models", MAX_ROOTS);
    compile->root_count = paths->count;
    compile->roots = UL_NEW_ARRAY(&compile->keep, struct ul_compile_root, paths->count);
    for (uint32_t r = 0; r < paths->count; r++) {
        compile->roots[r].path = paths->items[r];
        if (strcmp(paths->items[r], "-") == 0)
            return ul_diag_set(&compile->diag, UL_USAGE,
                               "--shared reads a model more than once: give files, not -");
    }
    if (compile->options.prefix != NULL)
        UL_TRY(read_names(compile));
    else if (compile->plan_header.model_count > 0)
        UL_TRY(take_names(compile));
    else
        choose_names(compile);
    for (uint32_t r = 0; r < paths->count; r++)
        compile->roots[r].part = new_part(compile);
    return give_options(compile);
}

/* ---- pieces of a range of sizes ---- */

/* Whether a part has been read with the same sizes before. */
static struct ul_compile *find_part(const struct ul_compile *compile, uint32_t root,
                                    const int64_t *point)
{
    const struct ul_compile *earlier = compile->earlier;
    if (earlier == NULL || earlier->pieces != compile->pieces || earlier->root_count <= root)
        return NULL;
    struct ul_compile *part = earlier->roots[root].part;
    uint64_t bytes = compile->pieces->size_count * sizeof *point;
    return memcmp(part->point, point, bytes) == 0 ? part : NULL;
}

void ul_compile_list_pieces(struct ul_compile *compile, const char *path)
{
    const struct ul_size_pieces *pieces = compile->pieces;
    const struct ul_compile_options *options = &compile->options;
    compile->root_count = pieces->count;
    compile->roots = UL_NEW_ARRAY(&compile->keep, struct ul_compile_root, pieces->count);
    for (uint32_t r = 0; r < pieces->count; r++) {
        struct ul_compile_root *root = &compile->roots[r];
        int64_t *point = UL_NEW_ARRAY(&compile->keep, int64_t, pieces->size_count);
        for (uint32_t s = 0; s < pieces->size_count; s++)
            point[s] = pieces->items[r][s].high;
        if (compile->point != NULL)
            ul_size_piece_nearest(pieces->items[r], pieces->size_count, compile->point, point);
        root->path = path;
        root->name = ul_arena_printf(&compile->keep, "piece%u", r);
        root->part = find_part(compile, r, point);
        root->is_borrowed = root->part != NULL;
        if (root->is_borrowed)
            continue;
        root->part = new_part(compile);
        root->part->point = point;
        root->part->lender = compile->lender != NULL ? compile->lender
                             : r > 0                 ? &compile->roots[0].part->model
                                                     : NULL;
        root->part->options.dims = options->dims;
        root->part->options.shapes = options->shapes;
        root->part->options.consts = options->consts;
        root->part->options.donations = options->donations;
        ul_size_set(root->part, point);
    }
}

/* ---- links ---- */

/* The root that "NAME:..." begins with; *rest is what follows. UL_NONE: there is none. */
static uint32_t root_in(const struct ul_compile *compile, const char *said, const char **rest)
{
    for (uint32_t r = 0; r < compile->root_count; r++) {
        size_t length = strlen(compile->roots[r].name);
        if (strncmp(said, compile->roots[r].name, length) == 0 && said[length] == ':') {
            *rest = said + length + 1;
            return r;
        }
    }
    return UL_NONE;
}

static const char *list_names(struct ul_compile *compile)
{
    struct ul_text text;
    ul_text_init(&text, &compile->keep);
    for (uint32_t r = 0; r < compile->root_count; r++)
        ul_text_printf(&text, "%s%s", r == 0 ? "" : ", ", compile->roots[r].name);
    return text.data;
}

static enum ul_status link_all(struct ul_compile *compile)
{
    const struct ul_pairs *links = &compile->options.links;
    for (uint32_t i = 0; i < links->count; i++) {
        const char *input, *output;
        uint32_t root = root_in(compile, links->items[i].name, &input);
        uint32_t from = root_in(compile, links->items[i].value, &output);
        const char *shown = ul_arena_printf(&compile->keep, "--link %s=%s", links->items[i].name,
                                            links->items[i].value);
        if (root == UL_NONE || from == UL_NONE)
            return ul_diag_set(&compile->diag, UL_USAGE,
                               "%s: expected MODEL:INPUT=MODEL:OUTPUT; the models are %s", shown,
                               list_names(compile));
        enum ul_status status =
            ul_graph_link(&compile->graph, root, input, from, output, &compile->diag);
        if (status != UL_OK) {
            ul_diag_prefix(&compile->diag, shown);
            return status;
        }
    }
    return UL_OK;
}

enum ul_status ul_compile_join_roots(struct ul_compile *compile, const struct ul_target *target)
{
    struct ul_arena *keep = &compile->keep;
    const struct ul_graph **graphs =
        UL_NEW_ARRAY(keep, const struct ul_graph *, compile->root_count);
    const char **names = UL_NEW_ARRAY(keep, const char *, compile->root_count);
    for (uint32_t r = 0; r < compile->root_count; r++) {
        struct ul_compile *part = compile->roots[r].part;
        enum ul_status status = compile->roots[r].is_borrowed
                                    ? UL_OK
                                    : ul_compile_read_model(part, compile->roots[r].path, target);
        if (status != UL_OK) {
            compile->diag = part->diag;
            return status;
        }
        graphs[r] = &part->graph;
        names[r] = compile->roots[r].name;
        compile->weight_elements += part->weight_elements;
    }
    UL_TRY(check_storage(compile));
    describe_models(compile);
    ul_graph_join(&compile->graph, keep, graphs, names, compile->root_count);
    UL_TRY(link_all(compile));
    return ul_compile_rewrite_joined(compile, target);
}
