/* SPDX-License-Identifier: Apache-2.0 */
/* The options of a command for several models: a size, a constant, a state goes to the models that
 * have what it names; what names parts of one model is refused. */
#include "compile/suite.h"

#include <ctype.h>
#include <string.h>

/* ---- what is not for several models ---- */

static enum ul_status refuse_options(struct ul_compile *command)
{
    static const char *const of_one[] = {"plan",          "stop-after", "print-after",
                                         "print-kernels", "output",     "split",
                                         "row-major",     "inside",     "max-batch",
                                         "max-dim",       "device",     "quantize-activations",
                                         "calibration",   "offload",    "offload-budget"};
    const struct ul_options *options = &command->options.base;
    if (command->options.train)
        return ul_diag_set(
            &command->diag, UL_UNSUPPORTED,
            "--shared is for models that are run: a trainer has an arena of its own; "
            "leave out --train or --shared");
    for (size_t i = 0; i < sizeof of_one / sizeof *of_one; i++) {
        const struct ul_option *row = ul_option_find(options->table, of_one[i]);
        UL_ASSERT(row != NULL);
        if (ul_option_is_given(options, row))
            return ul_diag_set(&command->diag, UL_USAGE,
                               "--%s is of one model: leave out that, or --shared", row->name);
    }
    return UL_OK;
}

/* ---- prefixes ---- */

static bool is_same_prefix(const char *a, const char *b)
{
    while (*a != '\0' && toupper((unsigned char)*a) == toupper((unsigned char)*b)) {
        a++;
        b++;
    }
    return *a == *b;
}

static bool is_of_runtime(const char *prefix)
{
    return toupper((unsigned char)prefix[0]) == 'U' && toupper((unsigned char)prefix[1]) == 'L' &&
           (prefix[2] == '_' || prefix[2] == '\0');
}

/* Macros of a header are in capitals, and those of the runtime and of shared.h are taken. */
static bool is_taken(const struct ul_suite *suite, uint32_t count, const char *prefix)
{
    bool taken = is_of_runtime(prefix) || is_same_prefix(prefix, "shared");
    for (uint32_t i = 0; i < count; i++)
        taken = taken || is_same_prefix(prefix, suite->models[i].prefix);
    return taken;
}

/* The file's name, without folders and ".onnx", as an identifier of C. */
static const char *prefix_of(struct ul_suite *suite, uint32_t model)
{
    enum { MAX_LETTERS = 40 };
    const char *path = suite->models[model].path;
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;
    struct ul_arena *arena = &suite->command->keep;
    size_t length = strlen(name);
    if (length > 5 && strcmp(name + length - 5, ".onnx") == 0)
        length -= 5;
    length = length < MAX_LETTERS ? length : MAX_LETTERS;
    if (length == 0)
        return "model";
    char *prefix = ul_arena_printf(arena, "m%.*s", (int)length, name);
    for (char *at = prefix; *at != '\0'; at++) {
        bool is_letter =
            (*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z') || (*at >= '0' && *at <= '9');
        *at = is_letter ? *at : '_';
    }
    bool needs_letter = isdigit((unsigned char)prefix[1]) || is_of_runtime(prefix + 1);
    return needs_letter ? prefix : prefix + 1;
}

static void choose_prefixes(struct ul_suite *suite)
{
    for (uint32_t i = 0; i < suite->count; i++) {
        const char *wanted = prefix_of(suite, i);
        const char *prefix = wanted;
        for (uint32_t number = 2; is_taken(suite, i, prefix); number++)
            prefix = ul_arena_printf(&suite->command->keep, "%s_%u", wanted, number);
        suite->models[i].prefix = prefix;
    }
}

/* --prefix A,B: one for each model, in order. */
static enum ul_status read_prefixes(struct ul_suite *suite)
{
    struct ul_compile *command = suite->command;
    const char *at = command->options.prefix;
    for (uint32_t i = 0; i < suite->count; i++) {
        size_t length = strcspn(at, ",");
        const char *prefix = ul_arena_printf(&command->keep, "%.*s", (int)length, at);
        bool is_last = at[length] == '\0';
        if (!ul_compile_is_prefix(prefix) || is_taken(suite, i, prefix) ||
            is_last != (i + 1 == suite->count))
            return ul_diag_set(
                &command->diag, UL_USAGE,
                "--prefix %s: expected %u identifiers of C with commas between, none "
                "of them twice, nor ul or shared",
                ul_option_shown(&command->keep, command->options.prefix), suite->count);
        suite->models[i].prefix = prefix;
        at += length + !is_last;
    }
    return UL_OK;
}

/* ---- what a model has ---- */

/* The names of its open dimensions, inputs or outputs. */
enum part { DIMENSIONS, INPUTS, OUTPUTS };

static void list_parts(struct ul_arena *arena, const struct ul_onnx_model *model, enum part part,
                       struct ul_texts *names)
{
    bool of_outputs = part == OUTPUTS;
    const struct ul_model_port *ports = of_outputs ? model->outputs : model->inputs;
    uint32_t count = part == DIMENSIONS ? model->dimension_count
                     : of_outputs       ? model->output_count
                                        : model->input_count;
    for (uint32_t i = 0; i < count; i++)
        ul_texts_add(arena, names,
                     ul_arena_copy_string(arena, part == DIMENSIONS ? model->dimensions[i].name
                                                                    : ports[i].name));
}

struct parts {
    struct ul_texts names[OUTPUTS + 1];
};

/* What the file says of its inputs is known even where their sizes are open. */
static enum ul_status read_parts(struct ul_suite *suite, uint32_t model, struct parts *parts)
{
    struct ul_compile *command = suite->command;
    struct ul_compile probe;
    *parts = (struct parts){.names = {{.count = 0}}};
    ul_compile_init(&probe);
    enum ul_status status = ul_compile_load(&probe, suite->models[model].path);
    if (status != UL_OK && !probe.model.has_open_dims)
        command->diag = probe.diag;
    else
        status = UL_OK;
    for (uint32_t part = 0; status == UL_OK && part <= OUTPUTS; part++)
        list_parts(&command->keep, &probe.model, (enum part)part, &parts->names[part]);
    ul_compile_done(&probe);
    return status;
}

static bool has_name(const struct ul_texts *names, const char *name)
{
    for (uint32_t i = 0; i < names->count; i++) {
        if (strcmp(names->items[i], name) == 0)
            return true;
    }
    return false;
}

/* ---- options by name ---- */

static enum ul_status refuse_name(struct ul_suite *suite, const struct parts *parts, enum part part,
                                  const char *option, const char *name)
{
    static const char *const what[] = {"dimension", "input", "output"};
    struct ul_arena *arena = &suite->command->keep;
    struct ul_text text;
    ul_text_init(&text, arena);
    for (uint32_t m = 0; m < suite->count; m++) {
        const struct ul_texts *names = &parts[m].names[part];
        ul_text_printf(&text, "%s %s has", m == 0 ? "" : ";", suite->models[m].path);
        for (uint32_t i = 0; i < names->count; i++)
            ul_text_printf(&text, "%s %s", i == 0 ? "" : ",", ul_quote(arena, names->items[i]));
        ul_text_put(&text, names->count == 0 ? " none" : "");
    }
    return ul_diag_set(
        &suite->command->diag, UL_USAGE, "--%s %s: none of the models has such %s %s:%s", option,
        ul_option_shown(arena, name), part == DIMENSIONS ? "a" : "an", what[part], text.data);
}

static enum ul_status give_sizes(struct ul_suite *suite, const struct parts *parts, enum part part,
                                 const char *option, const struct ul_named_sizes *list)
{
    for (uint32_t i = 0; i < list->count; i++) {
        bool is_used = false;
        for (uint32_t m = 0; m < suite->count; m++) {
            struct ul_suite_model *model = &suite->models[m];
            if (!has_name(&parts[m].names[part], list->items[i].name))
                continue;
            is_used = true;
            ul_named_sizes_add(&suite->command->keep,
                               part == DIMENSIONS ? &model->dims : &model->shapes, &list->items[i]);
        }
        if (!is_used)
            return refuse_name(suite, parts, part, option, list->items[i].name);
    }
    return UL_OK;
}

static enum ul_status give_pairs(struct ul_suite *suite, const struct parts *parts, enum part part,
                                 const char *option, const struct ul_pairs *list)
{
    for (uint32_t i = 0; i < list->count; i++) {
        const struct ul_pair *pair = &list->items[i];
        bool is_used = false;
        for (uint32_t m = 0; m < suite->count; m++) {
            struct ul_suite_model *model = &suite->models[m];
            if (!has_name(&parts[m].names[part], pair->name))
                continue;
            is_used = true;
            ul_pairs_add(&suite->command->keep, part == INPUTS ? &model->consts : &model->donations,
                         pair->name, pair->value);
        }
        if (!is_used)
            return refuse_name(suite, parts, part, option, pair->name);
    }
    return UL_OK;
}

static enum ul_status give_options(struct ul_suite *suite)
{
    const struct ul_compile_options *options = &suite->command->options;
    struct parts *parts = UL_NEW_ARRAY(&suite->command->keep, struct parts, suite->count);
    if (options->dims.count + options->shapes.count + options->consts.count +
            options->donations.count ==
        0)
        return UL_OK;
    for (uint32_t m = 0; m < suite->count; m++)
        UL_TRY(read_parts(suite, m, &parts[m]));
    UL_TRY(give_sizes(suite, parts, DIMENSIONS, "dim", &options->dims));
    UL_TRY(give_sizes(suite, parts, INPUTS, "shape", &options->shapes));
    UL_TRY(give_pairs(suite, parts, INPUTS, "const", &options->consts));
    return give_pairs(suite, parts, OUTPUTS, "donate", &options->donations);
}

enum ul_status ul_suite_build(struct ul_suite *suite, struct ul_compile *command,
                              const struct ul_texts *paths)
{
    *suite = (struct ul_suite){.command = command, .count = paths->count};
    UL_TRY(refuse_options(command));
    if (paths->count < 2 || paths->count > UL_SUITE_MAX_MODELS)
        return ul_diag_set(&command->diag, UL_USAGE,
                           "--shared is for several models, 2 to %d: give them, or leave --shared "
                           "out",
                           UL_SUITE_MAX_MODELS);
    suite->models = UL_NEW_ARRAY(&command->keep, struct ul_suite_model, paths->count);
    for (uint32_t i = 0; i < paths->count; i++) {
        suite->models[i].path = paths->items[i];
        if (strcmp(paths->items[i], "-") == 0)
            return ul_diag_set(&command->diag, UL_USAGE,
                               "--shared reads a model more than once: give files, not -");
    }
    if (command->options.prefix != NULL)
        UL_TRY(read_prefixes(suite));
    else
        choose_prefixes(suite);
    return give_options(suite);
}
