/* SPDX-License-Identifier: Apache-2.0 */
/* --space: reads the memories that a program's buffer consists of. Their names become parts
 * of parameters and macros of C. */
#include "compile/compile_internal.h"

#include <ctype.h>
#include <string.h>

/* Their macros, <PREFIX>_<NAME>_BYTES, have other meanings. */
static const char *const taken_names[] = {"arena", "stack"};

enum { MAX_NAME = 32 };

static enum ul_status refuse(struct ul_compile *compile, const char *said, const char *why)
{
    return ul_diag_set(&compile->diag, UL_USAGE, "--space %s: %s",
                       ul_option_shown(&compile->keep, said), why);
}

static bool same_but_case(const char *a, const char *b)
{
    for (; *a != '\0' && tolower((unsigned char)*a) == tolower((unsigned char)*b); a++)
        b++;
    return *a == *b;
}

/* Checks that a name can be part of names of C and is unused; names that differ only in case would
 * give the same macro. */
static enum ul_status check_name(struct ul_compile *compile, const char *said, const char *name,
                                 const struct ul_plan_bank *banks, uint32_t bank_count)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    size_t length = strlen(name);
    if (length == 0 || length > MAX_NAME || strspn(name, letters) != length ||
        !isalpha((unsigned char)*name))
        return refuse(compile, said,
                      "expected NAME=SIZE; the name is one of C: letters, digits and _, a letter "
                      "first, at most 32 of them");
    for (size_t i = 0; i < sizeof taken_names / sizeof *taken_names; i++)
        if (same_but_case(name, taken_names[i]))
            return refuse(compile, said,
                          "the name is taken: the library's header has a macro of it");
    for (uint32_t i = 0; i < bank_count; i++)
        if (same_but_case(name, banks[i].name))
            return refuse(compile, said, "there is a space of that name already");
    return UL_OK;
}

/* Reads "8GB/s" in units of 10^6 bytes a second. */
static bool parse_rate(const char *text, uint64_t *rate_mb)
{
    static const struct {
        const char *unit;
        double mb;
    } units[] = {{"kB/s", 1e-3}, {"KB/s", 1e-3}, {"MB/s", 1}, {"GB/s", 1e3}};
    const double max = 1e9;
    double number = 0, scale = 1;
    const char *at = text;
    for (; isdigit((unsigned char)*at); at++)
        number = number * 10 + (*at - '0');
    if (at == text)
        return false;
    for (at += *at == '.'; isdigit((unsigned char)*at); at++) {
        scale /= 10;
        number += scale * (*at - '0');
    }
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        double mb = number * units[i].mb;
        if (strcmp(at, units[i].unit) != 0)
            continue;
        *rate_mb = mb >= 1 && mb <= max ? (uint64_t)(mb + 0.5) : 0;
        return *rate_mb > 0;
    }
    return false;
}

static enum ul_status read_word(struct ul_compile *compile, const char *said, const char *word,
                                struct ul_plan_bank *bank)
{
    static const char bandwidth[] = "bandwidth=";
    const size_t length = sizeof bandwidth - 1;
    if (strcmp(word, "weights") == 0 && !bank->weights) {
        bank->weights = true;
        return UL_OK;
    }
    if (strncmp(word, bandwidth, length) != 0 || bank->bandwidth_mb != 0)
        return refuse(compile, said,
                      "behind the size expected bandwidth=RATE or weights, each once: "
                      "NAME=SIZE,bandwidth=8GB/s,weights");
    if (!parse_rate(word + length, &bank->bandwidth_mb))
        return refuse(compile, said,
                      "expected a rate from 1MB/s to 10^15 bytes a second: 8GB/s, 100MB/s");
    return UL_OK;
}

static enum ul_status read_size(struct ul_compile *compile, const char *said, const char *text,
                                uint64_t *bytes)
{
    size_t digits = strspn(text, "0123456789.");
    bool is_decimal = digits > 0 && strlen(text + digits) == 2 && text[digits + 1] == 'B' &&
                      strchr("kKMGT", text[digits]) != NULL;
    if (is_decimal)
        return ul_diag_set(&compile->diag, UL_USAGE,
                           "--space %s: sizes are in multiples of 1024: %.*s%ciB, or a number of "
                           "bytes",
                           ul_option_shown(&compile->keep, said), (int)digits, text,
                           toupper((unsigned char)text[digits]));
    if (!ul_size_parse(text, bytes) || *bytes == 0 || *bytes > UL_SPACE_MAX_BYTES)
        return refuse(compile, said, "expected a size above 0, at most 256TiB: 128KiB, 2M, 65536");
    return UL_OK;
}

static enum ul_status read_space(struct ul_compile *compile, const char *said,
                                 struct ul_plan_bank *banks, uint32_t bank_count)
{
    struct ul_plan_bank *bank = &banks[bank_count];
    char *copy = ul_arena_copy_string(&compile->keep, said);
    char *equals = strchr(copy, '=');
    *bank = (struct ul_plan_bank){.name = copy};
    if (equals != NULL)
        *equals = '\0';
    UL_TRY(check_name(compile, said, equals != NULL ? copy : "", banks, bank_count));
    char *word = strchr(equals + 1, ',');
    if (word != NULL)
        *word++ = '\0';
    UL_TRY(read_size(compile, said, equals + 1, &bank->capacity_bytes));
    while (word != NULL) {
        char *next = strchr(word, ',');
        if (next != NULL)
            *next++ = '\0';
        UL_TRY(read_word(compile, said, word, bank));
        word = next;
    }
    if (bank->weights && bank_count == 0)
        return refuse(compile, said,
                      "the first space is where a program finds the others: put one first that "
                      "takes anything");
    return UL_OK;
}

/* Without a rate, all spaces are as fast as the memory of the profile. Beside others that have one
 * this would say nothing of the device: a fast memory might stay empty. */
static enum ul_status complete_rates(struct ul_compile *compile, struct ul_plan_bank *banks,
                                     uint32_t bank_count)
{
    const struct ul_profile *profile = &compile->profile;
    const struct ul_plan_bank *with = NULL, *without = NULL;
    for (uint32_t i = 0; i < bank_count; i++)
        *(banks[i].bandwidth_mb > 0 ? &with : &without) = &banks[i];
    if (with != NULL && without != NULL)
        return ul_diag_set(&compile->diag, UL_USAGE,
                           "--space %s has no bandwidth, and %s has one: give each space one, as "
                           "in %s=SIZE,bandwidth=2GB/s, or none of them",
                           without->name, with->name, without->name);
    for (uint32_t i = 0; without != NULL && i < bank_count; i++)
        banks[i].bandwidth_mb = (uint64_t)(profile->levels[profile->level_count - 1].rate * 1e3);
    return UL_OK;
}

/* Refuses options that cannot be combined with several memories, with a remedy. */
static enum ul_status check_beside(struct ul_compile *compile)
{
    const struct ul_compile_options *options = &compile->options;
    const char *why = NULL;
    if (options->budget_bytes != 0)
        why = "--budget: the capacities of spaces are the budget; leave --budget out, or give "
              "smaller spaces";
    else if (options->device != NULL)
        why = "--device: the capacities of spaces are the budget; name the device by --profile";
    else if (ul_compile_offloads(options))
        why = "--offload: nothing leaves what is made of spaces; give the memory that is outside "
              "as a space of its own";
    else if (ul_compile_is_shared(compile))
        why = "--shared: the models of one arena are not laid out in spaces; compile each alone";
    else if (options->train)
        why = "--train: programs that train have one buffer; leave --space out";
    return why == NULL ? UL_OK : ul_diag_set(&compile->diag, UL_USAGE, "--space beside %s", why);
}

static const char *weights_space(const struct ul_plan_bank *banks, uint32_t bank_count)
{
    for (uint32_t i = 0; i < bank_count; i++)
        if (banks[i].weights)
            return banks[i].name;
    return NULL;
}

enum ul_status ul_compile_read_spaces(struct ul_compile *compile,
                                      struct ul_program_options *program)
{
    const struct ul_texts *said = &compile->options.spaces;
    compile->banks_bytes = 0;
    if (said->count == 0)
        return UL_OK;
    if (said->count > UL_LIMIT_BANKS)
        return ul_diag_set(&compile->diag, UL_USAGE, "--space: %u of them; at most %d", said->count,
                           UL_LIMIT_BANKS);
    struct ul_plan_bank *banks = UL_NEW_ARRAY(&compile->keep, struct ul_plan_bank, said->count);
    for (uint32_t i = 0; i < said->count; i++)
        UL_TRY(read_space(compile, said->items[i], banks, i));
    UL_TRY(complete_rates(compile, banks, said->count));
    UL_TRY(check_beside(compile));
    const char *for_weights = weights_space(banks, said->count);
    if (for_weights != NULL && program->weights_rom)
        return ul_diag_set(&compile->diag, UL_USAGE,
                           "--space %s is for weights, and with --weights rom these are read-only "
                           "data, which the linker puts anywhere: leave one of them out",
                           for_weights);
    program->banks = banks;
    program->bank_count = said->count;
    for (uint32_t i = 0; i < said->count; i++)
        compile->banks_bytes += banks[i].capacity_bytes;
    return UL_OK;
}
