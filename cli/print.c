/* SPDX-License-Identifier: Apache-2.0 */
/* Standard output, and the line of progress. */
#define _DEFAULT_SOURCE /* TIOCGWINSZ */
#include "cli/cli.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { MIN_COLUMNS = 80, PAGE_COLUMNS = 100, MAX_COLUMNS = 1000 };

/* COLUMNS, else the terminal's width; for files and pipes `otherwise`. */
static uint32_t find_columns(uint32_t otherwise)
{
    struct winsize size = {.ws_col = 0};
    const char *said = getenv("COLUMNS");
    long columns = said != NULL ? strtol(said, NULL, 10) : 0;
    if (columns <= 0 && isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0)
        columns = size.ws_col;
    if (columns <= 0)
        return otherwise;
    return columns < MIN_COLUMNS   ? MIN_COLUMNS
           : columns > MAX_COLUMNS ? MAX_COLUMNS
                                   : (uint32_t)columns;
}

uint32_t ul_cli_line_columns(void)
{
    return find_columns(MAX_COLUMNS);
}

/* By the first of these variables that is set, as in the C library. */
static bool says_utf8(void)
{
    const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = getenv(names[i]);
        if (value != NULL && *value != '\0')
            return strstr(value, "UTF-8") != NULL || strstr(value, "utf8") != NULL;
    }
    return false;
}

struct ul_summary_style ul_cli_style(void)
{
    const char *plain = getenv("NO_COLOR"), *kind = getenv("TERM");
    bool is_terminal = isatty(STDOUT_FILENO) && kind != NULL && strcmp(kind, "dumb") != 0;
    return (struct ul_summary_style){.columns = find_columns(PAGE_COLUMNS),
                                     .line_columns = ul_cli_line_columns(),
                                     .is_utf8 = is_terminal && says_utf8(),
                                     .has_colors =
                                         is_terminal && (plain == NULL || *plain == '\0')};
}

static void print_shown(FILE *stream, const char *bytes, size_t count)
{
    struct ul_arena arena;
    struct ul_text shown;
    ul_arena_init(&arena);
    ul_text_init(&shown, &arena);
    ul_text_put_shown(&shown, bytes, count, true);
    fwrite(shown.data, 1, shown.length, stream);
    ul_arena_done(&arena);
}

void ul_cli_print(const struct ul_text *text)
{
    print_shown(stdout, text->data, text->length);
    fflush(stdout);
}

void ul_cli_say(FILE *stream, const char *format, ...)
{
    va_list args;
    struct ul_arena arena;
    struct ul_text words;
    ul_arena_init(&arena);
    ul_text_init(&words, &arena);
    va_start(args, format);
    ul_text_vprintf(&words, format, args);
    va_end(args);
    print_shown(stream, words.data, words.length);
    ul_arena_done(&arena);
}

void ul_cli_put_notice(const struct ul_cli_job *job)
{
    if (job->compile.notice != NULL)
        ul_cli_say(stderr, "ullage: note: %s\n", job->compile.notice);
}

void ul_cli_progress(void *context, const char *what)
{
    (void)context;
    const char *kind = getenv("TERM");
    if (isatty(STDERR_FILENO) && (kind == NULL || strcmp(kind, "dumb") != 0)) {
        fputs("\r\033[K", stderr);
        if (what != NULL)
            ul_cli_say(stderr, "%s ...", what);
        fflush(stderr);
    }
}
