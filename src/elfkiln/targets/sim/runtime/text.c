/* One line of text for the caller, made without a C library. */

enum { TEXT_BYTES = 2048 };

static struct {
    char line[TEXT_BYTES];
    uint32_t used;
} text;

static void text_char(char c) {
    if (text.used + 1 < TEXT_BYTES)
        text.line[text.used++] = c;
}

static void text_string(const char *s) {
    while (*s)
        text_char(*s++);
}

static void text_number(int64_t value) {
    char digits[20];
    uint32_t count = 0;
    uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    do {
        digits[count++] = (char)('0' + rest % 10);
        rest /= 10;
    } while (rest);
    if (value < 0)
        text_char('-');
    while (count)
        text_char(digits[--count]);
}

/* Appends `format`, where %s is a string and %d an int64_t. */
static void text_list(const char *format, __builtin_va_list values) {
    for (; *format; ++format) {
        if (format[0] == '%' && format[1] == 's') {
            text_string(__builtin_va_arg(values, const char *));
            ++format;
        } else if (format[0] == '%' && format[1] == 'd') {
            text_number(__builtin_va_arg(values, int64_t));
            ++format;
        } else {
            text_char(*format);
        }
    }
}

static void text_add(const char *format, ...) {
    __builtin_va_list values;
    __builtin_va_start(values, format);
    text_list(format, values);
    __builtin_va_end(values);
}

/* Appends e.g. `1 object` or `2 objects`. */
static void text_objects(uint64_t count) {
    text_add(count == 1 ? "%d object" : "%d objects", (int64_t)count);
}

/* Copies the line to the caller, cut to its capacity and always ended. */
static void text_give(char *message, size_t capacity) {
    if (!message || !capacity)
        return;
    size_t count = text.used < capacity - 1 ? text.used : capacity - 1;
    for (size_t i = 0; i < count; ++i)
        message[i] = text.line[i];
    message[count] = 0;
}
