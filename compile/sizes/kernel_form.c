/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels as forms and numbers, and back to text with formulas. */
#include "compile/sizes/kernel_form.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

void ul_kernel_forms_init(struct ul_kernel_forms *forms, struct ul_arena *arena)
{
    *forms = (struct ul_kernel_forms){.arena = arena};
}

/* ---- from text ---- */

/* The end of the number or name that begins here. */
static const char *word_end(const char *at)
{
    bool is_number = isdigit((unsigned char)*at) != 0;
    bool is_hex = at[0] == '0' && (at[1] == 'x' || at[1] == 'X');
    while (ul_scan_in_name(*at) || (is_number && *at == '.') ||
           (is_number && !is_hex && (*at == '+' || *at == '-') && (at[-1] == 'e' || at[-1] == 'E')))
        at++;
    return at;
}

/* Reads a whole number, or a float that is one; false: it is none of these, or has other digits
 * than a number would be printed with. *rest: what follows the digits, "" or ".0f". */
static bool read_number(const char *begin, const char *end, int64_t *number, const char **rest)
{
    char *digits_end;
    errno = 0;
    long long value = strtoll(begin, &digits_end, 10);
    *rest = digits_end;
    *number = value;
    if (errno != 0 || !isdigit((unsigned char)*begin) || (*begin == '0' && digits_end > begin + 1))
        return false;
    return digits_end == end || (end - digits_end == 3 && strncmp(digits_end, ".0f", 3) == 0);
}

/* Whether the first word of a line is this one. */
static bool begins_with(const char *line, const char *word)
{
    while (*line == ' ')
        line++;
    return strncmp(line, word, strlen(word)) == 0;
}

static uint32_t hash_of(const char *text, size_t length)
{
    uint64_t hash = length;
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)text[i]) * UINT64_C(0x100000001B3);
    return (uint32_t)(hash ^ (hash >> 32));
}

static void grow_table(struct ul_kernel_forms *forms)
{
    enum { FIRST = 64 };
    forms->table_size = forms->table_size == 0 ? FIRST : 2 * forms->table_size;
    forms->table = UL_NEW_ARRAY(forms->arena, uint32_t, forms->table_size);
    for (uint32_t i = 0; i < forms->count; i++) {
        uint32_t slot = hash_of(forms->items[i].text, forms->items[i].length);
        while (forms->table[slot & (forms->table_size - 1)] != 0)
            slot++;
        forms->table[slot & (forms->table_size - 1)] = i + 1;
    }
}

static uint32_t intern(struct ul_kernel_forms *forms, const struct ul_text *text,
                       uint32_t number_count)
{
    if (2 * (forms->count + 1) > forms->table_size)
        grow_table(forms);
    uint32_t slot = hash_of(text->data, text->length);
    for (; forms->table[slot & (forms->table_size - 1)] != 0; slot++) {
        uint32_t form = forms->table[slot & (forms->table_size - 1)] - 1;
        if (forms->items[form].length == text->length &&
            memcmp(forms->items[form].text, text->data, text->length) == 0)
            return form;
    }
    UL_GROW(forms->arena, forms->items, forms->count, forms->capacity);
    forms->items[forms->count] = (struct ul_kernel_form){
        .text = ul_arena_copy(forms->arena, text->data, (uint64_t)text->length + 1),
        .length = text->length,
        .number_count = number_count};
    forms->table[slot & (forms->table_size - 1)] = ++forms->count;
    return forms->count - 1;
}

struct ul_kernel_numbers ul_kernel_form_of(struct ul_kernel_forms *forms, const char *text)
{
    struct ul_arena scratch;
    struct ul_text form;
    int64_t *numbers = NULL;
    uint32_t count = 0, capacity = 0;
    ul_arena_init(&scratch);
    ul_text_init(&form, &scratch);
    bool is_static = false;
    for (const char *at = text; *at != '\0';) {
        const char *end = ul_scan_in_name(*at) ? word_end(at) : at + 1, *rest;
        int64_t number;
        UL_ASSERT(*at != UL_FORM_NUMBER && *at != UL_FORM_FLOAT);
        if (at == text || at[-1] == '\n')
            is_static = begins_with(at, "static ");
        if (!is_static && ul_scan_in_name(*at) && read_number(at, end, &number, &rest)) {
            const char mark[] = {rest == end ? UL_FORM_NUMBER : UL_FORM_FLOAT};
            UL_GROW(&scratch, numbers, count, capacity);
            numbers[count++] = number;
            ul_text_put_bytes(&form, mark, sizeof mark);
        } else {
            ul_text_put_bytes(&form, at, (size_t)(end - at));
        }
        at = end;
    }
    const struct ul_kernel_numbers result = {
        .form = intern(forms, &form, count),
        .numbers = ul_arena_copy(forms->arena, numbers, count * sizeof *numbers)};
    ul_arena_done(&scratch);
    return result;
}

/* ---- to text ---- */

static const char *body_of(const struct ul_kernel_form *form)
{
    const char *body = strstr(form->text, "\n{\n");
    UL_ASSERT(body != NULL);
    return body + 1;
}

/* The parameter that begins here: its type, and its name, the last word before the comma or
 * parenthesis at *end. */
static void read_parameter(struct ul_arena *arena, const char *at, const char **type,
                           const char **name, const char **end)
{
    *end = at + strcspn(at, ",)");
    const char *word = *end;
    while (word > at && ul_scan_in_name(word[-1]))
        word--;
    *type = ul_arena_printf(arena, "%.*s", (int)(word - at), at);
    *name = ul_arena_printf(arena, "%.*s", (int)(*end - word), word);
}

struct ul_kernel_parameters ul_kernel_form_parameters(struct ul_arena *arena,
                                                      const struct ul_kernel_form *form)
{
    struct ul_kernel_parameters parameters = {.count = 0};
    uint32_t type_capacity = 0, name_capacity = 0;
    const char *end;
    for (const char *at = form->text; *at != ')' && *at != '\n'; at = end + strspn(end, ", ")) {
        const char *type, *name;
        read_parameter(arena, at, &type, &name, &end);
        bool is_buffer = name[0] == 'b' && isdigit((unsigned char)name[1]);
        parameters.has_scratch = parameters.has_scratch || strcmp(name, "scratch") == 0;
        if (!is_buffer)
            continue;
        UL_GROW(arena, parameters.types, parameters.count, type_capacity);
        UL_GROW(arena, parameters.names, parameters.count, name_capacity);
        parameters.types[parameters.count] = type;
        parameters.names[parameters.count++] = name;
    }
    return parameters;
}

void ul_kernel_form_put_parameters(struct ul_text *text,
                                   const struct ul_kernel_parameters *parameters)
{
    for (uint32_t i = 0; i < parameters->count; i++)
        ul_text_printf(text, "%sp%u, ", parameters->types[i], i);
    ul_text_printf(text, "%sstruct ul_run *run)\n",
                   parameters->has_scratch ? "unsigned char *scratch, " : "");
}

/* How many numbers there are before the body: types may have some. */
static uint32_t parameter_numbers(const struct ul_kernel_form *form)
{
    uint32_t count = 0;
    for (const char *at = form->text; at < body_of(form); at++)
        count += *at == UL_FORM_NUMBER || *at == UL_FORM_FLOAT;
    return count;
}

/* The first number with the same formula. */
static uint32_t first_like(const struct ul_filled_form *filled, uint32_t number)
{
    uint32_t first = 0;
    while (filled->formulas[first] != filled->formulas[number] ||
           filled->tables[first] != filled->tables[number])
        first++;
    return first;
}

static bool is_fixed(const struct ul_filled_form *filled, uint32_t number)
{
    return filled->formulas[number] != NULL && ul_formula_is_fixed(filled->formulas[number]);
}

/* Puts the constant that a number is called by: its formula, or what a table has for the run. */
static void put_constant(struct ul_text *text, const struct ul_filled_form *filled, uint32_t number,
                         uint32_t indent)
{
    const struct ul_formula *formula = filled->formulas[number];
    const int64_t *table = filled->tables[number];
    int spaces = (int)(4 * indent + 4);
    if (formula == NULL) {
        ul_text_printf(text, "%*sstatic const int64_t t%u[] = {", spaces, "", number);
        for (uint32_t i = 0; i < filled->point_count; i++)
            ul_text_printf(text, "%s%" PRId64 ",", i % 12 == 0 ? "\n        " : " ", table[i]);
        ul_text_put(text, "};\n");
    }
    ul_text_printf(text, "%*sconst int64_t h%u = ", spaces, "", number);
    if (formula == NULL)
        ul_text_printf(text, "t%u[run->size_point]", number);
    else
        ul_formula_print(text, formula, NULL);
    ul_text_printf(text, ";\n%*s(void)h%u;\n", spaces, "", number);
}

/* A macro for constants does not take names. */
static void drop_macro(struct ul_text *text)
{
    static const char *const macros[] = {"UINT64_C(", "INT64_C("};
    for (uint32_t i = 0; i < sizeof macros / sizeof *macros; i++) {
        size_t length = strlen(macros[i]);
        if (text->length >= length && strcmp(text->data + text->length - length, macros[i]) == 0) {
            text->length -= length;
            text->data[text->length] = '\0';
            ul_text_put(text, "(");
            return;
        }
    }
}

static void put_number(struct ul_text *text, const struct ul_filled_form *filled, uint32_t number,
                       bool is_float, bool local)
{
    if (is_fixed(filled, number) || local)
        ul_text_printf(text, "%" PRId64 "%s", filled->largest[number], is_float ? ".0f" : "");
    else {
        drop_macro(text);
        ul_text_printf(text, "%sh%u", is_float ? "(float)" : "", first_like(filled, number));
    }
}

void ul_kernel_form_put_body(struct ul_text *text, const struct ul_filled_form *filled,
                             uint32_t indent)
{
    const char *at = body_of(filled->form);
    bool begins = true, local = false;
    uint32_t number = parameter_numbers(filled->form), first = number;
    const struct ul_kernel_parameters parameters =
        ul_kernel_form_parameters(text->arena, filled->form);
    ul_text_printf(text, "%*s{\n", (int)(4 * indent), "");
    for (uint32_t i = 0; i < parameters.count; i++)
        ul_text_printf(text, "%*s%sconst %s = p%u;\n", (int)(4 * indent + 4), "",
                       parameters.types[i], parameters.names[i], i);
    for (uint32_t i = first; i < filled->form->number_count; i++) {
        if (!is_fixed(filled, i) && first_like(filled, i) == i)
            put_constant(text, filled, i, indent);
    }
    for (at += strlen("{\n"); *at != '\0'; at++) {
        if (begins) {
            local = begins_with(at, "UL_LOCAL");
            ul_text_printf(text, "%*s", (int)(*at == '\n' ? 0 : 4 * indent), "");
        }
        begins = *at == '\n';
        if (*at == UL_FORM_NUMBER || *at == UL_FORM_FLOAT)
            put_number(text, filled, number++, *at == UL_FORM_FLOAT, local);
        else
            ul_text_put_bytes(text, at, 1);
    }
}
