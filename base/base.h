/* SPDX-License-Identifier: Apache-2.0 */
/* What every folder stands on: arena allocation, diagnostics, text writing, checked sizes.
 *
 * Invariants: no other file of the compiler calls malloc. An arena's memory lives until the
 * arena is reset or done; nothing in it is freed singly.
 * Ownership: functions named _new take the arena that will own the result; _init/_done work on
 * the caller's storage; _get/_find lend.
 * Units: every size is in bytes, uint64_t, and its name ends in _bytes.
 * Failure: running out of memory ends the process with a message and UL_NO_FIT (third
 * door of the conventions); bad input is an enum ul_status with text in the caller's ul_diag.
 */
#ifndef UL_BASE_H
#define UL_BASE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/limits.h"

#define UL_VERSION "0.1.0"

#if defined(__GNUC__)
#define UL_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define UL_MUST_CHECK __attribute__((warn_unused_result))
#define UL_NORETURN __attribute__((noreturn))
#else
#define UL_PRINTF(fmt, args)
#define UL_MUST_CHECK
#define UL_NORETURN
#endif

/* The exit codes of the program; a status is the code it ends with. */
enum ul_status {
    UL_OK = 0,
    UL_USAGE = 1,
    UL_INVALID = 2,
    UL_UNSUPPORTED = 3,
    UL_NO_FIT = 4,
    UL_IO = 5,
    UL_MISMATCH = 6,
    UL_COMPILER = 7,
    UL_INTERNAL = 70
};

/* assert.c */

/* True in every build: a failed assertion is a defect of ours and aborts with file:line. */
#define UL_ASSERT(cond) ((cond) ? (void)0 : ul_assert_fail(#cond, __FILE__, __LINE__))
UL_NORETURN void ul_assert_fail(const char *condition, const char *file, int line);

/* diag.c */

/* The first error of a command, in the user's words. `file` is prefixed by the caller that knows
 * it. A diag starts zeroed and keeps the first message; later ones are dropped. */
struct ul_diag {
    enum ul_status status;
    char text[UL_LIMIT_DIAG_BYTES];
};

/* Sets the message if none is set yet and returns `status`, so that callers can
 * `return ul_diag_set(...)`. Untrusted text must be passed through ul_text_quote first. */
enum ul_status ul_diag_set(struct ul_diag *diag, enum ul_status status, const char *format, ...)
    UL_PRINTF(3, 4);

/* Puts "prefix: " before the message that is set. */
void ul_diag_prefix(struct ul_diag *diag, const char *prefix);

/* Returns early from a function that returns enum ul_status. */
#define UL_TRY(expr)                                                                               \
    do {                                                                                           \
        enum ul_status try_status_ = (expr);                                                       \
        if (try_status_ != UL_OK)                                                                  \
            return try_status_;                                                                    \
    } while (0)

/* arena.c */

struct ul_arena_block;
struct ul_arena {
    struct ul_arena_block *blocks; /* newest first */
    uint64_t used_bytes;
    uint64_t reserved_bytes;
};

void ul_arena_init(struct ul_arena *arena);
void ul_arena_done(struct ul_arena *arena);
/* Frees everything but one block, for the next pass. */
void ul_arena_reset(struct ul_arena *arena);
/* Zeroed memory aligned for any object; never NULL; size 0 gives a valid pointer. */
void *ul_arena_alloc(struct ul_arena *arena, uint64_t size_bytes);
char *ul_arena_copy_string(struct ul_arena *arena, const char *text);
void *ul_arena_copy(struct ul_arena *arena, const void *data, uint64_t size_bytes);
char *ul_arena_printf(struct ul_arena *arena, const char *format, ...) UL_PRINTF(2, 3);

#define UL_NEW(arena, type) ((type *)ul_arena_alloc((arena), sizeof(type)))
#define UL_NEW_ARRAY(arena, type, count)                                                           \
    ((type *)ul_arena_alloc((arena), ul_size_mul_or_die(sizeof(type), (count))))

/* Grows an array in an arena: makes room for one more element after `count`, doubling. The old
 * elements are copied, and their old place stays with the arena. */
#define UL_GROW(arena, array, count, capacity)                                                     \
    ((count) < (capacity) ? (void)0                                                                \
                          : (void)((array) = ul_arena_grow((arena), (array), sizeof *(array),      \
                                                           (count), &(capacity))))
void *ul_arena_grow(struct ul_arena *arena, const void *old, size_t element_bytes, uint32_t count,
                    uint32_t *capacity);

/* Out of memory: a message with the bytes that were asked for, and UL_NO_FIT. */
UL_NORETURN void ul_memory_fail(uint64_t size_bytes);

/* Test hook: the n-th block request from now on fails (0 switches it off). Process-wide, one of
 * the two global hooks that exist. */
void ul_arena_fail_after(uint64_t block_count);

/* size.c: checked arithmetic; false on overflow. */

bool ul_size_add(uint64_t a, uint64_t b, uint64_t *out) UL_MUST_CHECK;
bool ul_size_mul(uint64_t a, uint64_t b, uint64_t *out) UL_MUST_CHECK;
/* UINT64_MAX on overflow: for costs, which only compare. */
uint64_t ul_size_add_saturating(uint64_t a, uint64_t b);
uint64_t ul_size_mul_saturating(uint64_t a, uint64_t b);
/* For sizes that limits.h already bounds: overflow is a defect. */
uint64_t ul_size_mul_or_die(uint64_t a, uint64_t b);
uint64_t ul_size_add_or_die(uint64_t a, uint64_t b);
uint64_t ul_size_align_or_die(uint64_t size, uint64_t alignment);
/* The greatest common divisor; of the magnitudes, where they are signed. 0 divides nothing. */
uint64_t ul_size_gcd(uint64_t a, uint64_t b);
int64_t ul_gcd(int64_t a, int64_t b);
/* How many times `b` holds `a`, which is not negative; and `a` rounded up to a multiple of `b`. */
static inline uint64_t ul_size_div_up(uint64_t a, uint64_t b)
{
    return a / b + (a % b != 0);
}
static inline int64_t ul_div_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}
static inline int64_t ul_round_up(int64_t a, int64_t b)
{
    return ul_div_up(a, b) * b;
}
static inline uint64_t ul_size_max(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}
static inline int64_t ul_max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}
static inline int64_t ul_magnitude(int64_t a)
{
    return a < 0 ? -a : a;
}
/* Sets of numbers, a bit for each. */
static inline bool ul_bits_have(const uint64_t *bits, uint64_t number)
{
    return (bits[number / 64] >> number % 64 & 1) != 0;
}
static inline void ul_bits_add(uint64_t *bits, uint64_t number)
{
    bits[number / 64] |= UINT64_C(1) << number % 64;
}
static inline void ul_bits_remove(uint64_t *bits, uint64_t number)
{
    bits[number / 64] &= ~(UINT64_C(1) << number % 64);
}
/* "64MiB", "64M" (both binary), "1GB" is refused, "65536". False when it is not a size. */
bool ul_size_parse(const char *text, uint64_t *out) UL_MUST_CHECK;

/* text.c: a growable string in an arena, for IR text, generated code and reports. */

struct ul_text {
    struct ul_arena *arena;
    char *data; /* always terminated */
    size_t length;
    size_t capacity;
};

/* "12.34 MiB" into the arena, and "12.34 MiB = 12939428 bytes" (below 1 KiB "17 bytes"): how texts
 * give every size and every budget. */
const char *ul_size_format(struct ul_arena *arena, uint64_t bytes);
const char *ul_size_exact(struct ul_arena *arena, uint64_t bytes);
/* The ending of a noun after that number: "" or "s". */
const char *ul_plural(uint64_t count);

void ul_text_init(struct ul_text *text, struct ul_arena *arena);
void ul_text_put(struct ul_text *text, const char *string);
void ul_text_put_bytes(struct ul_text *text, const void *bytes, size_t count);
void ul_text_printf(struct ul_text *text, const char *format, ...) UL_PRINTF(2, 3);
void ul_text_vprintf(struct ul_text *text, const char *format, va_list args) UL_PRINTF(2, 0);
/* The fewest digits (from 6) that read back as the same number, of type float where `narrow`;
 * always told apart from an integer. */
void ul_text_put_float(struct ul_text *text, double value, bool narrow);

/* shown.c: text out of files, as each kind of output takes it. */

/* Writes text that comes from a file so that people may read it anywhere. What moves a cursor,
 * turns the direction of text or is not seen (control bytes, Unicode's format characters), and
 * bytes that are not valid UTF-8, become \n, \t and \xHH; all else stays. `keeps_lines`: ends of
 * lines and tabs stay too. */
void ul_text_put_shown(struct ul_text *text, const char *bytes, size_t count, bool keeps_lines);
/* Shows a terminated string on one line; gives the string itself where nothing in it is hidden. */
const char *ul_shown(struct ul_arena *arena, const char *string);
/* How many bytes the first character has (a byte that is not valid UTF-8 counts as one), and how
 * many columns it takes on a screen; and the columns of a whole string. */
size_t ul_text_character(const char *string, size_t *columns);
size_t ul_text_columns(const char *string);
/* The width to give printf, which counts bytes, for a field of so many columns. */
int ul_text_field(const char *string, size_t columns);
/* Writes bytes as a double-quoted string with \" \\ \n \t and \xHH for what is shown so
 * (ul_text_put_shown): the form of names in IR text and in messages. */
void ul_text_quote(struct ul_text *text, const char *bytes, size_t count);
/* The quoted form of a terminated string, for messages; cut in the middle when very long. */
const char *ul_quote(struct ul_arena *arena, const char *string);
/* A name as one would type it after a flag: quoted where anything in it is unusual. */
const char *ul_word_quote(struct ul_arena *arena, const char *string);
/* Writes bytes as a JSON string. Valid UTF-8 passes, but for characters that people would not see,
 * which are escaped by their numbers; bytes that are not valid become U+FFFD. */
void ul_text_put_json(struct ul_text *text, const char *string);
/* Writes a field of CSV for people to read, quoted where RFC 4180 asks for it. What a spreadsheet
 * would take for a formula gets a ' in front, which makes it text there; numbers stay. */
void ul_text_put_csv(struct ul_text *text, const char *string);
/* scan.c: reads such text back, word by word. */

/* Whether a name of a program may have the character; whether it is one of A to Z, a to z. */
bool ul_scan_in_name(char character);
bool ul_scan_is_letter(char character);

/* Where a reader stands in a terminated text; `line` counts from 1. Failures are UL_INVALID with
 * the line and what stands there. Blanks before a token are skipped, and so are blank lines and
 * lines that start with '#'. */
struct ul_scan {
    struct ul_arena *arena; /* of the strings that are read */
    struct ul_diag *diag;
    const char *at;
    uint32_t line;
};

void ul_scan_init(struct ul_scan *scan, struct ul_arena *arena, const char *text,
                  struct ul_diag *diag);
/* The same for bytes as a file has them, which are copied; a byte of 0 is UL_INVALID. */
enum ul_status ul_scan_open(struct ul_scan *scan, struct ul_arena *arena, const char *bytes,
                            uint64_t size_bytes, struct ul_diag *diag) UL_MUST_CHECK;
enum ul_status ul_scan_fail(struct ul_scan *scan, const char *wanted);
void ul_scan_skip_blanks(struct ul_scan *scan);
/* Whether the token stands next; `accept` also passes it. A word must not go on after its end. */
bool ul_scan_sees(struct ul_scan *scan, const char *token);
bool ul_scan_sees_number(struct ul_scan *scan);
bool ul_scan_accept(struct ul_scan *scan, const char *token);
bool ul_scan_accept_word(struct ul_scan *scan, const char *word);
enum ul_status ul_scan_expect(struct ul_scan *scan, const char *token) UL_MUST_CHECK;
/* Digits without a sign; in 32 bits, less than `limit`. */
enum ul_status ul_scan_u64(struct ul_scan *scan, uint64_t *out) UL_MUST_CHECK;
enum ul_status ul_scan_u32(struct ul_scan *scan, uint64_t limit, uint32_t *out) UL_MUST_CHECK;
/* Digits of 64 bits after an optional sign; wraps. */
enum ul_status ul_scan_int(struct ul_scan *scan, int64_t *out) UL_MUST_CHECK;
enum ul_status ul_scan_float(struct ul_scan *scan, double *out) UL_MUST_CHECK;
/* Blanks from here on. */
uint32_t ul_scan_indent(const struct ul_scan *scan);
/* The reverse of ul_text_quote. */
enum ul_status ul_scan_string(struct ul_scan *scan, const char **out) UL_MUST_CHECK;
/* Two hex digits, right here. */
bool ul_scan_accept_hex_byte(struct ul_scan *scan, unsigned char *out);
/* Goes on to the next line that says something. */
enum ul_status ul_scan_end_line(struct ul_scan *scan) UL_MUST_CHECK;

/* file.c */

/* A file in memory, read-only: mapped when it can be, read when it is a pipe. */
struct ul_file {
    const unsigned char *data;
    uint64_t size_bytes;
    bool mapped;
};
/* "-" reads standard input. UL_IO with the reason when it cannot be read. */
enum ul_status ul_file_map(struct ul_file *file, struct ul_arena *arena, const char *path,
                           struct ul_diag *diag) UL_MUST_CHECK;
void ul_file_unmap(struct ul_file *file);
/* Unmaps what was read with that status, and gives it; a failure's text begins with the path. */
enum ul_status ul_file_close(struct ul_file *file, const char *path, enum ul_status status,
                             struct ul_diag *diag) UL_MUST_CHECK;
/* Whether the path names something other than a folder. */
bool ul_file_exists(const char *path);
bool ul_file_is_link(const char *path);
/* The path without its folders: the end of it. */
const char *ul_file_name(const char *path);
/* Says that bytes are not read again for a while: the pages of a mapped file leave memory, so that
 * going through a large file once does not hold all of it. The contents are kept. */
void ul_file_release(const void *data, uint64_t size_bytes);
/* The size of the pieces in which to go through what may be a large file. */
#define UL_FILE_CHUNK_BYTES ((uint64_t)4 << 20)
/* Writes a file beside the target, then renames it, so that nothing half-written is left. A target
 * that is not a regular file is written in place; a link stays, and leads to the new file; "-", or
 * a link to it, is standard output. */
enum ul_status ul_file_write(const char *path, const void *data, uint64_t size_bytes,
                             struct ul_diag *diag) UL_MUST_CHECK;
/* For files too big to hold: begin opens a stream to a file beside the target, commit renames it,
 * or removes it where writing failed. */
struct ul_file_writer {
    FILE *stream;
    char temporary[UL_LIMIT_PATH_BYTES];
    char path[UL_LIMIT_PATH_BYTES];
    bool in_place;
};
enum ul_status ul_file_begin(struct ul_file_writer *writer, const char *path,
                             struct ul_diag *diag) UL_MUST_CHECK;
enum ul_status ul_file_commit(struct ul_file_writer *writer, struct ul_diag *diag) UL_MUST_CHECK;
/* Instead of commit: leaves what is at the path as it was. */
void ul_file_abandon(struct ul_file_writer *writer);

/* nearest.c: the word that was meant, for "did you mean". */

struct ul_nearest {
    const char *word;    /* what was said */
    const char *nearest; /* the first of the nearest among the words offered so far; NULL: none
                            is near */
    uint32_t distance;
};
void ul_nearest_offer(struct ul_nearest *nearest, const char *word);
/* " (did you mean WORD?)" with `before` before the word, or "". */
const char *ul_nearest_text(struct ul_arena *arena, const struct ul_nearest *nearest,
                            const char *before);

/* sort.c */

/* What is sorted by a number; of equal numbers, by its index. */
struct ul_ranked {
    uint64_t rank;
    uint32_t index;
};
/* Smallest rank first. Indexes that differ make the order the same everywhere. */
void ul_ranked_sort(struct ul_ranked *items, uint64_t count);
/* A heap of them, which begins zeroed; the first in that order is taken out, of at least one. */
struct ul_heap {
    struct ul_ranked *items;
    uint32_t count, capacity;
};
void ul_heap_push(struct ul_arena *arena, struct ul_heap *heap, uint64_t rank, uint32_t index);
struct ul_ranked ul_heap_pop(struct ul_heap *heap);

/* hash.c */

/* SHA-256 of bytes, as 64 lower-case hex digits. */
void ul_hash_hex(const void *data, uint64_t size_bytes, char hex[65]);
/* FNV-1a, for tables; a hash begins with UL_HASH_BEGIN, and goes on with more bytes. */
#define UL_HASH_BEGIN 2166136261u
uint32_t ul_hash_more(uint32_t hash, const void *bytes, uint64_t count);

#endif
