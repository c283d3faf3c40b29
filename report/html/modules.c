/* SPDX-License-Identifier: Apache-2.0 */
/* Section 8: the bytes at the peak by module, a tree of name scopes.
 *
 * Exporters write scopes as "/layer1/layer1.0/conv1/Conv" for nodes and "layer1.0.conv1.weight" for
 * weights: both are layer1, 0, conv1. The node's or weight's own name is left out. A weight without
 * a scope goes to the module of the step that reads it first. */
#include "report/html/html.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 12, MAX_ROWS = 3000, MAX_BARS = 300 };

enum kind { WEIGHTS, STATE, ACTIVATIONS, PEAK, KIND_COUNT };

struct item {
    const char *path; /* scopes, each followed by a newline */
    uint32_t range;
    uint64_t bytes[KIND_COUNT];
};

/* ---- From names to paths ---- */

struct path {
    struct ul_text text;
    uint32_t depth;
};

static void add_scope(struct path *path, const char *scope, size_t length)
{
    if (length == 0)
        return;
    if (path->depth >= MAX_DEPTH) { /* the rest becomes one scope with slashes in it */
        path->text.data[path->text.length - 1] = '/';
    }
    path->depth++;
    for (size_t i = 0; i < length; i++)
        ul_text_put_bytes(&path->text, scope[i] == '\n' ? " " : scope + i, 1);
    ul_text_put(&path->text, "\n");
}

/* "h.0" after "h" becomes "0". */
static void add_element(struct path *path, const char *element, size_t length, const char *before,
                        size_t before_length)
{
    if (before_length > 0 && length > before_length + 1 && element[before_length] == '.' &&
        memcmp(element, before, before_length) == 0) {
        element += before_length + 1;
        length -= before_length + 1;
    }
    for (size_t at = 0; at < length;) {
        size_t part = 0;
        while (at + part < length && element[at + part] != '.')
            part++;
        add_scope(path, element + at, part);
        at += part + 1;
    }
}

/* Makes the path of the first `length` bytes. */
static const char *make_path(struct ul_arena *arena, const char *name, size_t length)
{
    struct path path = {.depth = 0};
    const char *before = "";
    size_t before_length = 0;
    ul_text_init(&path.text, arena);
    for (size_t at = 0; at < length;) {
        size_t part = 0;
        while (at + part < length && name[at + part] != '/')
            part++;
        add_element(&path, name + at, part, before, before_length);
        before = name + at;
        before_length = part;
        at += part + 1;
    }
    return path.text.data;
}

/* Finds the last such character before `length`; 0: there is none. */
static size_t cut_last(const char *name, size_t length, char at)
{
    while (length > 0 && name[length - 1] != at)
        length--;
    return length > 0 ? length - 1 : 0;
}

/* The length of a node's name without the suffixes of the backward pass and of updates. */
static size_t plain_length(const char *name)
{
    static const char *const ends[] = {"/gradient", "/norm", "/update"};
    size_t length = strlen(name);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        size_t end = strlen(ends[i]);
        if (length > end && strcmp(name + length - end, ends[i]) == 0)
            return length - end;
    }
    return length;
}

static const char *path_of_node(struct ul_arena *arena, const char *node)
{
    size_t length = plain_length(node);
    bool is_update = node[length] != '\0' && strcmp(node + length, "/update") == 0;
    return make_path(arena, node, cut_last(node, length, is_update && node[0] != '/' ? '.' : '/'));
}

static const char *path_of_range(struct ul_page *page, const struct ul_saved_range *range)
{
    const struct ul_saved *saved = page->saved;
    const struct ul_saved_step *maker = ul_saved_maker(saved, range);
    const char *name = range->name;
    size_t length = strlen(name);
    if (maker != NULL)
        return path_of_node(page->arena, maker->node);
    if (range->class == UL_PLAN_OPTIMIZER && strchr(name, '/') != NULL)
        length = cut_last(name, length, '/');
    if (name[0] == '/')
        return make_path(page->arena, name, cut_last(name, length, '/'));
    if (memchr(name, '.', length) != NULL)
        return make_path(page->arena, name, cut_last(name, length, '.'));
    if (range->class != UL_PLAN_INPUTS && range->readers_count > 0)
        return path_of_node(page->arena, saved->steps[range->readers[0]].node);
    return "";
}

static struct item *list_items(struct ul_page *page)
{
    const struct ul_saved *saved = page->saved;
    struct item *items = UL_NEW_ARRAY(page->arena, struct item, saved->range_count);
    for (uint32_t i = 0; i < saved->range_count; i++) {
        const struct ul_saved_range *range = &saved->ranges[i];
        enum kind kind = range->class == UL_PLAN_WEIGHTS ? WEIGHTS
                         : range->class == UL_PLAN_OPTIMIZER || range->class == UL_PLAN_GRADIENTS
                             ? STATE
                             : ACTIVATIONS;
        items[i].path = path_of_range(page, range);
        items[i].range = i;
        items[i].bytes[kind] = range->size_bytes;
    }
    for (uint32_t i = 0; i < page->alive_count; i++)
        items[page->alive[i]].bytes[PEAK] = saved->ranges[page->alive[i]].size_bytes;
    return items;
}

/* ---- From paths to a tree ---- */

struct tree {
    struct ul_page *page;
    const struct item *items; /* sorted by path */
    bool trains;
    uint32_t rows, max_depth;
};

/* Items of one module: those from `begin` on share the first `length` bytes of their paths. */
struct module {
    uint32_t begin, end;
    uint32_t first;      /* its range in the plan, to keep the model's order */
    size_t length, name; /* length of the path with its own name; where that name begins */
    uint64_t bytes[KIND_COUNT];
};

static int by_path(const void *a, const void *b)
{
    const struct item *first = a, *second = b;
    return strcmp(first->path, second->path);
}

static int by_peak(const void *a, const void *b)
{
    const struct module *first = a, *second = b;
    for (uint32_t k = KIND_COUNT; k-- > 0;)
        if (first->bytes[k] != second->bytes[k])
            return first->bytes[k] < second->bytes[k] ? 1 : -1;
    return first->first < second->first ? -1 : first->first > second->first;
}

static struct module module_at(const struct tree *tree, uint32_t begin, uint32_t end, size_t length)
{
    const char *path = tree->items[begin].path;
    struct module module = {
        .begin = begin, .end = begin, .first = UINT32_MAX, .length = length, .name = length};
    module.length += strcspn(path + length, "\n");
    module.length += path[module.length] == '\n';
    while (module.end < end && strncmp(tree->items[module.end].path, path, module.length) == 0) {
        const struct item *item = &tree->items[module.end++];
        for (uint32_t k = 0; k < KIND_COUNT; k++)
            module.bytes[k] += item->bytes[k];
        module.first = item->range < module.first ? item->range : module.first;
    }
    return module;
}

/* Descends while the module holds just one other module. */
static void join_single(const struct tree *tree, struct module *module)
{
    for (;;) {
        const char *path = tree->items[module->begin].path;
        if (path[module->length] == '\0')
            return;
        struct module inner = module_at(tree, module->begin, module->end, module->length);
        if (inner.end != module->end)
            return;
        module->length = inner.length;
    }
}

/* Lists the modules directly below, the largest at the peak first; the module's own items come
 * before them. */
static uint32_t list_modules(const struct tree *tree, const struct module *of,
                             struct module **modules)
{
    uint32_t count = 0, at = of->begin;
    *modules = UL_NEW_ARRAY(tree->page->arena, struct module, of->end - of->begin);
    while (at < of->end && tree->items[at].path[of->length] == '\0')
        at++;
    while (at < of->end) {
        struct module module = module_at(tree, at, of->end, of->length);
        at = module.end;
        join_single(tree, &module);
        (*modules)[count++] = module;
    }
    if (count > 0)
        qsort(*modules, count, sizeof **modules, by_peak);
    return count;
}

/* ---- The tree as rows ---- */

static void put_cells(struct tree *tree, const struct module *module)
{
    struct ul_page *page = tree->page;
    uint64_t all = page->saved->reserved_bytes;
    double share = all > 0 ? (double)module->bytes[PEAK] / (double)all : 0;
    for (uint32_t k = 0; k < KIND_COUNT; k++)
        if (k != STATE || tree->trains)
            ul_page_printf(page, "<span class=\"r\" title=\"%s bytes\">%.2f</span>",
                           ul_page_digits(page, module->bytes[k]),
                           (double)module->bytes[k] / page->unit.bytes);
    ul_page_printf(page, "<span class=\"r\">%.1f %%</span>", 100 * share);
    if (tree->rows++ >= MAX_BARS)
        return;
    ul_page_put(page, "<svg width=\"90\" height=\"10\" aria-hidden=\"true\"><rect class=\"meter\" "
                      "height=\"10\" width=\"");
    ul_page_coordinate(page, 90 * share);
    ul_page_put(page, "\"/></svg>");
}

static void put_name(struct tree *tree, const struct module *module)
{
    char *name =
        ul_arena_copy_string(tree->page->arena, tree->items[module->begin].path + module->name);
    size_t length = module->length - module->name;
    for (size_t i = 0; i < length; i++)
        if (name[i] == '\n')
            name[i] = '/';
    name[length > 0 ? length - 1 : 0] = '\0';
    ul_page_name(tree->page, name, 40);
}

static uint32_t begin_row(struct tree *tree, const struct module *module, uint32_t depth,
                          struct module **inner)
{
    uint32_t count = list_modules(tree, module, inner);
    const char *tag = count > 0 ? "summary" : "div";
    if (count > 0)
        ul_page_put(tree->page, depth == 0 ? "<details open>" : "<details>");
    ul_page_printf(tree->page, "<%s class=\"row d%" PRIu32 "\">", tag, depth);
    if (depth == 0)
        ul_page_name(tree->page, tree->page->saved->model, 40);
    else
        put_name(tree, module);
    put_cells(tree, module);
    ul_page_printf(tree->page, "</%s>\n", tag);
    return count;
}

/* Walks depth first, without recursion: `open` has the modules on the way down. */
static void put_tree(struct tree *tree, const struct module *root)
{
    struct {
        struct module *modules;
        uint32_t count, next;
    } open[MAX_DEPTH + 2];
    uint32_t depth = 0;
    open[0].count = begin_row(tree, root, 0, &open[0].modules);
    open[0].next = 0;
    if (open[0].count == 0)
        return;
    for (;;) {
        if (open[depth].next == open[depth].count || tree->rows >= MAX_ROWS) {
            if (open[depth].next < open[depth].count)
                ul_page_printf(tree->page, "<div class=\"row\"><i>%" PRIu32 " others</i></div>\n",
                               open[depth].count - open[depth].next);
            ul_page_put(tree->page, "</details>\n");
            if (depth-- == 0)
                return;
            continue;
        }
        const struct module *module = &open[depth].modules[open[depth].next++];
        UL_ASSERT(depth + 1 < sizeof open / sizeof *open);
        open[depth + 1].count = begin_row(tree, module, depth + 1, &open[depth + 1].modules);
        open[depth + 1].next = 0;
        if (open[depth + 1].count > 0)
            depth++;
    }
}

void ul_page_modules(struct ul_page *page)
{
    uint32_t count = page->saved->range_count;
    struct item *items = list_items(page);
    struct tree tree = {.page = page,
                        .items = items,
                        .trains = page->saved->training.parameters > 0 ||
                                  page->saved->rows[UL_PLAN_OPTIMIZER] > 0};
    if (count > 0)
        qsort(items, count, sizeof *items, by_path);
    struct module root = {.end = count};
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t k = 0; k < KIND_COUNT; k++)
            root.bytes[k] += items[i].bytes[k];
    ul_page_begin(page, 8, "By module");
    ul_page_printf(page,
                   "<p class=\"lead\">By the scopes in names, in %s. Weights%s and activations are "
                   "all values of a module, scratch, inputs and outputs included; the share is of "
                   "what is reserved, at the peak.</p>\n<div class=\"tree %s\"><div class=\"row "
                   "head\"><span>module</span><span class=\"r\">weights</span>%s<span "
                   "class=\"r\">activations</span><span class=\"r\">at the peak</span><span "
                   "class=\"r\">share</span><span></span></div>\n",
                   page->unit.name, tree.trains ? ", state, gradients" : "",
                   tree.trains ? "trains" : "runs",
                   tree.trains ? "<span class=\"r\">state</span>" : "");
    if (count > 0)
        put_tree(&tree, &root);
    ul_page_put(page, "</div>\n");
    ul_page_end(page);
}
